package routing_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/routing"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is for what is bound to happen soon.
const patience = 20 * time.Second

// minConns leaves one connection for tenants' transactions.
const minConns = 4

func withPools(dsns map[string]string) routing.Config {
	c := routing.DefaultConfig()
	c.Pools = map[string]routing.PoolConfig{}
	for name, dsn := range dsns {
		c.Pools[name] = routing.PoolConfig{DSN: dsn, MaxConns: minConns}
	}
	return c
}

func newRouter(t testing.TB, c routing.Config) *routing.Router {
	r, err := routing.New(c, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Stop(context.Background())) })
	return r
}

func started(t testing.TB, c routing.Config) *routing.Router {
	r := newRouter(t, c)
	require.NoError(t, r.Start(t.Context()))
	return r
}

// mainPool returns the pool main, on a database of its own.
func mainPool(t testing.TB) *routing.Pool {
	r := started(t, withPools(map[string]string{"main": storetest.DSN(t, "main", 1)}))
	return poolOf(t, r, "main")
}

func poolOf(t testing.TB, r *routing.Router, name string) *routing.Pool {
	p, ok := r.Pool(name)
	require.True(t, ok)
	return p
}

func requireUp(t testing.TB, p *routing.Pool, number int) {
	select {
	case <-p.Ready():
	case <-time.After(patience):
		_, err := p.Number()
		require.FailNow(t, "the pool does not come up", "%s: %v", p.Name, err)
	}
	n, err := p.Number()
	require.NoError(t, err)
	require.Equal(t, number, n)
	var one int
	require.NoError(t, p.Jobs().QueryRow(t.Context(), "SELECT 1").Scan(&one))
	require.NoError(t, execTenants(t.Context(), p, "SELECT 1"))
}

// inTenantsTx runs fn in a transaction on one of the connections for tenants' transactions.
func inTenantsTx(t testing.TB, p *routing.Pool, fn func(pgx.Tx) error) error {
	c, err := p.Tenants().Acquire(t.Context())
	require.NoError(t, err)
	defer c.Release()
	return pgx.BeginFunc(t.Context(), c, fn)
}

// execTenants executes SQL on one of the connections for tenants' transactions.
func execTenants(ctx context.Context, p *routing.Pool, sql string) error {
	c, err := p.Tenants().Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	_, err = c.Exec(ctx, sql)
	return err
}

func requireDown(t testing.TB, p *routing.Pool, why string) {
	select {
	case <-p.Ready():
		require.FailNow(t, "the pool is ready", p.Name)
	default:
	}
	n, err := p.Number()
	require.True(t, routing.OutOfService(err), err)
	require.ErrorContains(t, err, why)
	require.Zero(t, n)
}

func connect(t testing.TB, dsn string) *pgx.Conn {
	c, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func exec(t testing.TB, dsn, sql string) {
	c := connect(t, dsn)
	_, err := c.Exec(t.Context(), sql)
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context()))
}

// shutter closes and opens one database of the shared server.
type shutter struct {
	server *devpg.Databases
	name   string
}

func shutterOf(t testing.TB, dsn string) shutter {
	server, err := devpg.At(pgtest.Database(t)) // from another database
	require.NoError(t, err)
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	return shutter{server, cfg.Database}
}

func (s shutter) close(t testing.TB) { require.NoError(t, s.server.CloseDatabase(t.Context(), s.name)) }
func (s shutter) open(t testing.TB)  { require.NoError(t, s.server.OpenDatabase(t.Context(), s.name)) }
