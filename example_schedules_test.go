package tenure_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

// Nightly is what every tenant has done each night.
type Nightly struct{}

// Kind implements job.Args.
func (Nightly) Kind() string { return "nightly" }

// Every tenant gets the schedule, those that come later, too. One may have its own of that name instead.
func ExampleSchedules_Set() {
	cfg, stop := exampleConfig()
	defer stop()
	ran := make(chan string)
	node, stop := exampleNode(cfg, func(r *job.Registry) {
		job.Handle(r, func(_ context.Context, j *job.Job[Nightly]) error {
			ran <- j.Tenant
			return nil
		})
	})
	defer stop()

	ctx, schedules := context.Background(), node.Operator().Schedules()
	_, err := schedules.Set(ctx, operate.Schedule{Tenant: operate.EveryTenant, Name: "nightly", Args: Nightly{},
		Rule: "0 2 * * *", TimeZone: "Europe/Amsterdam", Jitter: 30 * time.Minute})
	check(err)
	next, err := schedules.Set(ctx, operate.Schedule{Tenant: "acme", Name: "nightly", Args: Nightly{}, Rule: "0 4 * * *", TimeZone: "Europe/Amsterdam"})
	check(err)
	amsterdam, err := time.LoadLocation("Europe/Amsterdam")
	check(err)
	fmt.Println("acme's next run is at", next.In(amsterdam).Format("15:04"))

	_, err = schedules.Run(ctx, "acme", "nightly") // also now
	check(err)
	fmt.Println("it ran for", <-ran)
	// Output:
	// acme's next run is at 04:00
	// it ran for acme
}
