package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// written is one batch that was written.
type written struct {
	at           time.Time
	runs         []job.ID
	over         []int64
	returnClaims []int64
	returnJobs   []int64
	err          error
}

// fakeLedger is what a completer writes to; on synctest's clock.
type fakeLedger struct {
	answer func(ctx context.Context, try int) (lost int, err error) // nil: it takes everything

	mu    sync.Mutex
	calls []written // guarded by mu
}

func (l *fakeLedger) write(ctx context.Context, b *batch) (lost int, err error) {
	w := written{at: time.Now(), over: slices.Sorted(slices.Values(b.over)), returnClaims: b.returnClaims, returnJobs: b.returnJobs}
	for _, r := range b.runs {
		w.runs = append(w.runs, r.Record.ID)
	}
	l.mu.Lock()
	try := len(l.calls) + 1
	l.mu.Unlock()
	if l.answer != nil {
		lost, w.err = l.answer(ctx, try)
	}
	l.mu.Lock()
	l.calls = append(l.calls, w)
	l.mu.Unlock()
	return lost, w.err
}

func (l *fakeLedger) report(context.Context, []store.Reported) error { return nil }

// noteUnwritten tells nobody.
func (l *fakeLedger) noteUnwritten(context.Context, error) {}

// findHeld finds nothing.
func (l *fakeLedger) findHeld(context.Context, []store.Finished, []int64) (store.Held, error) {
	return store.Held{}, nil
}

func (l *fakeLedger) spare(context.Context, outlivedRuns) error { return nil }

func (l *fakeLedger) all() []written {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

// newFakeSession is a session of which only the completer is there, not running.
func newFakeSession(l ledger) *Session {
	return &Session{completer: newCompleter(l, newRecorder(), newMetrics().lost, zap.NewNop())}
}

// runCompleter runs the completer of a session on a fake ledger; end ends it and
// waits for it.
func runCompleter(l ledger) (c *completer, end func()) {
	c = newFakeSession(l).completer
	c.start()
	return c, c.end
}

var errWrite = errors.New("the database is away")

func done(claim int64, id job.ID) Ended {
	return Ended{Claim: claimOf(claim, id), Outcome: job.Outcome{State: job.Done}}
}

func ids(from, n int) []job.ID {
	out := make([]job.ID, n)
	for i := range out {
		out[i] = job.ID(from + i)
	}
	return out
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestCompleterWritesTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLedger{}
		c, end := runCompleter(l)
		defer end()
		began := time.Now()
		c.openClaim(1, 3)
		for i := range 3 {
			c.addEnded(done(1, job.ID(i)))
			time.Sleep(time.Millisecond)
		}
		require.Empty(t, l.all(), "more may come")
		time.Sleep(flushEvery)
		require.Equal(t, []written{{at: began.Add(flushEvery), runs: ids(0, 3), over: []int64{1}}}, l.all())
		require.Equal(t, []Ended{done(1, 0), done(1, 1), done(1, 2)}, c.events.(*recorder).take())

		time.Sleep(time.Hour)
		require.Len(t, l.all(), 1, "nothing waits")
	})
}

// Who waits for a limit waits for the written end of those before it: what comes after a pause is written at once.
func TestCompleterWritesAtOnceAfterAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLedger{}
		c, end := runCompleter(l)
		defer end()
		add := func(i int) {
			c.openClaim(int64(i), 1)
			c.addEnded(done(int64(i), job.ID(i)))
			synctest.Wait()
		}
		time.Sleep(flushEvery)
		began := time.Now()
		add(1)
		add(2)
		require.Equal(t, []written{{at: began, runs: ids(1, 1), over: []int64{1}}}, l.all())
		time.Sleep(flushEvery - time.Millisecond)
		add(3)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Len(t, l.all(), 2, "others waited")
		require.Equal(t, ids(2, 2), l.all()[1].runs)
	})
}

func TestCompleterWritesAtOnceWhenManyWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLedger{}
		c, end := runCompleter(l)
		defer end()
		c.openClaim(1, flushSize)
		c.addEnded(done(1, 0))
		time.Sleep(time.Millisecond)
		for i := 1; i < flushSize; i++ {
			c.addEnded(done(1, job.ID(i)))
		}
		began := time.Now()
		synctest.Wait()
		require.Equal(t, []written{{at: began, runs: ids(0, flushSize), over: []int64{1}}}, l.all())
	})
}

// A transaction of any length would hold its rows for any time.
func TestCompleterBoundsATransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLedger{answer: func(context.Context, int) (int, error) {
			time.Sleep(time.Minute)
			return 0, nil
		}}
		c, end := runCompleter(l)
		defer end()
		next := 0
		add := func(claim int64, n int) {
			c.openClaim(claim, n)
			for range n {
				c.addEnded(done(claim, job.ID(next)))
				next++
			}
		}
		add(1, 1)
		time.Sleep(time.Second) // 1 is being written
		add(2, flushMost+1)
		add(3, flushMost/2)
		time.Sleep(time.Minute) // flushMost of 2 are
		add(4, flushMost-100)
		time.Sleep(4 * time.Minute)
		var runs []job.ID
		var sizes []int
		var over [][]int64
		for _, w := range l.all() {
			sizes = append(sizes, len(w.runs))
			runs = append(runs, w.runs...)
			over = append(over, w.over)
		}
		require.Equal(t, []int{1, flushMost, flushMost, flushMost/2 - 99}, sizes)
		require.Equal(t, ids(0, next), runs)
		require.Equal(t, [][]int64{{1}, nil, {2, 3}, {4}}, over, "a claim goes with its last job")
		require.False(t, c.hasClaims())
	})
}

// What comes in while a batch is being written waits for that one only.
func TestCompleterTakesInWhileItWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLedger{answer: func(context.Context, int) (int, error) {
			time.Sleep(time.Minute)
			return 0, nil
		}}
		c, end := runCompleter(l)
		defer end()
		began := time.Now()
		c.openClaim(1, 3)
		c.addEnded(done(1, 0))
		time.Sleep(time.Second)
		c.addEnded(done(1, 1))
		c.addEnded(done(1, 2))
		require.True(t, c.hasClaims())
		time.Sleep(3 * time.Minute)
		require.Equal(t, []written{
			{at: began.Add(flushEvery), runs: ids(0, 1)},
			{at: began.Add(time.Minute + 2*flushEvery), runs: ids(1, 2), over: []int64{1}},
		}, l.all())
		require.False(t, c.hasClaims())
	})
}

func TestCompleterRepeatsAWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const failures = 12
		l := &fakeLedger{answer: func(_ context.Context, try int) (int, error) {
			if try <= failures {
				return 0, errWrite
			}
			return 2, nil
		}}
		c, end := runCompleter(l)
		defer end()
		log, logged := observer.New(zap.WarnLevel)
		c.log = zap.New(log)
		c.openClaim(1, 1)
		c.openClaim(2, 2)
		c.addEnded(done(1, 0))
		c.addEnded(done(2, 1))
		time.Sleep(flushEvery)
		for len(l.all()) < failures {
			time.Sleep(time.Millisecond)
			synctest.Wait()
			require.ElementsMatch(t, []int64{1, 2}, c.listClaims(), "nothing is over before it is written")
			require.Empty(t, c.events.(*recorder).take())
		}
		time.Sleep(2 * rewrites.Longest)
		synctest.Wait()
		calls := l.all()
		require.Len(t, calls, failures+1)
		for i, w := range calls {
			require.Equal(t, ids(0, 2), w.runs)
			require.Equal(t, []int64{1}, w.over)
			if i > 0 {
				wait, waited := rewrites.Exactly(i), w.at.Sub(calls[i-1].at)
				require.GreaterOrEqual(t, waited, wait, "before try %d", i+1)
				require.Less(t, waited, wait+wait/2, "before try %d", i+1)
			}
		}
		require.Equal(t, 4, logged.Len(), "the tries 1, 2, 4 and 8")
		require.Equal(t, []int64{2}, c.listClaims())
		require.Len(t, c.events.(*recorder).take(), 2)
		require.Zero(t, counted(t, c.lost), "a repeated write counts what the first one did")

		c.addEnded(done(2, 2))
		time.Sleep(flushEvery)
		synctest.Wait()
		require.EqualValues(t, 2, counted(t, c.lost), "the first try tells the truth")
		require.False(t, c.hasClaims())
	})
}

// Jobs that did not start leave a claim that goes on, and go with one that is over.
func TestCompleterGivesBack(t *testing.T) {
	t.Parallel()
	l := &fakeLedger{}
	s := newFakeSession(l)
	c := s.completer
	c.openClaim(1, 3)
	c.openClaim(2, 2)
	s.Return(claimOf(1, 10))
	s.Finish(claimOf(1, 11), job.Outcome{State: job.Done})
	s.Return(claimOf(2, 20))
	s.FinishedInTx(claimOf(2, 21))
	require.Equal(t, 4, c.flushBatch(t.Context()))
	require.Equal(t, []int64{1}, c.listClaims())
	s.Return(claimOf(1, 12))
	require.Equal(t, 1, c.flushBatch(t.Context()))
	require.Zero(t, c.flushBatch(t.Context()), "nothing waits")

	calls := l.all()
	for i := range calls {
		calls[i].at = time.Time{}
	}
	require.Equal(t, []written{
		{runs: []job.ID{11}, over: []int64{2}, returnClaims: []int64{1}, returnJobs: []int64{10}},
		{over: []int64{1}},
	}, calls)
	m := c.events.(*recorder).take()
	require.Len(t, m, 5)
	require.True(t, m[0].WaitsAgain() && m[2].WaitsAgain() && m[4].WaitsAgain(), "they are waiting again")
	require.False(t, c.hasClaims())
}

func TestCompleterIdle(t *testing.T) {
	t.Parallel()
	c := newFakeSession(&fakeLedger{}).completer
	require.True(t, isClosed(c.whenIdle()))
	require.Empty(t, c.listClaims())
	for round := range int64(3) {
		c.openClaim(round, 1)
		c.openClaim(round+100, 1)
		idle := c.whenIdle()
		require.True(t, c.hasClaims())
		c.addEnded(done(round, 1))
		c.flushBatch(t.Context())
		require.False(t, isClosed(idle), "another claim is open")
		require.Equal(t, idle, c.whenIdle())
		c.openClaim(round+100, 1) // more jobs of a claim that is open
		c.addEnded(done(round+100, 2))
		c.flushBatch(t.Context())
		require.False(t, isClosed(idle))
		c.addEnded(done(round+100, 3))
		require.False(t, isClosed(idle), "it has ended, and is not written")
		c.flushBatch(t.Context())
		require.True(t, isClosed(idle))
		require.False(t, c.hasClaims())
	}
}

// A stop does not wait for more to come.
func TestCompleterWritesAtItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = flushMost + 10
		l := &fakeLedger{}
		c, end := runCompleter(l)
		c.openClaim(1, n)
		began := time.Now()
		for i := range n {
			c.addEnded(done(1, job.ID(i)))
		}
		end()
		require.Equal(t, began, time.Now())
		var runs []job.ID
		for _, w := range l.all() {
			runs = append(runs, w.runs...)
		}
		require.Equal(t, ids(0, n), runs)
		require.False(t, c.hasClaims())
	})
}

// When the database is away at the end, what waits stays, in order, and its claims
// stay open, so that nobody believes it done.
func TestCompleterGivesUpAtItsEnd(t *testing.T) {
	t.Parallel()
	for name, during := range map[string]time.Duration{"while it writes": flushEvery, "between two tries": flushEvery + 20*time.Second, "before it wrote": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &fakeLedger{answer: func(context.Context, int) (int, error) {
					time.Sleep(10 * time.Millisecond)
					return 0, errWrite
				}}
				c, end := runCompleter(l)
				const n = flushMost + 10
				c.openClaim(1, n)
				for i := range n {
					c.addEnded(done(1, job.ID(i)))
				}
				time.Sleep(during)
				began := time.Now()
				end()
				require.LessOrEqual(t, time.Since(began), 100*time.Millisecond)
				require.NotEmpty(t, l.all(), "one last try")
				require.Len(t, c.waiting, n)
				for i := range c.waiting {
					require.EqualValues(t, i, c.waiting[i].Claim.Record.ID)
				}
				require.Equal(t, []int64{1}, c.listClaims())
				require.False(t, isClosed(c.whenIdle()))
				require.Empty(t, c.events.(*recorder).take())
			})
		})
	}
}

// Between two tries the end of ctx does not give up what can still be written.
func TestCompleterTriesOnceMoreAtItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLedger{}
		l.answer = func(_ context.Context, try int) (int, error) {
			if try < 12 {
				return 0, errWrite
			}
			return 0, nil
		}
		c, end := runCompleter(l)
		c.openClaim(1, 1)
		c.addEnded(done(1, 0))
		for len(l.all()) < 11 {
			time.Sleep(10 * time.Millisecond)
		}
		began := time.Now()
		end()
		require.Equal(t, began, time.Now())
		require.False(t, c.hasClaims())
	})
}

// A database that takes a statement and never answers must not hold a stop up.
func TestCompleterEndsThoughTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	for range 10 { // the order of events at the end is not the same each time
		synctest.Test(t, func(t *testing.T) {
			l := &fakeLedger{answer: func(ctx context.Context, _ int) (int, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			}}
			c, end := runCompleter(l)
			c.openClaim(1, 2)
			c.addEnded(done(1, 0))
			time.Sleep(time.Second)
			c.addEnded(done(1, 1))
			began := time.Now()
			end()
			require.LessOrEqual(t, time.Since(began), lastWrite)
			require.Len(t, c.waiting, 2)
		})
	}
}

// Whatever is opened, ended and written in whatever order, with a database that fails
// now and then: each run is written, each claim goes once, with its last job.
func TestCompleterModel(t *testing.T) {
	t.Parallel()
	ends := 0 // of all tries: it must not have been skipped each time
	defer func() { require.NotZero(t, ends) }()
	rapid.Check(t, func(t *rapid.T) {
		failing := false
		l := &fakeLedger{answer: func(context.Context, int) (int, error) {
			if failing {
				return 0, errWrite
			}
			return 0, nil
		}}
		c := newFakeSession(l).completer
		over, cancel := context.WithCancel(context.Background())
		cancel()                // so that a failed write is not repeated at once
		open := map[int64]int{} // jobs that have not ended
		left := map[int64]int{} // jobs that are not written
		next := int64(0)
		var ended int
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				next++
				n := rapid.IntRange(1, 4).Draw(t, "jobs")
				c.openClaim(next, n)
				open[next], left[next] = n, n
			},
			"end": func(t *rapid.T) {
				if len(open) == 0 {
					return
				}
				ends++
				claims := make([]int64, 0, len(open))
				for id := range open {
					claims = append(claims, id)
				}
				slices.Sort(claims)
				id := rapid.SampledFrom(claims).Draw(t, "claim")
				if open[id]--; open[id] == 0 {
					delete(open, id)
				}
				ended++
				e := done(id, job.ID(ended))
				e.How = How(rapid.IntRange(0, 2).Draw(t, "how"))
				c.addEnded(e)
			},
			"flush": func(t *rapid.T) {
				failing = rapid.Bool().Draw(t, "failing")
				waiting := slices.Clone(c.waiting)
				calls := len(l.all())
				n := c.flushBatch(over)
				if len(waiting) == 0 || failing {
					require.Zero(t, n)
					require.Equal(t, waiting, slices.Clone(c.waiting))
					return
				}
				require.Equal(t, len(waiting), n)
				for _, e := range waiting {
					left[e.Claim.ID]--
				}
				var gone []int64
				for id, n := range left {
					if n == 0 {
						gone = append(gone, id)
						delete(left, id)
					}
				}
				slices.Sort(gone)
				require.Equal(t, gone, l.all()[calls].over)
			},
			"": func(t *rapid.T) {
				known := c.listClaims()
				require.Len(t, known, len(left))
				for _, id := range known {
					require.Contains(t, left, id)
				}
				require.Equal(t, len(left) > 0, c.hasClaims())
				require.Equal(t, len(left) == 0, isClosed(c.whenIdle()), fmt.Sprint(left))
			},
		})
	})
}

// The outcomes of a claim, on a real ledger.
func TestCompleterOnTheLedger(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	s := b.session()
	claims := b.claim(s, "k", "k", "k")
	held := func() (ids []int64) {
		require.NoError(t, b.db.QueryRow(t.Context(), "SELECT job_ids FROM tenure.claim").Scan(&ids))
		return ids
	}
	s.Return(&claims[1])
	b.until(func() bool { return len(held()) == 2 })
	require.Equal(t, []int64{int64(claims[0].Record.ID), int64(claims[2].Record.ID)}, held())
	require.EqualValues(t, 3, b.count("SELECT count(*) FROM tenure.job WHERE turn = $1 AND attempt = 0", claims[0].Record.Turn), "given back as it was")
	s.Finish(&claims[0], job.Outcome{State: job.Done})
	b.eventually(1, "SELECT count(*) FROM tenure.completed_job")
	require.Len(t, held(), 2, "the claim stands until its last job")
	s.Finish(&claims[2], job.Outcome{State: job.Retrying, Delay: time.Hour, Err: errWrite})
	within(t, s.completer.whenIdle())
	require.Equal(t, store.Counts{Finished: 1, Timers: 1, Waiting: 1}, b.counts())
}
