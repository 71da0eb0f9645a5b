package promises_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/external"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

type (
	endedInTx     struct{}
	endedTogether struct{}
)

func (endedInTx) Kind() string     { return "tx" }
func (endedTogether) Kind() string { return "batch" }

// A finished job never runs again, but another one that is what it was, however it has ended: see P3.
func TestRerun(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	r := job.NewRegistry()
	job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
		if j.Args.N == 1 {
			return job.Discard(errors.New("not today"))
		}
		return nil
	})
	tenure.HandleTx(r, func(context.Context, pgx.Tx, *job.Job[endedInTx]) error { return nil })
	tenure.HandleBatchTx(r, func(context.Context, pgx.Tx, *job.Batch[endedTogether]) error { return nil })
	n := b.start(b.cfg, r)
	c, o, workers := n.Client(), n.Operator(), n.Client().ExternalWorkers()
	ctx := tenancy.For(t.Context(), "t1")
	add := func(args job.Args, opts ...tenure.Option) job.ID {
		t.Helper()
		added, err := c.Enqueue(ctx, args, opts...)
		require.NoError(t, err)
		return added.ID
	}
	get := func(id job.ID) operate.JobStatus {
		t.Helper()
		j, _, err := o.Jobs().Get(t.Context(), id)
		require.NoError(t, err)
		return j
	}
	reaches := func(id job.ID, state string) operate.JobStatus {
		t.Helper()
		require.Eventually(t, func() bool { return get(id).State == state }, patience, 10*time.Millisecond, "%s", state)
		return get(id)
	}
	// rerun reruns a job, and looks whether the new one is what that was.
	rerun := func(id job.ID) job.ID {
		t.Helper()
		before := get(id)
		again, err := o.Jobs().Rerun(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, before, get(id), "it stays as it is")
		is := get(again)
		require.JSONEq(t, `{"who": "me", "tenure:tags": ["a", "b"], "tenure:rerun_of": "`+id.String()+`"}`, string(is.Meta))
		require.NotEqual(t, id, is.ID)
		of := func(j operate.JobStatus) operate.JobStatus {
			return operate.JobStatus{Tenant: j.Tenant, Queue: j.Queue, Kind: j.Kind, Priority: j.Priority, MaxAttempts: j.MaxAttempts, Payload: j.Payload,
				UniqueKey: j.UniqueKey, ExclusiveKey: j.ExclusiveKey, CorrelationID: j.CorrelationID, Timeout: j.Timeout, External: j.External}
		}
		require.Equal(t, of(before), of(is))
		tagged, err := o.Jobs().List(t.Context(), operate.JobFilter{Tags: []string{"b"}, CorrelationID: before.CorrelationID, Limit: 50})
		require.NoError(t, err)
		require.Equal(t, again, tagged[0].ID, "its tags lead to it")
		return again
	}
	all := func(name string) []tenure.Option {
		return []tenure.Option{tenure.Meta(map[string]any{"who": "me"}), tenure.Tags("a", "b"), tenure.Correlation(name), tenure.Unique(name),
			tenure.Exclusive(name), tenure.Priority(7), tenure.MaxAttempts(3), tenure.OnQueue("slow"), tenure.Timeout(90 * time.Second)}
	}

	for name, args := range map[string]job.Args{"alone": plain{2}, "tx": endedInTx{}, "batch": endedTogether{}} {
		id := add(args, all(name)...)
		reaches(id, "done")
		again := rerun(id)
		reaches(again, "done")
	}

	later := add(plain{3}, append(all("later"), tenure.In(time.Hour))...)
	_, err := o.Jobs().Rerun(t.Context(), later)
	require.ErrorContains(t, err, "it is scheduled, and has not finished")
	_, err = o.Jobs().Cancel(t.Context(), later)
	require.NoError(t, err)
	reaches(rerun(later), "done")

	dies := add(plain{1}, all("dies")...)
	reaches(dies, "dead")
	_, err = o.Jobs().Rerun(t.Context(), dies)
	require.ErrorContains(t, err, "it is dead; retry it")
	_, err = o.Jobs().Cancel(t.Context(), dies)
	require.NoError(t, err)
	require.NoError(t, o.Tenants().Freeze(t.Context(), "t1"))
	waits := rerun(dies)
	_, err = o.Jobs().Rerun(t.Context(), dies)
	taken := (*job.KeyTakenError)(nil)
	require.ErrorAs(t, err, &taken)
	require.Equal(t, waits, taken.By)
	_, err = o.Jobs().Rerun(t.Context(), 1)
	require.ErrorIs(t, err, tenure.ErrNotFound)
	require.NoError(t, o.Tenants().Thaw(t.Context(), "t1"))

	held := add(plain{4}, tenure.UniqueFor("daily", time.Hour))
	reaches(held, "done")
	again, err := o.Jobs().Rerun(t.Context(), held)
	require.NoError(t, err, "the job that is rerun has the key itself")
	require.Empty(t, reaches(again, "done").UniqueKey)
	require.Equal(t, held, add(plain{5}, tenure.UniqueFor("daily", time.Hour)), "which is still taken")

	b.exec("p1", "UPDATE tenure.unique_period SET free_at = now() - interval '1 minute'")
	again, err = o.Jobs().Rerun(t.Context(), held)
	require.NoError(t, err)
	require.Equal(t, "daily", get(again).UniqueKey, "the period is over")
	reaches(again, "done")

	out := func(name string) job.ID {
		return add(scan{1}, append(all(name)[:8], tenure.External())...) // without a timeout, which is the worker's
	}
	ask := external.AcquireRequest{Topic: "scan", Worker: "w", Max: 1, LockFor: time.Minute, Wait: patience}
	acquire := func() external.Job {
		t.Helper()
		got, err := workers.Acquire(t.Context(), ask)
		require.NoError(t, err)
		require.Len(t, got, 1)
		return got[0]
	}
	done := out("done outside")
	require.NoError(t, workers.Complete(t.Context(), external.Result{Lock: acquire().Lock}))
	locked := rerun(done)
	require.Equal(t, locked, acquire().Lock.Job)
	_, err = o.Jobs().Cancel(t.Context(), locked)
	require.NoError(t, err)
	require.True(t, get(locked).External)
	aside := out("aside")
	require.NoError(t, o.Jobs().Suspend(t.Context(), aside, time.Time{}))
	_, err = o.Jobs().Cancel(t.Context(), aside)
	require.NoError(t, err)
	waitsOutside := rerun(aside)
	b.exec("p1", "SELECT tenure.cancel($1)", int64(waitsOutside))
	require.Equal(t, rerun(waitsOutside), acquire().Lock.Job)
}
