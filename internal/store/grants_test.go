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

// ownedApart is [owned] where functions are for nobody who was not granted them, as after ALTER DEFAULT PRIVILEGES. PostgreSQL
// gives them to everybody, so that what a grant leaves out is found nowhere else.
func ownedApart(t *testing.T) (owner, runtime *pgxpool.Pool, user string) {
	owner, runtime, user = owned(t)
	execute(t, owner, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure FROM PUBLIC")
	_, err := store.Grant(t.Context(), owner, user)
	require.NoError(t, err)
	return owner, runtime, user
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

// TestAUserWithNothing is given all by one call, which names it, and by every migration from then on.
func TestAUserWithNothing(t *testing.T) {
	t.Parallel()
	owner, runtime, user := owned(t)
	execute(t, owner, "REVOKE ALL ON ALL TABLES IN SCHEMA tenure FROM "+user)
	execute(t, owner, "REVOKE ALL ON ALL SEQUENCES IN SCHEMA tenure FROM "+user)
	execute(t, owner, "DELETE FROM tenure.runtime_user")
	_, err := store.Grantees(t.Context(), owner, []string{user, "nobody_at_all"})
	require.ErrorContains(t, err, `user "nobody_at_all" does not exist`)
	given, err := store.Regrant(t.Context(), owner)
	require.NoError(t, err)
	require.Empty(t, given)
	_, err = store.Verify(t.Context(), runtime, "main", store.ToRun)
	require.Error(t, err, "nothing is given to somebody who was not named")

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

// TestGrantsHaveAnEffect, or an error says so: who owns only a part of the ledger is warned by Postgres only.
func TestGrantsHaveAnEffect(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	owner := connectTo(t, dsn)
	part, user := role(t, owner, "part", "LOGIN PASSWORD 'secret'"), role(t, owner, "app", "LOGIN")
	_, err := store.Grant(t.Context(), owner, part)
	require.NoError(t, err)
	_, err = store.Grant(t.Context(), connectTo(t, storetest.As(dsn, part)), user)
	require.ErrorContains(t, err, "connect as the ledger's owner: ")
	execute(t, owner, "ALTER TABLE tenure.runtime_user OWNER TO "+part)
	_, err = store.Grant(t.Context(), connectTo(t, storetest.As(dsn, part)), user)
	require.ErrorContains(t, err, " had no effect: connect as the ledger's owner")
}

// TestWhatIsNotTheLedgersIsNobodysBusiness: what somebody keeps in the schema, and the user
// may not use, takes no pool out of service, and is not given away.
func TestWhatIsNotTheLedgersIsNobodysBusiness(t *testing.T) {
	t.Parallel()
	owner, runtime, user := owned(t)
	execute(t, owner, `CREATE TABLE tenure.job_backup (LIKE tenure.job); CREATE SEQUENCE tenure.of_a_later_version;
		CREATE FUNCTION tenure.helper() RETURNS int LANGUAGE sql AS 'SELECT 1'; REVOKE EXECUTE ON FUNCTION tenure.helper() FROM PUBLIC;
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
	_, runtime, _ := ownedApart(t)
	rows, err := runtime.Query(t.Context(), `
		SELECT c.relname::text FROM pg_class c
		WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> 'view_key' AND (NOT c.relispartition OR c.relname = 'completed_job_rest')
		  AND NOT has_table_privilege(c.oid, CASE WHEN c.relname IN ('pool', 'migration', 'function_text', 'runtime_user') THEN 'SELECT' WHEN c.relname = 'audit' THEN 'INSERT' ELSE 'UPDATE' END)
		UNION ALL
		SELECT c.relname FROM pg_class c
		WHERE c.relnamespace = 'tenure'::regnamespace AND CASE c.relkind WHEN 'S' THEN NOT has_sequence_privilege(c.oid, 'UPDATE') END
		  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'i')
		UNION ALL
		SELECT f.proname FROM pg_proc f WHERE f.pronamespace = 'tenure'::regnamespace AND NOT has_function_privilege(f.oid, 'EXECUTE')
		  AND f.proname <> ALL ('{answer,name_caller,add_job,add_linked_job,cancel_as,retry_as,job_allowed,job_changeable,calls_itself,
		                          enqueue_fault,enqueue_refusal,enqueue_raise,enqueue_key,take_key,index_tags,notify_holder,notify_enqueued,retry_external,
		                          sequences_behind,highest_id,highest_position}')`) // which only functions call that are executed as the owner
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
	execute(t, owner, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA tenure FROM PUBLIC")
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
			return store.EnqueueBatch(t.Context(), tx, 1, &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}"), Links: &store.Links{Batch: true}}, []store.NewJob{j, j})
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

// role makes a role of the server's that goes with the test.
func role(t *testing.T, owner store.DB, prefix, options string) string {
	name := prefix + "_" + strings.ToLower(rand.Text())
	execute(t, owner, "CREATE ROLE "+name+" "+options)
	t.Cleanup(func() { _, _ = owner.Exec(context.Background(), "DROP OWNED BY "+name+"; DROP ROLE "+name) })
	return name
}

// heldBy are the statements that take a user's rights away; none: Holders does not name it.
func heldBy(t *testing.T, db store.DB, user string) []string {
	holders, err := store.Holders(t.Context(), db)
	require.NoError(t, err)
	for _, h := range holders {
		if h.User == user {
			return h.Revoke
		}
	}
	return nil
}

// TestNobodyIsGuessed: rights that somebody has, however many, make him no user to whom migrations give more. He
// is named with the statements that take all of them away.
func TestNobodyIsGuessed(t *testing.T) {
	t.Parallel()
	owner, runtime, user := owned(t)
	alpha, all := role(t, owner, "alpha", ""), role(t, owner, "all", "LOGIN")
	execute(t, owner, "INSERT INTO tenure.tenant_role VALUES ('alpha', '"+alpha+"')")
	holders, err := store.Holders(t.Context(), runtime)
	require.NoError(t, err)
	require.Empty(t, holders)
	execute(t, owner, "GRANT INSERT ON tenure.job TO "+alpha)
	execute(t, owner, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tenure TO "+all)
	given, err := store.Regrant(t.Context(), owner)
	require.NoError(t, err)
	require.Empty(t, given)

	holders, err = store.Holders(t.Context(), runtime)
	require.NoError(t, err)
	require.Len(t, holders, 2)
	require.Equal(t, alpha, holders[0].User)
	require.Equal(t, "alpha", *holders[0].Tenant)
	require.Empty(t, holders[0].Name("main"), "a tenant's role is not to be named")
	require.Equal(t, []string{"REVOKE INSERT ON tenure.job FROM " + alpha}, holders[0].Revoke)
	require.Equal(t, "tenure migrate --pool main --grants --runtime "+all, holders[1].Name("main"))
	for _, sql := range append(holders[0].Revoke, holders[1].Revoke...) {
		execute(t, owner, sql)
	}
	execute(t, owner, "GRANT SELECT ON tenure.tenant TO "+all) // as the documents give it
	holders, err = store.Holders(t.Context(), runtime)
	require.NoError(t, err)
	require.Empty(t, holders)

	_, err = store.Grant(t.Context(), owner, all)
	require.NoError(t, err)
	require.Empty(t, heldBy(t, runtime, all), "it was named")
	execute(t, owner, "REVOKE ALL ON tenure.audit FROM "+all+", "+user)
	given, err = store.Regrant(t.Context(), owner)
	require.NoError(t, err)
	require.Equal(t, []string{"GRANT SELECT, INSERT ON tenure.audit TO " + all, "GRANT SELECT, INSERT ON tenure.audit TO " + user}, given)

	for _, sql := range []string{"DROP OWNED BY " + all, "DROP ROLE " + all, "CREATE ROLE " + all + " LOGIN"} {
		execute(t, owner, sql)
	}
	given, err = store.Regrant(t.Context(), owner)
	require.NoError(t, err)
	require.Empty(t, given, "another user of that name was named by nobody")
	holders, err = store.Holders(t.Context(), runtime)
	require.NoError(t, err)
	require.Len(t, holders, 1, "and that is said")
	require.Contains(t, holders[0].String(), "user "+all+" was named to work on the ledger, and has no rights there")
	require.Equal(t, "tenure migrate --pool main --grants --runtime "+all, holders[0].Name("main"))
}

// TestWhatHoldersHave: each way to a right that nobody gave by naming is found, and what mends it mends it.
func TestWhatHoldersHave(t *testing.T) {
	t.Parallel()
	owner, runtime, user := owned(t)
	web, tenant := role(t, owner, "web", "LOGIN"), role(t, owner, "tenant", "")
	execute(t, owner, "INSERT INTO tenure.tenant_role VALUES ('acme', '"+tenant+"')")
	for _, who := range []string{web, tenant, "PUBLIC"} {
		for grant, revoke := range map[string]string{
			"CREATE ON SCHEMA tenure":                      "REVOKE CREATE ON SCHEMA tenure FROM ",
			"SELECT ON tenure.job, tenure.dead_letter_job": "REVOKE SELECT ON tenure.dead_letter_job, tenure.job FROM ",
			"SELECT (payload) ON tenure.job":               "REVOKE SELECT (payload) ON tenure.job FROM ",
			"UPDATE ON SEQUENCE tenure.job_id":             "REVOKE UPDATE ON SEQUENCE tenure.job_id FROM ",
			"EXECUTE ON FUNCTION tenure.drop_day":          "REVOKE EXECUTE ON FUNCTION tenure.drop_day(day date) FROM ",
			"INSERT ON tenure.door":                        "REVOKE INSERT ON tenure.door FROM ", // all of its columns, the caller's too
		} {
			execute(t, owner, "GRANT "+grant+" TO "+who)
			require.Equal(t, []string{revoke + who}, heldBy(t, runtime, who))
			execute(t, owner, revoke+who)
			require.Empty(t, heldBy(t, runtime, who))
		}
	}
	for grant, revoke := range map[string]string{ // what a process that only enqueues needs, and no tenant
		"INSERT (tenant_id) ON tenure.job":       "REVOKE INSERT (tenant_id) ON tenure.job FROM ",
		"INSERT ON tenure.job, tenure.timer_job": "REVOKE INSERT ON tenure.job, tenure.timer_job FROM ",
		"SELECT ON tenure.pool":                  "REVOKE SELECT ON tenure.pool FROM ",
		"USAGE ON SEQUENCE tenure.job_position":  "REVOKE USAGE ON SEQUENCE tenure.job_position FROM ",
	} {
		execute(t, owner, "GRANT "+grant+" TO "+web+", "+tenant)
		require.Empty(t, heldBy(t, runtime, web), grant)
		require.Equal(t, []string{revoke + tenant}, heldBy(t, runtime, tenant))
		execute(t, owner, revoke+tenant)
	}
	execute(t, owner, "GRANT USAGE ON SCHEMA tenure TO "+tenant+"; GRANT EXECUTE ON FUNCTION tenure.enqueue, tenure.cancel TO "+tenant)
	require.Empty(t, heldBy(t, runtime, tenant), "as the documents have it for each tenant's role")
	execute(t, owner, "GRANT "+user+" TO "+tenant)
	require.Equal(t, []string{"REVOKE " + user + " FROM " + tenant}, heldBy(t, runtime, tenant))
	execute(t, owner, "REVOKE "+user+" FROM "+tenant)
	group := role(t, owner, "group", "")
	execute(t, owner, "GRANT "+user+" TO "+group+"; GRANT "+group+" TO "+tenant)
	require.Equal(t, []string{"REVOKE " + group + " FROM " + tenant}, heldBy(t, runtime, tenant), "by way of another")
	execute(t, owner, "REVOKE "+group+" FROM "+tenant+"; GRANT pg_read_all_data TO "+tenant)
	require.Equal(t, []string{"REVOKE pg_read_all_data FROM " + tenant}, heldBy(t, runtime, tenant))
	execute(t, owner, "REVOKE pg_read_all_data FROM "+tenant)
	execute(t, owner, "ALTER DEFAULT PRIVILEGES IN SCHEMA tenure GRANT SELECT ON TABLES TO "+tenant) // of tomorrow's, too
	revokes := heldBy(t, runtime, tenant)
	require.Len(t, revokes, 1)
	require.Regexp(t, "^ALTER DEFAULT PRIVILEGES FOR ROLE .* IN SCHEMA tenure REVOKE ALL ON TABLES FROM "+tenant+"$", revokes[0])
	execute(t, owner, revokes[0])
	require.Empty(t, heldBy(t, runtime, tenant))
	execute(t, owner, "GRANT SELECT ON tenure.audit TO "+web+" WITH GRANT OPTION")
	require.Equal(t, []string{"REVOKE SELECT ON tenure.audit FROM " + web + " CASCADE"}, heldBy(t, runtime, web))
}

// TestNoTenantsRoleIsARuntimeUser, and nobody is whose rights a tenant's role has.
func TestNoTenantsRoleIsARuntimeUser(t *testing.T) {
	t.Parallel()
	owner, _, _ := owned(t)
	own, byName, login, group := role(t, owner, "own", ""), role(t, owner, "fits", ""), role(t, owner, "fits", "LOGIN"), role(t, owner, "nodes", "LOGIN")
	execute(t, owner, "INSERT INTO tenure.tenant_role VALUES ('acme', '"+own+"'), ('', 'fits_{tenant}')")
	for _, user := range []string{own, byName} {
		_, err := store.Grant(t.Context(), owner, user)
		require.ErrorContains(t, err, fmt.Sprintf("user %q is the role of tenant", user))
	}
	_, err := store.Grant(t.Context(), owner, login)
	require.NoError(t, err, "no such tenant is known")
	execute(t, owner, "INSERT INTO tenure.tenant (tenant_id) VALUES ('"+strings.TrimPrefix(login, "fits_")+"')")
	execute(t, owner, "REVOKE ALL ON tenure.audit FROM "+login)
	_, err = store.Regrant(t.Context(), owner)
	require.ErrorContains(t, err, fmt.Sprintf("user %q is the role of tenant", login))
	require.Equal(t, []string{}, heldBy(t, owner, login), "it is listed, and nothing is taken from who nodes may run as")
	execute(t, owner, "GRANT "+group+" TO "+own)
	_, err = store.Grant(t.Context(), owner, group)
	require.ErrorContains(t, err, fmt.Sprintf("role %q of tenant \"acme\" is a member of user %q", own, group))
}

// ownersStatements are those that only `tenure migrate` executes.
var ownersStatements = map[string]bool{"pool_name": true}

// TestTheRuntimeUserMayExecuteEveryStatement: each is planned and made ready to run, which
// is when Postgres looks at privileges.
func TestTheRuntimeUserMayExecuteEveryStatement(t *testing.T) {
	t.Parallel()
	_, runtime, _ := ownedApart(t)
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
		statement, err := conn.Conn().Prepare(t.Context(), name, store.Fill(string(text)))
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
		SELECT proname FROM pg_proc WHERE pronamespace = 'tenure'::regnamespace AND prosecdef AND proname NOT IN ('enqueue', 'enqueue_external', 'enqueue_linked', 'cancel', 'retry', 'seen_by', 'first_turn', 'incarnation', 'server_state') -- which look at who calls
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
	roles := map[string]string{"a": "a_" + suffix, "b": "b_" + suffix, "c": "not_made_" + suffix}
	for _, r := range []string{roles["a"], roles["b"]} {
		execute(t, owner, fmt.Sprintf("CREATE ROLE %s", r))
		t.Cleanup(func() { _, _ = owner.Exec(context.Background(), "DROP ROLE "+r) })
	}
	done, err := store.GrantRoles(t.Context(), owner, user, roles)
	require.NoError(t, err)
	require.Len(t, done, 2)
	execute(t, runtime, "BEGIN; SET LOCAL ROLE "+roles["a"]+"; COMMIT")
	done, err = store.GrantRoles(t.Context(), owner, user, roles)
	require.NoError(t, err)
	require.Empty(t, done)
	_, err = store.GrantRoles(t.Context(), runtime, "postgres", map[string]string{"a": roles["a"]})
	require.NoError(t, err, "a superuser needs none")
	execute(t, owner, "REVOKE "+roles["b"]+" FROM "+user)
	_, err = store.GrantRoles(t.Context(), runtime, user, roles)
	require.ErrorContains(t, err, "have who administers the roles execute GRANT "+roles["b"]+" TO "+user)
}

// TestMightyRolesAreNotGranted: a tenant's role that may do more than look after its tenant's data is not
// given to nodes, and the others are.
func TestMightyRolesAreNotGranted(t *testing.T) {
	t.Parallel()
	owner, runtime, user := owned(t)
	execute(t, owner, "ALTER TABLE tenure.pool OWNER TO "+role(t, owner, "owner", ""))
	var ledgers string
	require.NoError(t, owner.QueryRow(t.Context(), "SELECT relowner::regrole::text FROM pg_class WHERE oid = 'tenure.pool'::regclass").Scan(&ledgers))
	t.Cleanup(func() { _, _ = owner.Exec(context.Background(), "ALTER TABLE tenure.pool OWNER TO CURRENT_USER") })
	good, maker := role(t, owner, "good", ""), role(t, owner, "maker", "CREATEROLE")
	for why, mighty := range map[string]string{
		"is a superuser":                   role(t, owner, "super", "SUPERUSER"),
		"CREATEROLE":                       maker,
		"BYPASSRLS":                        role(t, owner, "bypass", "BYPASSRLS"),
		"REPLICATION":                      role(t, owner, "copy", "REPLICATION"),
		"owns the ledger":                  ledgers,
		"can become " + ledgers:            role(t, owner, "heir", "IN ROLE "+ledgers),
		"can become " + maker:              role(t, owner, "maker_too", "IN ROLE "+maker),
		"the user that nodes connect as":   user,
		"can become pg_read_all_data":      role(t, owner, "reader", "IN ROLE pg_read_all_data"),
		"can become pg_write_server_files": role(t, owner, "writer", "IN ROLE pg_write_server_files"),
	} {
		done, err := store.GrantRoles(t.Context(), owner, user, map[string]string{"acme": mighty, "good": good})
		require.ErrorContains(t, err, fmt.Sprintf("role %q of tenant \"acme\" ", mighty))
		require.ErrorContains(t, err, why)
		require.Len(t, done, 1)
		if mighty == user { // whom nobody keeps from being itself
			_, err = runtime.Exec(t.Context(), "BEGIN; SELECT tenure.begin_tenant('tenure', '"+user+"', 'acme')")
			require.Equal(t, "TN008", code(err))
		} else {
			_, err = runtime.Exec(t.Context(), "BEGIN; SET LOCAL ROLE "+mighty)
			require.ErrorContains(t, err, "permission denied to set role")
		}
		execute(t, owner, "REVOKE "+good+" FROM "+user)
	}
}
