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

// Invoice, MonthReport and ReportMail are the jobs of docs/batches.md.
type Invoice struct{ Number int }

func (Invoice) Kind() string { return "invoice" }

type MonthReport struct{ Month string }

func (MonthReport) Kind() string { return "report" }

type ReportMail struct{ To string }

func (ReportMail) Kind() string { return "report.mail" }

// Every invoice is a job. When all were sent, or have failed for good, the report is made, and after it
// the mail is sent.
func ExampleClient_EnqueueBatch() {
	cfg, stop := exampleConfig()
	defer stop()

	mailed := make(chan struct{})
	handlers := job.NewRegistry()
	job.Handle(handlers, func(_ context.Context, j *job.Job[Invoice]) error {
		if j.Args.Number == 3 {
			return job.Discard(fmt.Errorf("it has no address"))
		}
		return nil
	})
	job.Handle(handlers, func(_ context.Context, j *job.Job[MonthReport]) error {
		ends, _ := j.Awaited()
		fmt.Printf("%s: %d invoices sent, %d failed\n", j.Args.Month, ends.Done, ends.Dead)
		return nil
	})
	job.Handle(handlers, func(_ context.Context, j *job.Job[ReportMail]) error {
		fmt.Println("mailed to", j.Args.To)
		close(mailed)
		return nil
	})
	node, err := tenure.New(cfg, handlers, tenure.WithLogger(zap.NewNop()))
	check(err)
	check(node.Start(context.Background()))

	ctx := tenancy.For(context.Background(), "acme")
	batch, err := node.Client().EnqueueBatch(ctx, tenure.Batch{
		Jobs:    []tenure.Entry{{Args: Invoice{1}}, {Args: Invoice{2}}, {Args: Invoice{3}}},
		Then:    MonthReport{"2026-11"},
		Options: []tenure.Option{tenure.OnFailure(tenure.RunAnyway)},
	})
	check(err)
	_, err = node.Client().Enqueue(ctx, ReportMail{"boss@example.com"}, tenure.After(batch.ID))
	check(err)

	select {
	case <-mailed:
	case <-time.After(30 * time.Second):
		fmt.Println("not mailed")
	}
	check(node.Stop(context.Background()))
	// Output:
	// 2026-11: 2 invoices sent, 1 failed
	// mailed to boss@example.com
}
