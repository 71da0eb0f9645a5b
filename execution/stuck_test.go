package execution

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

// Handlers that ignore the end of their contexts do not cost workers, up to as many as
// there are workers.
func TestStuckHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(true)
		b := newBundle(t, func(c *Config) { c.Timeout = time.Minute }, w.register).start()
		noops := func(n int) {
			t.Helper()
			b.submit("noop", n)
			for range n {
				require.Equal(t, job.Done, b.owner.next(t).outcome.State)
			}
		}
		stuck := func(n int) {
			t.Helper()
			b.submit("wait", n)
			for range n {
				<-w.running
			}
			time.Sleep(time.Minute + stuckAfter - time.Second)
			synctest.Wait()
		}
		stuck(2)
		replaced, left := b.workers.countStuck()
		require.Zero(t, replaced+left, "they have time to return")
		b.submit("noop", 1)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		replaced, left = b.workers.countStuck()
		require.Equal(t, []int{2, 0}, []int{replaced, left})
		require.Equal(t, job.Done, b.owner.next(t).outcome.State)
		noops(10)
		synctest.Wait() // a slot is given up after its end was told
		require.Zero(t, b.workers.capacity.used.Load(), "slots taken")
		require.Empty(t, b.workers.Unhealthy())

		stuck(1)
		time.Sleep(3 * time.Second)
		noops(1)
		close(w.goOn)
		for range 3 {
			require.Equal(t, job.Done, b.owner.next(t).outcome.State, "what they say at last counts")
		}
		synctest.Wait()
		require.Len(t, b.workers.spares, 2)
		noops(10)

		w.goOn = make(chan struct{})
		stuck(2)
		time.Sleep(3 * time.Second)
		stuck(2)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		replaced, left = b.workers.countStuck()
		require.Equal(t, []int{2, 2}, []int{replaced, left})
		require.Contains(t, b.workers.Unhealthy(), "4 handlers ignore that their context has ended and 2 of them keep a worker")
		close(w.goOn)
		for range 4 {
			b.owner.next(t)
		}
		synctest.Wait()
		require.Empty(t, b.workers.Unhealthy())
		noops(10)
	})
}

// A replaced handler may still end its goroutine, or panic: its worker is not started again.
func TestAStuckHandlerEndsOddly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(t, func(c *Config) { c.Timeout = time.Minute }, func(r *job.Registry) {
			r.Add(job.Spec{Kind: "goexit", Handle: func(context.Context, *job.Record) error { time.Sleep(time.Hour); runtime.Goexit(); return nil }})
			r.Add(job.Spec{Kind: "panic", Handle: func(context.Context, *job.Record) error { time.Sleep(time.Hour); panic("late") }})
		}).start()
		for _, kind := range []string{"goexit", "panic"} {
			b.submit(kind, 2)
			for range 2 {
				require.Equal(t, job.Retrying, b.owner.next(t).outcome.State, kind)
			}
			synctest.Wait()
			require.Len(t, b.workers.spares, 2, kind)
		}
	})
}

// The locks that a stuck handler's transaction holds are given up.
func TestAStuckHandlerKeepsNoLocks(t *testing.T) {
	t.Parallel()
	running, goOn := make(chan struct{}), make(chan struct{})
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "stuck", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			_, err := tx.Exec(ctx, "LOCK TABLE effect")
			close(running)
			<-goOn
			return err
		})
	})
	release := sync.OnceFunc(func() { close(goOn) })
	c.start()
	t.Cleanup(release)
	claim := c.claim("stuck")
	claim.Tenant, claim.Record.Tenant = c.tenants["alpha"], "alpha"
	c.submitClaims([]ClaimedJob{claim})
	<-running
	s := c.workers.slots[0]
	for _, candidate := range c.workers.slots {
		candidate.mu.Lock()
		if candidate.claim != nil {
			s = candidate
		}
		candidate.mu.Unlock()
	}
	now := time.Now()
	c.workers.checkStuck(s, now)
	require.Zero(t, s.stuckSince, "its context has not ended")
	s.cancel(job.ErrTimeout)
	c.workers.checkStuck(s, now)
	c.workers.checkStuck(s, now.Add(stuckAfter))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := c.admin.Exec(ctx, "TABLE alpha.effect")
	require.NoError(t, err, "the table is free")
	require.Zero(t, c.owner.tenants.Stat().AcquiredConns(), "and so is its place in the pool")
	require.Equal(t, job.Done, c.run(t, "noop", c.tenants["alpha"], "").outcome.State)
	release()
	o := c.owner.next(t).outcome
	require.Equal(t, job.Retrying, o.State)
	require.ErrorIs(t, o.Err, job.ErrTimeout)
}
