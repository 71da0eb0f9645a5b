package store_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// modelled is what a job is to be.
type modelled struct {
	timer    bool   // waiting for its time, or suspended while it did
	due      bool   // that has come
	awaits   job.ID // the one that it starts after; 0: none
	counted  bool   // that one had ended before this one was added: it may be retried since
	place    string // waiting, running, locked, suspended, dead, done, business_error, cancelled
	attempt  int
	key      string
	unwanted bool // cancelled while it ran
	woken    bool // suspended until a time that has come
	claim    int64
	external bool               // for external workers; a timer of these that is due waits
	lock     store.ExternalLock // if it is locked
}

// state is what an operator is told of it.
func (m *modelled) state() string {
	switch {
	case m.place != "waiting" || !m.timer || m.external && m.due:
		return m.place
	case m.awaits != 0:
		return "awaiting"
	case m.attempt > 0:
		return "retrying"
	}
	return "scheduled"
}

// unfinished tells whether it has its unique key.
func (m *modelled) unfinished() bool {
	return m.place == "waiting" || m.place == "running" || m.place == "locked" || m.place == "suspended"
}

// machine makes random moves in a ledger and in a model of it.
type machine struct {
	*bundle         // where the tenant lives
	away    *bundle // another pool
	t       *testing.T
	jobs    map[job.ID]*modelled
}

// among draws a job in one of some places.
func (m *machine) among(t *rapid.T, places ...string) (job.ID, *modelled) {
	var ids []job.ID
	for id, j := range m.jobs {
		if slices.Contains(places, j.place) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		t.Skip("there is none")
	}
	slices.Sort(ids)
	id := rapid.SampledFrom(ids).Draw(t, "id")
	return id, m.jobs[id]
}

var anywhere = []string{"waiting", "running", "locked", "suspended", "dead", "done", "business_error", "cancelled"}

// holder is the unfinished job that has a key, other than one.
func (m *machine) holder(key string, other job.ID) (job.ID, bool) {
	for id, j := range m.jobs {
		if key != "" && id != other && j.key == key && j.unfinished() {
			return id, true
		}
	}
	return 0, false
}

func (m *machine) add(t *rapid.T, j *store.NewJob) (id job.ID, duplicate bool) {
	var pool int
	require.NoError(t, m.db.QueryRow(m.t.Context(), "SELECT number FROM tenure.pool").Scan(&pool))
	id, duplicate, err := store.Enqueue(m.t.Context(), m.db.QueryRow, pool, j)
	require.NoError(t, err)
	return id, duplicate
}

func (m *machine) enqueue(t *rapid.T) {
	j := store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("1"), UniqueKey: rapid.SampledFrom([]string{"", "", "u", "v"}).Draw(t, "key")}
	in := rapid.SampledFrom([]time.Duration{0, -time.Hour, time.Hour}).Draw(t, "in")
	if in != 0 {
		j.DueAt = time.Now().Add(in)
	}
	j.External = rapid.Bool().Draw(t, "external")
	id, duplicate := m.add(t, &j)
	holder, taken := m.holder(j.UniqueKey, 0)
	require.Equal(t, taken, duplicate)
	if taken {
		require.Equal(t, holder, id)
		return
	}
	require.NotContains(t, m.jobs, id)
	m.jobs[id] = &modelled{place: "waiting", key: j.UniqueKey, timer: in > 0 || in < 0 && !j.External, due: in < 0, external: j.External}
}

// chain adds a job that starts after another one, however that ends.
func (m *machine) chain(t *rapid.T) {
	after, first := m.among(t, anywhere...)
	id, _ := m.add(t, &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("1"), Links: &store.Links{After: []int64{int64(after)}, OnFailure: "run"}})
	m.jobs[id] = &modelled{place: "waiting", timer: true, awaits: after, counted: !first.unfinished()}
}

func (m *machine) settleEnds(t *rapid.T) {
	s, err := store.SettleAwaited(m.t.Context(), m.db, m.fence, 1000, true)
	require.NoError(t, err)
	want := 0
	for _, j := range m.jobs {
		p := m.jobs[j.awaits]
		if over := p == nil || !p.unfinished() || j.counted; over && j.awaits != 0 && (j.place == "waiting" || j.place == "suspended") {
			j.awaits, j.due = 0, true
			want++
		}
	}
	require.Equal(t, want, s.Started)
}

func (m *machine) fire(t *rapid.T) {
	fired, err := store.FireTimers(m.t.Context(), m.db, m.fence, 1000)
	require.NoError(t, err)
	want := 0
	for _, j := range m.jobs {
		if j.place == "waiting" && j.timer && j.due && !j.external {
			j.timer = false
			want++
		}
	}
	got := 0
	for _, f := range fired {
		got += f.Count
	}
	require.Equal(t, want, got)
}

func (m *machine) claimOne(t *rapid.T) {
	p := m.page(m.t, 0)
	for _, j := range p.Jobs {
		known := m.jobs[j.Record.ID]
		if known.place != "waiting" || known.unwanted {
			continue // it runs, or the holder would cancel it
		}
		claims, err := store.InsertClaims(m.t.Context(), m.db, m.fence, onlyJob(p.Removals, j.Record.ID, j.Record.Turn))
		require.NoError(t, err)
		require.Len(t, claims, 1)
		known.place, known.claim = "running", claims[0].ID
		return
	}
	t.Skip("nothing waits")
}

func (m *machine) finish(t *rapid.T) {
	id, j := m.among(t, "running")
	var record *job.Record
	p := m.page(m.t, 0)
	for i := range p.Jobs {
		if p.Jobs[i].Record.ID == id {
			record = &p.Jobs[i].Record
		}
	}
	require.NotNil(t, record)
	how := rapid.SampledFrom([]job.State{job.Done, job.Dead, job.Retrying, job.Snoozed, job.Returned, job.Cancelled}).Draw(t, "outcome")
	delay := rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "delay")
	lost, err := store.Finish(m.t.Context(), m.db, store.Runner{Session: m.fence.Session, Node: "a"}, true,
		[]store.Finished{{Record: record, Outcome: job.Outcome{State: how, Delay: delay, Err: job.ErrTimeout}}}, []int64{j.claim})
	require.NoError(t, err)
	require.Zero(t, lost)
	switch {
	case how == job.Done:
		j.place = "done"
	case how == job.Dead:
		j.place, j.attempt = "dead", j.attempt+1
	case how == job.Cancelled || j.unwanted:
		j.place = "cancelled"
	default:
		j.place, j.timer, j.due = "waiting", how != job.Returned, delay == 0
		if how == job.Retrying {
			j.attempt++
		}
	}
	j.unwanted = false
}

func (m *machine) acquireOne(t *rapid.T) {
	got := m.acquire(m.t, 1, func(r *store.ExternalRequest) { r.Topic = "k" })
	waits := 0
	for _, j := range m.jobs {
		if j.external && j.place == "waiting" && (!j.timer || j.due) {
			waits++
			j.timer = false // who acquires sweeps the topic first
		}
	}
	require.Len(t, got, min(waits, 1))
	for _, e := range got {
		j := m.jobs[e.Record.ID]
		require.True(t, j.external && j.place == "waiting" && !j.timer)
		j.place, j.timer, j.lock = "locked", false, lockOf(e)
	}
}

func (m *machine) endLocked(t *rapid.T) {
	id, j := m.among(t, "locked")
	ctx, end := m.t.Context(), store.ExternalEnd{ExternalLock: j.lock}
	var ids []job.ID
	var err error
	switch how := rapid.SampledFrom([]string{"done", "business_error", "dead", "retrying", "released"}).Draw(t, "outcome"); how {
	case "business_error":
		end.Error = "code: message"
		fallthrough
	case "done":
		ids, err = store.FinishExternal(ctx, m.db, []store.ExternalEnd{end}, true)
		j.place = how
	case "released":
		ids, err = store.ReleaseExternal(ctx, m.db, []store.ExternalLock{j.lock})
		j.place = "waiting"
	default:
		retries := 1
		if j.place, j.timer, j.due = "waiting", true, false; how == "dead" {
			j.place, retries = "dead", 0
		}
		ids, _, err = store.FailExternal(ctx, m.db, []store.ExternalFailure{{ExternalLock: j.lock, Delay: time.Hour, Retries: &retries}}, job.DefaultPolicy())
		j.attempt++
	}
	require.NoError(t, err)
	require.Equal(t, []job.ID{id}, ids)
}

func (m *machine) sweep(t *rapid.T) {
	swept, err := store.SweepExternal(m.t.Context(), m.db, 1000)
	require.NoError(t, err)
	want := 0
	for _, j := range m.jobs {
		if j.external && j.place == "waiting" && j.timer && j.due {
			j.timer = false
			want++
		}
	}
	require.Equal(t, want, swept)
}

func (m *machine) suspendSome(t *rapid.T) {
	until := rapid.SampledFrom([]time.Duration{0, -time.Hour, time.Hour}).Draw(t, "until")
	var at time.Time
	if until != 0 {
		at = time.Now().Add(until)
	}
	var ids []int64
	suspended, running := 0, 0
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		j := m.jobs[id]
		if !rapid.Bool().Draw(t, "this one") {
			continue
		}
		ids = append(ids, int64(id))
		switch j.place {
		case "waiting", "suspended":
			j.place, j.woken = "suspended", until < 0
			suspended++
		case "running", "locked":
			running++
		}
	}
	got, err := store.Suspend(m.t.Context(), m.db, ids, at)
	require.NoError(t, err)
	require.Equal(t, store.SuspendCount{Suspended: suspended, Running: running}, got)
}

func (m *machine) resumeOne(t *rapid.T) {
	id, j := m.among(t, anywhere...)
	resumed, err := store.Resume(m.t.Context(), m.db, []int64{int64(id)})
	require.NoError(t, err)
	if j.place != "suspended" {
		require.Empty(t, resumed)
		return
	}
	require.Len(t, resumed, 1)
	require.Equal(t, j.timer && !j.external, resumed[0].DueIn != nil)
	j.place, j.woken = "waiting", false
}

func (m *machine) resumeDue(t *rapid.T) {
	resumed, err := store.ResumeDue(m.t.Context(), m.db, 1000)
	require.NoError(t, err)
	want := 0
	for _, j := range m.jobs {
		if j.place == "suspended" && j.woken {
			j.place, j.woken = "waiting", false
			want++
		}
	}
	require.Len(t, resumed, want)
}

func (m *machine) change(t *rapid.T) {
	id, j := m.among(t, anywhere...)
	priority := rapid.IntRange(-3, 3).Draw(t, "priority")
	c := store.Change{Priority: &priority}
	in := rapid.SampledFrom([]time.Duration{0, -time.Hour, time.Hour}).Draw(t, "in")
	if in != 0 {
		at := time.Now().Add(in)
		c.DueAt = &at
	}
	_, err := store.ChangeJob(m.t.Context(), m.db, id, c)
	if j.place != "waiting" && j.place != "suspended" {
		require.ErrorIs(t, err, store.ErrNotFound)
		return
	}
	require.NoError(t, err)
	if in != 0 {
		j.timer, j.due, j.awaits = in > 0 || !j.external || j.place == "suspended", in < 0, 0
	}
}

func (m *machine) cancel(t *rapid.T) {
	id, j := m.among(t, anywhere...)
	running, err := store.Cancel(m.t.Context(), m.db, id, true)
	if j.place == "done" || j.place == "business_error" || j.place == "cancelled" {
		require.ErrorIs(t, err, store.ErrNotFound)
		return
	}
	require.NoError(t, err)
	require.Equal(t, j.place == "running", running)
	if running {
		j.unwanted = true
	} else {
		j.place = "cancelled"
	}
}

func (m *machine) retry(t *rapid.T) {
	id, j := m.among(t, anywhere...)
	_, err := store.Retry(m.t.Context(), m.db, id)
	_, taken := m.holder(j.key, id)
	switch {
	case j.place == "dead" && taken:
		require.ErrorAs(t, err, new(*job.KeyTakenError))
	case j.place == "dead":
		require.NoError(t, err)
		j.place, j.timer, j.attempt = "waiting", false, 0
	case j.place == "waiting" && j.timer:
		require.NoError(t, err)
		j.timer, j.awaits = false, 0
	default:
		require.ErrorIs(t, err, store.ErrNotFound)
	}
}

func (m *machine) retryDead(t *rapid.T) {
	all := m.dead(m.t, store.DeadFilter{}, 1+len(m.jobs))
	slices.SortFunc(all, func(a, b store.Dead) int { return int(a.ID - b.ID) })
	lanes, taken, err := store.RetryDead(m.t.Context(), m.db, all)
	require.NoError(t, err)
	rose, stay := 0, 0
	for _, d := range all {
		j := m.jobs[d.ID]
		require.Equal(t, "dead", j.place)
		if _, taken := m.holder(j.key, d.ID); taken {
			stay++
			continue
		}
		j.place, j.timer, j.attempt = "waiting", false, 0
		rose++
	}
	require.Equal(t, [2]int{rose, stay}, [2]int{len(lanes), taken})
}

func (m *machine) deleteDead(t *rapid.T) {
	id, _ := m.among(t, "dead")
	for _, d := range m.dead(m.t, store.DeadFilter{}, 1000) {
		if d.ID == id {
			n, err := store.DeleteDead(m.t.Context(), m.db, []store.Dead{d})
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
	}
	delete(m.jobs, id)
}

func (m *machine) move(t *rapid.T) {
	for _, j := range m.jobs {
		if j.place == "running" {
			t.Skip("a move waits until nothing of the tenant runs")
		}
	}
	moveTenant(m.t, m.db, m.away.db)
	m.bundle, m.away = m.away, m.bundle
	for _, j := range m.jobs {
		j.claim = 0
	}
}

// check compares the ledger with the model: each job stands in one place, where it is to be.
func (m *machine) check(t *rapid.T) {
	all, err := store.List(m.t.Context(), m.db, store.Filter{Limit: 1000})
	require.NoError(t, err)
	got, want := map[job.ID]string{}, map[job.ID]string{}
	for _, s := range all {
		if _, twice := got[s.ID]; twice {
			t.Fatalf("job %d stands in two places", s.ID)
		}
		got[s.ID] = s.State
		if known := m.jobs[s.ID]; known.unfinished() || known.place == "dead" { // a finished one counts its last run
			require.Equal(t, known.attempt, s.Attempt)
		}
	}
	var c store.Counts
	keys := 0
	for id, j := range m.jobs {
		want[id] = j.state()
		switch {
		case j.external && (j.place == "waiting" || j.place == "locked"):
			c.External++
		case j.state() == "awaiting":
			c.Awaiting++
		case j.place == "waiting" && j.timer:
			c.Timers++
		case j.place == "waiting":
			c.Waiting++
		case j.place == "running":
			c.Waiting, c.Claimed = c.Waiting+1, c.Claimed+1
		case j.place == "suspended":
			c.Suspended++
		case j.place == "dead":
			c.Dead++
		default:
			c.Finished++
		}
		if j.key != "" && j.unfinished() {
			keys++
		}
	}
	require.Equal(t, want, got)
	counted, err := store.Count(m.t.Context(), m.db)
	require.NoError(t, err)
	require.Equal(t, c, counted)
	left, err := store.Count(m.t.Context(), m.away.db)
	require.NoError(t, err)
	require.Zero(t, left, "in the other pool")
	var held int
	require.NoError(t, m.db.QueryRow(m.t.Context(), "SELECT count(*) FROM tenure.unique_job").Scan(&held))
	require.Equal(t, keys, held)
}

// TestP1RandomMoves makes random moves on real Postgres, from one pool to another included, and in
// a model: no job is lost, none
// doubled, and each is where the moves have brought it.
func TestP1RandomMoves(t *testing.T) {
	t.Parallel()
	here, away := setup(t), holds(t, second(t))
	rapid.Check(t, func(rt *rapid.T) {
		for _, b := range []*bundle{here, away} {
			_, err := b.owner.Exec(t.Context(), `DELETE FROM tenure.job; DELETE FROM tenure.timer_job; DELETE FROM tenure.external_job; DELETE FROM tenure.suspended_job; DELETE FROM tenure.dead_letter_job;
			DELETE FROM tenure.completed_job; DELETE FROM tenure.job_error; DELETE FROM tenure.unique_job; DELETE FROM tenure.claim; DELETE FROM tenure.cancel_request; DELETE FROM tenure.tenant;
			DELETE FROM tenure.awaiting; DELETE FROM tenure.awaited; DELETE FROM tenure.awaited_end`)
			require.NoError(rt, err)
			_, err = store.RenewLock(t.Context(), b.db, b.fence, time.Hour, time.Hour)
			require.NoError(rt, err)
		}
		m := &machine{bundle: here, away: away, t: t, jobs: map[job.ID]*modelled{}}
		rt.Repeat(map[string]func(*rapid.T){
			"enqueue": m.enqueue, "enqueue another": m.enqueue, "chain": m.chain, "settle": m.settleEnds, "fire": m.fire, "claim": m.claimOne, "finish": m.finish,
			"acquire": m.acquireOne, "end what is locked": m.endLocked, "sweep": m.sweep,
			"suspend": m.suspendSome, "resume": m.resumeOne, "resume what is due": m.resumeDue, "change": m.change,
			"cancel": m.cancel, "retry": m.retry, "retry the dead": m.retryDead, "delete the dead": m.deleteDead, "move the tenant": m.move, "": m.check,
		})
	})
}
