package routing_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/routing"
)

// observed starts a router with a pool main, and returns it with what it logs from now on.
func observed(t *testing.T, dsn string) (*routing.Router, *routing.Pool, *observer.ObservedLogs) {
	core, logs := observer.New(zap.InfoLevel)
	r, err := routing.New(withPools(map[string]string{"main": dsn}), zap.New(core))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Stop(context.Background())) })
	require.NoError(t, r.Start(t.Context()))
	p := poolOf(t, r, "main")
	requireUp(t, p, 1)
	logs.TakeAll()
	return r, p, logs
}

// up is what the metric says of a router's only pool.
func up(t *testing.T, r *routing.Router) float64 {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(r))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "tenure_pool_up" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	require.Fail(t, "it is not told")
	return 0
}

// serves waits until a pool does, and what was cut off is replaced.
func serves(t *testing.T, p *routing.Pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		return p.Jobs().Ping(t.Context()) == nil && execTenants(t.Context(), p, "SELECT 1") == nil
	}, patience, 5*time.Millisecond)
}

// A user who is not let in any more, whoever finds out, is as one who never was, and is said to be so once.
// Nobody has to ask again for it to be over.
func TestAPoolInServiceIsRefused(t *testing.T) {
	t.Parallel()
	for who, connect := range map[string]func(context.Context, *routing.Pool) error{
		"jobs":    func(ctx context.Context, p *routing.Pool) error { return p.Jobs().Ping(ctx) },
		"tenants": func(ctx context.Context, p *routing.Pool) error { return execTenants(ctx, p, "-- ping") },
		"the lock": func(ctx context.Context, p *routing.Pool) error {
			c, err := p.ConnectLock(ctx)
			if err == nil {
				_ = c.Close(ctx)
			}
			return err
		},
	} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			dsn := storetest.DSN(t, "main", 1)
			user := fmt.Sprintf("refused_%d_%s", os.Getpid(), strings.ReplaceAll(who, " ", "_")) // of the whole server
			exec(t, dsn, "CREATE ROLE "+user+" SUPERUSER LOGIN")
			t.Cleanup(func() {
				conn, err := pgx.Connect(context.Background(), dsn)
				require.NoError(t, err)
				_, err = conn.Exec(context.Background(), "DROP ROLE "+user)
				require.NoError(t, err)
				require.NoError(t, conn.Close(context.Background()))
			})
			r, p, logs := observed(t, storetest.As(dsn, user))
			lock, err := p.ConnectLock(t.Context()) // that goes on
			require.NoError(t, err)
			t.Cleanup(func() { _ = lock.Close(context.Background()) })

			exec(t, dsn, "ALTER ROLE "+user+" NOLOGIN; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+user+"' AND application_name <> 'tenure lock'")
			why := `pool main: its server refuses user "` + user + `" of database `
			require.Eventually(t, func() bool { return connect(t.Context(), p) != nil && p.Unfit() != nil }, patience, time.Millisecond)
			for range 3 {
				require.Error(t, connect(t.Context(), p))
			}
			require.NotErrorIs(t, p.Unfit(), routing.ErrPoolDown, "trying again is of no use")
			require.True(t, routing.OutOfService(p.Unfit()))
			require.ErrorContains(t, p.Unfit(), why)
			require.ErrorContains(t, p.Outage(), why)
			require.True(t, p.IsDown())
			require.Zero(t, up(t, r))
			require.Equal(t, 1, logs.FilterMessageSnippet("pool is out of service until this is mended").Len())

			exec(t, dsn, "ALTER ROLE "+user+" LOGIN")
			require.Eventually(t, func() bool { return p.Unfit() == nil }, patience, 5*time.Millisecond)
			serves(t, p)
			require.NoError(t, p.Outage())
			require.EqualValues(t, 1, up(t, r))
			require.Equal(t, 1, logs.FilterMessage("pool is up").Len())
		})
	}
}

// A password is read where the DSN says, at each connect.
func TestAPassfileIsReadAgain(t *testing.T) {
	t.Parallel()
	s := pgtest.Server(t, devpg.Options{TCP: true})
	require.NoError(t, s.CreateDatabase(t.Context(), "main"))
	require.NoError(t, storetest.Prepare(t.Context(), s.DSN("main"), "main", 1))
	exec(t, s.DSN("main"), "CREATE ROLE app SUPERUSER LOGIN PASSWORD 'one'")
	file := filepath.Join(t.TempDir(), "passfile")
	write := func(password string) {
		require.NoError(t, os.WriteFile(file, []byte("*:*:*:app:"+password+"\n"), 0o600))
	}
	write("one")
	u, err := url.Parse(s.TCPDSN("main"))
	require.NoError(t, err)
	u.User = url.User("app")
	q := u.Query()
	q.Set("passfile", file)
	u.RawQuery = q.Encode()
	_, p, logs := observed(t, u.String())

	exec(t, s.DSN("main"), "ALTER ROLE app PASSWORD 'two'; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
	require.Eventually(t, func() bool { return p.Jobs().Ping(t.Context()) != nil && p.Unfit() != nil }, patience, time.Millisecond)
	require.ErrorContains(t, p.Unfit(), `password authentication failed for user "app"`)
	write("two")
	require.Eventually(t, func() bool { return p.Unfit() == nil }, patience, 5*time.Millisecond)
	serves(t, p)
	require.Equal(t, 1, logs.FilterMessage("pool is up").Len())
}
