package tenure_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

// No tenant has more than two exports running, or starts more than ten in a minute, on all nodes together.
func ExampleLimits_Set() {
	cfg, stop := exampleConfig()
	defer stop()
	node, stop := exampleNode(cfg, func(*job.Registry) {})
	defer stop()

	ctx, limits := context.Background(), node.Operator().Limits()
	check(limits.Set(ctx, operate.Limit{Tenant: operate.EveryTenant, Kind: "export", MaxRunning: 2, Rate: 10, Per: time.Minute}))
	check(limits.Set(ctx, operate.Limit{Tenant: "acme", Kind: "export", MaxRunning: 8})) // which acme has instead
	all, err := limits.List(ctx)
	check(err)
	for _, l := range all {
		fmt.Println(l.Tenant == operate.EveryTenant, l.Kind, l.MaxRunning, l.Rate)
	}
	// Output:
	// true export 2 10
	// false export 8 0
}
