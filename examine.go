package tenure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/doctor"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Examination is what [Examine] found.
type Examination = doctor.Examination

// Finding is something that is wrong: what, where, why it matters, and what mends it.
type Finding = doctor.Finding

// Examine looks for what is wrong with the databases of a configuration and with the nodes that
// work on them: connections, ledgers, privileges, clocks, vacuum, old transactions, jobs that are
// stuck, locks without a holder. It asks all configured pools, or those named, at the same time, each
// for within at most (0: five seconds), and changes nothing. A pool that does not answer, or not in
// time, is a finding. The error is about the configuration or a pool that it does not name.
func Examine(ctx context.Context, cfg config.Config, within time.Duration, pools ...string) (Examination, error) {
	if err := cfg.Validate(); err != nil {
		return Examination{}, err
	}
	for _, name := range pools {
		if _, ok := cfg.Pools[name]; !ok {
			return Examination{}, fmt.Errorf("pool %q is not under pools", name)
		}
	}
	return doctor.Examine(ctx, cfg, doctor.Options{Pools: pools, Within: within}), nil
}

// PoolFindings is what is wrong with the work of a pool; see [MergeFindings].
type PoolFindings = doctor.Work

// ExamineWork makes those checks of [Operator.Examine] that are about a pool's work: its nodes, its lock and its jobs. It
// is cheap enough to be done every few seconds while somebody looks.
func (o *Operator) ExamineWork(ctx context.Context, pool string) (found PoolFindings, err error) {
	p, err := o.findPool(pool)
	if err != nil {
		return found, err
	}
	err = operate(ctx, p, func(ctx context.Context, db *pgxpool.Conn) (err error) {
		found, err = doctor.ExamineWork(ctx, db, *o.cfg.Load(), pool, func(ctx context.Context, tenants []string) []string {
			return slices.DeleteFunc(tenants, func(id string) bool {
				_, _, err := o.router.Resolve(ctx, tenancy.ID(id))
				return !errors.Is(err, tenancy.ErrUnknownTenant)
			})
		})
		return err
	})
	return found, routing.NamePool(pool, err)
}

// MergeFindings is what is wrong with the work of several pools, the worst first.
func MergeFindings(pools []PoolFindings) []Finding { return doctor.Merge(pools) }
