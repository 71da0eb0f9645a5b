package promises_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// mixed is a job that ends as it is told, but for what is done to it from outside.
type mixed struct {
	N  int    `json:"n"` // its own, over all jobs of the test
	Do string `json:"do"`
}

func (mixed) Kind() string { return "mixed" }

// ledger is what the test did: which job should end where.
type ledger struct {
	mu    sync.Mutex
	next  int
	place map[int]string // by N: done, cancelled, dead, timer, or several of them, or none; guarded by mu
	maybe map[int]bool   // those whose enqueuing failed, so that it may have happened; guarded by mu
}

func (l *ledger) add(place string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	l.place[l.next] = place
	return l.next
}

func (l *ledger) unsure(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maybe[n] = true
}

// TestP1UnderFaults enqueues in every way, from several goroutines, while nodes come
// and go and the database crashes. Then every job stands in the one place where it
// belongs.
func TestP1UnderFaults(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Options{Durable: true, SharedBuffers: "64MB"})
	b := newTestbedOn(t, server, 3, 2).byDefault()
	b.cfg.Execution.Workers = 16
	b.cfg.Execution.FinishWithin = time.Second
	b.cfg.Execution.Retry = "R1000/PT0.1S"
	var seen sync.Map // N of what has snoozed or failed
	registry := func() *job.Registry {
		r := b.registry(nil)
		job.Handle(r, func(ctx context.Context, j *job.Job[mixed]) error {
			pause(ctx, time.Duration(rand.IntN(20))*time.Millisecond)
			_, before := seen.LoadOrStore(j.Args.N, true)
			switch do := j.Args.Do; {
			case do == "flaky" && !before:
				return errors.New("once")
			case do == "snooze" && !before:
				return job.Snooze(50 * time.Millisecond)
			case do == "panic":
				panic("always")
			case do == "discard":
				return job.Discard(errors.New("for good"))
			case do == "cancel":
				return job.Cancel(nil)
			}
			return nil
		}, job.Retry("R2/PT0.05S"))
		return r
	}
	first := b.start(b.gossiping("n1"), registry())
	second := b.start(b.gossiping("n2", first.Self().Addr), registry())
	client, err := tenure.NewClient(b.gossiping("client", first.Self().Addr, second.Self().Addr))
	require.NoError(t, err)
	require.NoError(t, client.Start(t.Context()))
	defer func() { require.NoError(t, client.Stop(context.WithoutCancel(t.Context()))) }()

	l := &ledger{place: map[int]string{}, maybe: map[int]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	for i, tenant := range b.tenants() {
		group.Go(func() {
			for k := i; ctx.Err() == nil; k++ {
				before := l.unsures()
				enqueueSomehow(b, tenancy.For(t.Context(), tenant), client, l, k)
				if pause(ctx, time.Duration(sized(5, 25))*time.Millisecond); l.unsures() > before { // the database is down
					pause(ctx, 100*time.Millisecond)
				}
			}
		})
	}
	timer(t, 2*time.Second)
	first.stop()
	third := b.start(b.gossiping("n3", second.Self().Addr), registry())
	timer(t, time.Second)
	require.NoError(t, server.Crash(t.Context()))
	timer(t, 1500*time.Millisecond)
	require.NoError(t, server.Resume(t.Context()))
	timer(t, 1500*time.Millisecond)
	b.start(b.gossiping("n4", third.Self().Addr), registry())
	second.stop()
	timer(t, time.Second)
	cancel()
	group.Wait()

	const stands = `
		SELECT (payload->>'n')::int, CASE outcome WHEN 'done' THEN 'done' ELSE 'cancelled' END FROM tenure.completed_job
		UNION ALL SELECT (payload->>'n')::int, 'dead' FROM tenure.dead_letter_job
		UNION ALL SELECT (payload->>'n')::int, 'timer' FROM tenure.timer_job
		UNION ALL SELECT (payload->>'n')::int, 'suspended' FROM tenure.suspended_job
		UNION ALL SELECT (payload->>'n')::int, 'waiting' FROM tenure.job`
	found := map[int]string{}
	for pool := range b.db {
		b.eventually(0, pool, "SELECT (SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.claim) + (SELECT count(*) FROM tenure.timer_job WHERE due_at < now() + interval '10 min')")
		rows, err := b.db[pool].Query(t.Context(), stands)
		require.NoError(t, err)
		var n int
		var place string
		_, err = pgx.ForEachRow(rows, []any{&n, &place}, func() error {
			require.NotContains(t, found, n, broken+"job stands in two places")
			found[n] = place
			return nil
		})
		require.NoError(t, err)
	}
	places := map[string]int{}
	for n, want := range l.place {
		got, stands := found[n]
		switch {
		case !stands && (want == "none" || l.maybe[n]):
		case !stands:
			require.Fail(t, broken+"a job is lost", "%d should be %s", n, want)
		default:
			require.Contains(t, want, got, "job %d", n)
		}
		places[got]++
		delete(found, n)
	}
	require.Empty(t, found, broken+"jobs that nobody enqueued")
	for _, place := range []string{"done", "cancelled", "dead", "timer"} {
		require.Greater(t, places[place], 20, "%v", places)
	}
	for tenant, where := range b.cfg.Tenants.Static {
		require.Zero(t, b.count(where.Pool, fmt.Sprintf(`SELECT count(*) FROM
			(SELECT id FROM tenure.completed_job WHERE kind = 'write' AND tenant_id = $1) j FULL JOIN %s.effect e ON e.job_id = j.id
			WHERE j.id IS NULL OR e.job_id IS NULL`, tenant), string(tenant)), broken+"every finished job has its effect, and no other")
	}
	t.Logf("%d jobs: %v, %d of unknown fate", len(l.place), places, len(l.maybe))
}

// enqueueSomehow enqueues some jobs in the k-th of all ways.
func enqueueSomehow(b *testbed, ctx context.Context, c *tenure.Client, l *ledger, k int) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	one := func(place, do string, opts ...tenure.Option) {
		n := l.add(place)
		if _, err := c.Enqueue(ctx, mixed{n, do}, opts...); err != nil {
			l.unsure(n)
		}
	}
	switch k % 12 {
	case 0, 1:
		one("done", "done")
	case 2:
		one("done", "flaky")
	case 3:
		one("done", "snooze")
	case 4:
		one("dead", "panic")
	case 5:
		one("dead", "discard")
	case 6:
		one("cancelled", "cancel")
	case 7:
		one("done", "done", tenure.In(time.Duration(rand.IntN(2000)+1)*time.Millisecond))
		one("timer", "done", tenure.In(time.Hour))
	case 8: // while the key is taken nothing is added; Retry makes the one that has it run now
		key := fmt.Sprint(k, rand.Int64())
		n := l.add("done")
		_, err := c.Enqueue(ctx, mixed{n, "done"}, tenure.Unique(key), tenure.In(time.Hour))
		if err != nil {
			l.unsure(n)
			l.setPlace(n, "timer")
			return
		}
		again := l.add("none")
		e, err := c.Enqueue(ctx, mixed{again, "done"}, tenure.Unique(key))
		if err == nil && !e.Duplicate {
			b.t.Error("a unique key was given twice")
		}
		if err != nil || c.Operator().Jobs().Retry(ctx, e.ID) != nil { // the answer to a retry may be lost as well
			l.setPlace(n, "done or timer")
		}
	case 9:
		var entries []tenure.Entry
		var ns []int
		for i := range 20 {
			n := l.add("done")
			ns = append(ns, n)
			e := tenure.Entry{Args: mixed{n, "done"}}
			if i%4 == 0 {
				e.Args = write{n}
			}
			entries = append(entries, e)
		}
		if _, err := c.EnqueueMany(ctx, entries); err != nil {
			for _, n := range ns {
				l.unsure(n)
			}
		}
	case 10:
		kept, dropped := l.add("done"), l.add("none")
		if err := c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			_, err := c.EnqueueTx(ctx, tx, write{kept})
			return err
		}); err != nil {
			l.unsure(kept)
		}
		err := c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := c.EnqueueTx(ctx, tx, mixed{dropped, "done"}); err != nil {
				return err
			}
			return errors.New("rolled back on purpose")
		})
		if err == nil {
			b.t.Error("a rollback was lost")
		}
	case 11: // cancelled from outside
		n := l.add("cancelled")
		e, err := c.Enqueue(ctx, mixed{n, "done"}, tenure.In(time.Hour))
		if err == nil {
			_, err = c.Operator().Jobs().Cancel(ctx, e.ID)
			if err != nil {
				l.setPlace(n, "cancelled or timer")
			}
			return
		}
		l.unsure(n)
		l.setPlace(n, "timer")
	}
}

// setPlace corrects where a job belongs.
func (l *ledger) setPlace(n int, place string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.place[n] = place
}

// unsures is how many jobs there are whose enqueuing failed.
func (l *ledger) unsures() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.maybe)
}
