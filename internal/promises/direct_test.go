package promises_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// blocked has jobs of kind plain wait until they are let go on, and tells of their starts.
func blocked(b *testbed) (r *job.Registry, started chan job.ID, goOn func()) {
	started, gate := make(chan job.ID, 100), make(chan struct{})
	goOn = sync.OnceFunc(func() { close(gate) })
	b.t.Cleanup(goOn)
	return b.registry(func(id job.ID) { started <- id; <-gate }), started, goOn
}

// The node that holds a pool's lock claims a job in the transaction that adds it, while a worker
// is free and nothing else waits. A page that shows the job as it runs has it claimed no second
// time.
func TestTheHolderClaimsWhatItAdds(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	r, started, goOn := blocked(b)
	n := b.start(b.named("a"), r)
	n.holds("p1")
	const together = "SELECT count(*) FROM tenure.job j JOIN tenure.claim c ON c.job_ids = ARRAY[j.id] AND c.turn = j.turn AND c.xmin = j.xmin"
	ctx := tenancy.For(t.Context(), "t1")
	require.Eventually(t, func() bool { // the term may just have something to do
		_, err := n.Client().Enqueue(ctx, plain{1})
		require.NoError(t, err)
		<-started
		return b.count("p1", together) > 0
	}, patience, 10*time.Millisecond)

	before := b.count("p1", "SELECT count(*) FROM tenure.job")
	_, err := n.Client().Enqueue(ctx, plain{2}, tenure.Unique("k")) // is claimed from a page of that lane, from its start
	require.NoError(t, err)
	<-started
	require.Equal(t, before+1, b.count("p1", "SELECT count(*) FROM tenure.claim, unnest(job_ids)"), "each job is claimed once")
	goOn()
	b.eventually(before+1, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE attempt > 1"))
	require.Empty(t, started, "none has run twice")
}

// A job is not claimed as it is added where its tenant may have no more in flight, or others wait.
func TestTheHolderHeedsLimitsOfWhatItAdds(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	b.exec("p1", "INSERT INTO tenure.tenant (tenant_id, max_running) VALUES ('t1', 1)")
	r, started, goOn := blocked(b)
	n := b.start(b.named("a"), r)
	n.holds("p1")
	for range 20 {
		_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
		require.NoError(t, err)
		time.Sleep(2 * time.Millisecond) // the term has nothing else to do then
	}
	<-started
	_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t2"), plain{1})
	require.NoError(t, err)
	<-started
	require.Equal(t, 2, b.count("p1", "SELECT count(*) FROM tenure.claim, unnest(job_ids)"))
	require.Empty(t, started)
	goOn()
	b.eventually(21, "p1", "SELECT count(*) FROM tenure.completed_job")
}

// The server ends the session on which the holder adds a job: anyone who added it is told that it
// is not known what became of it, the term begins again, and the job runs once if it was added.
func TestTheHolderIsUnsureOfWhatItAdds(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	ran := make(chan job.ID, 10_000) // one for each try
	n := b.start(b.named("a"), b.registry(func(id job.ID) { ran <- id }))
	n.holds("p1")
	ctx := tenancy.For(t.Context(), "t1")
	const epoch = "SELECT epoch FROM tenure.acquire_lock"
	first := b.count("p1", epoch)
	require.Eventually(t, func() bool {
		unlock := lockWith(b, "p1", "SELECT FROM tenure.acquire_lock FOR UPDATE")
		errs := make(chan error, 1)
		go func() {
			_, err := n.Client().Enqueue(ctx, plain{1})
			errs <- err
		}()
		time.Sleep(20 * time.Millisecond)
		b.exec("p1", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%tenure.door%'")
		unlock()
		return <-errs != nil
	}, patience, time.Millisecond, "an enqueue is cut off while it claims")
	require.Eventually(t, func() bool { return b.count("p1", epoch) > first }, patience, 5*time.Millisecond, "the term ended")
	b.eventually(0, "p1", "SELECT (SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.claim)")
	require.Equal(t, b.count("p1", "SELECT count(*) FROM tenure.completed_job"), len(ran))
	_, err := n.Client().Enqueue(context.WithoutCancel(ctx), plain{2})
	require.NoError(t, err)
}
