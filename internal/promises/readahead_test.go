package promises_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/tenancy"
)

// enqueueForty enqueues jobs of t1, all at once, by another process than a node's.
func enqueueForty(b *testbed) {
	entries := make([]tenure.Entry, 40)
	for i := range entries {
		entries[i] = tenure.Entry{Tenant: "t1", Args: plain{i}}
	}
	_, err := b.client(b.cfg).EnqueueMany(b.t.Context(), entries)
	require.NoError(b.t, err)
}

// While one page is being claimed the next one is read; each job runs once.
func TestTheNextPageIsReadWhileOneIsClaimed(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.cfg.Acquire.Batch = 10
	cfg, proxy := b.behind(b.cfg, "p1")
	n := b.start(cfg, b.registry(nil))
	_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
	require.NoError(t, err)
	b.finished(n.Client(), 1) // so connections were opened, which try both statements

	var claiming, overlapped atomic.Bool
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		switch {
		case strings.Contains(e.SQL, "j.position > lane.after"):
			overlapped.CompareAndSwap(false, claiming.Load())
		case strings.Contains(e.SQL, "INSERT INTO tenure.claim"):
			claiming.Store(true)
			defer claiming.Store(false)
			for began := time.Now(); !overlapped.Load() && time.Since(began) < 200*time.Millisecond; { // what goes on beside it has time to begin
				time.Sleep(time.Millisecond)
			}
		}
		return faultproxy.Pass
	})
	// None is read ahead while a duty is due, as on a slow machine one may be after each claim: there are more of them then.
	client, jobs := b.client(b.cfg), 1
	for began := time.Now(); !overlapped.Load() && time.Since(began) < patience; {
		enqueueForty(b)
		jobs += 40
		b.finished(client, jobs)
	}
	require.True(t, overlapped.Load(), "no page was read while a claim was under way")
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE attempt > 1"))
}

// Jobs that have waited are claimed before a term does anything else, also where its database is so slow that
// all else is due by then.
func TestATermClaimsFirst(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	enqueueForty(b)
	cfg, proxy := b.behind(b.cfg, "p1")
	var surveyed, read, first, looked atomic.Bool
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		switch {
		case e.App != "tenure jobs":
		case strings.Contains(e.SQL, "WITH RECURSIVE bottom") && !surveyed.Swap(true):
			<-time.After(200 * time.Millisecond)
		case strings.Contains(e.SQL, "j.position > lane.after"):
			read.Store(true)
		case strings.Contains(e.SQL, "least(min(next.at)"): // when the next timer is due
			if !looked.Swap(true) {
				first.Store(!read.Load())
			}
		}
		return faultproxy.Pass
	})
	b.finished(b.start(cfg, b.registry(nil)).Client(), 40)
	require.Eventually(t, looked.Load, patience, time.Millisecond)
	require.True(t, surveyed.Load())
	require.False(t, first.Load(), "it looked for timers first")
}

// What is about to be claimed counts against a limit when the next page is read.
func TestWhatIsAboutToBeClaimedCounts(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.exec("p1", "INSERT INTO tenure.tenant (tenant_id, max_running) VALUES ('t1', 15)")
	b.cfg.Execution.Workers = 64
	b.cfg.Acquire.Batch = 10
	enqueueForty(b)
	r, started, goOn := blocked(b)
	n := b.start(b.cfg, r)
	for range 15 {
		<-started
	}
	require.Equal(t, 15, b.count("p1", "SELECT count(*) FROM tenure.claim, unnest(job_ids)"))
	require.Empty(t, started)
	goOn()
	b.finished(n.Client(), 40)
}
