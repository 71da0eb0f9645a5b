package tenure_test

import (
	"context"
	"fmt"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// Post changes an account, so that two of one account must not run at a time.
type Post struct {
	Account string `json:"account"`
	Amount  int    `json:"amount"`
}

// Kind implements job.Args.
func (Post) Kind() string { return "account.post" }

// Of a tenant's jobs with one key one runs at a time, in the order in which they were enqueued, on whichever node.
// job.ExclusiveBy gives all jobs of a kind such a key.
func ExampleExclusive() {
	cfg, stop := exampleConfig()
	defer stop()
	node, stop := exampleNode(cfg, func(r *job.Registry) {
		balance := 0 // no lock guards it
		job.Handle(r, func(_ context.Context, j *job.Job[Post]) error {
			balance += j.Args.Amount
			fmt.Println(j.Args.Account, balance)
			return nil
		})
	})
	defer stop()

	ctx := tenancy.For(context.Background(), "acme")
	var last job.ID
	for _, amount := range []int{10, 20, 30} {
		added, err := node.Client().Enqueue(ctx, Post{"savings", amount}, tenure.Exclusive("savings"))
		check(err)
		last = added.ID
	}
	_, _, err := node.Operator().Jobs().Await(ctx, last)
	check(err)
	// Output:
	// savings 10
	// savings 30
	// savings 60
}
