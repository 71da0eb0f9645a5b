package execution

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// batches is a batch handler that tells which jobs its calls got.
type batches struct {
	calls chan []job.ID
	do    func(ctx context.Context, ids []job.ID, ends *job.Ends) error
}

func (h *batches) register(opts ...job.Option) func(*job.Registry) {
	h.calls = make(chan []job.ID, 1000)
	return func(r *job.Registry) {
		r.Add(job.Spec{Kind: "batch", HandleBatch: func(ctx context.Context, records []*job.Record, ends *job.Ends) error {
			ids := idsOf(records)
			h.calls <- ids
			if h.do == nil {
				return nil
			}
			return h.do(ctx, ids, ends)
		}}, opts...)
	}
}

func idsOf(records []*job.Record) (ids []job.ID) {
	for _, rec := range records {
		ids = append(ids, rec.ID)
	}
	return ids
}

func (o *fakeOwner) outcomes(t *testing.T, n int) map[job.ID]end {
	t.Helper()
	all := map[job.ID]end{}
	for range n {
		e := o.next(t)
		all[e.claim.Record.ID] = e
	}
	require.Len(t, all, n)
	return all
}

// Each job of one call ends as was said of it, and else as the call does.
func TestBatchOutcomes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &batches{do: func(ctx context.Context, ids []job.ID, ends *job.Ends) error {
			_, of := job.FromContext(ctx)
			require.False(t, of, "the context is no single job's")
			ends.Set(2, errBroken)
			ends.Set(3, job.RetryIn(time.Hour, errBroken))
			ends.Set(4, job.Snooze(time.Minute))
			ends.Set(5, job.Discard(errBroken))
			ends.Set(6, job.Cancel(errBroken))
			ends.Set(7, errBroken)
			ends.Set(7, nil)
			time.AfterFunc(time.Minute, func() { ends.Set(1, errBroken) }) // late
			return nil
		}}
		b := newBundle(t, nil, h.register())
		b.submit("batch", 7)
		b.start()
		all := b.owner.outcomes(t, 7)
		require.Equal(t, []job.ID{1, 2, 3, 4, 5, 6, 7}, <-h.calls)
		for id, want := range map[job.ID]job.State{1: job.Done, 2: job.Retrying, 3: job.Retrying, 4: job.Snoozed, 5: job.Dead, 6: job.Cancelled, 7: job.Done} {
			require.Equal(t, want, all[id].outcome.State, "job %d", id)
		}
		require.Equal(t, time.Hour, all[3].outcome.Delay)
		require.Equal(t, time.Minute, all[4].outcome.Delay)
		time.Sleep(2 * time.Minute)
	})
}

// What ends the call ends every job that nothing was said of.
func TestBatchEndsAsAWhole(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		how   func(ctx context.Context) error
		state job.State
		is    error
		says  string
	}{
		"error":   {how: func(context.Context) error { return errBroken }, state: job.Retrying, is: errBroken},
		"discard": {how: func(context.Context) error { return job.Discard(errBroken) }, state: job.Dead, is: errBroken},
		"panic":   {how: func(context.Context) error { panic("boom") }, state: job.Retrying, says: "boom"},
		"goexit":  {how: func(context.Context) error { runtime.Goexit(); return nil }, state: job.Retrying, is: errGoexit},
		"timeout": {how: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, state: job.Retrying, is: job.ErrTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &batches{do: func(ctx context.Context, _ []job.ID, ends *job.Ends) error {
					ends.Set(1, nil)
					ends.Set(2, job.Snooze(time.Hour))
					return c.how(ctx)
				}}
				b := newBundle(t, nil, h.register())
				b.submit("batch", 4)
				b.start()
				all := b.owner.outcomes(t, 4)
				require.Equal(t, job.Done, all[1].outcome.State, "it had been done before")
				require.Equal(t, job.Snoozed, all[2].outcome.State)
				for id := job.ID(3); id <= 4; id++ {
					o := all[id].outcome
					require.Equal(t, c.state, o.State)
					if c.is != nil {
						require.ErrorIs(t, o.Err, c.is)
					}
					if c.says != "" {
						require.ErrorContains(t, o.Err, c.says)
					}
				}
				require.Len(t, h.calls, 1)
				b.submit("noop", 4) // no worker was lost
				b.owner.outcomes(t, 4)
			})
		})
	}
}

// A call gets jobs of one tenant, kind, timeout and turn, at most so many, in their order, and
// leaves the others in theirs.
func TestWhatSharesACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &batches{}
		var others []job.ID
		b := newBundle(t, func(c *Config) { c.Workers = 1 }, func(r *job.Registry) {
			h.register(job.MaxBatch(3), job.Retry("R4/PT1S"))(r)
			r.Add(job.Spec{Kind: "other", Handle: func(_ context.Context, rec *job.Record) error { others = append(others, rec.ID); return nil }})
		})
		submit := func(change func(rec *job.Record)) {
			c := b.claim("batch")
			change(&c.Record)
			b.submitClaims([]ClaimedJob{c})
		}
		same := func(*job.Record) {}
		for _, change := range []func(*job.Record){
			same,                                     // 1
			func(r *job.Record) { r.Kind = "other" }, // 2
			func(r *job.Record) { r.Turn = 1 },       // 3
			same,                                     // 4
			func(r *job.Record) { r.Timeout = 1 << 40 }, // 5
			func(r *job.Record) { r.Losses = 1 },        // 6
			func(r *job.Record) { r.Kind = "other" },    // 7
			same,                                        // 8
			same,                                        // 9
			func(r *job.Record) { r.Turn = 1 },          // 10
			func(r *job.Record) { r.Tenant = "beta" },   // 11
			func(r *job.Record) { r.Attempt = 2 },       // 12
			func(r *job.Record) { r.Attempt = 4 },       // 13
			func(r *job.Record) { r.MaxAttempts = 1 },   // 14
		} {
			submit(change)
		}
		b.start()
		all := b.owner.outcomes(t, 14)
		require.Len(t, all, 14)
		var calls [][]job.ID
		for len(h.calls) > 0 {
			calls = append(calls, <-h.calls)
		}
		slices.SortFunc(calls, func(a, b []job.ID) int { return int(a[0] - b[0]) })
		require.Equal(t, [][]job.ID{{1, 4, 8}, {3, 10}, {5}, {6}, {9}, {11}, {12}, {13}, {14}}, calls)
		require.Equal(t, []job.ID{2, 7}, others)
	})
}

// A job that has failed comes in ever smaller company.
func TestMostTogether(t *testing.T) {
	t.Parallel()
	h := &batches{}
	b := newBundle(t, nil, h.register(job.MaxBatch(200), job.Retry("R5/PT1S")))
	for attempt, want := range map[int]int{1: 200, 2: 20, 3: 2, 4: 1, 5: 1} {
		c := b.claim("batch")
		c.Record.Attempt = attempt
		require.Equal(t, want, b.workers.mostTogether(&c), "attempt %d", attempt)
	}
	b.lastID.Store(0)
}

// One job that fails every call that it is in makes no other one a dead letter.
func TestOneJobDoesNotDeadLetterOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const attempts = 2
		h := &batches{do: func(_ context.Context, ids []job.ID, _ *job.Ends) error {
			if slices.Contains(ids, 13) {
				return errBroken
			}
			return nil
		}}
		b := newBundle(t, nil, h.register(job.Retry(fmt.Sprintf("R%d/PT1S", attempts))))
		b.submit("batch", 50)
		require.NoError(t, b.workers.Start(t.Context()))
		for attempt := 1; attempt <= attempts; attempt++ {
			all := b.owner.outcomes(t, 50)
			var again []ClaimedJob
			for id, e := range all {
				switch {
				case attempt == 1:
					require.Equal(t, job.Retrying, e.outcome.State, "they shared its call")
				case id == 13:
					require.Equal(t, job.Dead, e.outcome.State)
				default:
					require.Equal(t, job.Done, e.outcome.State)
				}
				c := *e.claim
				c.with, c.Record.Attempt = nil, c.Record.Attempt+1
				again = append(again, c)
			}
			if attempt < attempts {
				b.submitClaims(again)
			}
		}
		require.NoError(t, b.workers.Stop(context.Background()))
	})
}

// A call of many jobs has one worker and one slot, and what its jobs are thought to take is its
// time shared among them.
func TestABatchHasOneWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		h := &batches{do: func(context.Context, []job.ID, *job.Ends) error { <-goOn; return nil }}
		b := newBundle(t, nil, h.register())
		b.submit("batch", 100)
		b.start()
		synctest.Wait()
		require.EqualValues(t, 1, b.workers.capacity.used.Load())
		require.Equal(t, 1, b.workers.FreeSlots(), "the other worker is free")
		require.Equal(t, 1, b.workers.backlog.running)
		require.Equal(t, map[string]int{"batch": 100}, b.workers.runningKinds())
		b.submit("noop", 1)
		require.Equal(t, "noop", b.owner.next(t).claim.Record.Kind)
		time.Sleep(10 * time.Second)
		close(goOn)
		b.owner.outcomes(t, 100)
		synctest.Wait()
		took, _ := b.workers.durations.expect("batch")
		require.Equal(t, 100*time.Millisecond, took)
	})
}

// Jobs that wait for one call have one slot, count as one that waits, and let more of their kind be
// claimed until the call is full; they come and go without a slot too many or too few.
func TestABatchWaitsAsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 10
		w, h := newWaiter(false), &batches{}
		b := newBundle(t, func(c *Config) { c.TenantShare = 75 }, func(r *job.Registry) {
			h.register(job.MaxBatch(most))(r)
			w.register(r)
		}).start()
		b.submit("batch", 1) // so that it is known how long they take
		b.owner.next(t)
		b.workers.durations.of("batch").nanos.Store(int64(time.Second))
		take := func(tenant, kind string, n int) (taken int) {
			room := b.workers.Room()
			for range n {
				if room.Take(tenant, kind) {
					taken++
				}
			}
			return taken
		}
		for _, tenant := range []string{"one", "two"} {
			c := b.claim("wait")
			c.Record.Tenant = tenant
			b.submitClaims([]ClaimedJob{c})
			<-w.running
		}
		synctest.Wait()
		require.Equal(t, most, take("acme", "batch", 3*most), "one call, as the workers are busy")
		require.Equal(t, 1, take("acme", "wait", 3), "one job")
		b.submit("batch", 4)
		synctest.Wait()
		require.EqualValues(t, 3, b.workers.capacity.used.Load(), "two run and one call waits")
		require.Equal(t, 1, b.workers.backlog.loads["acme"].waiting)
		require.Equal(t, most-4, take("acme", "batch", 3*most), "those that fill it")
		b.submit("batch", 2*most-4)
		synctest.Wait()
		require.EqualValues(t, 4, b.workers.capacity.used.Load(), "two calls wait")
		require.Equal(t, 2*most, b.workers.backlog.countWaiting())
		require.Zero(t, take("acme", "batch", 3*most))
		close(w.goOn)
		b.owner.outcomes(t, 2+2*most)
		require.Len(t, h.calls, 3)
		require.Zero(t, b.workers.backlog.loads["acme"].batches["batch"])
	})
}

// A call has one slot also if several calls were thought to begin with its jobs, or none.
func TestSlotsOfCallsThatWereMistaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		h := &batches{do: func(context.Context, []job.ID, *job.Ends) error { <-goOn; return nil }}
		b := newBundle(t, nil, h.register(job.MaxBatch(2)))
		var claims []ClaimedJob
		for _, turn := range []int32{0, 1, 0} {
			c := b.claim("batch")
			c.Record.Turn = turn
			claims = append(claims, c)
		}
		b.submitClaims(claims)
		b.start()
		synctest.Wait()
		require.EqualValues(t, 2, b.workers.capacity.used.Load())
		close(goOn)
		b.owner.outcomes(t, 3)
		require.ElementsMatch(t, []int{1, 2}, []int{len(<-h.calls), len(<-h.calls)})
	})
}

// Cancelling one of several jobs ends no call; cancelling all does.
func TestCancelOfABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		var cause error
		h := &batches{do: func(ctx context.Context, ids []job.ID, ends *job.Ends) error {
			select {
			case <-goOn:
				ends.Set(ids[1], errBroken)
				ends.Set(ids[2], errBroken)
				return nil
			case <-ctx.Done():
				cause = context.Cause(ctx)
				return ctx.Err()
			}
		}}
		b := newBundle(t, nil, h.register())
		b.submit("batch", 3)
		b.start()
		synctest.Wait()
		for _, id := range []job.ID{1, 2} {
			require.True(t, b.workers.Cancel(id))
			require.False(t, b.workers.Cancel(id), "again")
		}
		synctest.Wait()
		require.Empty(t, b.owner.ends)
		close(goOn)
		all := b.owner.outcomes(t, 3)
		require.Equal(t, job.Done, all[1].outcome.State, "its end came first")
		require.Equal(t, job.Cancelled, all[2].outcome.State)
		require.Equal(t, job.Retrying, all[3].outcome.State)

		goOn = make(chan struct{})
		b.submit("batch", 2)
		synctest.Wait()
		require.True(t, b.workers.Cancel(4))
		require.True(t, b.workers.Cancel(5))
		for _, e := range b.owner.outcomes(t, 2) {
			require.Equal(t, job.Cancelled, e.outcome.State)
		}
		require.ErrorIs(t, cause, job.ErrCancelled)
	})
}

// A stop gives all jobs of a call back.
func TestStopWithABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &batches{do: func(ctx context.Context, _ []job.ID, _ *job.Ends) error { <-ctx.Done(); return ctx.Err() }}
		b := newBundle(t, nil, h.register())
		b.submit("batch", 5)
		require.NoError(t, b.workers.Start(t.Context()))
		<-h.calls
		b.stop()
		for _, e := range b.owner.outcomes(t, 5) {
			require.Equal(t, job.Returned, e.outcome.State)
		}
	})
}

// Jobs of a kind that waits for more share a call when there are enough of them, or the time is
// over. Meanwhile they have no slot, and a stop gives them back.
func TestBatchWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &batches{}
		b := newBundle(t, nil, h.register(job.MaxBatch(3), job.BatchWait(time.Second)))
		require.NoError(t, b.workers.Start(t.Context()))
		began := time.Now()
		b.submit("batch", 1)
		time.Sleep(500 * time.Millisecond)
		b.submit("batch", 1)
		require.Zero(t, b.workers.capacity.used.Load())
		require.Equal(t, []job.ID{1, 2}, <-h.calls)
		require.Equal(t, time.Second, time.Since(began))
		b.submit("batch", 4)
		require.Equal(t, []job.ID{3, 4, 5}, <-h.calls)
		require.Equal(t, time.Second, time.Since(began), "they are enough")
		require.Equal(t, []job.ID{6}, <-h.calls)
		require.Equal(t, 2*time.Second, time.Since(began))
		lost := b.claim("batch")
		lost.Record.Losses = 1
		b.submitClaims([]ClaimedJob{lost})
		require.Equal(t, []job.ID{7}, <-h.calls)
		require.Equal(t, 2*time.Second, time.Since(began), "it has nobody to wait for")
		b.submit("batch", 1)
		b.workers.PassOn()
		require.Equal(t, []job.ID{8}, <-h.calls)
		require.Equal(t, 2*time.Second, time.Since(began))
		b.submit("batch", 2)
		b.stop()
		all := b.owner.outcomes(t, 10)
		require.Equal(t, "return", all[9].how)
		require.Equal(t, "return", all[10].how)
	})
}

// batchInTx registers a batch kind that runs in a transaction.
func batchInTx(r *job.Registry, kind string, fn func(ctx context.Context, tx pgx.Tx, ids []job.ID, ends *job.Ends) error) {
	r.Add(job.Spec{Kind: kind, InTx: true, HandleBatch: func(ctx context.Context, records []*job.Record, ends *job.Ends) error {
		tx, ok := TxFromContext(ctx)
		if !ok {
			return errNotYours
		}
		return fn(ctx, tx, idsOf(records), ends)
	}})
}

// runBatch runs jobs of a kind in one call and returns how they ended.
func (c *city) runBatch(t *testing.T, kind string, tenant *tenancy.Tenant, n int) []end {
	t.Helper()
	batch := make([]ClaimedJob, n)
	for i := range batch {
		batch[i] = c.claim(kind)
		batch[i].Tenant, batch[i].Record.Tenant = tenant, string(tenant.ID)
	}
	c.submitClaims(batch)
	all := c.owner.outcomes(t, n)
	ends := make([]end, n)
	for i := range batch {
		ends[i] = all[batch[i].Record.ID]
	}
	return ends
}

const addEffects = "INSERT INTO effect SELECT unnest($1::bigint[])"

// In a transaction those that are done end with what was done, in one statement, and the
// others do not; if it is rolled back, none of them is done.
func TestBatchInTx(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	add := func(ctx context.Context, tx pgx.Tx, ids []job.ID) error {
		calls.Add(1)
		_, err := tx.Exec(ctx, addEffects, ids)
		return err
	}
	c := newCity(t, func(r *job.Registry) {
		batchInTx(r, "all", func(ctx context.Context, tx pgx.Tx, ids []job.ID, _ *job.Ends) error { return add(ctx, tx, ids) })
		batchInTx(r, "some", func(ctx context.Context, tx pgx.Tx, ids []job.ID, ends *job.Ends) error {
			ends.Set(ids[0], job.Discard(errBroken))
			ends.Set(ids[1], nil)
			return add(ctx, tx, ids[1:])
		})
		batchInTx(r, "none", func(ctx context.Context, tx pgx.Tx, ids []job.ID, ends *job.Ends) error {
			for _, id := range ids {
				ends.Set(id, job.Snooze(time.Hour))
			}
			return add(ctx, tx, ids)
		})
		batchInTx(r, "fails", func(ctx context.Context, tx pgx.Tx, ids []job.ID, ends *job.Ends) error {
			ends.Set(ids[0], nil)
			ends.Set(ids[1], job.Cancel(errBroken))
			return errors.Join(add(ctx, tx, ids), errBroken)
		})
		batchInTx(r, "panics", func(ctx context.Context, tx pgx.Tx, ids []job.ID, ends *job.Ends) error {
			ends.Set(ids[0], nil)
			_ = add(ctx, tx, ids)
			panic("boom")
		})
		batchInTx(r, "conflicts", func(ctx context.Context, tx pgx.Tx, ids []job.ID, ends *job.Ends) error {
			if err := add(ctx, tx, ids); err != nil || calls.Load() > 2 {
				return err
			}
			ends.Set(ids[0], job.Discard(errBroken)) // this call will not count
			_, err := tx.Exec(ctx, "DO $$BEGIN RAISE 'met another one' USING ERRCODE = '40001'; END$$")
			return err
		})
		batchInTx(r, "one.conflicts", func(ctx context.Context, tx pgx.Tx, ids []job.ID, ends *job.Ends) error {
			sp, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			_, err = sp.Exec(ctx, "DO $$BEGIN RAISE 'met another one' USING ERRCODE = '40P01'; END$$")
			ends.Set(ids[0], err)
			if err := sp.Rollback(ctx); err != nil {
				return err
			}
			return add(ctx, tx, ids[1:])
		})
	})
	c.start()
	effects, ended := 0, 0
	run := func(kind string, n, inTx int) []end {
		t.Helper()
		calls.Store(0)
		ends := c.runBatch(t, kind, c.tenants["alpha"], n)
		effects, ended = effects+inTx, ended+inTx
		require.Equal(t, effects, c.count(t, "SELECT count(*) FROM alpha.effect"))
		require.Equal(t, effects, c.count(t, "SELECT count(DISTINCT job_id) FROM alpha.effect"))
		require.Equal(t, ended, c.count(t, "SELECT count(*) FROM tenure.ended"))
		require.Equal(t, ended, c.count(t, "SELECT count(*) FROM tenure.ended JOIN alpha.effect USING (job_id) WHERE who = $1", c.user), "as the pool's user")
		return ends
	}
	for _, e := range run("all", 5, 5) {
		require.Equal(t, "in tx", e.how, "%v", e.outcome.Err)
	}
	ends := run("some", 4, 3)
	require.Equal(t, job.Dead, ends[0].outcome.State)
	for _, e := range ends[1:] {
		require.Equal(t, "in tx", e.how, "%v", e.outcome.Err)
	}
	for _, e := range run("none", 3, 0) {
		require.Equal(t, job.Snoozed, e.outcome.State)
	}
	ends = run("fails", 3, 0)
	require.Equal(t, job.Retrying, ends[0].outcome.State, "what it was done by is undone")
	require.Equal(t, job.Cancelled, ends[1].outcome.State)
	require.Equal(t, job.Retrying, ends[2].outcome.State)
	for _, e := range run("panics", 2, 0) {
		require.Equal(t, job.Retrying, e.outcome.State)
		require.ErrorContains(t, e.outcome.Err, "boom")
	}
	for _, e := range run("conflicts", 3, 3) {
		require.Equal(t, "in tx", e.how, "%v", e.outcome.Err)
	}
	require.EqualValues(t, 3, calls.Load())
	ends = run("one.conflicts", 3, 2)
	require.Equal(t, job.Snoozed, ends[0].outcome.State, "%v", ends[0].outcome.Err)
	require.Equal(t, "in tx", ends[1].how)
}

// When jobs of a transaction were lost, the others run again and are not charged.
func TestBatchWithALostClaim(t *testing.T) {
	t.Parallel()
	c := newCity(t, func(r *job.Registry) {
		batchInTx(r, "batch", func(ctx context.Context, tx pgx.Tx, ids []job.ID, _ *job.Ends) error {
			_, err := tx.Exec(ctx, addEffects, ids)
			return err
		})
	})
	c.owner.lost.Store(true)
	c.start()
	for _, e := range c.runBatch(t, "batch", c.tenants["alpha"], 3) {
		require.Equal(t, job.Returned, e.outcome.State, "%v", e.outcome.Err)
		require.ErrorIs(t, e.outcome.Err, job.ErrClaimLost)
	}
	require.Equal(t, job.Retrying, c.runBatch(t, "batch", c.tenants["alpha"], 1)[0].outcome.State, "a job alone was lost itself")
	require.Zero(t, c.count(t, "SELECT count(*) FROM alpha.effect"))
}

// A database that cannot run a batch has failed one run, not many.
func TestABatchIsDeferredAsOneRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &batches{}
		b := newBundle(t, nil, h.register())
		first := b.claim("batch")
		for range 3 * failuresInARow {
			other := b.claim("batch")
			first.with = append(first.with, &other)
		}
		spec, _ := b.workers.registry.Lookup("batch")
		r := newRun(b.workers, &slot{}, &first, spec)
		r.err = errUnavailable
		r.reportEnd(nil, time.Second)
		for _, e := range b.owner.outcomes(t, 1+3*failuresInARow) {
			require.Equal(t, job.Snoozed, e.outcome.State)
		}
		require.False(t, b.workers.pauses.isPaused(b.owner))
	})
}

// Jobs that were cancelled before their call begins are given back, wherever they stand in it; the others run.
func TestWithheldJobsDoNotBegin(t *testing.T) {
	t.Parallel()
	for name, withheld := range map[string][]job.ID{"the first": {1}, "one between": {2, 99}, "the last two": {2, 3}, "all": {1, 2, 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &batches{}
				b := newBundle(t, nil, h.register()).start()
				b.workers.Withhold(newFakeOwner(), []job.ID{1, 2, 3}) // somebody else's
				b.workers.Withhold(b.owner, []job.ID{1})
				b.workers.Withhold(b.owner, withheld)
				b.submit("batch", 3)
				var ran []job.ID
				for id, e := range b.owner.outcomes(t, 3) {
					require.Equal(t, slices.Contains(withheld, id), e.how == "return", id)
					if e.how != "return" {
						ran = append(ran, id)
					}
				}
				synctest.Wait()
				require.Len(t, h.calls, min(1, len(ran)))
				require.Zero(t, b.workers.capacity.bytes.Load())
				b.workers.Withhold(b.owner, nil)
				b.submit("batch", 1)
				require.Equal(t, job.Done, b.owner.next(t).outcome.State)
			})
		})
	}
}
