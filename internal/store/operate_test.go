package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func TestCancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	waiting, claimed := b.enqueue(t, store.NewJob{Tenant: "b", UniqueKey: "u"}), b.enqueue(t, store.NewJob{})
	timer := b.enqueue(t, store.NewJob{DueIn: time.Hour})
	p := b.page(t, 0)
	_, err := store.InsertClaim(t.Context(), b.db, b.fence, p.Removals, []int64{int64(claimed)}, []int32{b.first()})
	require.NoError(t, err)

	for _, id := range []job.ID{waiting, timer} {
		running, err := store.Cancel(t.Context(), b.db, id, true)
		require.NoError(t, err)
		require.False(t, running)
		_, err = store.Cancel(t.Context(), b.db, id, true)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	running, err := store.Cancel(t.Context(), b.db, claimed, true)
	require.NoError(t, err)
	require.True(t, running)
	asked, err := store.CancelRequests(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, []job.ID{claimed}, asked)
	require.Equal(t, store.Counts{Waiting: 1, Claimed: 1, Finished: 2}, counts(t, b.db))

	ids, turns := columns(p)
	_, err = store.InsertClaim(t.Context(), b.db, b.fence, p.Removals, ids, turns)
	require.ErrorIs(t, err, store.ErrFenced, "the page that still shows the cancelled job is void")
}

// A request ends with its job, and not before. Whoever has a job run again does not mean
// it to be cancelled.
func TestCancelRequestsEndWithTheirJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cancel := func(id job.ID, running bool) {
		t.Helper()
		was, err := store.Cancel(t.Context(), b.db, id, true)
		require.NoError(t, err)
		require.Equal(t, running, was)
	}
	asked := func(ids ...job.ID) {
		t.Helper()
		got, err := store.CancelRequests(t.Context(), b.db)
		require.NoError(t, err)
		require.ElementsMatch(t, ids, got)
	}
	forget := func() {
		t.Helper()
		require.NoError(t, store.ForgetCancelRequests(t.Context(), b.db))
	}
	running := map[job.State]job.ID{} // by how its run ends
	for _, how := range []job.State{job.Done, job.Dead, job.Retrying, job.Snoozed, job.Returned, job.Cancelled} {
		running[how] = b.enqueue(t, store.NewJob{})
	}
	goesOn := b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	b.claim(t, p)
	byID := map[job.ID]*job.Record{}
	for i := range p.Jobs {
		byID[p.Jobs[i].Record.ID] = &p.Jobs[i].Record
		cancel(p.Jobs[i].Record.ID, true)
	}
	var runs []store.Finished
	for how, id := range running {
		runs = append(runs, store.Finished{Record: byID[id], Outcome: job.Outcome{State: how, Delay: time.Hour, Err: context.Canceled}})
	}
	lost, err := store.Finish(t.Context(), b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, runs, nil)
	require.NoError(t, err)
	require.Zero(t, lost)
	asked(goesOn, running[job.Done], running[job.Dead])
	for how, state := range map[job.State]string{job.Retrying: "cancelled", job.Snoozed: "cancelled", job.Returned: "cancelled", job.Cancelled: "cancelled", job.Done: "done", job.Dead: "dead"} {
		require.Equal(t, state, b.state(t, running[how]), "a run that was %v", how)
	}
	_, err = store.Retry(t.Context(), b.db, running[job.Dead])
	require.NoError(t, err)
	asked(goesOn, running[job.Done])
	forget()
	asked(goesOn)

	// A request that was made while the run's end was being written stays with the job,
	// until that is cancelled or retried, or about to run again.
	later := b.enqueue(t, store.NewJob{DueIn: time.Hour})
	retried := b.enqueue(t, store.NewJob{DueIn: time.Hour})
	for _, id := range []job.ID{later, retried} {
		b.request(t, id)
	}
	forget()
	asked(goesOn, later, retried)
	cancel(later, false)
	_, err = store.Retry(t.Context(), b.db, retried)
	require.NoError(t, err)
	asked(goesOn)

	// Wherever an unfinished job may stand.
	var elsewhere []job.ID
	for table, more := range map[string][2]string{
		"timer_job": {", due_at", ", now()"}, "external_job": {}, "history_job": {}, "suspended_job": {", origin", ", 'job'"},
	} {
		var id job.ID
		require.NoError(t, b.db.QueryRow(t.Context(), "INSERT INTO tenure."+table+" (tenant_id, queue, kind, payload"+more[0]+") VALUES ('acme', 'default', 'k', '1'"+more[1]+") RETURNING id").Scan(&id))
		elsewhere = append(elsewhere, id)
	}
	_, err = b.db.Exec(t.Context(), "INSERT INTO tenure.cancel_request (job_id) SELECT unnest($1::bigint[])", elsewhere)
	require.NoError(t, err)
	forget()
	asked(append(elsewhere, goesOn)...)
}

// state is where a job stands, as an operator is told.
func (b *bundle) state(t *testing.T, id job.ID) string {
	t.Helper()
	got, err := store.List(t.Context(), b.db, store.Filter{ID: id, Limit: 2})
	require.NoError(t, err)
	require.Len(t, got, 1)
	return got[0].State
}

// request has a job cancelled that its run knows nothing of.
func (b *bundle) request(t *testing.T, id job.ID) {
	t.Helper()
	_, err := b.db.Exec(t.Context(), "INSERT INTO tenure.cancel_request (job_id) VALUES ($1)", id)
	require.NoError(t, err)
}

// Whatever lets an unwanted job wait again: whoever reads it to claim it is told, and ends
// it. Nobody else may.
func TestCancelWaiting(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{true, false} {
		b := setup(t)
		unwanted, other := b.enqueue(t, store.NewJob{UniqueKey: "u"}), b.enqueue(t, store.NewJob{})
		b.request(t, unwanted)
		p := b.page(t, 0)
		ids, turns := columns(p)
		require.Len(t, ids, 2)
		for _, j := range p.Jobs {
			require.Equal(t, j.Record.ID == unwanted, j.Unwanted)
		}
		_, err := store.CancelWaiting(t.Context(), b.db, b.fence, p.Removals+1, ids, turns, keep)
		require.ErrorIs(t, err, store.ErrFenced, "somebody took jobs away")
		_, err = store.CancelWaiting(t.Context(), b.db, store.Fence{Session: b.fence.Session, Epoch: b.fence.Epoch - 1}, p.Removals, ids, turns, keep)
		require.ErrorIs(t, err, store.ErrFenced, "another epoch")
		n, err := store.CancelWaiting(t.Context(), b.db, b.fence, p.Removals, ids, []int32{turns[0] + 1, turns[1] + 1}, keep)
		require.NoError(t, err)
		require.Zero(t, n, "other turns")

		unlock := b.locks(t, "SELECT FROM tenure.job WHERE id = $1 FOR UPDATE", unwanted)
		n, err = store.CancelWaiting(t.Context(), b.db, b.fence, p.Removals, ids, turns, keep)
		require.NoError(t, err)
		require.Zero(t, n, "somebody has locked it")
		unlock()
		n, err = store.CancelWaiting(t.Context(), b.db, b.fence, p.Removals, ids, turns, keep)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		want := store.Counts{Waiting: 1}
		if keep {
			want.Finished = 1
			require.Equal(t, "cancelled", b.state(t, unwanted))
		}
		require.Equal(t, want, counts(t, b.db))
		require.Equal(t, "waiting", b.state(t, other))
		asked, err := store.CancelRequests(t.Context(), b.db)
		require.NoError(t, err)
		require.Empty(t, asked)
		require.NotEqual(t, unwanted, b.enqueue(t, store.NewJob{UniqueKey: "u"}), "its key is free")
	}
}

// locks runs a statement in a transaction that stays open until unlock is called.
func (b *bundle) locks(t *testing.T, sql string, args ...any) (unlock func()) {
	t.Helper()
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // unless it is over
	_, err = tx.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
	return func() {
		t.Helper()
		require.NoError(t, tx.Rollback(context.Background()))
	}
}
