package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is the same in several pools is told once, with how to mend it in each.
func TestTogether(t *testing.T) {
	t.Parallel()
	in := func(pool, what, mend string) Finding {
		return Finding{Severity: Warning, Check: "server", Pools: []string{pool}, What: what, Why: "why", Mend: mend}
	}
	got := together([]Finding{
		in("pool-1", "fsync is off", "ALTER SYSTEM"), in("pool-1", "no ledger", "tenure migrate --pool pool-1"), in("pool-2", "fsync is off", "ALTER SYSTEM"),
		in("pool-2", "no ledger", "tenure migrate --pool pool-2"), in("pool-3", "no ledger", "tenure migrate --pool pool-3"), in("pool-3", "fsync is off", "another mend"),
	})
	want := []Finding{in("pool-1", "fsync is off", "ALTER SYSTEM"), in("pool-1", "no ledger", "tenure migrate --pool pool-1; likewise for the others"), in("pool-3", "fsync is off", "another mend")}
	want[0].Pools, want[1].Pools = []string{"pool-1", "pool-2"}, []string{"pool-1", "pool-2", "pool-3"}
	require.Equal(t, want, got)
}
