package promises_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/job"
)

// TestP1AClaimWhoseAnswerIsLost: the answer to a claim is lost, and before its claimant
// can ask again another node has taken the lock. The claimant lives on and never
// holds the lock again, so nobody reaps the claim; its jobs must run all the same.
func TestP1AClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.cfg.Acquire.Lock.TTL, b.cfg.Acquire.Lock.RenewEvery = time.Second, 200*time.Millisecond
	b.cfg.Acquire.Session.TTL, b.cfg.Acquire.Session.HeartbeatEvery = time.Minute, 300*time.Millisecond
	runs := newRuns()
	count := func(id job.ID) { runs.start(id)() }
	cfg, proxy := b.behind(b.named("a"), "p1")
	a := b.start(cfg, b.registry(count))
	a.holds("p1")
	other := b.start(b.named("b"), b.registry(count))
	var lost, back atomic.Bool
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		switch {
		case back.Load():
			return faultproxy.Pass
		case lost.Load():
			return faultproxy.CutBefore
		case strings.Contains(e.SQL, "INSERT INTO tenure.claim"):
			lost.Store(true)
			return faultproxy.CutAfter
		}
		return faultproxy.Pass
	})
	b.exec("p1", `INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('t1', 'default', 'plain', '{"n": 1}')`)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.claim")
	other.holds("p1")
	back.Store(true)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE attempt = 1 AND losses = 0")
	b.eventually(0, "p1", "SELECT count(*) FROM tenure.claim")
	starts, _ := runs.sum()
	require.Equal(t, 1, starts)
}

// TestP3AQuarantinedJobRunsOnce: jobs whose node was lost are run one at a time, and while
// one is on, others are read several times. None of them may run again once it is
// finished. An open transaction keeps the cursors from moving on for good.
func TestP3AQuarantinedJobRunsOnce(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	tx, err := b.db["p1"].Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }() // it only had to be open
	_, err = tx.Exec(t.Context(), "SELECT pg_current_xact_id()")
	require.NoError(t, err)
	const quarantined = 5
	b.exec("p1", `INSERT INTO tenure.job (tenant_id, queue, kind, payload, losses)
		SELECT 't1', 'default', 'plain', jsonb_build_object('n', n), 1 FROM generate_series(1, $1) n`, quarantined)
	runs := newRuns()
	r := job.NewRegistry()
	job.Handle(r, func(ctx context.Context, j *job.Job[plain]) error {
		defer runs.start(j.ID)()
		if j.Args.N == 1 {
			timer(t, 3500*time.Millisecond) // over several rewinds
		}
		return nil
	})
	b.start(b.cfg, r)
	b.eventually(quarantined, "p1", "SELECT count(*) FROM tenure.completed_job")
	timer(t, 2500*time.Millisecond) // over some more
	starts, overlaps := runs.sum()
	require.Equal(t, quarantined, starts)
	require.Zero(t, overlaps)
}

// TestP3OutcomesOutliveAnOutage: jobs finish while the database is away for longer
// than the lock lives. Their outcomes are written when it is back; none runs again.
func TestP3OutcomesOutliveAnOutage(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.cfg.Acquire.Lock.TTL, b.cfg.Acquire.Lock.RenewEvery = time.Second, 200*time.Millisecond
	b.cfg.Acquire.Session.TTL = 30 * time.Second
	const jobs = 40
	cfg, proxy := b.behind(b.cfg, "p1")
	runs, end := newRuns(), make(chan struct{})
	r := job.NewRegistry()
	job.Handle(r, func(ctx context.Context, j *job.Job[plain]) error {
		defer runs.start(j.ID)()
		<-end
		if j.Args.N%4 == 0 && j.Attempt == 1 {
			return job.RetryIn(time.Millisecond, job.ErrTimeout)
		}
		return nil
	})
	b.start(cfg, r)
	b.exec("p1", `INSERT INTO tenure.job (tenant_id, queue, kind, payload)
		SELECT 't1', 'default', 'plain', jsonb_build_object('n', n) FROM generate_series(1, $1) n`, jobs)
	require.Eventually(t, func() bool { starts, _ := runs.sum(); return starts == jobs }, patience, 10*time.Millisecond)
	proxy.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
	proxy.Cut(nil)
	close(end)
	timer(t, 2*b.cfg.Acquire.Lock.TTL)
	proxy.SetRule(nil)
	b.eventually(jobs, "p1", "SELECT count(*) FROM tenure.completed_job")
	b.eventually(0, "p1", "SELECT count(*) FROM tenure.claim")
	starts, overlaps := runs.sum()
	require.Equal(t, jobs+jobs/4, starts, "each once, and once more those that were to be retried")
	require.Zero(t, overlaps)
	require.Equal(t, jobs/4, b.count("p1", "SELECT count(*) FROM tenure.job_error"))
}
