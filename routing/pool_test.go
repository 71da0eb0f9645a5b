package routing_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/routing"
)

func settings(t testing.TB, db interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, names ...string) map[string]string {
	got := map[string]string{}
	for _, name := range names {
		var v string
		require.NoError(t, db.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&v))
		got[name] = v
	}
	return got
}

// A session that began while its database was read-only is not used any more once it has refused to write.
func TestPool_readOnlySessionsAreLeft(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	p := poolOf(t, started(t, withPools(map[string]string{"main": dsn})), "main")
	const write = "DELETE FROM tenure.claim"
	_, err := p.Jobs().Exec(t.Context(), "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$")
	require.NoError(t, err)
	writeAsTenant := func() error {
		conn, err := p.Tenants().Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		_, err = conn.Exec(t.Context(), write)
		return err
	}
	require.ErrorContains(t, writeAsTenant(), "read-only")
	_, err = p.Jobs().Exec(t.Context(), "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET default_transaction_read_only', current_database()); END $$")
	require.NoError(t, err)
	_, err = p.Jobs().Exec(t.Context(), "SET default_transaction_read_only = on")
	require.NoError(t, err)
	_, err = p.Jobs().Exec(t.Context(), write)
	require.ErrorContains(t, err, "read-only")
	_, err = p.Jobs().Exec(t.Context(), write)
	require.NoError(t, err)
	require.NoError(t, writeAsTenant())
}

func TestPool_settings(t *testing.T) {
	t.Parallel()
	// What the DSN says of a setting that a plan depends on does not count.
	dsn := storetest.DSN(t, "main", 1) + "&search_path=public&enable_seqscan=on&application_name=mine&statement_timeout=7000&DATESTYLE=German"
	p := poolOf(t, started(t, withPools(map[string]string{"main": dsn})), "main")

	want := map[string]string{
		"application_name": "tenure jobs", "search_path": "",
		"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
		"enable_indexscan": "on", "enable_nestloop": "on", "enable_sort": "on",
		"plan_cache_mode": "force_generic_plan", "jit": "off",
		"idle_in_transaction_session_timeout": "1min", "statement_timeout": "0", "DateStyle": "ISO, MDY",
	}
	require.Equal(t, want, settings(t, p.Jobs(), slices.Sorted(maps.Keys(want))...))

	// Tenants' statements are planned as the application expects.
	want = map[string]string{
		"application_name": "tenure tenants", "enable_seqscan": "on", "plan_cache_mode": "auto", "search_path": "public",
		"statement_timeout": "7s", "DateStyle": "German, DMY", "lock_timeout": "10s", "idle_in_transaction_session_timeout": "15min",
	}
	use(t, p, func(c *pgxpool.Conn) { require.Equal(t, want, settings(t, c, slices.Sorted(maps.Keys(want))...)) })

	lock, err := p.ConnectLock(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = lock.Close(context.Background()) })
	want = map[string]string{
		"application_name": "tenure lock", "search_path": "",
		"statement_timeout": "2500ms", "lock_timeout": "2s", "idle_in_transaction_session_timeout": "5s",
	}
	require.Equal(t, want, settings(t, lock, slices.Sorted(maps.Keys(want))...))
}

// Whatever the database or its DSN says, each kind of connection has the isolation that the
// ledger's statements need.
func TestPool_isolation(t *testing.T) {
	t.Parallel()
	byDatabase := storetest.DSN(t, "database", 1)
	exec(t, byDatabase, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = %L', current_database(), 'repeatable read'); END $$")
	byDSN := storetest.DSN(t, "dsn", 2) + "&default_transaction_isolation=serializable"
	const isolation = "default_transaction_isolation"
	require.Equal(t, "repeatable read", settings(t, connect(t, byDatabase), isolation)[isolation])
	require.Equal(t, "serializable", settings(t, connect(t, byDSN), isolation)[isolation])

	r := started(t, withPools(map[string]string{"database": byDatabase, "dsn": byDSN}))
	for _, name := range []string{"database", "dsn"} {
		p := poolOf(t, r, name)
		for range 2 { // the second time with what was scrubbed, and without what the pool was verified with
			lock, err := p.ConnectLock(t.Context())
			require.NoError(t, err)
			require.Equal(t, "read committed", settings(t, lock, isolation)[isolation], "of pool %s's lock", name)
			require.NoError(t, lock.Close(t.Context()))
			require.Equal(t, "read committed", settings(t, p.Jobs(), isolation)[isolation], "of pool %s's jobs", name)
			use(t, p, func(c *pgxpool.Conn) {
				require.Equal(t, "read committed", settings(t, c, isolation)[isolation], "of pool %s's tenants", name)
			})
		}
	}
}

func TestPool_connectionsAddUp(t *testing.T) {
	t.Parallel()
	for _, n := range []int{4, 5, 6, 7, 10, 12, 13, 20, 100, 190} {
		c := withPools(map[string]string{"main": storetest.DSN(t, "main", 1)})
		c.Pools["main"] = routing.PoolConfig{DSN: c.Pools["main"].DSN, MaxConns: n}
		r := started(t, c)
		p := poolOf(t, r, "main")
		jobs, tenants := int(p.Jobs().Config().MaxConns), int(p.Tenants().Stat().MaxConns())
		require.Equal(t, n, jobs+tenants+1, "and one for the lock")
		require.GreaterOrEqual(t, jobs, 2, "of %d", n)
		require.GreaterOrEqual(t, tenants, 1, "of %d", n)
		require.NoError(t, r.Stop(t.Context()))
	}
}

// The sessions' traces that SQL can see. Each must be the same for the first user
// of a connection and for every later one.
const traces = `SELECT json_build_object(
	'settings',  (SELECT json_object_agg(name, setting ORDER BY name) FROM pg_settings),
	'own',       json_build_array(coalesce(current_setting('app.tenant_id', true), ''), coalesce(current_setting('app.hidden', true), '')),
	'user',      json_build_array(current_user, session_user),
	'path',      current_schemas(false),
	'locks',     (SELECT json_agg(l) FROM (SELECT classid, objid, mode FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) l),
	'channels',  (SELECT json_agg(c) FROM pg_listening_channels() c),
	'cursors',   (SELECT json_agg(name) FROM pg_cursors),
	'prepared',  (SELECT json_agg(name) FROM pg_prepared_statements WHERE name <> ''),
	'temporary', (SELECT json_agg(relname ORDER BY relname) FROM pg_class WHERE pg_my_temp_schema() <> 0 AND relnamespace = pg_my_temp_schema()),
	'temp_proc', (SELECT json_agg(proname) FROM pg_proc WHERE pg_my_temp_schema() <> 0 AND pronamespace = pg_my_temp_schema())
)::text`

type session struct {
	pid    uint32
	traces string
}

// use borrows the one connection for tenants.
func use(t require.TestingT, p *routing.Pool, fn func(*pgxpool.Conn)) session {
	c, err := p.Tenants().Acquire(context.Background())
	require.NoError(t, err)
	defer c.Release()
	s := session{pid: c.Conn().PgConn().PID()}
	require.NoError(t, c.QueryRow(context.Background(), traces, pgx.QueryExecModeSimpleProtocol).Scan(&s.traces))
	if fn != nil {
		fn(c)
	}
	return s
}

// leavings are what a handler can leave on its session.
var leavings = map[string]string{
	"a search path":                     "SET search_path = other, public",
	"a search path by function":         "SELECT set_config('search_path', 'other', false)",
	"a role":                            "SET ROLE scrub_other",
	"a session user":                    "SET SESSION AUTHORIZATION scrub_other",
	"a session user and a role":         "SET SESSION AUTHORIZATION scrub_other; SET ROLE scrub_other",
	"its tenant":                        "SET app.tenant_id = 'acme'",
	"a secret in a setting":             "SELECT set_config('app.hidden', 'secret', false)",
	"a timeout":                         "SET statement_timeout = '1h'; SET lock_timeout = 1; SET idle_session_timeout = '1h'",
	"read-only transactions":            "SET default_transaction_read_only = on",
	"another isolation":                 "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, DEFERRABLE",
	"no row security":                   "SET row_security = off",
	"no triggers":                       "SET session_replication_role = replica",
	"another encoding":                  "SET client_encoding = 'LATIN1'",
	"other dates":                       "SET DateStyle = 'German, DMY'; SET TimeZone = 'Pacific/Apia'; SET IntervalStyle = 'iso_8601'",
	"other strings":                     "SET standard_conforming_strings = off; SET bytea_output = escape",
	"another plan":                      "SET enable_seqscan = off; SET work_mem = '64kB'; SET plan_cache_mode = force_generic_plan",
	"another name":                      "SET application_name = 'psql'",
	"a temporary table":                 "CREATE TEMP TABLE pg_class_ (x int); CREATE TEMP TABLE orders AS SELECT 'secret' AS x",
	"a temporary function":              "CREATE FUNCTION pg_temp.lower(text) RETURNS text LANGUAGE sql AS 'SELECT $1'",
	"a cursor":                          "DECLARE c CURSOR WITH HOLD FOR SELECT 'secret'",
	"a channel":                         "LISTEN x; LISTEN y",
	"a lock":                            "SELECT pg_advisory_lock(1), pg_advisory_lock(1), pg_advisory_lock_shared(2), pg_advisory_lock(3, 4)",
	"a statement":                       "PREPARE p AS SELECT 'secret'",
	"a statement with the same name":    "PREPARE p (int) AS SELECT $1",
	"a lock in a committed transaction": "BEGIN; SELECT pg_advisory_lock(9); SET search_path = other; COMMIT",
	"a setting that was rolled back":    "BEGIN; SET search_path = other; ROLLBACK",
	"a setting of a transaction":        "BEGIN; SET LOCAL ROLE scrub_other; SET LOCAL app.tenant_id = 'acme'; COMMIT",
	"what was set before an error":      "SET search_path = other; COMMIT; SELECT 1/0",
	"DISCARD ALL":                       "DISCARD ALL",
}

func TestScrub(t *testing.T) {
	t.Parallel()
	p := mainPool(t)
	require.NoError(t, execTenants(t.Context(), p, "CREATE SCHEMA other; DROP ROLE IF EXISTS scrub_other; CREATE ROLE scrub_other"))
	t.Cleanup(func() { // roles belong to the server, which is not always ours
		require.NoError(t, execTenants(context.Background(), p, "DROP ROLE scrub_other"))
	})
	fresh := use(t, p, nil)
	t.Run("each leaves a trace", func(t *testing.T) { // or the test would prove nothing
		for name, sql := range leavings {
			use(t, p, func(c *pgxpool.Conn) {
				_, _ = c.Exec(t.Context(), sql)
				var after string
				_, err := c.Exec(t.Context(), "RESET client_encoding; RESET standard_conforming_strings") // so that the traces can be read
				require.NoError(t, err)
				require.NoError(t, c.QueryRow(t.Context(), traces, pgx.QueryExecModeSimpleProtocol).Scan(&after))
				switch name {
				case "a setting that was rolled back", "a setting of a transaction", "DISCARD ALL", "another encoding":
				default:
					require.NotEqual(t, fresh.traces, after, name)
				}
			})
		}
	})
	check := func(t require.TestingT, last string) {
		got := use(t, p, nil)
		require.Equal(t, fresh.pid, got.pid, "another connection after %s", last)
		require.JSONEq(t, fresh.traces, got.traces, "after %s", last)
	}
	for _, name := range slices.Sorted(maps.Keys(leavings)) {
		use(t, p, func(c *pgxpool.Conn) { _, _ = c.Exec(t.Context(), leavings[name]) })
		check(t, name)
	}
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfN(rapid.SampledFrom(slices.Sorted(maps.Keys(leavings))), 1, 6).Draw(rt, "leavings")
		use(rt, p, func(c *pgxpool.Conn) {
			for _, name := range names {
				_, _ = c.Exec(context.Background(), leavings[name])
			}
		})
		check(rt, fmt.Sprint(names))
	})
}

// What was notified to one user of a connection is no other's to read.
func TestScrub_notifications(t *testing.T) {
	t.Parallel()
	p := mainPool(t)
	first := use(t, p, func(c *pgxpool.Conn) {
		for range 3 {
			_, err := c.Exec(t.Context(), "LISTEN x; NOTIFY x, 'secret'")
			require.NoError(t, err)
		}
	})
	second := use(t, p, func(c *pgxpool.Conn) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		n, err := c.Conn().WaitForNotification(over) // gives what has arrived, without waiting
		require.Nil(t, n)
		require.ErrorIs(t, err, context.Canceled)
	})
	require.Equal(t, first.pid, second.pid)
}

func TestScrub_sequences(t *testing.T) {
	t.Parallel()
	p := mainPool(t)
	first := use(t, p, func(c *pgxpool.Conn) {
		_, err := c.Exec(t.Context(), "CREATE SEQUENCE s; SELECT nextval('s')")
		require.NoError(t, err)
	})
	second := use(t, p, func(c *pgxpool.Conn) {
		_, err := c.Exec(t.Context(), "SELECT lastval()")
		require.ErrorContains(t, err, "lastval is not yet defined in this session")
	})
	require.Equal(t, first.pid, second.pid)
}

// A job cannot tell, nor set, what random() gives to the next.
func TestScrub_random(t *testing.T) {
	t.Parallel()
	p := mainPool(t)
	var known, got float64
	seed := func(c *pgxpool.Conn, x *float64) {
		_, err := c.Exec(t.Context(), "SELECT setseed(0.5)")
		require.NoError(t, err)
		if x != nil {
			require.NoError(t, c.QueryRow(t.Context(), "SELECT random()").Scan(x))
		}
	}
	first := use(t, p, func(c *pgxpool.Conn) {
		seed(c, &known)
		seed(c, &got)
		require.Equal(t, known, got, "it can be set")
		seed(c, nil)
	})
	second := use(t, p, func(c *pgxpool.Conn) {
		require.NoError(t, c.QueryRow(t.Context(), "SELECT random()").Scan(&got))
		require.NotEqual(t, known, got)
	})
	require.Equal(t, first.pid, second.pid)
}

// Connections that a handler opens from its session end with its job.
func TestScrub_dblink(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	p := poolOf(t, started(t, withPools(map[string]string{"main": dsn})), "main")
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	to := fmt.Sprintf("host=%s port=%d dbname=%s user=%s password=''%s'' application_name=linked", cfg.Host, cfg.Port, cfg.Database, cfg.User, cfg.Password)
	linked := func() (n int) {
		require.NoError(t, p.Jobs().QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'linked'").Scan(&n))
		return n
	}
	_, err = p.Jobs().Exec(t.Context(), `CREATE SCHEMA "its own"`)
	require.NoError(t, err)
	if _, err = p.Jobs().Exec(t.Context(), `CREATE EXTENSION dblink SCHEMA "its own"`); err != nil {
		t.Skip("dblink is not installed: ", err)
	}
	before := use(t, p, nil)
	for _, statements := range []string{
		"SELECT dblink_connect('a', '%[1]s'), dblink_connect('b c', '%[1]s')",
		"SELECT dblink_connect('%[1]s')",
		"SELECT dblink_connect('a', '%[1]s'), dblink_connect('%[1]s')",
		"SELECT dblink_connect('a', '%[1]s'), dblink_exec('a', 'BEGIN'), dblink_send_query('a', 'SELECT 1')",
	} {
		use(t, p, func(c *pgxpool.Conn) {
			_, err := c.Exec(t.Context(), `SET search_path = "its own"; `+fmt.Sprintf(statements, to))
			require.NoError(t, err)
			require.Positive(t, linked())
		})
		after := use(t, p, nil)
		require.Equal(t, before.pid, after.pid)
		require.JSONEq(t, before.traces, after.traces)
		require.Eventually(t, func() bool { return linked() == 0 }, patience, time.Millisecond, statements)
	}
}

// What a session still does is ended with it: it is not handed on.
func TestScrub_destroysWhatIsNotClean(t *testing.T) {
	t.Parallel()
	p := mainPool(t)
	for name, leave := range map[string]func(*pgxpool.Conn){
		"an open transaction": func(c *pgxpool.Conn) { _, _ = c.Exec(t.Context(), "BEGIN; SET LOCAL app.tenant_id = 'acme'") },
		"a failed transaction": func(c *pgxpool.Conn) {
			_, _ = c.Exec(t.Context(), "BEGIN")
			_, _ = c.Exec(t.Context(), "SELECT 1/0")
		},
		"open rows":        func(c *pgxpool.Conn) { _, _ = c.Query(t.Context(), "SELECT generate_series(1, 100)") },
		"an ended backend": func(c *pgxpool.Conn) { _, _ = c.Exec(t.Context(), "SELECT pg_terminate_backend(pg_backend_pid())") },
	} {
		before := use(t, p, leave)
		after := use(t, p, nil)
		require.JSONEq(t, before.traces, after.traces, name)
		require.NotEqual(t, before.pid, after.pid, name)
	}
}

// Two tenants' tables need not be alike: of types with one name each schema has its
// own, and a migration reaches one tenant before the other.
func TestTenants_mayDiffer(t *testing.T) {
	t.Parallel()
	p := mainPool(t)
	require.NoError(t, execTenants(t.Context(), p, `
		CREATE SCHEMA a; CREATE TYPE a.mood AS ENUM ('sad', 'happy');   CREATE TABLE a.item (id int,    mood a.mood, note text);
		CREATE SCHEMA b; CREATE TYPE b.mood AS ENUM ('happy', 'glad');  CREATE TABLE b.item (mood b.mood, id bigint, note jsonb);
		CREATE SCHEMA c; CREATE DOMAIN c.mood AS text;                  CREATE TABLE c.item (id numeric, mood c.mood, note varchar(9), more int DEFAULT 1)`))
	pids := map[uint32]bool{}
	in := func(schema string, fn func(pgx.Tx) error) error {
		return inTenantsTx(t, p, func(tx pgx.Tx) error {
			pids[tx.Conn().PgConn().PID()] = true
			if _, err := tx.Exec(t.Context(), "SELECT set_config('search_path', $1, true)", schema+", pg_temp"); err != nil {
				return err
			}
			return fn(tx)
		})
	}
	ids := map[string]int64{"a": 1, "b": 1 << 40, "c": 1 << 50}
	for _, schema := range []string{"a", "b", "c", "b", "a", "c", "a", "b"} {
		require.NoError(t, in(schema, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO item (id, mood, note) VALUES ($1, $2, $3)", ids[schema], "happy", `"note"`)
			return err
		}), schema)
		require.NoError(t, in(schema, func(tx pgx.Tx) error {
			var b pgx.Batch
			b.Queue("UPDATE item SET mood = $1 WHERE id = $2", "happy", ids[schema])
			b.Queue("SELECT * FROM item WHERE id = $1", ids[schema])
			return tx.SendBatch(t.Context(), &b).Close()
		}), schema)
		require.NoError(t, in(schema, func(tx pgx.Tx) error {
			rows, err := tx.Query(t.Context(), "SELECT * FROM item WHERE id = $1", ids[schema])
			if err != nil {
				return err
			}
			all, err := pgx.CollectRows(rows, pgx.RowToMap)
			require.NotEmpty(t, all)
			require.Equal(t, "happy", fmt.Sprint(all[0]["mood"]))
			return err
		}), schema)
	}
	require.Len(t, pids, 1, "all on one connection")
}

// Nothing named stays on a tenant's connection, and this side does not believe it
// did: what a scrubbed session has forgotten, pgx must not use.
func TestTenants_statementsAreNotRemembered(t *testing.T) {
	t.Parallel()
	p := mainPool(t)
	var pids []uint32
	for i := range 3 {
		s := use(t, p, func(c *pgxpool.Conn) {
			var got string
			for range 2 {
				require.NoError(t, c.QueryRow(t.Context(), "SELECT $1::int || $2", i, "x").Scan(&got))
				require.Equal(t, fmt.Sprint(i, "x"), got)
			}
			var n int
			require.NoError(t, c.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''").Scan(&n))
			require.Zero(t, n)
			// Refused with a clear word rather than broken after the scrub.
			require.ErrorContains(t, c.QueryRow(t.Context(), "SELECT $1::int", pgx.QueryExecModeCacheStatement, i).Scan(&n), "disabled statement cache")
			require.ErrorContains(t, c.QueryRow(t.Context(), "SELECT $1::int", pgx.QueryExecModeCacheDescribe, i).Scan(&n), "disabled description cache")
		})
		pids = append(pids, s.pid)
	}
	require.Equal(t, pids[0], pids[2])
}

// Job SQL, in which no tenant has a say, keeps its plans.
func TestJobs_statementsAreRemembered(t *testing.T) {
	t.Parallel()
	p := mainPool(t)
	run := func() (pid uint32, prepared []string) {
		c, err := p.Jobs().Acquire(t.Context())
		require.NoError(t, err)
		defer c.Release()
		var one int
		require.NoError(t, c.QueryRow(t.Context(), "SELECT $1::int + 0", 1).Scan(&one))
		rows, err := c.Query(t.Context(), "SELECT name FROM pg_prepared_statements WHERE statement = 'SELECT $1::int + 0'", pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		prepared, err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return c.Conn().PgConn().PID(), prepared
	}
	pid, first := run()
	require.Len(t, first, 1)
	samePID, second := run()
	require.Equal(t, pid, samePID)
	require.Equal(t, first, second)
}

// A burst of timeouts is no storm of reconnects.
func TestPool_keepsTheConnectionOfACancelledCall(t *testing.T) {
	t.Parallel()
	p := mainPool(t)
	before := use(t, p, nil)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		result <- execTenants(ctx, p, "SELECT pg_advisory_lock(1), pg_sleep(60)")
	}()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, p.Jobs().QueryRow(t.Context(), "SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'", int(before.pid)).Scan(&n))
		return n == 1
	}, patience, 5*time.Millisecond)
	cancel()
	require.Error(t, <-result)
	after := use(t, p, nil)
	require.Equal(t, before.pid, after.pid)
	require.JSONEq(t, before.traces, after.traces, "and scrubs it")
}
