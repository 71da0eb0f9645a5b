package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store/storetest"
)

// Whatever goes wrong at the first steps, the error says what to type next.
func TestFirstStepsThatFail(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "down!", "empty?", "narrow")
	text, err := os.ReadFile(b.path)
	require.NoError(t, err)
	replace := func(old, with string) string { // another configuration
		path := filepath.Join(t.TempDir(), "node.yaml")
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), old, with, 1)), 0o600))
		return path
	}
	b.sql("narrow", "REVOKE ALL ON ALL TABLES IN SCHEMA tenure FROM tenure_test_app")
	narrow := replace(b.dsn["narrow"], storetest.AsRuntime(b.dsn["narrow"]))
	absent := replace(b.dsn["p1"], strings.Replace(b.dsn["p1"], "tenure_test", "no_tenure_test", 1))
	enqueue := func(tenant string) []string { return []string{"enqueue", "k", "{}", "--tenant", tenant} }
	for name, c := range map[string]struct {
		args   []string
		config string
		says   string
	}{
		"no configuration": {enqueue("P1"), filepath.Join(t.TempDir(), "node.yaml"), "name the file with --config or $TENURE_CONFIG"},
		"no server":        {enqueue("DOWN"), b.path, "tenure doctor says more"},
		"no database":      {enqueue("P1"), absent, "if it is new, create the database, and run: tenure migrate --pool p1"},
		"no ledger":        {enqueue("EMPTY"), b.path, "run: tenure migrate --pool empty"},
		"no such tenant":   {enqueue("nobody"), b.path, "under tenants.static in the configuration, as TENANT: POOL, and type: tenure reload"},
		"the wrong user":   {[]string{"enqueue", "k", "{}", "--tenant", "NARROW"}, narrow, "GRANT SELECT ON "},
	} {
		r := command(t.Context(), "", append(c.args, "--config", c.config)...)
		require.NotZero(t, r.code, name)
		require.Contains(t, r.errors, c.says, name)
		require.Empty(t, r.out, name)
	}
	id := b.run(enqueue("P1")...).out
	require.Contains(t, b.run("jobs", "why", strings.TrimSpace(id)).out, "tenure serve", "nothing runs it")

	b.sql("p1", `UPDATE tenure.acquire_lock SET holder = gen_random_uuid(), holder_member = 'm', renewed_at = clock_timestamp(), expires_at = clock_timestamp() + interval '1 hour';
		INSERT INTO tenure.node_session (session_id, node, member, expires_at) SELECT holder, 'n', 'm', expires_at FROM tenure.acquire_lock`)
	require.Contains(t, b.run("jobs", "why", strings.TrimSpace(id)).out, "tenure jobs cancel "+strings.TrimSpace(id), "no node has a handler")
}

// Tenants are in the configuration, and one has no schema, and the other a role that does not exist. The node
// says so when it starts, and their jobs when they run: which tenant, where, and what to execute. Who does what
// they say, one after the other, has the jobs run.
func TestFirstTenantsThatAreNotThere(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	b.sql("p1", "CREATE SCHEMA t; CREATE SCHEMA roled")
	role := "nobody_" + strings.ReplaceAll(uuid.NewString(), "-", "") // roles are the server's, which tests share
	text, err := os.ReadFile(b.path)
	require.NoError(t, err)
	text = append(text, "    lost: {pool: p1, schema: lost}\n    roled: {pool: p1, schema: roled, role: "+role+"}\n"...)
	text = []byte(strings.Replace(string(text), b.dsn["p1"], storetest.AsRuntime(b.dsn["p1"]), 1))
	require.NoError(t, os.WriteFile(b.path, text, 0o600))
	s := b.serveWith(
		"tenants have no schema in this pool, so that their jobs wait; create it, or correct tenants.static",
		"tenants' roles do not exist, or this pool's user is no member of them, so that their jobs wait; create or grant them")
	for i, want := range []map[string]any{
		{"pool": "p1", "schemas": []any{"lost"}, "statements": []any{"CREATE SCHEMA lost"}},
		{"pool": "p1", "roles": []any{role}, "statements": []any{"CREATE ROLE " + role + "; GRANT " + role + " TO tenure_test_app"}},
	} {
		for key, value := range want {
			require.Equal(t, value, s.said[i][key], s.said[i])
		}
	}
	for tenant, want := range map[string][]string{
		"lost":  {"tenant lost has no schema lost", "execute in pool p1: CREATE SCHEMA", "or correct where the tenant is routed to"},
		"roled": {`role "` + role + `" does not exist`, "execute on its server: CREATE ROLE", "or correct where the tenant is routed to"},
	} {
		id := b.enqueue("sql.exec", `{"sql": "SELECT 1"}`, "--tenant", tenant, "--max-attempts", "1")
		for tries := 0; ; tries++ {
			var shown struct{ State string }
			var why string // the command that says it, and jobs show, wait for what the run says
			require.Eventually(t, func() bool {
				require.NoError(t, json.Unmarshal([]byte(b.ok("jobs", "show", id, "-o", "json")), &shown))
				why = b.ok("jobs", "why", id)
				return shown.State == "done" || shown.State == "scheduled" && strings.Contains(why, "put off: ")
			}, patience, tick)
			if shown.State == "done" {
				require.NotZero(t, tries, "or nothing was missing")
				break
			}
			require.Contains(t, b.ok("jobs", "show", id), "put off: ")
			if tries == 0 {
				for _, says := range append(want, `tenant "`+tenant+`"`) {
					require.Contains(t, why, says)
				}
			}
			require.Less(t, tries, 8, why)
			mend := regexp.MustCompile(`execute [^:]*: (.*); or correct`).FindStringSubmatch(why)
			require.NotNil(t, mend, why)
			b.sql("p1", mend[1])
			b.run("jobs", "retry", id) // refused if it has run by itself
		}
	}
	b.sql("p1", "DROP OWNED BY "+role+"; DROP ROLE "+role)
}
