package tenure_test

import (
	"testing"
	"time"

	"github.com/tenurehq/tenure"
)

// Nodes that share a database and no seed find one another: each leaves its address in
// the ledger.
func TestNodesMeetInTheLedger(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	a := b.start(b.gossiping("a"), b.registry(nil))
	a.holds("p1")
	other := b.start(b.gossiping("b"), b.registry(nil))
	a.meet(2)
	other.meet(2)
}

// In a rolling deployment a lock goes to the newest version at once.
func TestTheNewestVersionIsTheHeir(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 3, 1)
	start := func(name, version string, join ...string) *running {
		return b.start(b.gossiping(name, join...), b.registry(nil), tenure.WithVersion(version))
	}
	old := start("old", "v1.9.0")
	for pool := range b.db {
		old.holds(pool)
	}
	start("older", "v1.8.5", old.Self().Addr)
	newest := start("newest", "v1.10.0", old.Self().Addr)
	start("devel", "(devel)", old.Self().Addr)
	old.meet(4)
	began := time.Now()
	old.stop()
	for pool := range b.db {
		newest.holds(pool)
	}
	t.Logf("all locks handed over within %v of asking to stop", time.Since(began).Round(time.Millisecond))
}
