package tenure_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// Rebuild is worth doing once, however often it is asked for.
type Rebuild struct{}

// Kind implements job.Args.
func (Rebuild) Kind() string { return "index.rebuild" }

// While a tenant has an unfinished job with the key, no second one is added. UniqueFor keeps the key for longer,
// for a request that may come twice.
func ExampleUnique() {
	cfg, stop := exampleConfig()
	defer stop()
	node, stop := exampleNode(cfg, func(*job.Registry) {})
	defer stop()

	jobs, ctx := node.Client(), tenancy.For(context.Background(), "acme")
	first, err := jobs.Enqueue(ctx, Rebuild{}, tenure.Unique("rebuild"), tenure.In(time.Hour), tenure.Elsewhere())
	check(err)
	again, err := jobs.Enqueue(ctx, Rebuild{}, tenure.Unique("rebuild"), tenure.Elsewhere())
	check(err)
	fmt.Println(first.Duplicate, again.Duplicate, first.ID == again.ID)
	// Output: false true true
}
