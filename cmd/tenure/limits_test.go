package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Limits are set, listed and deleted, for a tenant and for every one; what cannot be meant is refused,
// with what is allowed.
func TestLimits(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	require.Equal(t, "the limit of P1 for kind invoice.send is set\n", b.ok("limits", "set", "--tenant", "P1", "--kind", "invoice.send", "--max-running", "4"))
	require.Equal(t, "the limit of every tenant for queue mail is set\n", b.ok("limits", "set", "--every-tenant", "--queue", "mail", "--rate", "100", "--per", "1m", "--burst", "10"))
	require.Equal(t, "the limit of P1 is set\n", b.ok("limits", "set", "--tenant", "P1", "--max-running", "9", "--rate", "7"))
	b.ok("tenants", "limit", "P1", "--max-running", "8")
	require.Equal(t, "the limit of P1 for exclusive key \"account 7\" is set\n", b.ok("limits", "set", "--tenant", "P1", "--key", "account 7", "--rate", "1"))
	require.Equal(t, "the limit of P1 for each exclusive key is set\n", b.ok("limits", "set", "--tenant", "P1", "--each-key", "--rate", "2"))
	require.Contains(t, b.ok("limits", "list"), "(each)")
	require.Contains(t, b.ok("limits", "list"), "account 7")
	b.ok("limits", "delete", "--tenant", "P1", "--key", "account 7")
	b.ok("limits", "delete", "--tenant", "P1", "--each-key")
	require.Equal(t, [][]string{{"(every tenant)", "mail", "-", "-", "-", "-", "100 per 1m0s", "10", "-", "p1"}, {"(every tenant)", "mail", "-", "-", "-", "-", "100 per 1m0s", "10", "-", "p2"},
		{"P1", "-", "-", "-", "8", "0", "7 per 1s", "1", "-", "p1"}, {"P1", "-", "invoice.send", "-", "4", "0", "-", "-", "-", "p1"}}, rows(b.ok("limits", "list")))

	require.Equal(t, "the limit of P1 is lifted\n", b.ok("limits", "delete", "--tenant", "P1"))
	b.ok("limits", "delete", "--tenant", "P1", "--kind", "invoice.send")
	b.ok("limits", "delete", "--every-tenant", "--queue", "mail")
	require.Empty(t, b.list("limits", "list"))
	for what, of := range map[string][]string{
		`tenant "P1"`:                        {"--tenant", "P1"},
		`kind "invoice.send" of tenant "P1"`: {"--tenant", "P1", "--kind", "invoice.send"},
		`queue "mail" of every tenant`:       {"--every-tenant", "--queue", "mail"},
	} {
		r := b.fails(exitFailed, append([]string{"limits", "delete"}, of...)...)
		require.Contains(t, r.errors, "limit "+what+": no such limit: see: tenure limits list")
	}
	r := b.fails(exitUsage, "limits", "set", "--tenant", "P1", "--rate", "5", "--per", "48h")
	require.Contains(t, r.errors, "up to 24h")
	r = b.fails(exitUsage, "limits", "set", "--max-running", "5")
	require.Contains(t, r.errors, "name the tenant, or pass --every-tenant")
}

// What all tenants have together is listed with each pool's share, and set in the configuration only.
func TestLimitsOfTheCluster(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	text, err := os.ReadFile(b.path)
	require.NoError(t, err)
	text = append(text, "\nlimits: {kinds: {sap.call: {max_running: 50, rate: 20}}, queues: {mail: {max_running: 9, pools: {p2: 0}}}}\n"...)
	require.NoError(t, os.WriteFile(b.path, text, 0o600))
	b.ok("limits", "set", "--every-tenant", "--kind", "sap.call", "--max-running", "4")
	require.Len(t, b.list("limits", "list"), 6)
	table := b.ok("limits", "list")
	require.Contains(t, table, "(all together)")
	require.Contains(t, table, "25 of 50")
	require.Contains(t, table, "none here")
}
