package tenure_test

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// Import takes a while.
type Import struct{}

// Kind implements job.Args.
func (Import) Kind() string { return "import" }

// Run stops the node when its context ends, as signal.NotifyContext's does on SIGTERM: the lock goes to another node, what
// has not started is given back, and handlers have execution.finish_within to end.
func ExampleNode_Run() {
	cfg, stop := exampleConfig()
	defer stop()
	cfg.Execution.FinishWithin = 20 * time.Second

	ctx, sigterm := context.WithCancel(context.Background())
	handlers := job.NewRegistry()
	job.Handle(handlers, func(ctx context.Context, _ *job.Job[Import]) error {
		sigterm()
		time.Sleep(300 * time.Millisecond)
		fmt.Println("the job ends; told to stop:", ctx.Err() != nil)
		return nil
	})
	node, err := tenure.New(cfg, handlers, tenure.WithLogger(zap.NewNop()))
	check(err)
	go func() {
		client := node.Client()
		for { // until it has started
			if _, err := client.Enqueue(tenancy.For(ctx, "acme"), Import{}); err == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	check(node.Run(ctx)) // nil: nothing is left claimed
	fmt.Println("stopped, and nothing is claimed")
	// Output:
	// the job ends; told to stop: false
	// stopped, and nothing is claimed
}
