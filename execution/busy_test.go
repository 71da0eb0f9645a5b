package execution

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What keeps the workers is told once it has for long; and which handlers ignore the end of their context.
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
		b.submit("wait", 2)
		pass(busyAfter - 2*time.Second)
		require.Zero(t, b.workers.Busy(), "not for long")
		pass(4 * time.Second)
		full := Busy{Workers: 2, Kept: 2, Full: true, Kinds: []BusyKind{{Kind: "wait", Runs: 2, Since: began}}}
		require.Equal(t, full, b.workers.Busy())

		pass(time.Minute) // they are replaced
		require.Equal(t, 2, b.workers.capacity.turning())
		b.submit("wait", 2)
		pass(busyAfter / 2)
		require.Equal(t, Busy{Workers: 2, Kinds: []BusyKind{{Kind: "wait", Stuck: 2, Since: began}}}, b.workers.Busy())
		pass(time.Minute + 5*busyAfter/2)
		require.NotEmpty(t, b.workers.Unhealthy())
		require.Equal(t, Busy{Workers: 2, Kept: 2, Full: true, Left: 2, Kinds: []BusyKind{{Kind: "wait", Runs: 2, Stuck: 4, Since: began}}}, b.workers.Busy())
		close(w.goOn)
		pass(2 * time.Second)
		require.Zero(t, b.workers.Busy())
	})
}

// Of the last worker that is free only tenants that run nothing have any use, so it is told that none is left for the others.
func TestBusyButForTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(true)
		b := newBundle(t, func(c *Config) { c.Workers, c.TenantShare, c.Timeout = 4, 75, time.Hour }, w.register).start()
		b.submit("wait", 2)
		time.Sleep(busyAfter + 2*time.Second)
		synctest.Wait()
		require.Zero(t, b.workers.Busy())
		b.submit("wait", 1)
		time.Sleep(busyAfter + 2*time.Second)
		synctest.Wait()
		require.Equal(t, 3, b.workers.Busy().Kept)
		require.True(t, b.workers.Busy().Full)
		close(w.goOn)
	})
}
