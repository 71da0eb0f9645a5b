package schedule

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/job"
)

const lastsAfter = 3 * time.Second

func quarantinedOf(id job.ID, turn int32, removals int64) Quarantined {
	s := Quarantined{Removals: removals}
	s.Record.ID, s.Record.Turn = id, turn
	return s
}

// A job that was in quarantine and has left it may come again: its claim failed,
// or its node was lost once more.
func TestQuarantinedJobsComeAgain(t *testing.T) {
	t.Parallel()
	q := NewQuarantine(&QuarantineLimit{}, lastsAfter)
	q.Add(quarantinedOf(1, 0, 10))
	q.Add(quarantinedOf(2, 0, 10))
	require.EqualValues(t, 1, q.TakeFirst().Record.ID)
	q.Add(quarantinedOf(1, 0, 11))
	q.Add(quarantinedOf(2, 0, 12))
	q.Add(quarantinedOf(2, 1, 12))
	for _, want := range []Quarantined{quarantinedOf(2, 0, 12), quarantinedOf(1, 0, 11), quarantinedOf(2, 1, 12)} {
		require.Equal(t, want, q.TakeFirst())
	}
	require.True(t, q.Empty())
}

// Jobs wait in quarantine once, those of a tenant in the order they were first read, as they were
// last read; and tenants take turns.
func TestQuarantineModel(t *testing.T) {
	t.Parallel()
	taken := 0 // in all tries: it must not have been empty each time
	defer func() { require.NotZero(t, taken) }()
	rapid.Check(t, func(t *rapid.T) {
		q := NewQuarantine(&QuarantineLimit{}, lastsAfter)
		model, order := map[string][]Quarantined{}, []string(nil)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				s := quarantinedOf(job.ID(rapid.IntRange(1, 4).Draw(t, "id")), int32(rapid.IntRange(0, 1).Draw(t, "turn")), rapid.Int64().Draw(t, "removals"))
				s.Record.Tenant = string('a' + rune(s.Record.ID)%2)
				q.Add(s)
				one := model[s.Record.Tenant]
				for i := range one {
					if one[i].Record.ID == s.Record.ID && one[i].Record.Turn == s.Record.Turn {
						one[i] = s
						return
					}
				}
				if len(one) == 0 {
					order = append(order, s.Record.Tenant)
				}
				model[s.Record.Tenant] = append(one, s)
			},
			"next": func(t *rapid.T) {
				if q.Empty() {
					return
				}
				taken++
				tenant := order[0]
				require.Equal(t, model[tenant][0], q.TakeFirst())
				order, model[tenant] = order[1:], model[tenant][1:]
				if len(model[tenant]) > 0 {
					order = append(order, tenant)
				}
			},
			"clear": func(*rapid.T) {
				q.Clear()
				order, model = nil, map[string][]Quarantined{}
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(order) == 0, q.Empty())
				require.Len(t, q.known, len(model["a"])+len(model["b"]))
				require.Len(t, q.queues, len(q.order))
			},
		})
	})
}

// Jobs run in quarantine several at a time after their first loss, and alone after it, over
// all pools of a node.
func TestQuarantineLimit(t *testing.T) {
	t.Parallel()
	var node QuarantineLimit
	type one struct {
		*Quarantine
		*InFlight
	}
	a, b := one{NewQuarantine(&node, lastsAfter), NewInFlight()}, one{NewQuarantine(&node, lastsAfter), NewInFlight()}
	var now time.Time
	forget := func(p one) { p.Review(func(e Run) bool { return p.Has(e.ID, e.Turn) }, now) }
	try := func(p one, id job.ID, losses int) bool {
		forget(p)
		q := quarantinedOf(id, 0, 0)
		q.Record.Losses = losses
		if !p.Start(q, now) {
			return false
		}
		p.InFlight.Add(id, 0)
		return true
	}
	for id := range job.ID(maxTogether) {
		require.True(t, try([]one{a, b}[id%2], id, 1))
	}
	require.False(t, try(a, 99, 1), "enough of them")
	a.InFlight.End(0, 0)
	require.True(t, try(a, 99, 1))
	require.False(t, try(a, 100, 2), "not beside others")
	for id := range job.ID(maxTogether) {
		a.InFlight.End(id, 0)
		b.InFlight.End(id, 0)
	}
	require.False(t, try(b, 100, 2))
	a.InFlight.End(99, 0)
	forget(a)
	require.True(t, try(b, 100, 2))
	require.False(t, try(a, 101, 1), "not beside one of another pool that must be alone")
	require.False(t, try(a, 102, 2))
	b.Close()
	require.True(t, try(a, 101, 1), "a term that is over leaves the limit to others")
}

// What has lasted makes room: for sixteen more after a first loss, and once its last loss is taken back
// after a second one; that is asked for only if somebody waits, of whatever pool.
func TestWhatLastsMakesRoom(t *testing.T) {
	t.Parallel()
	var node QuarantineLimit
	q, other := NewQuarantine(&node, lastsAfter), NewQuarantine(&node, lastsAfter)
	suspect, lost := quarantinedOf(1, 0, 0), quarantinedOf(2, 0, 0)
	suspect.Record.Losses, lost.Record.Losses = 2, 1
	began := time.Now()
	at := func(d time.Duration) time.Time {
		q.Review(func(Run) bool { return true }, began.Add(d))
		return began.Add(d)
	}
	toSpare := func(d time.Duration) bool { _, ok := q.ToSpare(Quarantined{}, at(d)); return ok }

	require.True(t, q.Start(suspect, at(0)))
	require.False(t, toSpare(time.Hour), "nobody waits")
	require.False(t, other.Start(lost, at(time.Hour)))
	require.False(t, toSpare(lastsAfter-1))
	require.True(t, toSpare(lastsAfter))
	require.False(t, other.Start(lost, at(lastsAfter)), "its loss was not taken back yet")
	q.Spare(suspect.Run())
	require.True(t, other.Start(lost, at(lastsAfter)))
	for id := range job.ID(maxTogether - 1) {
		require.True(t, q.Start(quarantinedOf(100+id, 0, 0), at(lastsAfter)))
	}
	require.False(t, q.Start(quarantinedOf(200, 0, 0), at(2*lastsAfter-1)))
	require.True(t, q.Start(quarantinedOf(200, 0, 0), at(2*lastsAfter)))
	suspect.Record.ID = 3
	require.False(t, q.Start(suspect, at(3*lastsAfter)), "it would not be alone")
	q.Close()
	other.Close()
	require.True(t, q.Start(suspect, at(3*lastsAfter)), "all counts are nought")
}

// A process that runs jobs whose node was lost, one of which ends it whenever it has run for a while, comes
// to the end of them: what is guilty becomes a dead letter, nothing else does that has lost less than six, and nobody
// waits for what runs long.
func TestTheGuiltyJobIsFound(t *testing.T) {
	t.Parallel()
	spared := 0 // in all tries: it must not have been none
	defer func() { require.NotZero(t, spared) }()
	rapid.Check(t, func(t *rapid.T) {
		type lost struct {
			q         Quarantined
			takes     time.Duration
			losses    int // in all, as the ledger counts them
			kills     bool
			began     time.Duration
			isRunning bool
		}
		jobs := map[job.ID]*lost{}
		for i := range rapid.IntRange(1, 60).Draw(t, "jobs") {
			j := &lost{q: quarantinedOf(job.ID(i), 0, 0), losses: rapid.IntRange(1, 2).Draw(t, "losses"), takes: time.Duration(rapid.SampledFrom([]int{0, 1, 1, 2, 20, 400}).Draw(t, "takes")) * 100 * time.Millisecond}
			j.q.Record.Tenant, j.q.Record.Losses, j.kills = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"), j.losses, i == 0
			jobs[j.q.Record.ID] = j
		}
		const step = 100 * time.Millisecond
		var began, now time.Duration
		at := func() time.Time { return time.Time{}.Add(time.Hour + now) }
		for deaths := 0; len(jobs) > 0; {
			began = now
			q := NewQuarantine(&QuarantineLimit{}, lastsAfter)
			waiting := slices.Collect(maps.Values(jobs))
			slices.SortFunc(waiting, func(a, b *lost) int { return cmp.Compare(a.q.Record.ID, b.q.Record.ID) })
			for _, j := range waiting {
				j.isRunning = false
				q.Add(j.q)
			}
			for died := false; !died && len(jobs) > 0; now += step {
				for id, j := range jobs {
					if j.isRunning && now-j.began >= j.takes {
						if j.kills {
							died = true
							continue
						}
						delete(jobs, id)
					}
				}
				if died {
					break
				}
				require.Less(t, now-began, 75*time.Second, "somebody waits")
				if !q.Empty() && len(jobs) > 0 {
					require.Less(t, now-began, 30*time.Second, "somebody has not begun")
				}
				q.Review(func(r Run) bool { return jobs[r.ID] != nil && jobs[r.ID].isRunning }, at())
				for {
					one, ok := q.BringForward(func(*job.Record) bool { return true })
					if ok && q.Start(one, at()) {
						q.TakeFirst()
						jobs[one.Record.ID].isRunning, jobs[one.Record.ID].began = true, now
						continue
					}
					run, ok := q.ToSpare(one, at())
					if !ok {
						break
					}
					if j := jobs[run.ID]; j.losses < 5 {
						j.q.Record.Losses--
						spared++
					}
					q.Spare(run)
				}
			}
			if len(jobs) == 0 {
				break
			}
			deaths++
			require.LessOrEqual(t, deaths, 6)
			for id, j := range jobs {
				if !j.isRunning {
					continue
				}
				j.losses++
				j.q.Record.Turn++
				if j.q.Record.Losses++; j.q.Record.Losses >= 3 {
					require.True(t, j.kills || j.losses > 5, "an innocent job is a dead letter after %d losses", j.losses)
					delete(jobs, id)
				}
			}
		}
	})
}
