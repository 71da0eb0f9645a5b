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
	_, err := store.Verify(t.Context(), runtime, "main", store.ToRun)
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
		_, err := store.Verify(t.Context(), runtime, "main", store.ToRun)
		var refused *store.PoolError
		require.ErrorAs(t, err, &refused, revoke)
		require.Equal(t, "its user lacks privileges on the ledger", refused.What)
		require.Equal(t, "run, as the ledger's owner: tenure migrate --pool main --grants --runtime "+user+"; or: "+grant+user+";", refused.Fix)
		execute(t, owner, grant+user)
		_, err = store.Verify(t.Context(), runtime, "main", store.ToRun)
		require.NoError(t, err, revoke)
	}
}

// TestAnotherPoolsDatabaseIsSaid, and not what its user lacks there, which would have it
// granted on the wrong ledger.
func TestAnotherPoolsDatabaseIsSaid(t *testing.T) {
	t.Parallel()
	owner, runtime, user := owned(t)
	execute(t, owner, "REVOKE ALL ON tenure.claim FROM "+user)
	_, err := store.Verify(t.Context(), runtime, "other", store.ToRun)
	require.ErrorContains(t, err, `the database says that it is pool "main"`)
	_, err = store.Verify(t.Context(), runtime, "main", store.ToRun)
	require.ErrorContains(t, err, "GRANT SELECT, INSERT, UPDATE, DELETE ON tenure.claim")
	execute(t, owner, "REVOKE ALL ON tenure.pool FROM "+user)
	_, err = store.Verify(t.Context(), runtime, "main", store.ToRun)
	require.ErrorContains(t, err, "GRANT SELECT ON tenure.pool")
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
	given, err := store.Regrant(t.Context(), owner)
	require.NoError(t, err)
	require.Empty(t, given)
	_, err = store.Verify(t.Context(), runtime, "main", store.ToRun)
	require.Error(t, err, "nothing is given to somebody who was not given it before")

	done, err := store.Grant(t.Context(), owner, user)
	require.NoError(t, err)
	require.NotEmpty(t, done)
	_, err = store.Verify(t.Context(), runtime, "main", store.ToRun)
	require.NoError(t, err)
	done, err = store.Grant(t.Context(), owner, user)
	require.NoError(t, err)
	require.Empty(t, done)

	for _, sql := range []string{"ALL ON tenure.tenant_role", "ALL ON SEQUENCE tenure.incarnation_moment", "EXECUTE ON FUNCTION tenure.make_day(date)"} {
		execute(t, owner, "REVOKE "+sql+" FROM "+user) // as if a migration had just made it
	}
	_, err = store.Verify(t.Context(), runtime, "main", store.ToRun)
	require.ErrorContains(t, err, "GRANT EXECUTE ON FUNCTION tenure.make_day(day date) TO")
	given, err = store.Regrant(t.Context(), owner)
	require.NoError(t, err)
	require.Len(t, given, 3)
	_, err = store.Verify(t.Context(), runtime, "main", store.ToRun)
	require.NoError(t, err)
}

// TestWhatIsNotTheLedgersIsNobodysBusiness: what somebody keeps in the schema, and the user
// may not use, takes no pool out of service, and is not given away.
func TestWhatIsNotTheLedgersIsNobodysBusiness(t *testing.T) {
	t.Parallel()
	owner, runtime, user := owned(t)
	execute(t, owner, `CREATE TABLE tenure.job_backup (LIKE tenure.job); CREATE SEQUENCE tenure.of_a_later_version;
		CREATE FUNCTION tenure.helper() RETURNS int LANGUAGE sql AS 'SELECT 1'; REVOKE EXECUTE ON FUNCTION tenure.helper() FROM PUBLIC;
		CREATE FUNCTION tenure.drop_day(day timestamptz) RETURNS int LANGUAGE sql AS 'SELECT 1'; REVOKE EXECUTE ON FUNCTION tenure.drop_day(timestamptz) FROM PUBLIC;
		SELECT tenure.make_day('2020-01-01'); ALTER TABLE tenure.completed_job DETACH PARTITION tenure.completed_job_20200101`)
	_, err := store.Verify(t.Context(), runtime, "main", store.ToRun)
	require.NoError(t, err)
	given, err := store.Grant(t.Context(), owner, user)
	require.NoError(t, err)
	require.Empty(t, given)
}

// TestGrantsCoverTheLedger: nothing that migrations make was left out of grant_missing.sql.
func TestGrantsCoverTheLedger(t *testing.T) {
	t.Parallel()
	_, runtime, _ := owned(t)
	rows, err := runtime.Query(t.Context(), `
		SELECT c.relname::text FROM pg_class c
		WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'p') AND (NOT c.relispartition OR c.relname = 'completed_job_rest')
		  AND NOT has_table_privilege(c.oid, CASE WHEN c.relname IN ('pool', 'migration') THEN 'SELECT' WHEN c.relname = 'audit' THEN 'INSERT' ELSE 'UPDATE' END)
		UNION ALL
		SELECT c.relname FROM pg_class c
		WHERE c.relnamespace = 'tenure'::regnamespace AND CASE c.relkind WHEN 'S' THEN NOT has_sequence_privilege(c.oid, 'UPDATE') END
		  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'i')
		UNION ALL
		SELECT f.proname FROM pg_proc f WHERE f.pronamespace = 'tenure'::regnamespace AND NOT has_function_privilege(f.oid, 'EXECUTE')
		  AND f.proname <> ALL ('{answer,enqueue_as,enqueue_external_as,enqueue_linked_as,cancel_as,retry_as,job_changeable,calls_itself,
		                          enqueue_fault,options_fault,enqueue_refusal,enqueue_raise,enqueue_key,take_key,index_tags,notify_holder,retry_external}')`)
	require.NoError(t, err)
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestWhoOnlyEnqueuesNeedsLittle: a client's pool is in service for a user who may add jobs,
// by the statements that are printed and no more.
func TestWhoOnlyEnqueuesNeedsLittle(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	owner := connectTo(t, dsn)
	user := "web_" + strings.ToLower(rand.Text())
	execute(t, owner, "CREATE ROLE "+user+" LOGIN PASSWORD 'secret'")
	t.Cleanup(func() { _, _ = owner.Exec(context.Background(), "DROP OWNED BY "+user+"; DROP ROLE "+user) })
	execute(t, owner, "REVOKE EXECUTE ON FUNCTION tenure.enqueue FROM PUBLIC")
	execute(t, owner, "REVOKE ALL ON tenure.door FROM PUBLIC")
	web := connectTo(t, storetest.As(dsn, user))
	_, err := store.Verify(t.Context(), web, "main", store.ToEnqueue)
	var refused *store.PoolError
	require.ErrorAs(t, err, &refused)
	grants, ok := strings.CutPrefix(refused.Fix, "run, as the ledger's owner: ")
	require.True(t, ok)
	require.NotContains(t, grants, "tenure migrate", "which would give it the whole ledger")
	execute(t, owner, grants)
	number, err := store.Verify(t.Context(), web, "main", store.ToEnqueue)
	require.NoError(t, err)
	require.Equal(t, 1, number)
	j := store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}")}
	_, _, err = store.Enqueue(t.Context(), web.QueryRow, 1, &j)
	require.ErrorIs(t, err, store.ErrNotAllowed)
	execute(t, owner, "GRANT INSERT (tenant_id) ON tenure.job TO "+user)
	_, _, err = store.Enqueue(t.Context(), web.QueryRow, 1, &j)
	require.NoError(t, err)
	_, err = store.TenantsOnTheirWay(t.Context(), web)
	require.NoError(t, err)
	_, _, err = store.Enqueue(t.Context(), web.QueryRow, 1, &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}"), Links: &store.Links{Batch: true}})
	require.NoError(t, err)
	many := func() error { // as docs/privileges.md says
		return pgx.BeginFunc(t.Context(), web, func(tx pgx.Tx) error {
			_, _, _, err := store.EnqueueBatch(t.Context(), tx, 1, &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}"), Links: &store.Links{Batch: true}}, []store.NewJob{j, j})
			return err
		})
	}
	execute(t, owner, "GRANT INSERT ON tenure.job, tenure.timer_job TO "+user+"; GRANT USAGE ON SEQUENCE tenure.job_id, tenure.job_position TO "+user)
	require.ErrorContains(t, many(), "GRANT INSERT ON tenure.awaited")
	execute(t, owner, "GRANT INSERT ON tenure.awaited TO "+user)
	require.NoError(t, many())
	_, err = store.Verify(t.Context(), web, "main", store.ToRun)
	require.ErrorContains(t, err, "lacks privileges")
	_, err = web.Exec(t.Context(), "SELECT FROM tenure.job")
	require.ErrorContains(t, err, "permission denied")
}

// TestWhoOnlyEnqueuesGetsNoMore: a user who may add jobs, whatever else he was given, is
// not taken for one who works on the ledger.
func TestWhoOnlyEnqueuesGetsNoMore(t *testing.T) {
	t.Parallel()
	owner, _, user := owned(t)
	for i, rights := range []string{
		"GRANT INSERT ON tenure.job TO %s",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON tenure.job, tenure.timer_job TO %s",
		"GRANT UPDATE ON tenure.acquire_lock TO %s",
	} {
		web := fmt.Sprintf("web_%d_%s", i, strings.ToLower(rand.Text()))
		execute(t, owner, "CREATE ROLE "+web)
		t.Cleanup(func() { _, _ = owner.Exec(context.Background(), "DROP OWNED BY "+web+"; DROP ROLE "+web) })
		execute(t, owner, fmt.Sprintf(rights, web))
	}
	holders, err := store.Grantees(t.Context(), owner, nil)
	require.NoError(t, err)
	require.Equal(t, []string{user}, holders)
	given, err := store.Regrant(t.Context(), owner)
	require.NoError(t, err)
	require.Empty(t, given)
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
		SELECT proname FROM pg_proc WHERE pronamespace = 'tenure'::regnamespace AND prosecdef AND proname NOT IN ('enqueue', 'enqueue_external', 'enqueue_linked', 'cancel', 'retry', 'job_allowed', 'first_turn', 'incarnation', 'server_state') -- which look at who calls
		    AND has_function_privilege('tenure_test_acme', oid, 'EXECUTE')`)
	require.NoError(t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, found)
	execute(t, conn, "SET ROLE tenure_test_acme")
	_, err = conn.Exec(t.Context(), "SELECT * FROM tenure.server_state()")
	require.ErrorContains(t, err, "which server this is, is for those who may read tenure.pool (SQLSTATE 42501)")
	execute(t, conn, "RESET ROLE")
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
