package promises_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/external"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// scan is a job for external workers.
type scan struct {
	N int `json:"n"`
}

func (scan) Kind() string { return "scan" }

// TestExternalWorkersEndEachJobOnce: workers race for the jobs of tenants in two pools, every second of
// them is lost with the first job that it sees, and a tenant moves meanwhile. Each job is ended by
// one worker, once.
func TestExternalWorkersEndEachJobOnce(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 2)
	b.prepare("t1", "p2")
	client := b.client(b.named("client"))
	const jobs = 120
	for i := range jobs {
		_, err := client.Enqueue(tenancy.For(t.Context(), b.tenants()[i%4]), scan{i}, tenure.External(), tenure.Priority(i%3))
		require.NoError(t, err)
	}
	workers := client.ExternalWorkers()
	var mu sync.Mutex
	ended := map[job.ID]int{} // guarded by mu
	for range 3 {             // whose worker does not come back
		_, err := workers.Acquire(t.Context(), external.AcquireRequest{Topic: "scan", Worker: "lost", Max: 7, LockFor: external.MinLock})
		require.NoError(t, err)
	}
	var group sync.WaitGroup
	over := time.Now().Add(patience)
	for w := range 4 {
		group.Go(func() {
			r := external.AcquireRequest{Topic: "scan", Worker: string(rune('a' + w)), Max: 7, LockFor: time.Minute}
			for time.Now().Before(over) {
				mu.Lock()
				all := len(ended) == jobs
				mu.Unlock()
				if all {
					return
				}
				got, err := workers.Acquire(t.Context(), r)
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				for _, j := range got {
					for {
						err := workers.Complete(t.Context(), external.Result{Lock: j.Lock})
						if err == nil {
							mu.Lock()
							ended[j.Job]++
							mu.Unlock()
						} else if between := external.IsBetweenPools(err); between {
							continue
						}
						break
					}
				}
			}
		})
	}
	b.move(b.client(b.named("operator")), "t1", "p2")
	group.Wait()
	require.Len(t, ended, jobs)
	for id, n := range ended {
		require.Equal(t, 1, n, "job %d", id)
	}
	require.Equal(t, jobs, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'done'")+b.count("p2", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'done'"))
	for _, p := range []string{"p1", "p2"} {
		require.Zero(t, b.count(p, "SELECT (SELECT count(*) FROM tenure.external_job) + (SELECT count(*) FROM tenure.dead_letter_job)"))
	}
}

// TestExternalWorkers: what a worker says of a job, and what can be seen of it.
func TestExternalWorkers(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	client := b.client(b.named("client"))
	operator, workers := client.Operator(), client.ExternalWorkers()
	ctx := tenancy.For(t.Context(), "t1")
	ask := external.AcquireRequest{Topic: "scan", Worker: "w", Max: 1, LockFor: time.Minute}
	enqueue := func(opts ...tenure.Option) job.ID {
		t.Helper()
		e, err := client.Enqueue(ctx, scan{1}, append(opts, tenure.External())...)
		require.NoError(t, err)
		return e.ID
	}
	acquire := func() external.Job {
		t.Helper()
		got, err := workers.Acquire(t.Context(), ask)
		require.NoError(t, err)
		require.Len(t, got, 1)
		return got[0]
	}
	why := func(id job.ID) operate.WaitReason {
		t.Helper()
		e, err := operator.Jobs().Explain(t.Context(), id)
		require.NoError(t, err)
		return e.Reason
	}
	state := func(id job.ID) string {
		t.Helper()
		j, _, err := operator.Jobs().Get(t.Context(), id)
		require.NoError(t, err)
		require.True(t, j.External || j.State == "done" || j.State == "business_error")
		return j.State
	}

	waits := ask
	waits.Wait = patience
	found := make(chan []external.Job, 1)
	go func() {
		got, _ := workers.Acquire(t.Context(), waits)
		found <- got
	}()
	first := enqueue(tenure.MaxAttempts(3))
	got := <-found
	require.Len(t, got, 1)
	require.Equal(t, []any{first, "scan", "p1", tenancy.ID("t1"), 1, 3}, []any{got[0].Job, got[0].Topic, got[0].Pool, got[0].Tenant, got[0].Attempt, got[0].MaxAttempts})
	require.Equal(t, "locked", state(first))
	require.Equal(t, operate.WaitsNot, why(first))
	require.NoError(t, workers.Extend(t.Context(), time.Hour, got[0].Lock))
	require.NoError(t, workers.Release(t.Context(), got[0].Lock))
	require.Equal(t, operate.WaitsForWorker, why(first))
	err := workers.Complete(t.Context(), external.Result{Lock: got[0].Lock})
	require.ErrorIs(t, err, external.ErrLockLost)

	require.NoError(t, operator.Tenants().Freeze(t.Context(), "t1"))
	none, err := workers.Acquire(t.Context(), ask)
	require.NoError(t, err)
	require.Empty(t, none)
	require.Equal(t, operate.WaitsForTenant, why(first))
	require.NoError(t, operator.Tenants().Thaw(t.Context(), "t1"))

	require.NoError(t, workers.Fail(t.Context(), external.Failure{Lock: acquire().Lock, Error: "jam\x00med", Delay: time.Hour}))
	require.Equal(t, "retrying", state(first))
	require.Equal(t, operate.WaitsUntilDue, why(first))
	require.NoError(t, operator.Jobs().Retry(t.Context(), first))
	require.NoError(t, workers.RaiseError(t.Context(), external.Raised{Lock: acquire().Lock, Code: "no_paper", Message: "the tray is empty"}))
	require.Equal(t, "business_error", state(first))
	_, errs, err := operator.Jobs().Get(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, "jammed", errs[0].Error)
	require.Equal(t, "no_paper: the tray is empty", errs[1].Error)
	var again *operate.StateError
	require.ErrorAs(t, operator.Jobs().Retry(t.Context(), first), &again)

	second := enqueue()
	require.NoError(t, workers.Complete(t.Context(), external.Result{Lock: acquire().Lock, Output: json.RawMessage(`{"pages": 3}`)}))
	require.Equal(t, "done", state(second))
	listed, err := operator.Jobs().List(t.Context(), operate.JobFilter{State: "business_error"})
	require.NoError(t, err)
	require.Len(t, listed, 1)
	require.Equal(t, "no_paper: the tray is empty", listed[0].Error)

	var keyed [2]job.ID
	for i := range keyed {
		added, err := client.Enqueue(ctx, scan{i}, tenure.External(), tenure.Exclusive("k"), tenure.Tags("a"), tenure.UniqueFor(fmt.Sprint(i), time.Hour))
		require.NoError(t, err)
		keyed[i] = added.ID
	}
	held := acquire()
	require.Equal(t, keyed[0], held.Job)
	require.Equal(t, operate.WaitsForKey, why(keyed[1]))
	listed, err = operator.Jobs().List(t.Context(), operate.JobFilter{Tags: []string{"a"}})
	require.NoError(t, err)
	require.Len(t, listed, 2)
	require.NoError(t, workers.Complete(t.Context(), external.Result{Lock: held.Lock}))
	require.NoError(t, workers.Complete(t.Context(), external.Result{Lock: acquire().Lock}))

	_, err = client.Enqueue(ctx, scan{1}, tenure.External(), tenure.Timeout(time.Minute))
	require.ErrorContains(t, err, "have none of these")
	for _, wrong := range []external.AcquireRequest{
		{Topic: "?", Worker: "w", Max: 1, LockFor: time.Minute}, {Topic: "t", Max: 1, LockFor: time.Minute}, {Topic: "t", Worker: "w", LockFor: time.Minute},
		{Topic: "t", Worker: "w", Max: 1}, {Topic: "t", Worker: "w", Max: 1, LockFor: time.Minute, Wait: time.Hour}, {Topic: "t", Worker: "w", Max: 1, LockFor: time.Minute, Tenants: []tenancy.ID{" "}},
	} {
		_, err := workers.Acquire(t.Context(), wrong)
		require.True(t, tenure.Refused(err), "%v", wrong)
	}
	// A node's maintenance frees what nobody acquires.
	id := enqueue()
	acquire()
	b.exec("p1", "UPDATE tenure.external_job SET lock_expires_at = clock_timestamp(), losses = 2 WHERE id = $1", int64(id))
	b.start(b.named("a"), b.registry(nil))
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.dead_letter_job WHERE id = $1 AND losses = 3 AND origin = 'external_job'", int64(id))
}

// The configuration's policy is that of jobs for external workers, too.
func TestExternalJobsAreRetriedAsConfigured(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.cfg.Execution.Retry = "R2/PT1S"
	client := b.client(b.named("client"))
	workers := client.ExternalWorkers()
	e, err := client.Enqueue(tenancy.For(t.Context(), "t1"), scan{1}, tenure.External())
	require.NoError(t, err)
	for range 2 {
		got, err := workers.Acquire(t.Context(), external.AcquireRequest{Topic: "scan", Worker: "w", Max: 1, LockFor: time.Minute, Wait: patience})
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, 2, got[0].MaxAttempts)
		require.NoError(t, workers.Fail(t.Context(), external.Failure{Lock: got[0].Lock, Error: "no paper"}))
	}
	j, _, err := client.Operator().Jobs().Get(t.Context(), e.ID)
	require.NoError(t, err)
	require.Equal(t, "dead", j.State)
}
