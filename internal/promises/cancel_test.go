package promises_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// TestACancelledJobDoesNotStartAgain: a handler ignores that its job was cancelled, until
// its node's session is declared dead. The job is cancelled then, and that its context was
// ended is said once, however many heartbeats go by.
func TestACancelledJobDoesNotStartAgain(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	runs, end := newRuns(), make(chan struct{})
	registry := func() *job.Registry {
		r := job.NewRegistry()
		job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
			defer runs.start(j.ID)()
			<-end
			return nil
		})
		return r
	}
	cfg, proxy := b.behind(b.named("deaf"), "p1")
	deaf := b.start(cfg, registry())
	defer close(end) // before it is stopped
	defer proxy.SetRule(nil)
	e, err := deaf.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{1}, tenure.Unique("once"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { starts, _ := runs.sum(); return starts == 1 }, patience, 10*time.Millisecond)
	client := b.client(b.named("client"))
	running, err := client.Operator().Jobs().Cancel(t.Context(), e.ID)
	require.NoError(t, err)
	require.True(t, running)
	const beats = "SELECT hb_seq FROM tenure.node_session WHERE node = 'deaf'"
	require.Eventually(t, func() bool { return b.log.says("cancelled on request", e.ID.String()) }, patience, 10*time.Millisecond)
	seen := b.count("p1", beats)
	require.Eventually(t, func() bool { return b.count("p1", beats) >= seen+5 }, patience, 10*time.Millisecond)
	require.Equal(t, 1, b.log.count("cancelled on request"))

	proxy.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
	other := b.start(b.named("other"), registry())
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE id = $1 AND outcome = 'cancelled' AND losses = 1", int64(e.ID))
	require.Zero(t, b.count("p1", "SELECT (SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.timer_job) + (SELECT count(*) FROM tenure.cancel_request) + (SELECT count(*) FROM tenure.unique_job)"))
	other.holds("p1")
	starts, _ := runs.sum()
	require.Equal(t, 1, starts)
}

// TestAJobThatIsCancelledBeforeItBeginsDoesNotRun: it is claimed and waits for others to share its call.
func TestAJobThatIsCancelledBeforeItBeginsDoesNotRun(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	ran := make(chan job.ID, 1)
	r := job.NewRegistry()
	job.HandleBatch(r, func(_ context.Context, batch *job.Batch[plain]) error {
		ran <- batch.Jobs[0].ID
		return nil
	}, job.BatchWait(10*time.Second)) // more than a heartbeat
	n := b.start(b.named("n"), r)
	e, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.claim")
	_, err = n.Operator().Jobs().Cancel(t.Context(), e.ID)
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE id = $1 AND outcome = 'cancelled'", int64(e.ID))
	require.Empty(t, ran)
}

// TestACancelledJobThatIsGivenBackDoesNotStart: a claimed job that was cancelled has come back
// to those that wait, in one of many ways, and what released it did not know. It is
// cancelled when its turn has come, and not started; so is one that waits for its time.
func TestACancelledJobThatIsGivenBackDoesNotStart(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	client := b.client(b.named("client"))
	ctx := tenancy.For(t.Context(), "t1")
	unwanted := map[job.ID]bool{}
	for i := range 40 {
		opts := [][]tenure.Option{nil, {tenure.In(time.Second)}, {tenure.Unique("u")}, {tenure.Priority(3)}}[i%4]
		e, err := client.Enqueue(ctx, plain{i}, opts...)
		require.NoError(t, err)
		if i < 20 && !e.Duplicate {
			unwanted[e.ID] = true
			b.exec("p1", "INSERT INTO tenure.cancel_request (job_id) VALUES ($1)", int64(e.ID))
		}
	}
	b.exec("p1", "UPDATE tenure.job SET losses = 1 WHERE id IN (SELECT id FROM tenure.job ORDER BY id LIMIT 4)") // they are in quarantine
	ran := make(chan job.ID, 100)
	b.start(b.named("a"), b.registry(func(id job.ID) { ran <- id }))
	all := b.count("p1", "SELECT (SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.timer_job) + (SELECT count(*) FROM tenure.completed_job)")
	b.eventually(all, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Equal(t, len(unwanted), b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'cancelled'"))
	require.Len(t, ran, all-len(unwanted))
	for range all - len(unwanted) {
		require.False(t, unwanted[<-ran])
	}
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.unique_job"))
}
