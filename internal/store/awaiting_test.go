package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// awaited is a pool whose lock is held for as long as a test takes on a busy machine.
func awaited(t *testing.T) *bundle {
	b := setup(t)
	_, err := store.RenewLock(t.Context(), b.db, b.fence, time.Hour, time.Hour)
	require.NoError(t, err)
	return b
}

// after adds a job that starts after others.
func (b *bundle) after(t *testing.T, onFailure string, ids ...job.ID) job.ID {
	t.Helper()
	l := &store.Links{OnFailure: onFailure}
	for _, id := range ids {
		l.After = append(l.After, int64(id))
	}
	return b.enqueue(t, store.NewJob{Links: l})
}

func (b *bundle) settle(t *testing.T) store.Settled {
	t.Helper()
	s, err := store.SettleAwaited(t.Context(), b.db, b.fence, 1000, true)
	require.NoError(t, err)
	return s
}

// outcomes are how the jobs have ended that one awaits, as far as that was taken in.
func (b *bundle) outcomes(t *testing.T, of job.ID) (all []string) {
	t.Helper()
	rows, err := b.owner.Query(t.Context(), "SELECT coalesce(outcome, '') FROM tenure.awaited WHERE awaiting_id = $1 ORDER BY job_id", int64(of))
	require.NoError(t, err)
	all, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return all
}

// Whichever statement ends a job that is awaited, its end is noted, once it has ended and not before, and
// as what it was; also where finished jobs are not kept.
func TestEachWayToEndIsNoted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	finish := func(o job.Outcome, keep bool) func(*testing.T, *bundle, job.ID) {
		return func(t *testing.T, b *bundle, id job.ID) {
			p := b.page(t, 0)
			require.Len(t, p.Jobs, 1)
			b.claim(t, p)
			runs := []store.Finished{{Record: &p.Jobs[0].Record, Outcome: o}}
			lost, err := store.Finish(ctx, b.db, store.Runner{Session: b.fence.Session, Node: "a"}, keep, runs, nil)
			require.NoError(t, err)
			require.Zero(t, lost)
		}
	}
	inTx := func(t *testing.T, b *bundle, _ job.ID) {
		p := b.page(t, 0)
		var ids []job.ID
		for _, j := range p.Jobs {
			ids = append(ids, j.Record.ID)
		}
		b.claim(t, p)
		_, err := b.db.Exec(ctx, store.FinishInTx(store.EndInTx{Turn: p.Jobs[0].Record.Turn, IDs: ids, Node: "a"}))
		require.NoError(t, err)
	}
	cancelClaimed := func(t *testing.T, b *bundle, id job.ID) {
		running, err := store.Cancel(ctx, b.db, id, false)
		require.NoError(t, err)
		require.True(t, running)
	}
	for name, c := range map[string]struct {
		end  func(*testing.T, *bundle, job.ID)
		want string
	}{
		"done, and kept":     {finish(job.Outcome{State: job.Done}, true), "done"},
		"done, and not kept": {finish(job.Outcome{State: job.Done}, false), "done"},
		"done, after a long run": {func(t *testing.T, b *bundle, id job.ID) {
			p := b.page(t, 0)
			b.claim(t, p)
			_, err := store.Finish(ctx, b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, []store.Finished{{Record: &p.Jobs[0].Record, Outcome: job.Outcome{State: job.Done}, Took: time.Hour}}, nil)
			require.NoError(t, err)
		}, "done"},
		"cancelled by its run": {finish(job.Outcome{State: job.Cancelled}, false), "cancelled"},
		"dead":                 {finish(job.Outcome{State: job.Dead, Err: errors.New("no")}, true), "dead"},
		"in a transaction":     {inTx, "done"},
		"together with another in a transaction": {func(t *testing.T, b *bundle, id job.ID) {
			b.enqueue(t, store.NewJob{})
			inTx(t, b, id)
		}, "done"},
		"it is to run again, and is not wanted": {func(t *testing.T, b *bundle, id job.ID) {
			p := b.page(t, 0)
			b.claim(t, p)
			cancelClaimed(t, b, id)
			_, err := store.Finish(ctx, b.db, store.Runner{Session: b.fence.Session, Node: "a"}, false, []store.Finished{{Record: &p.Jobs[0].Record, Outcome: job.Outcome{State: job.Retrying, Err: errors.New("no")}}}, nil)
			require.NoError(t, err)
		}, "cancelled"},
		"cancelled while it waits": {func(t *testing.T, b *bundle, id job.ID) {
			_, err := store.Cancel(ctx, b.db, id, false)
			require.NoError(t, err)
		}, "cancelled"},
		"cancelled by the holder": {func(t *testing.T, b *bundle, id job.ID) {
			_, err := b.db.Exec(ctx, "SELECT tenure.cancel($1)", int64(id))
			require.NoError(t, err)
			found, err := store.FindUnwanted(ctx, b.db, store.BeforeAllJobs, 10)
			require.NoError(t, err)
			n, err := store.CancelWaiting(ctx, b.db, b.fence, found, false)
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}, "cancelled"},
		"cancelled by SQL": {func(t *testing.T, b *bundle, id job.ID) {
			_, err := store.Suspend(ctx, b.db, []int64{int64(id)}, time.Time{})
			require.NoError(t, err)
			_, err = b.db.Exec(ctx, "SELECT tenure.cancel($1, false)", int64(id))
			require.NoError(t, err)
		}, "cancelled"},
		"reaped, and not wanted": {func(t *testing.T, b *bundle, id job.ID) {
			b.dies(t, id)
			cancelClaimed(t, b, id)
			_, err := store.ReapClaims(ctx, b.db, b.fence, 3, 0, false)
			require.NoError(t, err)
		}, "cancelled"},
		"reaped for the last time": {func(t *testing.T, b *bundle, id job.ID) {
			b.dies(t, id)
			_, err := store.ReapClaims(ctx, b.db, b.fence, 1, 0, false)
			require.NoError(t, err)
		}, "dead"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := awaited(t)
			id := b.enqueue(t, store.NewJob{})
			run := b.after(t, "run", id)
			require.Equal(t, store.Settled{Ends: 1, Some: true}, b.settle(t))
			c.end(t, b, id)
			s := b.settle(t)
			require.Equal(t, []string{c.want}, b.outcomes(t, run))
			require.Equal(t, store.Settled{Ends: 1, Started: 1, Some: true}, s)
			fired, err := store.FireTimers(ctx, b.db, b.fence, 10)
			require.NoError(t, err)
			require.Len(t, fired, 1)
			require.Equal(t, store.Settled{}, b.settle(t), "it is let start once")
		})
	}
}

// A report about a run whose claim was lost, and a dead letter that waits to be retried, are no ends.
func TestWhatIsNoEnd(t *testing.T) {
	t.Parallel()
	b, ctx := awaited(t), t.Context()
	id := b.enqueue(t, store.NewJob{})
	waits := b.after(t, "wait", id)
	b.settle(t)
	p := b.page(t, 0)
	require.Len(t, p.Jobs, 1)
	b.claim(t, p)
	stale := p.Jobs[0].Record
	stale.Turn--
	by := store.Runner{Session: b.fence.Session, Node: "a"}
	lost, err := store.Finish(ctx, b.db, by, true, []store.Finished{{Record: &stale, Outcome: job.Outcome{State: job.Done}}}, nil)
	require.NoError(t, err)
	require.Equal(t, 1, lost)
	require.Zero(t, b.settle(t).Ends)
	_, err = store.Finish(ctx, b.db, by, true, []store.Finished{{Record: &p.Jobs[0].Record, Outcome: job.Outcome{State: job.Dead, Err: errors.New("no")}}}, nil)
	require.NoError(t, err)
	_, err = store.Finish(ctx, b.db, by, true, []store.Finished{{Record: &stale, Outcome: job.Outcome{State: job.Done}}}, nil)
	require.NoError(t, err)
	require.Equal(t, store.Settled{Ends: 1, Some: true}, b.settle(t))
	require.Equal(t, []string{""}, b.outcomes(t, waits))
	idle, err := store.LookIdle(ctx, b.db)
	require.NoError(t, err)
	require.False(t, idle.Waiting)
	n, err := store.DeleteDead(ctx, b.db, b.dead(t, store.DeadFilter{}, 10))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	idle, err = store.LookIdle(ctx, b.db)
	require.NoError(t, err)
	require.True(t, idle.Waiting, "a holder that dozes is to take this end in")
	require.Equal(t, store.Settled{Ends: 1, Cancelled: 1, Some: true}, b.settle(t), "it will never be done")
	require.Equal(t, "cancelled", b.state(t, waits))
}

// Only the holder of the lock takes ends in.
func TestSettlingIsFenced(t *testing.T) {
	t.Parallel()
	b, ctx := awaited(t), t.Context()
	b.enqueue(t, store.NewJob{Links: &store.Links{Batch: true}})
	for _, f := range []store.Fence{{Session: b.fence.Session, Epoch: b.fence.Epoch - 1}, {Session: openSession(t, b.db, "b"), Epoch: b.fence.Epoch}} {
		s, err := store.SettleAwaited(ctx, b.db, f, 1000, true)
		require.NoError(t, err)
		require.Equal(t, store.Settled{Some: true}, s)
	}
	require.Equal(t, store.Settled{Ends: 1, Started: 1, Some: true}, b.settle(t))
}

// A batch is not closed while a transaction is open that adds to it, nor before what that has added.
func TestABatchStaysOpenWhileItIsAddedTo(t *testing.T) {
	t.Parallel()
	b, ctx := awaited(t), t.Context()
	batch := b.enqueue(t, store.NewJob{Links: &store.Links{Batch: true}})
	add := func(row store.QueryRow, tenant string) (job.ID, error) {
		id, _, err := store.Enqueue(ctx, row, 1, &store.NewJob{Tenant: tenant, Queue: "default", Kind: "k", Payload: []byte("{}"), Links: &store.Links{In: int64(batch)}})
		return id, err
	}
	tx, err := b.db.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback(ctx)
	first, err := add(tx.QueryRow, "acme")
	require.NoError(t, err)
	for range 2 {
		require.Equal(t, store.Settled{Ends: 1, Some: true}, b.settle(t), "it comes again")
	}
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, store.Settled{Ends: 1, Some: true}, b.settle(t))
	require.Zero(t, b.settle(t).Ends)
	_, err = store.Cancel(ctx, b.db, first, true)
	require.NoError(t, err)
	require.Equal(t, 1, b.settle(t).Cancelled)
	var link *job.LinkError
	_, err = add(b.db.QueryRow, "acme")
	require.ErrorAs(t, err, &link)
	require.Equal(t, job.LinkError{ID: batch, Batch: true}, *link)
}

// What is refused leaves the transaction as it was: unknown ids, and other tenants'.
func TestLinksAreRefused(t *testing.T) {
	t.Parallel()
	b, ctx := awaited(t), t.Context()
	mine, theirs := b.enqueue(t, store.NewJob{}), b.enqueue(t, store.NewJob{Tenant: "globex"})
	batch := b.enqueue(t, store.NewJob{Tenant: "globex", Links: &store.Links{Batch: true}})
	chained := b.after(t, "wait", mine)
	tx, err := b.db.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback(ctx)
	for _, c := range []struct {
		links store.Links
		want  job.LinkError
	}{
		{store.Links{After: []int64{int64(mine), 99}}, job.LinkError{ID: 99}},
		{store.Links{After: []int64{int64(theirs), int64(mine)}}, job.LinkError{ID: theirs}},
		{store.Links{In: int64(batch)}, job.LinkError{ID: batch, Batch: true}},
		{store.Links{In: int64(mine)}, job.LinkError{ID: mine, Batch: true}},
		{store.Links{In: int64(chained)}, job.LinkError{ID: chained, Batch: true}},
	} {
		var link *job.LinkError
		_, _, err := store.Enqueue(ctx, tx.QueryRow, 1, &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}"), Links: &c.links})
		require.ErrorAs(t, err, &link)
		require.Equal(t, c.want, *link)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	id, _, err := store.Enqueue(ctx, tx.QueryRow, 1, &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}"), Links: &store.Links{After: []int64{int64(mine), int64(mine)}}})
	require.NoError(t, err)
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, []string{""}, b.outcomes(t, id))
	require.Equal(t, store.Counts{Waiting: 2, Awaiting: 3}, counts(t, b.db))
}

// What programs of before have ended is found, as far as it can be known; what was awaited is forgotten
// once its job is gone.
func TestEndsThatNobodyNoted(t *testing.T) {
	t.Parallel()
	b, ctx := awaited(t), t.Context()
	var ids []job.ID
	for range 4 {
		ids = append(ids, b.enqueue(t, store.NewJob{}))
	}
	run, waits := b.after(t, "run", ids...), b.after(t, "wait", ids[:2]...)
	b.settle(t)
	for _, sql := range []string{
		"DELETE FROM tenure.job WHERE id = $1",
		`WITH gone AS (DELETE FROM tenure.job WHERE id = $1 RETURNING *)
			INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload)
			SELECT id, created_at, now(), turn, priority, attempt, losses, tenant_id, queue, kind, 'cancelled', payload FROM gone`,
		`WITH gone AS (DELETE FROM tenure.job WHERE id = $1 RETURNING *)
			INSERT INTO tenure.dead_letter_job (id, turn, tenant_id, queue, kind, payload, origin, error)
			SELECT id, turn, tenant_id, queue, kind, payload, 'job', 'no' FROM gone`,
	} {
		_, err := b.owner.Exec(ctx, sql, int64(ids[0]))
		require.NoError(t, err)
		ids = ids[1:]
	}
	look := func() (missed int) {
		t.Helper()
		var at store.AwaitedCursor
		for more := true; more; more = at != (store.AwaitedCursor{}) {
			n, next, err := store.NoteMissedEnds(ctx, b.db, at, 2)
			require.NoError(t, err)
			missed, at = missed+n, next
		}
		return missed
	}
	require.Equal(t, 3, look())
	require.Zero(t, look(), "they are noted once")
	require.Equal(t, 1, b.settle(t).Cancelled)
	require.Equal(t, []string{"unknown", "cancelled", "dead", ""}, b.outcomes(t, run))
	require.Equal(t, "cancelled", b.state(t, waits))
	_, err := store.Cancel(ctx, b.db, ids[0], true)
	require.NoError(t, err)
	require.Equal(t, 1, b.settle(t).Started)
	_, err = store.Cancel(ctx, b.db, run, true)
	require.NoError(t, err)
	var left []int
	var place store.ClosedPlace
	for more := true; more && len(left) < 9; {
		place, more, err = store.TrimAwaited(ctx, b.db, place, 2, 0)
		require.NoError(t, err)
		var n int
		require.NoError(t, b.owner.QueryRow(ctx, "SELECT (SELECT count(*) FROM tenure.awaiting) + (SELECT count(*) FROM tenure.awaited)").Scan(&n))
		left = append(left, n)
	}
	require.Equal(t, []int{6, 4, 2, 0, 0}, left, "so many rows in a statement")
	require.Equal(t, store.ClosedPlace{}, place)
}

// What awaits nothing any more, and of which nothing was noted, is found a step at a time.
func TestAwaitingJobsAreLookedAtInSteps(t *testing.T) {
	t.Parallel()
	b, ctx := awaited(t), t.Context()
	id := b.enqueue(t, store.NewJob{})
	waits := b.after(t, "wait", id)
	for range 4 {
		b.enqueue(t, store.NewJob{Links: &store.Links{Batch: true}})
	}
	execute(t, b.owner, "DELETE FROM tenure.awaited_end")
	var noted []int
	for at := job.ID(0); len(noted) == 0 || at != 0; {
		var err error
		at, err = store.NoteAwaiting(ctx, b.db, at, 2)
		require.NoError(t, err)
		var n int
		require.NoError(t, b.owner.QueryRow(ctx, "SELECT count(*) FROM tenure.awaited_end").Scan(&n))
		noted = append(noted, n)
	}
	require.Equal(t, []int{1, 3, 4}, noted)
	require.Equal(t, 4, b.settle(t).Started)
	require.Equal(t, "awaiting", b.state(t, waits))
}
