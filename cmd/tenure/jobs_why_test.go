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
	var why struct {
		Job    struct{ ID, Pool, State string }
		Reason string
	}
	require.NoError(t, json.Unmarshal([]byte(b.ok("jobs", "why", id, "-o", "json")), &why))
	require.Equal(t, []string{"no holder", id, "p1", "waiting"}, []string{why.Reason, why.Job.ID, why.Job.Pool, why.Job.State})
	require.Contains(t, b.ok("jobs", "show", id), "account:7")
	require.Contains(t, b.fails(exitFailed, "jobs", "why", "1").errors, "no such job")
	require.Contains(t, b.ok("tenants", "why", "P1"), "no node holds the acquire lock of pool p1\n")
	var tenant tenure.TenantExplanation
	require.NoError(t, json.Unmarshal([]byte(b.ok("tenants", "why", "P1", "-o", "json")), &tenant))
	require.Equal(t, tenure.TenantExplanation{Tenant: "P1", Pool: "p1", Reason: tenure.WaitsForHolder, Text: tenant.Text, Advice: tenant.Advice, Waiting: 1}, tenant)
	b.fails(exitUsage, "jobs", "why", "one")
	b.fails(exitUsage, "enqueue", "k", "{}", "--tenant", "P1", "--exclusive", "")
}

// Jobs of a tenant that nobody routes are said to be that, and are given to another tenant, or ended.
func TestJobsOfAnUnknownTenant(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	b.sql("p1", `SELECT tenure.enqueue('mistyped', 'k', '{}', unique_key => CASE n WHEN 1 THEN 'taken' WHEN 2 THEN 'free' END,
		delay => CASE n WHEN 3 THEN interval '1 hour' END, tags => '{red}') FROM generate_series(1, 5) n`)
	b.sql("p1", "SELECT tenure.enqueue('P1', 'k', '{}', unique_key => 'taken')")
	found := b.list("jobs", "list", "--tenant", "mistyped")
	require.Len(t, found, 5)
	out := b.ok("jobs", "why", found[0]["id"].(string))
	require.Contains(t, out, `unknown tenant "mistyped"`)
	require.Contains(t, out, `tenure tenants reassign "mistyped" --to TENANT`)
	require.Regexp(t, `(?m)^mistyped +p1 +unknown`, b.ok("tenants", "list"))
	require.Contains(t, b.fails(exitUsage, "tenants", "reassign", "P1", "--to", "P1").errors, `tenant "P1" lives in pool p1`)
	require.Equal(t, "4 jobs of tenant mistyped are tenant P1's now, 1 is left\n", b.ok("tenants", "reassign", "mistyped", "--to", "P1"))
	require.Len(t, rows(b.ok("jobs", "list", "--tenant", "P1")), 5)
	require.Len(t, rows(b.ok("jobs", "list", "--tag", "red", "--tenant", "P1")), 4)
	require.Contains(t, b.ok("audit", "--action", "tenant.reassign"), "mistyped")
	require.Contains(t, b.ok("jobs", "cancel", "--tenant", "mistyped"), "is under way")
}
