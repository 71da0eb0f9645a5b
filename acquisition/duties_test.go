package acquisition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// newQueries is duties of which all are background queries; woken is nudged when one ends.
func newQueries(queries ...*duty) (ds *duties, woken chan struct{}, logged *observer.ObservedLogs) {
	core, logged := observer.New(zap.WarnLevel)
	woken = make(chan struct{}, 1)
	ds = newDuties(zap.New(core), prometheus.NewCounter(prometheus.CounterOpts{}), &sync.WaitGroup{}, func() { nudge(woken) })
	ds.queries = queries
	return ds, woken, logged
}

// One query at a time, whichever has been due for longest first; each is left for ten times as
// long as it took, unless it is asked for.
func TestQueriesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var began []string
		used := 0
		takes := func(name string, d time.Duration) func() query {
			return func() query {
				began = append(began, name)
				return func(context.Context) (func(), error) {
					time.Sleep(d)
					return func() { used++ }, nil
				}
			}
		}
		a := &duty{due: time.Now(), every: fixed(time.Second), prepare: takes("a", time.Millisecond)}
		b := &duty{due: time.Now().Add(-time.Second), every: fixed(time.Second), prepare: takes("b", time.Minute)}
		ds, woken, _ := newQueries(a, b)
		ds.beginQuery(t.Context())
		require.Equal(t, []string{"b"}, began)
		time.Sleep(30 * time.Second)
		ds.useResult(t.Context())
		ds.beginQuery(t.Context())
		require.Equal(t, []string{"b"}, began, "one at a time")
		require.True(t, ds.hasQuery())
		time.Sleep(30 * time.Second)
		synctest.Wait()
		time.Sleep(time.Hour) // until the loop comes by, which is not the query's doing
		require.True(t, nudged(woken))
		ds.useResult(t.Context())
		require.Equal(t, 1, used)
		require.False(t, ds.hasQuery())
		require.Equal(t, 10*time.Minute, time.Until(b.due))
		ds.beginQuery(t.Context())
		require.Equal(t, []string{"b", "a"}, began)
		asked := time.Now()
		a.due = asked // once more
		time.Sleep(time.Second)
		ds.useResult(t.Context())
		require.Equal(t, 2, used)
		require.Equal(t, asked, a.due)
		ds.beginQuery(t.Context())
		require.Equal(t, []string{"b", "a", "a"}, began)
		ds.group.Wait()
	})
}

// What somebody's lock keeps from being done is said once, and tried again until it is done.
func TestQueriesMeetALock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var err error
		d := &duty{name: "days", every: fixed(time.Hour), query: func(context.Context) (func(), error) { return nil, err }}
		ds, _, logged := newQueries(d)
		try := func(fails error) time.Duration {
			err, d.due = fails, time.Now()
			ds.beginQuery(t.Context())
			synctest.Wait()
			ds.useResult(t.Context())
			return time.Until(d.due)
		}
		locked := fmt.Errorf("drop a day: %w", store.ErrLocked)
		for _, want := range []time.Duration{1, 2, 4, 8} {
			require.Equal(t, want*time.Second, try(locked))
			require.Equal(t, 1, logged.Len())
		}
		require.Contains(t, logged.All()[0].Message, "somebody has locked what a background query needs")
		require.Equal(t, "days", logged.All()[0].ContextMap()["for"])
		require.Equal(t, time.Hour, try(nil))
		try(locked)
		require.Equal(t, 2, logged.Len(), "another lock")
	})
}

// A query that fails, or takes longer than it may, is told of and tried again, at longer and
// longer intervals. It ends nothing.
func TestQueriesFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fails, failed := true, 0
		d := &duty{name: "trouble", every: fixed(time.Hour), onFailure: func() { failed++ }, query: func(ctx context.Context) (func(), error) {
			if fails {
				return nil, errors.New("none of that")
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		ds, _, logged := newQueries(d)
		try := func(takes time.Duration) time.Duration {
			d.due = time.Now()
			ds.beginQuery(t.Context())
			time.Sleep(takes)
			synctest.Wait()
			ds.useResult(t.Context())
			require.False(t, ds.hasQuery())
			return time.Until(d.due)
		}
		for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60, 60} {
			require.Equal(t, want*time.Second, try(0))
			require.Equal(t, i+1, logged.Len())
			require.Equal(t, i+1, failed)
		}
		require.Equal(t, "background query failed; trying again, and claims do not wait for it", logged.All()[0].Message)
		require.Equal(t, "trouble", logged.All()[0].ContextMap()["for"])
		fails = false
		require.Equal(t, time.Minute, try(queryTimeout))

		said := logged.Len() // of a term that is over nothing is to be said
		ended, end := context.WithCancel(t.Context())
		end()
		d.due = time.Now()
		ds.beginQuery(ended)
		synctest.Wait()
		ds.useResult(ended)
		require.Equal(t, said, logged.Len())
	})
}

// The holder forgets what was asked of jobs that have ended, and not what is asked of one
// that is to run again.
func TestTheHolderForgetsCancelRequests(t *testing.T) {
	t.Parallel()
	ran := make(chan job.ID, 1)
	b := setup(t, nil, tells(ran)).start()
	later := b.count(`INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at)
		VALUES ('acme', 'default', 'k', '1', now() + interval '1 hour') RETURNING id`)
	now := b.enqueue("tell")
	b.exec("INSERT INTO tenure.cancel_request (job_id) VALUES ($1), ($2)", later, int64(now)+1000)
	m, err := NewManager(b.cfg, b.sessions, b.router, b.workers, b.registry, &fakeElector{changes: make(chan struct{}, 1)}, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, m.Start(t.Context()))
	require.Equal(t, now, within(t, ran))
	b.eventually(1, "SELECT count(*) FROM tenure.cancel_request")
	require.Equal(t, later, b.count("SELECT job_id FROM tenure.cancel_request"))
	require.NoError(t, m.Stop(t.Context()))
	require.NoError(t, b.stop(t.Context()))
}

// The holder notes ends that nobody has noted, such as that of a job whose row is gone, and finds jobs that await
// nothing any more though nobody has said so.
func TestTheHolderNotesMissedEnds(t *testing.T) {
	t.Parallel()
	ran := make(chan job.ID, 3)
	b := setup(t, nil, tells(ran)).start()
	const awaits = `WITH w AS (
			INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at) VALUES ('acme', 'default', 'tell', '1', tenure.never()) RETURNING id),
		noted AS (INSERT INTO tenure.awaiting (job_id, tenant_id, on_failure, batch) SELECT id, 'acme', 'run', false FROM w),
		awaited AS (INSERT INTO tenure.awaited (awaiting_id, job_id, tenant_id, outcome) SELECT id, id + 1000, 'acme', $1 FROM w)
		SELECT id FROM w`
	jobs := []job.ID{b.enqueue("tell"), job.ID(b.count(awaits, nil)), job.ID(b.count(awaits, "done"))} // the first, or it would doze
	m, err := NewManager(b.cfg, b.sessions, b.router, b.workers, b.registry, &fakeElector{changes: make(chan struct{}, 1)}, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, m.Start(t.Context()))
	require.ElementsMatch(t, jobs, []job.ID{within(t, ran), within(t, ran), within(t, ran)})
	require.NoError(t, m.Stop(t.Context()))
	require.NoError(t, b.stop(t.Context()))
}

// Hints go to the last holder for a while, so that a new one looks by itself; not where
// nothing was going on, as in the thousands of pools that a node takes over.
func TestANewHolderLooksByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		tm := idleTerm(newIdleAcquirer(&fakeElector{})).rereader
		require.Equal(t, tendEvery/50, tm.discoverEvery())
		time.Sleep(2 * tendEvery)
		require.Equal(t, cfg.IdleWait, tm.discoverEvery())
		tm.lock.began, tm.inherited = time.Now(), true
		require.Equal(t, cfg.IdleWait, tm.discoverEvery())
		tm.inherited, tm.idleWait = false, time.Millisecond
		require.Equal(t, time.Millisecond, tm.discoverEvery())
		tm.lanes.See(laneOf("acme", 0))
		time.Sleep(2 * tendEvery)
		require.Equal(t, tendEvery, tm.discoverEvery())
	})
}

// Waiting jobs that are to be cancelled end, however many, whether or not a node handles their kind
// and their tenant is frozen.
func TestTheHolderCancelsWhatNobodyRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	b.exec("INSERT INTO tenure.tenant (tenant_id, frozen) VALUES ('frozen', true)")
	b.exec(`INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT CASE n % 2 WHEN 0 THEN 'frozen' ELSE 'acme' END, 'default', 'foreign', '1'
		FROM generate_series(1, $1::integer) n`, 2*cancelStep+100)
	b.exec("INSERT INTO tenure.cancel_request (job_id) SELECT id FROM tenure.job ORDER BY id OFFSET 1")
	m, err := NewManager(b.cfg, b.sessions, b.router, b.workers, b.registry, &fakeElector{changes: make(chan struct{}, 1)}, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, m.Start(t.Context()))
	b.eventually(1, "SELECT count(*) FROM tenure.job")
	b.eventually(0, "SELECT count(*) FROM tenure.cancel_request")
	require.NoError(t, m.Stop(t.Context()))
	require.NoError(t, b.stop(t.Context()))
}
