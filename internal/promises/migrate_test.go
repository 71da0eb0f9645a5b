package promises_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
)

// many is a configuration with this many databases that have no ledger.
func many(t *testing.T, n int) config.Config {
	cfg := config.Default()
	cfg.Pools = map[string]routing.PoolConfig{}
	for i := range n {
		cfg.Pools[fmt.Sprintf("p%02d", i+1)] = routing.PoolConfig{DSN: pgtest.Database(t)}
	}
	return cfg
}

// numberOf is a migrated pool's number.
func numberOf(t *testing.T, cfg config.Config, pool string) (n int) {
	conn, err := pgx.Connect(t.Context(), cfg.Pools[pool].DSN)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT number FROM tenure.pool").Scan(&n))
	return n
}

// Many pools are migrated at a time, also by several commands, and each gets a number of
// its own.
func TestMigrateManyAtOnce(t *testing.T) {
	t.Parallel()
	const pools = 6
	cfg := many(t, pools)
	var group sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		group.Go(func() {
			var some []string
			if i > 0 { // one has all of them, the others a part
				for p := i; p <= pools; p += 2 {
					some = append(some, fmt.Sprintf("p%02d", p))
				}
			}
			_, errs[i] = operate.MigrateAll(t.Context(), cfg, operate.MigrateOptions{Pools: some})
		})
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	for i := 1; i <= pools; i++ {
		require.Equal(t, i, numberOf(t, cfg, fmt.Sprintf("p%02d", i)))
	}
}

// As many pools are worked on at a time as is allowed, for one server and for all.
func TestMigrateIsBounded(t *testing.T) {
	t.Parallel()
	cfg := many(t, 6)
	const most = `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure migrate' AND datname = ANY ($1)`
	var databases []string
	for _, p := range cfg.Pools {
		c, err := pgx.ParseConfig(p.DSN)
		require.NoError(t, err)
		databases = append(databases, c.Database)
	}
	watcher, err := pgxpool.New(t.Context(), cfg.Pools["p01"].DSN)
	require.NoError(t, err)
	defer watcher.Close()
	for _, o := range []operate.MigrateOptions{{PerServer: 2, AtOnce: 8}, {PerServer: 8, AtOnce: 2}} {
		done := 0
		o.Done = func(p operate.MigratedPool) {
			done++
			var n int
			require.NoError(t, watcher.QueryRow(t.Context(), most, databases).Scan(&n))
			require.LessOrEqual(t, n, 4, "two are worked on, and as many may just be closing their connection")
			require.NoError(t, p.Err)
		}
		_, err := operate.MigrateAll(t.Context(), cfg, o)
		require.NoError(t, err)
		require.Equal(t, 6, done)
	}
}

// A pool that fails keeps no other from being migrated; when it is mended, the same call
// does what is left. One that is new then gets a number that no other has.
func TestMigrateGoesOn(t *testing.T) {
	t.Parallel()
	cfg := many(t, 4)
	good := cfg.Pools["p02"]
	wrong := good
	wrong.DSN = strings.Replace(good.DSN, "user=", "user=nobody_", 1)
	if wrong.DSN == good.DSN {
		wrong.DSN = strings.Replace(good.DSN, "://postgres@", "://nobody_here@", 1)
	}
	require.NotEqual(t, good.DSN, wrong.DSN)
	_, err := operate.MigrateAll(t.Context(), cfg, operate.MigrateOptions{Pools: []string{"p01"}})
	require.NoError(t, err)

	cfg.Pools["p02"] = wrong
	became := map[string]operate.MigratedPool{}
	done, err := operate.MigrateAll(t.Context(), cfg, operate.MigrateOptions{})
	require.ErrorContains(t, err, "connect to pool p02: ")
	require.Len(t, done, 4)
	for _, p := range done {
		became[p.Pool] = p
	}
	require.NoError(t, became["p01"].Err)
	require.Empty(t, became["p01"].Steps, "it was up to date")
	require.Error(t, became["p02"].Err)
	for _, pool := range []string{"p03", "p04"} {
		require.NotEmpty(t, became[pool].Steps)
		require.ErrorContains(t, became[pool].Err, "pool "+pool+" is new and cannot be numbered while it is not known which numbers are taken; run migrate again when all pools answer: connect to pool p02: ")
	}

	cfg.Pools["p02"] = good
	done, err = operate.MigrateAll(t.Context(), cfg, operate.MigrateOptions{})
	require.NoError(t, err)
	for i, p := range done {
		require.Equal(t, p.Pool == "p02", len(p.Steps) > 0, "%s", p.Pool)
		require.Equal(t, i+1, numberOf(t, cfg, p.Pool))
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = operate.MigrateAll(ctx, cfg, operate.MigrateOptions{})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "4 of 4 pools were not begun")
}
