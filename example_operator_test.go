package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// Charge charges a card.
type Charge struct {
	Card string `json:"card"`
}

// Kind implements job.Args.
func (Charge) Kind() string { return "card.charge" }

// Jobs whose attempts are used up are dead letters. They are grouped by what they died of, and retried when that is
// mended.
func ExampleDeadLetters() {
	cfg, stop := exampleConfig()
	defer stop()
	var mended atomic.Bool
	node, stop := exampleNode(cfg, func(r *job.Registry) {
		job.Handle(r, func(_ context.Context, j *job.Job[Charge]) error {
			if !mended.Load() {
				return job.Discard(errors.New("bank 17: unknown certificate")) // for good, whatever attempts are left
			}
			return nil
		})
	})
	defer stop()

	operator, ctx := node.Operator(), tenancy.For(context.Background(), "acme")
	var last job.ID
	for _, card := range []string{"A", "B"} {
		added, err := node.Client().Enqueue(ctx, Charge{card})
		check(err)
		last = added.ID
		_, _, err = operator.Jobs().Await(ctx, last)
		check(err)
	}
	groups, err := operator.DeadLetters().Groups(ctx, operate.DeadFilter{Kind: "card.charge"})
	check(err)
	for _, g := range groups {
		fmt.Println(g.Count, g.Pattern)
	}

	mended.Store(true)
	result, err := operator.DeadLetters().Retry(ctx, operate.DeadFilter{Group: groups[0].ID}, 50) // a second
	check(err)
	j, _, err := operator.Jobs().Await(ctx, last)
	check(err)
	fmt.Println(result.Done, "retried;", j.State)
	// Output:
	// 2 discard: bank #: unknown certificate
	// 2 retried; done
}
