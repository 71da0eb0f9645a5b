package tenure

import (
	"context"
	"fmt"
	"time"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/doctor"
)

// Examination is what [Examine] found.
type Examination = doctor.Examination

// Finding is something that is wrong: what, where, why it matters, and what mends it.
type Finding = doctor.Finding

// Examine looks for what is wrong with the databases of a configuration and with the nodes that
// work on them: connections, ledgers, privileges, clocks, vacuum, old transactions, jobs that are
// stuck, locks without a holder. It asks all configured pools, or those named, at the same time, each
// for within at most (0: a second), and changes nothing. A pool that does not answer, or not in
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
