package tenure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/store"
)

// PoolGrants are the statements that give users a pool's ledger to work on.
type PoolGrants struct {
	Pool       string
	Users      []string
	Statements []string
}

// Grant gives users, which nodes and clients connect as, what they need of the ledgers of
// all configured pools, or of those named, and lets them take the roles of the tenants
// under tenants.static. These roles, and the pattern of the others, it records in the
// ledgers, for tenure.enqueue. It returns the statements that were needed; none: the users
// had it all. The configuration's DSNs must lead in as the ledgers' owner. Without users it
// does so for those who were given a ledger before. A pool that fails does not keep the
// others from it.
func Grant(ctx context.Context, cfg config.Config, users []string, pools ...string) ([]PoolGrants, error) {
	return grantEach(ctx, cfg, users, pools, func(conn *pgx.Conn, to []string, tenants map[string]string) (done []string, err error) {
		if _, err := store.LearnRoles(ctx, conn, tenants); err != nil {
			return nil, err
		}
		for _, user := range to {
			rights, err := store.Grant(ctx, conn, user)
			if err != nil {
				return done, err
			}
			roles, err := store.GrantRoles(ctx, conn, user, slices.Collect(maps.Values(tenants)))
			if done = slices.Concat(done, rights, roles); err != nil {
				return done, err
			}
		}
		return done, nil
	})
}

// MissingGrants returns the statements that [Grant] would execute, and changes nothing.
func MissingGrants(ctx context.Context, cfg config.Config, users []string, pools ...string) ([]PoolGrants, error) {
	return grantEach(ctx, cfg, users, pools, func(conn *pgx.Conn, to []string, tenants map[string]string) (missing []string, err error) {
		for _, user := range to {
			rights, err := store.MissingGrants(ctx, conn, user)
			if err != nil {
				return nil, err
			}
			roles, err := store.MissingRoles(ctx, conn, user, slices.Collect(maps.Values(tenants)))
			if err != nil {
				return nil, err
			}
			missing = slices.Concat(missing, rights, roles)
		}
		return missing, nil
	})
}

// grantEach has grant look after the users of each pool's ledger and its tenants' roles.
func grantEach(ctx context.Context, cfg config.Config, users, pools []string,
	grant func(conn *pgx.Conn, users []string, tenants map[string]string) ([]string, error),
) (out []PoolGrants, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(pools) == 0 {
		pools = slices.Sorted(maps.Keys(cfg.Pools))
	}
	var failed []error
	for _, name := range pools {
		if _, ok := cfg.Pools[name]; !ok {
			return out, fmt.Errorf("pool %q is not under pools", name)
		}
		owner, err := ownersConn(cfg, name)
		if err == nil {
			err = onPool(ctx, owner, name, func(conn *pgx.Conn) (err error) {
				p := PoolGrants{Pool: name}
				if p.Users, err = store.Grantees(ctx, conn, users); err != nil {
					return err
				}
				p.Statements, err = grant(conn, p.Users, cfg.Routing().Roles(name))
				out = append(out, p)
				return err
			})
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return out, errors.Join(failed...)
}
