//go:build unix

package promises_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// TestP1ACrashLosesCommits: a server with synchronous_commit off crashes, and loses jobs
// that a node goes on running. Others get their ids. What the node reports ends none of
// them: each runs.
func TestP1ACrashLosesCommits(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Options{Durable: true, InMemory: true, SharedBuffers: "64MB", Settings: pgtest.Unflushed})
	b := newTestbedOn(t, server, 1, 1)
	const lost, fresh = 100, 100 // numbers of the fresh ones begin where the others end
	b.cfg.Execution.Workers = 2 * (lost + fresh)
	b.cfg.Acquire.Batch = lost + fresh
	release := make(chan struct{})
	var mu sync.Mutex
	ran := map[int]job.ID{} // by number; guarded by mu
	count := func(from, to int) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for k := range ran {
			if from <= k && k < to {
				n++
			}
		}
		return n
	}
	r := job.NewRegistry()
	job.Handle(r, func(ctx context.Context, j *job.Job[plain]) error {
		mu.Lock()
		ran[j.Args.N] = j.ID
		mu.Unlock()
		<-release
		return nil
	})
	n := b.start(b.cfg, r)
	var once sync.Once
	end := func() { once.Do(func() { close(release) }) }
	t.Cleanup(end) // before the node stops
	n.holds("p1")
	ctx := tenancy.For(t.Context(), "t1")
	entries := func(from, to int) (out []tenure.Entry) {
		for k := from; k < to; k++ {
			out = append(out, tenure.Entry{Args: plain{k}})
		}
		return out
	}

	lose := pgtest.Unwritten(t, server)
	_, err := n.Client().EnqueueMany(ctx, entries(0, lost))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return count(0, lost) == lost }, patience, time.Millisecond, "all run")
	lose()
	b.eventually(0, "p1", "SELECT count(*) FROM tenure.job") // they are lost, which is seen once the server is back
	require.Eventually(t, func() bool {
		_, err := n.Client().EnqueueMany(ctx, entries(lost, lost+fresh))
		return err == nil
	}, patience, 10*time.Millisecond)
	end()
	b.eventually(fresh, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Equal(t, fresh, count(lost, lost+fresh), "each that is finished has run")
	mu.Lock()
	defer mu.Unlock()
	again := map[job.ID]bool{}
	for k, id := range ran {
		if k < lost {
			again[id] = true
		}
	}
	repeated := 0
	for k, id := range ran {
		if k >= lost && again[id] {
			repeated++
		}
	}
	require.Positive(t, repeated, "ids were given out again")
}
