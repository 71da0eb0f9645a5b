package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
)

func TestJobsWhy(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	id := b.enqueue("k", "{}", "--tenant", "P1", "--exclusive", "account:7")
	out := b.ok("jobs", "why", id)
	require.Contains(t, out, "no node holds the acquire lock of pool p1\n")
	require.Contains(t, out, "start a node that serves the pool")
	var why struct{ ID, Pool, State, Reason string }
	require.NoError(t, json.Unmarshal([]byte(b.ok("jobs", "why", id, "-o", "json")), &why))
	require.Equal(t, "no holder", why.Reason)
	require.Equal(t, id, why.ID)
	require.Equal(t, "p1", why.Pool)
	require.Equal(t, "waiting", why.State)
	require.Contains(t, b.ok("jobs", "show", id), "account:7")
	require.Contains(t, b.fails(exitFailed, "jobs", "why", "1").errors, "no such job")
	require.Contains(t, b.ok("tenants", "why", "P1"), "no node holds the acquire lock of pool p1\n")
	var tenant tenure.TenantExplanation
	require.NoError(t, json.Unmarshal([]byte(b.ok("tenants", "why", "P1", "-o", "json")), &tenant))
	require.Equal(t, tenure.TenantExplanation{Tenant: "P1", Pool: "p1", Reason: tenure.WaitsForHolder, Text: tenant.Text, Advice: tenant.Advice, Waiting: 1}, tenant)
	b.fails(exitUsage, "jobs", "why", "one")
	b.fails(exitUsage, "enqueue", "k", "{}", "--tenant", "P1", "--exclusive", "")
}
