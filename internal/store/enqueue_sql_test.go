package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/codeblocks"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
)

// The roles of the tenants acme and globex, which a whole server shares.
const (
	roleAcme   = "tenure_test_acme"
	roleGlobex = "tenure_test_globex"
)

// asTenants is a ledger with the tenants acme and globex, a superuser's connections, and one
// of the runtime user's that a test may change.
func asTenants(t *testing.T) (owner *pgxpool.Pool, conn *pgx.Conn) {
	owner, runtime, _ := ownedApart(t)
	for schema, role := range map[string]string{"acme": roleAcme, "globex": roleGlobex} {
		execute(t, owner, "CREATE SCHEMA "+schema)
		storetest.Role(t, owner, role, schema)
	}
	execute(t, owner, "GRANT EXECUTE ON FUNCTION tenure.enqueue, tenure.enqueue_linked, tenure.enqueue_external, tenure.cancel, tenure.retry, tenure.unanswered, tenure.seen_by, tenure.never TO PUBLIC") // as docs/privileges.md says
	_, err := store.LearnRoles(t.Context(), runtime, map[string]string{"acme": roleAcme, "globex": roleGlobex})
	require.NoError(t, err)
	c, err := runtime.Acquire(t.Context())
	require.NoError(t, err)
	conn = c.Hijack()
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return owner, conn
}

func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// TestEnqueueBySQL is what an application may do without a Tenure client, in its tenant's
// role.
func TestEnqueueBySQL(t *testing.T) {
	t.Parallel()
	owner, conn := asTenants(t)
	execute(t, conn, "SET ROLE "+roleAcme)
	enqueue := func(args string) (id int64, duplicate bool) {
		t.Helper()
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT id, duplicate FROM tenure.enqueue("+args+")").Scan(&id, &duplicate), args)
		return id, duplicate
	}
	read := func(table string, id int64) (row map[string]any) {
		t.Helper()
		require.NoError(t, owner.QueryRow(t.Context(), "SELECT to_jsonb(j) - '{id,turn,position,created_at,ready_at,due_at,attempt,losses}'::text[] FROM tenure."+table+" j WHERE id = $1", id).Scan(&row))
		for k, v := range row {
			if v == nil {
				delete(row, k)
			}
		}
		return row
	}
	id, duplicate := enqueue("'acme', 'mail.send'")
	require.False(t, duplicate)
	require.Equal(t, 1, store.PoolOf(id))
	require.Equal(t, map[string]any{"tenant_id": "acme", "kind": "mail.send", "queue": "default", "priority": 0.0, "payload": map[string]any{}}, read("job", id))

	all := `tenant => 'acme', kind => 'mail.send', payload => '{"n": 1}', queue => 'mail', priority => -7, max_attempts => 3,
		meta => '{"m": 2}', correlation_id => 'c', unique_key => 'u'`
	first, duplicate := enqueue(all)
	require.False(t, duplicate)
	want := map[string]any{"tenant_id": "acme", "kind": "mail.send", "queue": "mail", "priority": -7.0, "max_attempts": 3.0,
		"payload": map[string]any{"n": 1.0}, "meta": map[string]any{"m": 2.0}, "correlation_id": "c", "unique_key": "u"}
	require.Equal(t, want, read("job", first))
	again, duplicate := enqueue(all)
	require.True(t, duplicate)
	require.Equal(t, first, again)

	want["unique_key"] = "later"
	for args, due := range map[string]time.Duration{"delay => '90 minutes'": 90 * time.Minute, "run_at => now() + interval '2 hours'": 2 * time.Hour, "delay => '0'": 0} {
		id, _ = enqueue(strings.Replace(all, "'u'", "'"+strings.ReplaceAll(args, "'", "")+"', ", 1) + args)
		want["unique_key"] = strings.ReplaceAll(args, "'", "")
		require.Equal(t, want, read("timer_job", id))
		var at time.Time
		require.NoError(t, owner.QueryRow(t.Context(), "SELECT due_at FROM tenure.timer_job WHERE id = $1", id).Scan(&at))
		require.WithinDuration(t, time.Now().Add(due), at, time.Minute)
	}
	id, _ = enqueue("'acme', 'k', delay => '1 day'")
	require.Equal(t, "k", read("timer_job", id)["kind"])

	tell := func(queues ...string) {
		require.NoError(t, store.TellQueues(t.Context(), owner, []string{"mail.send", "k"}, queues))
	}
	tell("mailers", "default")
	id, _ = enqueue("'acme', 'mail.send'")
	require.Equal(t, "mailers", read("job", id)["queue"])
	id, _ = enqueue("'acme', 'mail.send', queue => 'mail', delay => '1 day'")
	require.Equal(t, "mail", read("timer_job", id)["queue"])
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT id FROM tenure.enqueue_linked('acme', 'mail.send', as_batch => true)").Scan(&id))
	require.Equal(t, "mailers", read("timer_job", id)["queue"])
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT id FROM tenure.enqueue_external('acme', 'mail.send')").Scan(&id))
	require.Equal(t, "default", read("external_job", id)["queue"], "a topic is no kind of the nodes'")
	tell("default", "slow")
	id, _ = enqueue("'acme', 'mail.send'")
	require.Equal(t, "default", read("job", id)["queue"])
	id, _ = enqueue("'acme', 'k'")
	require.Equal(t, "slow", read("job", id)["queue"])
	j := store.NewJob{Tenant: "acme", Kind: "k", Payload: []byte("{}")}
	_, _, err := store.Enqueue(t.Context(), owner.QueryRow, 1, &j)
	require.NoError(t, err)
	require.Equal(t, "slow", j.Queue, "the holder is told of it")
}

// TestEnqueueBySQLRefuses what the Go client refuses: anyone who calls it need not be careful.
func TestEnqueueBySQLRefuses(t *testing.T) {
	t.Parallel()
	owner, conn := asTenants(t)
	execute(t, conn, "SET ROLE "+roleAcme)
	for args, says := range map[string]string{
		"'', 'k'":                      "enqueue: tenant: 1 to 128 bytes",
		"NULL, 'k'":                    "enqueue: tenant: 1 to 128 bytes",
		"' acme', 'k'":                 "enqueue: tenant: 1 to 128 bytes",
		"E'a\\ncme', 'k'":              "enqueue: tenant: 1 to 128 bytes",
		"repeat('a', 129), 'k'":        "enqueue: tenant: 1 to 128 bytes",
		"'acme', ''":                   "enqueue: kind: 1 to 128 letters",
		"'acme', 'a b'":                "enqueue: kind: 1 to 128 letters",
		"'acme', E'a\\n'":              "enqueue: kind: 1 to 128 letters",
		"'acme', repeat('k', 129)":     "enqueue: kind: 1 to 128 letters",
		"'acme', 'k', queue => '-'":    "enqueue: queue: 1 to 128 letters",
		"'acme', 'k', payload => NULL": "enqueue: payload: JSON is needed",
		"'acme', 'k', to_jsonb(repeat('x', 1048576))":                      "enqueue: payload: JSON is needed, of at most 1 MiB",
		"'acme', 'k', ('[1e9999' || repeat(',1e9999', 200) || ']')::jsonb": "enqueue: payload: JSON is needed, of at most 1 MiB",
		"'acme', 'k', meta => to_jsonb(repeat('x', 1048576))":              "enqueue: meta: JSON of at most 1 MiB",
		"'acme', 'k', priority => 1001":                                    "enqueue: priority: -1000 to 1000",
		"'acme', 'k', priority => NULL":                                    "enqueue: priority: -1000 to 1000",
		"'acme', 'k', max_attempts => 0":                                   "enqueue: max_attempts: 1 to 1000",
		"'acme', 'k', correlation_id => repeat('x', 1025)":                 "enqueue: correlation_id: at most 1024",
		"'acme', 'k', unique_key => ''":                                    "enqueue: unique_key: 1 to 1024",
		"'acme', 'k', unique_key => repeat('x', 1025)":                     "enqueue: unique_key: 1 to 1024",
		"'acme', 'k', run_at => now(), delay => '1 s'":                     "enqueue: run_at and delay: only one",
		"'acme', 'k', run_at => 'infinity'":                                "enqueue: run_at: years 1970 to 9999",
		"'acme', 'k', run_at => '1960-01-01'":                              "enqueue: run_at: years 1970 to 9999",
		"'acme', 'k', delay => '-1 s'":                                     "enqueue: delay: 0 to 3660 days",
		"'acme', 'k', delay => '11 years'":                                 "enqueue: delay: 0 to 3660 days",
		"'acme', 'k', delay => '300000 years'":                             "enqueue: delay: 0 to 3660 days",
		"'acme', 'k', delay => '-300000 years'":                            "enqueue: delay: 0 to 3660 days",
	} {
		_, err := conn.Exec(t.Context(), "SELECT tenure.enqueue("+args+")")
		require.ErrorContains(t, err, says, args)
		require.Equal(t, "22023", code(err), args)
	}
	for state, want := range map[string]string{
		"state = 'moved', other_pool = 'eu'":    "TN003",
		"state = 'arriving', other_pool = 'eu'": "55000",
	} {
		execute(t, owner, "INSERT INTO tenure.tenant (tenant_id) VALUES ('acme') ON CONFLICT DO NOTHING")
		execute(t, owner, "UPDATE tenure.tenant SET "+state)
		_, err := conn.Exec(t.Context(), "SELECT tenure.enqueue('acme', 'k', unique_key => 'u')")
		require.Equal(t, want, code(err), "%s: %v", state, err)
	}
	execute(t, owner, "DELETE FROM tenure.tenant; DELETE FROM tenure.pool")
	_, err := conn.Exec(t.Context(), "SELECT tenure.enqueue('acme', 'k')")
	require.ErrorContains(t, err, "has no number yet")
	var left int
	require.NoError(t, owner.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.timer_job) + (SELECT count(*) FROM tenure.unique_job)").Scan(&left))
	require.Zero(t, left)
}

// TestEnqueueIsForOnesOwnTenant: a tenant's role enqueues for its own tenant only, whatever
// it claims to be; who may name any tenant was given that.
func TestEnqueueIsForOnesOwnTenant(t *testing.T) {
	t.Parallel()
	owner, conn := asTenants(t)
	execute(t, owner, "SET client_min_messages = error") // of the connection that is used next
	for _, role := range []string{"tenure_test_member", "tenure_test_producer", "tenure_test_initech", "tenure_test_umbrella"} {
		execute(t, owner, "CREATE SCHEMA "+role)
		storetest.Role(t, owner, role, role)
	}
	execute(t, owner, "GRANT "+roleAcme+" TO tenure_test_member") // which has its rights all the time
	execute(t, owner, "GRANT INSERT (tenant_id) ON tenure.job TO tenure_test_producer")
	_, err := store.LearnRoles(t.Context(), owner, map[string]string{store.PatternRole: "tenure_test_{tenant}", "umbrella": roleAcme})
	require.NoError(t, err)

	super, err := owner.Acquire(t.Context())
	require.NoError(t, err)
	defer super.Release()
	const reset = "RESET SESSION AUTHORIZATION; RESET ROLE"
	for _, c := range []struct {
		who    string
		as     string
		conn   *pgx.Conn
		may    string
		mayNot string
	}{
		{"a superuser", "", super.Conn(), "acme globex initech", ""},
		{"the runtime user", "", conn, "acme globex initech", ""},
		{"a tenant's role", "SET ROLE " + roleAcme, conn, "acme umbrella", "globex initech"},
		{"a tenant's role that says it is another", "SET ROLE " + roleAcme + "; SET app.tenant_id = 'globex'; SET search_path = globex", conn, "acme", "globex"},
		{"a tenant that logs in", "SET SESSION AUTHORIZATION " + roleAcme, super.Conn(), "acme", "globex"},
		{"a tenant's role, taken by a superuser", "SET ROLE " + roleAcme, super.Conn(), "acme", "globex"},
		{"a role by the pattern", "SET ROLE tenure_test_initech", conn, "initech", "acme globex tech {tenant}"},
		{"a role whose tenant has another", "SET ROLE tenure_test_umbrella", conn, "", "umbrella acme"},
		{"a member of a tenant's role", "SET ROLE tenure_test_member", conn, "acme member", "globex"},
		{"who may name any tenant", "SET ROLE tenure_test_producer", conn, "acme globex initech nobody", ""},
	} {
		execute(t, c.conn, reset)
		if c.as != "" {
			execute(t, c.conn, c.as)
		}
		for _, tenant := range strings.Fields(c.may) {
			_, err := c.conn.Exec(t.Context(), "SELECT tenure.enqueue($1::text, 'k')", pgx.QueryExecModeExec, tenant)
			require.NoError(t, err, "%s for %s", c.who, tenant)
		}
		for _, tenant := range strings.Fields(c.mayNot) {
			_, err := c.conn.Exec(t.Context(), "SELECT tenure.enqueue($1::text, 'k')", pgx.QueryExecModeExec, tenant)
			require.Equal(t, "42501", code(err), "%s for %s: %v", c.who, tenant, err)
			require.ErrorContains(t, err, "may not enqueue for tenant "+tenant)
			var pg *pgconn.PgError
			require.ErrorAs(t, err, &pg)
			require.Contains(t, pg.Hint, "INSERT INTO tenure.tenant_role VALUES (tenant, role)", "as nothing fills it from tenants.table")
			err = pgx.BeginFunc(t.Context(), c.conn, func(tx pgx.Tx) error {
				_, _, err := store.Enqueue(t.Context(), store.OnTx(tx), 1, &store.NewJob{Tenant: tenant, Queue: "q", Kind: "k", Payload: []byte("1")})
				require.ErrorIs(t, err, store.ErrNotAllowed)
				_, err = tx.Exec(t.Context(), "SELECT 1")
				return err
			})
			require.NoError(t, err, "the transaction goes on")
		}
	}
	execute(t, conn, reset)
	execute(t, conn, "SET ROLE tenure_test_producer")
	_, err = conn.Exec(t.Context(), "INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('acme', 'q', 'k', '1')")
	require.Equal(t, "42501", code(err), "but not by itself")
}

// trap has everything that the path of a tenant can put in the way of the ledger's functions
// record who it was executed by.
const trap = `
CREATE TABLE acme.caught (who text);
CREATE FUNCTION acme.catch() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO acme.caught VALUES (current_user); RETURN true; END $$;
CREATE FUNCTION acme.eq(pg_catalog.text, pg_catalog.text) RETURNS boolean LANGUAGE sql AS 'SELECT acme.catch() AND $1 OPERATOR(pg_catalog.=) $2';
CREATE FUNCTION acme.ne(pg_catalog.text, pg_catalog.text) RETURNS boolean LANGUAGE sql AS 'SELECT acme.catch() AND $1 OPERATOR(pg_catalog.<>) $2';
CREATE FUNCTION acme.plus(timestamptz, interval) RETURNS timestamptz LANGUAGE sql AS 'SELECT CASE WHEN acme.catch() THEN $1 OPERATOR(pg_catalog.+) $2 END';
CREATE FUNCTION acme.matches(pg_catalog.text, pg_catalog.text) RETURNS boolean LANGUAGE sql AS 'SELECT acme.catch() AND $1 OPERATOR(pg_catalog.~) $2';
CREATE OPERATOR acme.= (LEFTARG = pg_catalog.text, RIGHTARG = pg_catalog.text, FUNCTION = acme.eq);
CREATE OPERATOR acme.<> (LEFTARG = pg_catalog.text, RIGHTARG = pg_catalog.text, FUNCTION = acme.ne);
CREATE OPERATOR acme.+ (LEFTARG = timestamptz, RIGHTARG = interval, FUNCTION = acme.plus);
CREATE OPERATOR acme.~ (LEFTARG = pg_catalog.text, RIGHTARG = pg_catalog.text, FUNCTION = acme.matches);
CREATE FUNCTION acme.octet_length(pg_catalog.text) RETURNS integer LANGUAGE sql AS 'SELECT acme.catch()::integer';
CREATE FUNCTION acme.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT CASE WHEN acme.catch() THEN pg_catalog.now() END';
CREATE FUNCTION acme.current_setting(pg_catalog.text) RETURNS pg_catalog.text LANGUAGE sql AS $$ SELECT CASE WHEN acme.catch() THEN 'none' END $$;
CREATE DOMAIN acme.text AS pg_catalog.text CHECK (acme.catch());
CREATE DOMAIN acme.record AS pg_catalog.text CHECK (acme.catch());
CREATE DOMAIN acme.timestamptz AS pg_catalog.timestamptz CHECK (acme.catch());
CREATE TEMP TABLE tenant (tenant_id pg_catalog.text);
CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (acme.catch());
`

// TestNothingOfATenantIsExecutedAsTheOwner: what a tenant made, on any path of its own, also
// before a function of the ledger is called for the first time, is only ever executed as
// the tenant.
func TestNothingOfATenantIsExecutedAsTheOwner(t *testing.T) {
	t.Parallel()
	owner, conn := asTenants(t)
	execute(t, conn, "SET ROLE "+roleAcme)
	execute(t, conn, trap)
	for _, path := range []string{"acme, pg_catalog, pg_temp", "pg_temp, acme, pg_catalog"} {
		execute(t, conn, "SET search_path = "+path)
		for _, call := range []string{
			"tenure.enqueue_fault(ROW(1))", "tenure.add_job(ROW(1))", "tenure.add_linked_job(ROW(1))", "tenure.enqueue_refusal('acme', 'acme', true, 1, true)",
			"tenure.enqueue_raise('acme', 'acme', 'moved', 'eu')", "tenure.enqueue_key('acme', 'u')",
			"tenure.make_day('2020-01-01')", "tenure.drop_day('2020-01-01')",
		} {
			_, err := conn.Exec(t.Context(), "SELECT "+call)
			require.Error(t, err, call) // it may not execute it, or has no right to what the function does
		}
		for _, call := range []string{
			"'acme', 'k', delay => '1 s'", "'acme', 'k', unique_key => 'u', meta => '{}', correlation_id => 'c'", "'acme', 'k', pool => 1",
		} {
			execute(t, conn, "SELECT tenure.enqueue("+call+")")
		}
		_, err := conn.Exec(t.Context(), "SELECT tenure.enqueue('globex', 'k')")
		require.Error(t, err)
		require.NotEmpty(t, code(err))
	}
	execute(t, conn, "SET search_path = acme, pg_catalog")
	execute(t, conn, "SELECT 'a'::pg_catalog.text = 'a'::pg_catalog.text")
	rows, err := owner.Query(t.Context(), "SELECT DISTINCT who FROM acme.caught")
	require.NoError(t, err)
	who, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{roleAcme}, who)
}

// TestEveryDefinerHasAPath guards the functions to come as well: what is executed with the
// owner's rights, or by something that is, looks nothing up where others can put things, or is
// for nobody else to execute.
func TestEveryDefinerHasAPath(t *testing.T) {
	t.Parallel()
	rows, err := storetest.Pool(t).Query(t.Context(), `
		SELECT f.proname FROM pg_proc f
		WHERE f.pronamespace = 'tenure'::regnamespace
		  AND (f.prosecdef OR f.proname LIKE ANY ('{enqueue%,%\_as}') AND has_function_privilege('public', f.oid, 'EXECUTE')
		       OR f.prolang = (SELECT oid FROM pg_language WHERE lanname = 'plpgsql') AND EXISTS (
		           SELECT FROM pg_depend d JOIN pg_attrdef a ON d.classid = 'pg_attrdef'::regclass AND d.objid = a.oid
		           WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = f.oid))
		  AND NOT coalesce(f.proconfig && ARRAY['search_path=pg_catalog, pg_temp', 'search_path=""'], false)`)
	require.NoError(t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	// The first two are called for each job and each claim, and a path would cost a quarter more;
	// all their names are qualified, and their types are keywords. The others are executed as who calls them.
	require.ElementsMatch(t, []string{"first_turn", "incarnation", "enqueue", "enqueue_external", "enqueue_linked"}, found)
}

// TestAKeyIsWaitedFor: whether a job is added is decided by the transaction that has its
// key, in one call.
func TestAKeyIsWaitedFor(t *testing.T) {
	t.Parallel()
	owner, conn := asTenants(t)
	j := &store.NewJob{Tenant: "acme", Queue: "q", Kind: "k", Payload: []byte("1"), UniqueKey: "u"}
	for name, commit := range map[string]bool{"committed": true, "rolled back": false} {
		execute(t, owner, "DELETE FROM tenure.job; DELETE FROM tenure.unique_job")
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		first, duplicate, err := store.Enqueue(t.Context(), store.OnTx(tx), 1, j)
		require.NoError(t, err)
		require.False(t, duplicate)
		type answer struct {
			id        int64
			duplicate bool
			err       error
		}
		second := make(chan answer, 1)
		go func() {
			id, duplicate, err := store.Enqueue(t.Context(), owner.QueryRow, 1, j)
			second <- answer{int64(id), duplicate, err}
		}()
		require.Eventually(t, func() bool {
			var waits bool
			require.NoError(t, owner.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid' "+
				"AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database()))").Scan(&waits))
			return waits
		}, 30*time.Second, time.Millisecond, name)
		if commit {
			require.NoError(t, tx.Commit(t.Context()))
		} else {
			require.NoError(t, tx.Rollback(t.Context()))
		}
		a := <-second
		require.NoError(t, a.err, name)
		require.Equal(t, commit, a.duplicate, name)
		require.Equal(t, commit, a.id == int64(first), name)
	}
}

// The holder of the lock hears of what SQL enqueues, once for all that a transaction has
// enqueued alike, when it has committed; of what a program enqueues it hears otherwise.
func TestSQLNotifies(t *testing.T) {
	t.Parallel()
	owner, tenant := asTenants(t)
	execute(t, tenant, "SET ROLE "+roleAcme)
	listener, err := pgx.Connect(t.Context(), tenant.Config().ConnString())
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close(context.Background()) })
	require.NoError(t, store.Listen(t.Context(), listener, true))
	hears := func() string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		n, err := listener.WaitForNotification(ctx)
		require.NoError(t, err)
		return n.Payload
	}
	enqueue := func(args string) { t.Helper(); execute(t, tenant, "SELECT tenure.enqueue('acme', 'k'"+args+")") }
	last := func() { // what was sent before it would be heard before it
		t.Helper()
		require.NoError(t, store.Notify(t.Context(), owner, []job.ID{4711}))
		require.Equal(t, "4711", hears())
	}

	execute(t, tenant, "BEGIN; SELECT tenure.enqueue('acme', 'k', queue => 'slow', priority => 3); SELECT tenure.enqueue('acme', 'other', queue => 'slow', priority => 3); COMMIT")
	located := func() ([]store.Lane, time.Duration) { // what the holder finds by what it hears: an id, and nobody's name
		t.Helper()
		id, err := strconv.ParseInt(hears(), 10, 64)
		require.NoError(t, err)
		lanes, dueIn, err := store.Notified(t.Context(), owner, []job.ID{job.ID(id), 4711})
		require.NoError(t, err)
		return lanes, dueIn
	}
	lanes, dueIn := located()
	require.Equal(t, []store.Lane{{Queue: "slow", Tenant: "acme", Priority: 3}}, lanes)
	require.Zero(t, dueIn)
	last()
	enqueue(", delay => '1 hour'") // which the holder finds by itself
	enqueue(", delay => '50 s'")
	lanes, dueIn = located()
	require.Empty(t, lanes)
	require.InDelta(t, 50, dueIn.Seconds(), 49)
	enqueue(", run_at => '2026-01-01'")
	_, dueIn = located()
	require.Equal(t, time.Nanosecond, dueIn)
	execute(t, tenant, "SELECT tenure.retry(id) FROM tenure.job_status WHERE state = 'scheduled'")
	require.Empty(t, hears())
	enqueue(", unique_key => 'one'")
	hears()
	enqueue(", unique_key => 'one'") // a duplicate
	execute(t, tenant, "BEGIN; SELECT tenure.enqueue('acme', 'k'); ROLLBACK")
	var number int
	require.NoError(t, owner.QueryRow(t.Context(), "SELECT number FROM tenure.pool").Scan(&number))
	enqueue(fmt.Sprintf(", pool => %d", number)) // as programs do
	last()
	execute(t, owner, "UPDATE tenure.pool SET notify = false")
	enqueue("")
	require.NoError(t, store.Notify(t.Context(), owner, nil))
	execute(t, owner, "UPDATE tenure.pool SET notify = true")
	last()
	require.NoError(t, store.Listen(t.Context(), listener, false))
}

// TestATriggerEnqueues: the trigger of docs/privileges.md enqueues whoever sets it off. Without SECURITY DEFINER it does
// for the tenant's role only, and who is refused is told what to do first.
func TestATriggerEnqueues(t *testing.T) {
	t.Parallel()
	owner, _ := asTenants(t)
	execute(t, owner, "ALTER SCHEMA acme OWNER TO "+roleAcme)
	member := roleAcme + "_login"
	execute(t, owner, "CREATE SCHEMA "+member)
	storetest.Role(t, owner, member, member)
	execute(t, owner, "GRANT "+roleAcme+" TO "+member)
	blocks, err := codeblocks.Read("../../docs/privileges.md")
	require.NoError(t, err)
	i := slices.IndexFunc(blocks, func(b codeblocks.Block) bool { return strings.Contains(b.Text, "CREATE TRIGGER") })
	require.GreaterOrEqual(t, i, 0)
	execute(t, owner, strings.ReplaceAll(blocks[i].Text, "t_acme", roleAcme))

	conn, err := owner.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	who := []string{"RESET SESSION AUTHORIZATION", "SET SESSION AUTHORIZATION " + member, "SET SESSION AUTHORIZATION " + roleAcme}
	for n, as := range who {
		execute(t, conn, as)
		execute(t, conn, fmt.Sprintf("INSERT INTO acme.invoice VALUES (%d)", n))
	}
	execute(t, conn, "RESET SESSION AUTHORIZATION; ALTER FUNCTION acme.mail_invoice SECURITY INVOKER")
	for _, as := range who[:2] {
		execute(t, conn, as)
		_, err := conn.Exec(t.Context(), "INSERT INTO acme.invoice VALUES (7)")
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, as)
		require.Equal(t, "42501", pg.Code, as)
		require.Regexp(t, "^Make the trigger's function SECURITY DEFINER.* and the tenant's role its owner", pg.Hint)
	}
	execute(t, conn, who[2])
	execute(t, conn, "INSERT INTO acme.invoice VALUES (7)")
	execute(t, conn, who[0])
	var added int
	require.NoError(t, owner.QueryRow(t.Context(), "SELECT count(*) FROM tenure.job WHERE tenant_id = 'acme' AND kind = 'invoice.mail'").Scan(&added))
	require.Equal(t, 4, added)
}

// A function that is planned without scans of whole tables compiles no plan: those of functions that it calls stay in its
// caller's session, with a cost by which each later call of those would be compiled anew, also in sessions that are not ours.
func TestFunctionsWithoutScansCompileNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rows, _ := b.db.Query(t.Context(), `SELECT proname FROM pg_proc WHERE pronamespace = 'tenure'::regnamespace
		AND 'enable_seqscan=off' = ANY (proconfig) AND NOT 'jit=off' = ANY (proconfig)`)
	compiled, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, compiled)
}
