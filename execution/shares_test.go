package execution

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

// TestAdmits fills workers with tenants that have more to do than anybody has time for, one
// after another: the first has its share, each gets a worker while one is free, and none
// takes the last free one beside another of its own.
func TestAdmits(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2, 3, 4, 16, 64, 1000} {
		for _, percent := range []int{1, 50, 75, 99, 100} {
			s := share{workers, percent}
			free := workers
			for tenant := range workers {
				running := 0
				for free > 0 && s.admits(running, free) {
					running++
					free--
				}
				if tenant == 0 {
					require.Equal(t, s.most(), running, "of %d workers, %d percent", workers, percent)
				}
				require.False(t, running == 0 && free > 0)
				if percent < 100 && running > 1 {
					require.NotZero(t, free, "of %d workers, %d percent", workers, percent)
				}
			}
		}
	}
}

// TestPayloadsInMemory: while the payloads of claims come to the bound there is no room for
// more, and whoever wanted some is told once one of them is done with.
func TestPayloadsInMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(false)
		b := newBundle(t, func(c *Config) { c.Workers = 4 }, w.register).start()
		large := b.claim("wait")
		large.Record.Payload = []byte(strings.Repeat("x", maxBytes))
		b.submitClaims([]Claim{large})
		<-w.running
		require.Zero(t, b.workers.Room())
		require.Zero(t, b.workers.Reserve(b.owner, 1))
		close(w.goOn)
		require.Equal(t, job.Done, b.owner.next(t).outcome.State)
		synctest.Wait()
		require.Equal(t, 1, b.workers.Reserve(b.owner, 1))
		b.workers.Release(1)
		require.Zero(t, b.workers.room.bytes.Load())
	})
}
