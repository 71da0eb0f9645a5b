package execution

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

// Which claims wait for a worker, and for what, is told once they have for long; and which handlers ignore the end of
// their context, also where nothing waits.
func TestBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(true)
		b := newBundle(t, func(c *Config) { c.Timeout = time.Minute }, w.register).start()
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		began := time.Now().UTC().Truncate(time.Second)
		b.submit("wait", 3) // two run, one waits
		pass(busyAfter - 2*time.Second)
		require.Zero(t, b.workers.Busy(b.owner), "not for long")
		pass(2 * time.Second)
		late := b.claim("wait")
		late.Record.Tenant = "another"
		b.submitClaims([]Claim{late})
		pass(2 * time.Second)
		full := Busy{Workers: 2, Kept: 2, Kinds: []BusyKind{{Kind: "wait", Runs: 2, Since: began}}}
		require.Equal(t, full, b.workers.Busy(nil), "nothing of another owner waits here, and nothing more of it is claimed")
		full.Waiting = []job.ID{3}
		require.Equal(t, full, b.workers.Busy(b.owner), "the last has not waited for long")

		pass(time.Minute + busyAfter/2) // they are replaced, and the others have begun just now
		require.Equal(t, Busy{Workers: 2, Kinds: []BusyKind{{Kind: "wait", Stuck: 2, Since: began}}}, b.workers.Busy(b.owner))
		require.Equal(t, b.workers.Busy(b.owner), b.workers.Busy(nil), "it is the node's matter")
		pass(time.Minute + 5*busyAfter/2)
		require.NotEmpty(t, b.workers.Unhealthy())
		require.Equal(t, Busy{Workers: 2, Kept: 2, Left: 2, Kinds: []BusyKind{{Kind: "wait", Runs: 2, Stuck: 4, Since: began}}}, b.workers.Busy(b.owner))
		close(w.goOn)
		pass(2 * time.Second)
		require.Zero(t, b.workers.Busy(b.owner))
	})
}
