package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/store"
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

// What is frozen may be meant; what is so in some of the pools that answered is not, and nor is what every tenant has there.
func TestWhatIsSetInSomePools(t *testing.T) {
	t.Parallel()
	mail := store.Frozen{Scope: store.ScopeQueue, Name: "mail", Since: time.Unix(100, 0)}
	later, sms := mail, store.Frozen{Scope: store.ScopeKind, Name: "sms", Since: time.Unix(300, 0)}
	later.Since = time.Unix(200, 0)
	got := compare(config.Default(), []*pool{{name: "p1", frozen: []store.Frozen{later}, common: []string{"limit of kind mail", "schedule tick"}}, {name: "p2", frozen: []store.Frozen{mail, sms}, common: []string{"limit of kind mail"}}, {name: "deaf"}})
	require.Equal(t, []Finding{
		{Note, "jobs", []string{"p1", "p2"}, "queue mail is frozen, since 1970-01-01T00:01:40Z", "", "none of its jobs is claimed until somebody thaws it", "tenure queues thaw mail", About{Queue: "mail"}},
		{Warning, "jobs", []string{"p2"}, "kind sms is frozen, since 1970-01-01T00:05:00Z, and not in 1 other pool", "", "its jobs are started there, such as in a pool that was added since", "tenure kinds freeze sms, or tenure kinds thaw sms", About{Kind: "sms"}},
		{Warning, "tenants", []string{"p2"}, "the schedule tick for every tenant is set in p1 only", "", "tenants here do without it, such as in a pool that was added since", "set it again, which reaches all pools: tenure schedules list shows it, tenure schedules set --every-tenant sets it", About{}},
	}, got)
}
