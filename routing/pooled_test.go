package routing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/devpg/poolertest"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/tenancy"
)

// pooledServer is a server of the test's own with the pools main and other, and a PgBouncer
// in front of it.
func pooledServer(t *testing.T, settings map[string]string) (s *devpg.Server, p *poolertest.Pooler) {
	s = pgtest.Server(t, devpg.Options{})
	for i, name := range []string{"main", "other"} {
		require.NoError(t, s.CreateDatabase(t.Context(), name))
		require.NoError(t, storetest.Prepare(t.Context(), s.DSN(name), name, i+1))
	}
	return s, poolertest.Start(t, storetest.AsRuntime(s.DSN("main")), settings)
}

// pooledPool is a configuration whose tenants' transactions go through a pooler.
func pooledPool(s *devpg.Server, tenantDSN string) Config {
	c := onePool(storetest.AsRuntime(s.DSN("main")))
	c.Pools["main"] = PoolConfig{DSN: c.Pools["main"].DSN, TenantDSN: tenantDSN}
	return c
}

// startPooled starts a router and returns its pool main, and what it logs.
func startPooled(t *testing.T, c Config) (*Pool, *observer.ObservedLogs, error) {
	core, logs := observer.New(zap.WarnLevel)
	r, err := New(c, zap.New(core))
	require.NoError(t, err)
	err = r.Start(t.Context())
	t.Cleanup(func() { require.NoError(t, r.Stop(context.Background())) })
	p, _ := r.Pool("main")
	return p, logs, err
}

func execOn(t *testing.T, dsn, sql string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer c.Close(t.Context())
	_, err = c.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// The way for tenants' transactions is looked at before a pool comes into service.
func TestStart_looksAtTheWayThroughAPooler(t *testing.T) {
	t.Parallel()
	s, pooler := pooledServer(t, nil)
	_, logs, err := startPooled(t, pooledPool(s, pooler.DSN("main")))
	require.NoError(t, err)
	require.Zero(t, logs.FilterMessageSnippet("tenant_dsn").Len())

	_, _, err = startPooled(t, pooledPool(s, pooler.DSN("other")))
	require.ErrorContains(t, err, "its tenant_dsn leads to another database than its dsn")

	_, _, err = startPooled(t, pooledPool(s, pooler.DSN("main")+"&enable_sekscan=off"))
	require.ErrorContains(t, err, "cannot be given the settings of its tenant_dsn")
	require.ErrorContains(t, err, "enable_sekscan")

	pooler.Configure(map[string]string{"pool_mode": "statement"})
	pooler.Admin("RELOAD")
	_, _, err = startPooled(t, pooledPool(s, pooler.DSN("main")))
	require.ErrorContains(t, err, "as PgBouncer in statement mode")
	require.ErrorContains(t, err, "set pool_mode = transaction")

	_, logs, err = startPooled(t, pooledPool(s, storetest.AsRuntime(s.DSN("main"))+"&application_name=direct"))
	require.NoError(t, err)
	require.Equal(t, 1, logs.FilterMessageSnippet("tenant_dsn leads to Postgres itself").Len())
}

// The lock's own DSN must lead to sessions, whatever a pooler lets through.
func TestStart_refusesAPoolerForTheLock(t *testing.T) {
	t.Parallel()
	s, pooler := pooledServer(t, nil)
	throughPooler := func() (*observer.ObservedLogs, error) {
		_, logs, err := startPooled(t, onePool(pooler.DSN("main")))
		return logs, err
	}
	refused := func() {
		t.Helper()
		_, err := throughPooler()
		require.ErrorContains(t, err, "keeps no session with its settings, as PgBouncer in transaction mode")
		require.ErrorContains(t, err, "by tenant_dsn")
	}
	refused() // unsupported startup parameter
	r, err := New(onePool(pooler.DSN("main")), zap.NewNop())
	require.NoError(t, err)
	p, _ := r.Pool("main")
	ignore := strings.Join(slices.Sorted(maps.Keys(p.jobsConfig().ConnConfig.RuntimeParams)), ",")
	pooler.Configure(map[string]string{"ignore_startup_parameters": ignore})
	pooler.Admin("RELOAD")
	refused()

	// As if the settings had come through.
	cfg, err := pgx.ParseConfig(pooler.DSN("main"))
	require.NoError(t, err)
	execOn(t, s.DSN("main"), "ALTER ROLE "+cfg.User+" SET lock_timeout = '2s'; ALTER ROLE "+cfg.User+" SET enable_seqscan = off")
	pooler.Admin("RECONNECT main")
	refused()
	pooler.Configure(map[string]string{"ignore_startup_parameters": ignore, "server_round_robin": "1"})
	pooler.Admin("RELOAD")
	refused()
	pooler.Configure(map[string]string{"ignore_startup_parameters": ignore, "pool_mode": "session"})
	pooler.Stop()
	pooler.Launch()
	logs, err := throughPooler()
	require.NoError(t, err, "a session is a session")
	require.Equal(t, 1, logs.FilterMessageSnippet("is not Postgres itself").Len())
}

// leads tells where a transaction of a tenant leads to.
func leads(t *testing.T, p *Pool) (database string, err error) {
	err = p.Tenants().do(t.Context(), func(c *pgx.Conn) error {
		return c.QueryRow(t.Context(), "SELECT current_database()").Scan(&database)
	})
	return database, err
}

// No transaction goes on in another database than was checked, although its connection stays.
func TestAPoolerThatLeadsElsewhere(t *testing.T) {
	t.Parallel()
	s, pooler := pooledServer(t, nil)
	for _, database := range []string{"main", "other"} { // as if one were a copy of the other
		execOn(t, s.DSN(database), "UPDATE tenure.migration SET tstamp = '2026-01-01'")
	}
	p, _, err := startPooled(t, pooledPool(s, pooler.DSN("main")))
	require.NoError(t, err)
	database, err := leads(t, p)
	require.NoError(t, err)
	require.Equal(t, "main", database)

	pooler.Configure(map[string]string{"database_name": "other"})
	pooler.Admin("RELOAD")
	_, err = leads(t, p)
	var pg *pgconn.PgError
	require.True(t, errors.As(err, &pg) && pg.Code == codeOtherDatabase, "%v", err)
	_, err = leads(t, p)
	require.ErrorContains(t, err, `tenant_dsn leads to database "other", and dsn to "main"`)

	pooler.Configure(nil)
	pooler.Admin("RELOAD")
	database, err = leads(t, p)
	require.NoError(t, err)
	require.Equal(t, "main", database)
}

// A server that was restarted is another, until it was checked: it may be one that was replaced.
func TestAServerThatRestartsBehindAPooler(t *testing.T) {
	t.Parallel()
	s, pooler := pooledServer(t, map[string]string{"server_login_retry": "1"})
	p, _, err := startPooled(t, pooledPool(s, pooler.DSN("main")))
	require.NoError(t, err)
	_, err = leads(t, p)
	require.NoError(t, err)
	before := *p.pooled.database.Load()
	require.NoError(t, s.Restart(t.Context(), false))
	pooler.Admin("RECONNECT")
	_, err = leads(t, p)
	var pg *pgconn.PgError
	require.True(t, errors.As(err, &pg) && pg.Code == codeOtherDatabase, "%v", err)
	require.Eventually(t, func() bool {
		_, err = leads(t, p)
		return err == nil
	}, connectTimeout, connectTimeout/50)
	require.NotEqual(t, before, *p.pooled.database.Load())

	up := func() float64 {
		ch := make(chan prometheus.Metric, 100)
		p.collectConns(ch)
		close(ch)
		for m := range ch {
			if m.Desc() == tenantsUp {
				var said dto.Metric
				require.NoError(t, m.Write(&said))
				return said.GetGauge().GetValue()
			}
		}
		return -1
	}
	require.InDelta(t, 1, up(), 0)
	pooler.Stop()
	require.Eventually(t, func() bool { _, err := leads(t, p); return err != nil && up() == 0 }, connectTimeout, connectTimeout/50)
	pooler.Launch()
	require.Eventually(t, func() bool { _, err := leads(t, p); return err == nil && up() == 1 }, connectTimeout, connectTimeout/50)
}

// The lookup table is asked in one transaction: two messages would reach two sessions.
func TestLookupsThroughAPooler(t *testing.T) {
	t.Parallel()
	s, pooler := pooledServer(t, map[string]string{"server_round_robin": "1"})
	execOn(t, s.DSN("main"), "CREATE TABLE public.place (id uuid PRIMARY KEY, pool text); GRANT ALL ON public.place TO PUBLIC; INSERT INTO public.place SELECT gen_random_uuid(), 'main' FROM generate_series(1, 10)")
	c := pooledPool(s, pooler.DSN("main"))
	c.Tenants.Table = &TableConfig{Pool: "main", Query: "SELECT pool FROM place WHERE id = $1", Move: "UPDATE place SET pool = $2 WHERE id = $1"}
	core, logs := observer.New(zap.WarnLevel)
	r, err := New(c, zap.New(core))
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context()))
	defer func() { require.NoError(t, r.Stop(context.WithoutCancel(t.Context()))) }()
	require.Zero(t, logs.FilterMessageSnippet("tenants.table cannot be asked").Len())

	// A second session, so that they take turns.
	var both [2]pgx.Tx
	for i := range both {
		client, err := pgx.Connect(t.Context(), pooler.DSN("main"))
		require.NoError(t, err)
		defer client.Close(context.WithoutCancel(t.Context()))
		both[i], err = client.Begin(t.Context())
		require.NoError(t, err)
	}
	for _, tx := range both {
		require.NoError(t, tx.Rollback(t.Context()))
	}
	conn, err := pgx.Connect(t.Context(), s.DSN("main"))
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, _ := conn.Query(t.Context(), "SELECT id::text FROM place")
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, id := range ids {
		_, pool, err := r.Resolve(t.Context(), tenancy.ID(id))
		require.NoError(t, err)
		require.Equal(t, "main", pool.Name)
		require.NoError(t, r.Reroute(t.Context(), tenancy.ID(id), "elsewhere"))
	}
	_, _, err = r.Resolve(t.Context(), "00000000-0000-0000-0000-000000000000")
	require.ErrorIs(t, err, tenancy.ErrUnknownTenant)
	var moved int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM place WHERE pool = 'elsewhere'").Scan(&moved))
	require.Equal(t, 10, moved)
}

// What a DSN and the configuration set for connections is set for transactions, and is gone after
// them. Of the server's connections only the locks' and the job SQL's count.
func TestSettingsThroughAPooler(t *testing.T) {
	t.Parallel()
	s, pooler := pooledServer(t, map[string]string{"default_pool_size": "1"})
	execOn(t, s.DSN("main"), "ALTER DATABASE main SET default_transaction_isolation = 'serializable'")
	c := pooledPool(s, pooler.DSN("main")+"&TimeZone=Asia/Kolkata&search_path=a,public&app.it='s\\")
	c.Connections.LockTimeout = 7_000_000_000
	p, _, err := startPooled(t, c)
	require.NoError(t, err)
	require.Equal(t, lockConns+p.jobConns(), p.serverConns())
	for range 2 {
		require.NoError(t, p.Tenants().do(t.Context(), func(c *pgx.Conn) error {
			for name, want := range map[string]string{"TimeZone": "Asia/Kolkata", "lock_timeout": "7s", "application_name": "tenure tenants",
				"search_path": "a,public", "app.it": `'s\`, "transaction_isolation": "read committed", "statement_timeout": "15min"} {
				var got string
				if err := c.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got); err != nil {
					return err
				}
				require.Equal(t, want, got, name)
			}
			return nil
		}))
	}
	other, err := pgx.Connect(t.Context(), pooler.DSN("main"))
	require.NoError(t, err)
	defer other.Close(context.WithoutCancel(t.Context()))
	var zone, timeout string
	require.NoError(t, other.QueryRow(t.Context(), "SELECT current_setting('TimeZone'), current_setting('lock_timeout')", pgx.QueryExecModeExec).Scan(&zone, &timeout))
	require.NotEqual(t, "Asia/Kolkata", zone)
	require.Equal(t, "0", timeout)
}

// What a session keeps by dblink is closed by the message that begins the next transaction on it.
func TestDblinkThroughAPooler(t *testing.T) {
	t.Parallel()
	s := pgtest.Server(t, devpg.Options{})
	require.NoError(t, s.CreateDatabase(t.Context(), "main"))
	require.NoError(t, storetest.Prepare(t.Context(), s.DSN("main"), "main", 1))
	pooler := poolertest.Start(t, s.DSN("main"), map[string]string{"default_pool_size": "1"})
	c := onePool(s.DSN("main"))
	c.Pools["main"] = PoolConfig{DSN: s.DSN("main"), TenantDSN: pooler.DSN("main")}
	p, _, err := startPooled(t, c)
	require.NoError(t, err)
	if _, err := p.Jobs().Exec(t.Context(), `CREATE SCHEMA "its own"; CREATE EXTENSION dblink SCHEMA "its own"`); err != nil {
		t.Skip("dblink is not installed: ", err)
	}
	direct, err := pgx.ParseConfig(s.DSN("main"))
	require.NoError(t, err)
	to := fmt.Sprintf("host=%s port=%d dbname=main user=%s application_name=linked", direct.Host, direct.Port, direct.User)
	linked := func() (n int) {
		require.NoError(t, p.Jobs().QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'linked'").Scan(&n))
		return n
	}
	for _, statements := range []string{
		`SELECT "its own".dblink_connect('a', $1), "its own".dblink_connect('b c', $1)`,
		`SELECT "its own".dblink_connect($1)`,
		`SELECT "its own".dblink_connect('a', $1), "its own".dblink_connect($1)`,
	} {
		require.NoError(t, p.Tenants().do(t.Context(), func(c *pgx.Conn) error {
			_, err := c.Exec(t.Context(), statements, to)
			return err
		}), statements)
		require.Positive(t, linked(), statements)
		_, err := leads(t, p)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return linked() == 0 }, connectTimeout, connectTimeout/1000, statements)
	}
}

// Poolers are sent no requests to cancel: neither when a context ends, nor on demand.
func TestPoolersAreSentNoCancels(t *testing.T) {
	t.Parallel()
	cfg, err := pgx.ParseConfig(pgtest.Database(t))
	require.NoError(t, err)
	var dials atomic.Int32
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return dial(ctx, network, address)
	}
	sendNoCancels(cfg)
	c, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	require.ErrorIs(t, c.PgConn().CancelRequest(t.Context()), errNoCancel)
	ctx, cancel := context.WithTimeout(t.Context(), connectTimeout/100)
	defer cancel()
	_, err = c.Exec(ctx, "SELECT pg_sleep(1)")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	<-c.PgConn().CleanupDone()
	require.EqualValues(t, 1, dials.Load())
}
