package tenure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/store"
)

// Migration is a step that was applied to a pool's ledger.
type Migration struct {
	Pool string
	store.Migration
}

// Migrate brings the ledgers of all configured pools, or of those named, to this
// program's version. Nodes never do that themselves: they refuse to start on an
// older or newer one. It adds and never removes, and several may run at once.
//
// A pool that is migrated for the first time gets a number, which is part of its
// job ids; for the numbers to be different, every other configured pool must answer
// then. A pool that fails does not keep the others from being migrated. Users who were
// given a ledger by [Grant] get what is added to it.
func Migrate(ctx context.Context, cfg config.Config, pools ...string) ([]Migration, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(pools) == 0 {
		pools = slices.Sorted(maps.Keys(cfg.Pools))
	}
	var done []Migration
	for _, name := range pools {
		if _, ok := cfg.Pools[name]; !ok {
			return done, fmt.Errorf("pool %q is not under pools", name)
		}
	}
	var failed []error
	var migrated []string
	for _, name := range pools {
		steps, err := migrateOne(ctx, cfg, name)
		for _, s := range steps {
			done = append(done, Migration{Pool: name, Migration: s})
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		migrated = append(migrated, name)
	}
	if err := number(ctx, cfg, migrated); err != nil {
		failed = append(failed, err)
	}
	return done, errors.Join(failed...)
}

func migrateOne(ctx context.Context, cfg config.Config, name string) ([]store.Migration, error) {
	var steps []store.Migration
	err := onPool(ctx, cfg, name, func(conn *pgx.Conn) error {
		i, err := store.Identify(ctx, conn)
		if err != nil {
			return err
		}
		if err := i.Usable(name); err != nil {
			return err
		}
		if err := store.CheckName(ctx, conn, name); err != nil {
			return err
		}
		if steps, err = store.Migrate(ctx, conn.Config(), name); err != nil {
			return err
		}
		return store.Regrant(ctx, conn)
	})
	return steps, err
}

// number gives pools that have none the lowest numbers that no pool has.
func number(ctx context.Context, cfg config.Config, pools []string) error {
	taken := map[int]string{}
	var missing []string
	var unknown []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Pools)) {
		n := 0
		err := onPool(ctx, cfg, name, func(conn *pgx.Conn) (err error) {
			if err = store.CheckName(ctx, conn, name); err == nil {
				n, _, err = store.PoolNumber(ctx, conn)
			}
			return err
		})
		switch {
		case errors.Is(err, store.ErrNotMigrated):
		case err != nil:
			unknown = append(unknown, err)
		case n == 0 && slices.Contains(pools, name):
			missing = append(missing, name)
		case n != 0 && taken[n] != "":
			return fmt.Errorf("pools %s and %s have the same number %d, so their job ids would collide; migrate the newer one again into a new database, with a configuration that names all pools", taken[n], name, n)
		case n != 0:
			taken[n] = name
		}
	}
	if len(missing) > 0 && len(unknown) > 0 {
		return fmt.Errorf("new pools %v cannot be numbered while it is not known which numbers are taken; run migrate again when all pools answer: %w", missing, errors.Join(unknown...))
	}
	next := 1
	for _, name := range missing {
		for taken[next] != "" {
			next++
		}
		taken[next] = name
		err := onPool(ctx, cfg, name, func(conn *pgx.Conn) error {
			_, err := store.NumberPool(ctx, conn, next, name)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// onPool runs fn on a connection of its own to a pool's database.
func onPool(ctx context.Context, cfg config.Config, name string, fn func(*pgx.Conn) error) error {
	connCfg, err := pgx.ParseConfig(cfg.Pools[name].DSN)
	if err != nil {
		return fmt.Errorf("pool %s: its dsn cannot be read as a Postgres connection string", name) // err may quote the password
	}
	if connCfg.ConnectTimeout == 0 {
		connCfg.ConnectTimeout = 10 * time.Second
	}
	conn, err := pgx.ConnectConfig(ctx, connCfg)
	if err != nil {
		return fmt.Errorf("connect to pool %s: %w", name, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := fn(conn); err != nil {
		var pe *store.PoolError
		if errors.As(err, &pe) {
			return err
		}
		return fmt.Errorf("pool %s: %w", name, err)
	}
	return nil
}
