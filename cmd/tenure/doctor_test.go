package main

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/operate"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2!", "p3?")
	r := b.fails(exitFailed, "doctor", "--within", "1m")
	require.Contains(t, r.out, "ERROR  p2: connections: its database cannot be reached")
	require.Contains(t, r.out, "ERROR  p3: ledger: has no ledger")
	require.Contains(t, r.out, "  mend: run: tenure migrate --pool p3; if the pool had jobs, restore it first, as they and its number are gone\n")
	require.Contains(t, r.out, "1 pool was examined, and not, or not wholly: p2, p3\n")
	require.Contains(t, r.errors, "there is something to mend")
	var e operate.Examination
	require.NoError(t, json.Unmarshal([]byte(b.fails(exitFailed, "doctor", "-o", "json", "--within", "1m", "--pool", "p1").out), &e))
	require.Equal(t, []string{"p1"}, e.Examined)
	text, err := os.ReadFile("../../docs/doctor.md")
	require.NoError(t, err)
	require.Contains(t, command(t.Context(), "", "doctor", "--help").out, "(default 5s)", "a busy machine takes more than a second, and nothing is wrong")
	require.Contains(t, string(text), "each for five seconds at most (`--within`)")
	require.Contains(t, b.fails(exitUsage, "doctor", "--within", "0s").errors, "must be more than 0")
	require.Contains(t, b.fails(exitUsage, "doctor", "--pool", "p9").errors, `pool "p9"`)
}

// The doctor looks at the configuration as it is, cluster and all.
func TestDoctorOfACluster(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	b.config("cluster: {bind: 127.0.0.1:0}\nconnections: {nodes: 2}\n")
	b.sql("p1", `INSERT INTO tenure.node_session (session_id, node, member, state, expires_at)
		SELECT gen_random_uuid(), 'n' || i, 'n' || i, 'live', clock_timestamp() + interval '1 hour' FROM generate_series(1, 2) AS i`)
	r := b.run("doctor", "--within", "1m")
	require.Contains(t, r.out, "1 pool was examined")
	require.NotContains(t, r.out, "no cluster section")
}

// The doctor starts nothing, and asks the lookup table all the same.
func TestDoctorOfALookupTable(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	b.config("  table: {pool: p1, query: \"SELECT 'p1' WHERE $1 = 'table'\"}\n")
	b.sql("p1", "CREATE SCHEMA t; SELECT tenure.enqueue('table', 'k', '{}'), tenure.enqueue('nobody', 'k', '{}')")
	r := b.run("doctor", "--within", "20s")
	require.Contains(t, r.out, "1 tenant has jobs here, and no routing rule knows it: nobody")
	require.NotContains(t, r.out, "tenants.table cannot be asked")
	require.Contains(t, r.out, "1 pool was examined")
	require.NotContains(t, r.out, "not wholly")
}
