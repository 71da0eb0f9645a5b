package store_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
)

// owned is a ledger with its superuser's connections, and the runtime user's.
func owned(t *testing.T) (owner, runtime *pgxpool.Pool, user string) {
	owner, runtime = storetest.Pools(t)
	return owner, runtime, runtime.Config().ConnConfig.User
}

func execute(t *testing.T, db store.DB, sql string, args ...any) {
	t.Helper()
	_, err := db.Exec(t.Context(), sql, args...)
	require.NoError(t, err, sql)
}

// TestWhatAUserLacksIsSaid: whatever is taken from the runtime user is found when a pool is
// opened, and the statement that is printed, and nothing else, mends it.
func TestWhatAUserLacksIsSaid(t *testing.T) {
	t.Parallel()
	owner, runtime, user := owned(t)
	_, err := store.Verify(t.Context(), runtime, "main")
	require.NoError(t, err, "the grants are what is needed")
	for revoke, grant := range map[string]string{
		"USAGE ON SCHEMA tenure FROM PUBLIC":               "",
		"SELECT ON tenure.migration":                       "GRANT SELECT ON tenure.migration TO ",
		"INSERT ON tenure.claim":                           "GRANT INSERT ON tenure.claim TO ",
		"DELETE ON tenure.completed_job_rest":              "GRANT DELETE ON tenure.completed_job_rest TO ",
		"UPDATE ON SEQUENCE tenure.job_position":           "GRANT UPDATE ON SEQUENCE tenure.job_position TO ",
		"EXECUTE ON FUNCTION tenure.drop_day(date)":        "GRANT EXECUTE ON FUNCTION tenure.drop_day(day date) TO ",
		"SELECT, UPDATE ON tenure.job, tenure.timer_job":   "GRANT SELECT, UPDATE ON tenure.job, tenure.timer_job TO ",
		"ALL ON tenure.unique_job":                         "GRANT SELECT, INSERT, UPDATE, DELETE ON tenure.unique_job TO ",
		"USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA tenure ": "GRANT USAGE, UPDATE ON SEQUENCE tenure.incarnation_moment, tenure.job_id, tenure.job_position TO ",
	} {
		if !strings.Contains(revoke, "FROM") {
			revoke += " FROM " + user
		} else {
			grant = "GRANT USAGE ON SCHEMA tenure TO "
			execute(t, owner, "REVOKE USAGE ON SCHEMA tenure FROM "+user)
		}
		execute(t, owner, "REVOKE "+revoke)
		_, err := store.Verify(t.Context(), runtime, "main")
		var refused *store.PoolError
		require.ErrorAs(t, err, &refused, revoke)
		require.Equal(t, "its user lacks privileges on the ledger", refused.What)
		require.Equal(t, "run, as the ledger's owner: tenure migrate --pool main --grants --runtime "+user+"; or: "+grant+user+";", refused.Fix)
		execute(t, owner, grant+user)
		_, err = store.Verify(t.Context(), runtime, "main")
		require.NoError(t, err, revoke)
	}
}

// TestAUserWithNothing is given all by one call, as is a user who had something before
// a migration added to the ledger.
func TestAUserWithNothing(t *testing.T) {
	t.Parallel()
	owner, runtime, user := owned(t)
	execute(t, owner, "REVOKE ALL ON ALL TABLES IN SCHEMA tenure FROM "+user)
	execute(t, owner, "REVOKE ALL ON ALL SEQUENCES IN SCHEMA tenure FROM "+user)
	holders, err := store.Grantees(t.Context(), owner, nil)
	require.NoError(t, err)
	require.Empty(t, holders)
	_, err = store.Grantees(t.Context(), owner, []string{user, "nobody_at_all"})
	require.ErrorContains(t, err, `user "nobody_at_all" does not exist`)
	require.NoError(t, store.Regrant(t.Context(), owner))
	_, err = store.Verify(t.Context(), runtime, "main")
	require.Error(t, err, "nothing is given to somebody who was not given it before")

	done, err := store.Grant(t.Context(), owner, user)
	require.NoError(t, err)
	require.NotEmpty(t, done)
	_, err = store.Verify(t.Context(), runtime, "main")
	require.NoError(t, err)
	done, err = store.Grant(t.Context(), owner, user)
	require.NoError(t, err)
	require.Empty(t, done)

	execute(t, owner, "CREATE TABLE tenure.added (id bigint GENERATED ALWAYS AS IDENTITY); CREATE SEQUENCE tenure.added_too;"+
		"CREATE FUNCTION tenure.added() RETURNS int LANGUAGE sql AS 'SELECT 1'; REVOKE EXECUTE ON FUNCTION tenure.added() FROM PUBLIC")
	_, err = store.Verify(t.Context(), runtime, "main")
	require.ErrorContains(t, err, "GRANT EXECUTE ON FUNCTION tenure.added() TO")
	require.NoError(t, store.Regrant(t.Context(), owner))
	_, err = store.Verify(t.Context(), runtime, "main")
	require.NoError(t, err)
	for _, sql := range []string{"INSERT INTO tenure.added DEFAULT VALUES", "SELECT nextval('tenure.added_too'), tenure.added()"} {
		execute(t, runtime, sql)
	}
}

// ownersStatements are those that only `tenure migrate` executes.
var ownersStatements = map[string]bool{"pool_name": true}

// TestTheRuntimeUserMayExecuteEveryStatement: each is planned and made ready to run, which
// is when Postgres looks at privileges.
func TestTheRuntimeUserMayExecuteEveryStatement(t *testing.T) {
	t.Parallel()
	_, runtime, _ := owned(t)
	conn, err := runtime.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	execute(t, conn, "SET plan_cache_mode = force_generic_plan")
	files, err := filepath.Glob("queries/*.sql")
	require.NoError(t, err)
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".sql")
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		statement, err := conn.Conn().Prepare(t.Context(), name, string(text))
		require.NoError(t, err, f)
		explain := "EXPLAIN EXECUTE " + pgx.Identifier{name}.Sanitize()
		if n := len(statement.ParamOIDs); n > 0 {
			explain += "(" + strings.Repeat("NULL, ", n-1) + "NULL)"
		}
		_, err = conn.Exec(t.Context(), explain, pgx.QueryExecModeSimpleProtocol)
		if ownersStatements[name] {
			require.ErrorContains(t, err, "permission denied", f)
			continue
		}
		require.NoError(t, err, f)
	}
}

// TestTenantsHaveNoPartInTheLedger: a tenant's role reads and writes nothing of it.
func TestTenantsHaveNoPartInTheLedger(t *testing.T) {
	t.Parallel()
	owner, _, _ := owned(t)
	execute(t, owner, "CREATE SCHEMA acme")
	storetest.Role(t, owner, "tenure_test_acme", "acme")
	conn, err := owner.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	rows, err := conn.Query(t.Context(), `
		SELECT format('%s on %s', p, c.relname) FROM pg_class c, unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) p
		WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'p') AND has_table_privilege('tenure_test_acme', c.oid, p)
		UNION ALL
		SELECT format('%s on %s', p, c.relname) FROM pg_class c, unnest('{USAGE,SELECT,UPDATE}'::text[]) p
		WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind = 'S' AND has_sequence_privilege('tenure_test_acme', c.oid, p)
		UNION ALL
		SELECT 'CREATE' WHERE has_schema_privilege('tenure_test_acme', 'tenure', 'CREATE')
		UNION ALL
		SELECT proname FROM pg_proc WHERE pronamespace = 'tenure'::regnamespace AND prosecdef AND proname NOT IN ('enqueue', 'first_turn', 'incarnation')
		    AND has_function_privilege('tenure_test_acme', oid, 'EXECUTE')`)
	require.NoError(t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, found)
}

// TestRolesAreGranted: the runtime user may take tenants' roles, and does not have their
// rights all the time.
func TestRolesAreGranted(t *testing.T) {
	t.Parallel()
	owner, runtime, user := owned(t)
	suffix := strings.ToLower(rand.Text())
	roles := []string{"a_" + suffix, "b_" + suffix, "not_made_" + suffix}
	for _, r := range roles[:2] {
		execute(t, owner, fmt.Sprintf("CREATE ROLE %s", r))
		t.Cleanup(func() { _, _ = owner.Exec(context.Background(), "DROP ROLE "+r) })
	}
	done, err := store.GrantRoles(t.Context(), owner, user, roles)
	require.NoError(t, err)
	require.Len(t, done, 2)
	execute(t, runtime, "BEGIN; SET LOCAL ROLE "+roles[0]+"; COMMIT")
	done, err = store.GrantRoles(t.Context(), owner, user, roles)
	require.NoError(t, err)
	require.Empty(t, done)
	_, err = store.GrantRoles(t.Context(), runtime, "postgres", roles[:1])
	require.NoError(t, err, "a superuser needs none")
	execute(t, owner, "REVOKE "+roles[1]+" FROM "+user)
	_, err = store.GrantRoles(t.Context(), runtime, user, roles)
	require.ErrorContains(t, err, "have who administers the roles execute GRANT "+roles[1]+" TO "+user)
}
