package promises_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/job"
)

// TestP4LongJobIsNotStartedTwice: a handler runs for several times every TTL, and
// meanwhile the database crashes and stays away for longer than a session lives.
// When it is back every session looks expired, and the node that does not run the
// job is the first to be there.
func TestP4LongJobIsNotStartedTwice(t *testing.T) {
	t.Parallel()
	const (
		lockTTL = time.Second
		session = 1500 * time.Millisecond
		outage  = 2500 * time.Millisecond
		late    = 400 * time.Millisecond
	)
	server := pgtest.Server(t, devpg.Options{Durable: true, SharedBuffers: "64MB"})
	b := newTestbedOn(t, server, 1, 1)
	b.cfg.Acquire.Lock.TTL, b.cfg.Acquire.Lock.RenewEvery = lockTTL, lockTTL/10
	b.cfg.Acquire.Session.TTL, b.cfg.Acquire.Session.HeartbeatEvery = session, session/3
	runs := newRuns()
	started, end := make(chan struct{}, 10), make(chan struct{})
	registry := func() *job.Registry {
		r := job.NewRegistry()
		job.Handle(r, func(ctx context.Context, j *job.Job[plain]) error {
			defer runs.start(j.ID)()
			started <- struct{}{}
			<-end
			return ctx.Err()
		})
		return r
	}
	cfgA, proxy := b.behind(b.named("a"), "p1")
	a := b.start(cfgA, registry())
	_, err := a.Client().EnqueueMany(t.Context(), []tenure.Entry{{Tenant: "t1", Args: plain{1}}})
	require.NoError(t, err)
	<-started
	other := b.start(b.named("b"), registry())
	// From here on b holds the lock, and a only runs its job.
	lock := func(app string) bool { return app == "tenure lock" }
	proxy.Hold(lock)
	other.holds("p1")
	proxy.Cut(lock)
	proxy.Hold(nil)
	seen := b.count("p1", "SELECT hb_seq FROM tenure.node_session WHERE node = 'a'")
	require.Eventually(t, func() bool {
		return b.count("p1", "SELECT hb_seq FROM tenure.node_session WHERE node = 'a'") > seen+1
	}, patience, 10*time.Millisecond)

	require.NoError(t, server.Crash(t.Context()))
	proxy.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore }) // a is late to come back
	timer(t, outage)
	require.NoError(t, server.Resume(t.Context()))
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.acquire_lock WHERE holder_member LIKE 'b-%' AND expires_at > clock_timestamp()")
	timer(t, late)
	proxy.SetRule(nil)
	timer(t, 2*session) // in which the job would be taken back, and started again
	close(end)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE attempt = 1 AND losses = 0")
	starts, _ := runs.sum()
	require.Equal(t, 1, starts)
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.job_error"))
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.node_session WHERE state = 'dead'"))
}
