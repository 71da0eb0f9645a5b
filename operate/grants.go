package operate

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
	// Forgotten are tenants whose role stood in the ledger and is another by the
	// configuration, or none any more; "" is the pattern of those without an entry.
	Forgotten []string
	// Holders have rights on the ledger, and nobody has named them.
	Holders []LedgerHolder
}

// Grant gives users, which nodes and clients connect as, what they need of the ledgers of
// all configured pools, or of those named, and lets them take the roles of the tenants
// under tenants.static. These roles, and the pattern of the others, it records in the
// ledgers, for tenure.enqueue; what the configuration contradicts is removed there. Without
// tenants.table that is every role of a tenant that is not under tenants.static. It returns the statements that were needed; none: the users
// had it all. The configuration's DSNs must lead in as the ledgers' owner. The users are remembered: without
// users it does so for those who were named before, and [MigrateAll] gives them what it adds. No tenant's role
// is accepted as a user, and no role for a tenant that has rights over more than its tenant's data. A pool
// that fails does not keep the others from it.
func Grant(ctx context.Context, cfg config.Config, users []string, pools ...string) ([]PoolGrants, error) {
	return grantEach(ctx, cfg, users, pools, true, func(conn *pgx.Conn, to []string, tenants map[string]string) (done []string, err error) {
		if _, err := store.LearnRoles(ctx, conn, tenants); err != nil {
			return nil, err
		}
		for _, user := range to {
			rights, err := store.Grant(ctx, conn, user)
			if err != nil {
				return done, err
			}
			roles, err := store.GrantRoles(ctx, conn, user, tenants)
			if done = slices.Concat(done, rights, roles); err != nil {
				return done, err
			}
		}
		return done, nil
	})
}

// MissingGrants returns the statements that [Grant] would execute, and changes nothing.
func MissingGrants(ctx context.Context, cfg config.Config, users []string, pools ...string) ([]PoolGrants, error) {
	return grantEach(ctx, cfg, users, pools, false, func(conn *pgx.Conn, to []string, tenants map[string]string) (missing []string, err error) {
		for _, user := range to {
			rights, err := store.MissingNamed(ctx, conn, user, tenants)
			if err != nil {
				return nil, err
			}
			roles, err := store.MissingRoles(ctx, conn, user, tenants)
			if err != nil {
				return nil, err
			}
			missing = slices.Concat(missing, rights, roles)
		}
		return missing, nil
	})
}

// grantEach has grant look after the users of each pool's ledger and its tenants' roles, of
// which it looks for those that are recorded wrongly, and forgets them if forget.
func grantEach(ctx context.Context, cfg config.Config, users, pools []string, forget bool,
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
				switch p.Users, err = store.Grantees(ctx, conn, users); {
				case errors.Is(err, store.ErrNotMigrated):
					return store.OlderLedger(ctx, conn, name)
				case err != nil:
					return err
				}
				roles, all := cfg.Routing().AllRoles()
				if p.Forgotten, err = store.StaleRoles(ctx, conn, roles, all, forget); err != nil {
					return err
				}
				p.Statements, err = grant(conn, p.Users, cfg.Routing().Roles(name))
				if err == nil {
					var holders []store.Holder
					holders, err = store.Holders(ctx, conn)
					p.Holders = ledgerHolders(holders)
				}
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
