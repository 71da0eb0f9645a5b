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
	asked(goesOn, running[job.Done], running[job.Dead], running[job.Retrying], running[job.Snoozed], running[job.Returned])

	for _, again := range []job.State{job.Dead, job.Retrying} {
		_, err := store.Retry(t.Context(), b.db, running[again])
		require.NoError(t, err)
	}
	asked(goesOn, running[job.Done], running[job.Snoozed], running[job.Returned])
	cancel(running[job.Snoozed], false)
	asked(goesOn, running[job.Done], running[job.Returned])
	forget()
	asked(goesOn, running[job.Returned])
	cancel(running[job.Returned], false)
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
