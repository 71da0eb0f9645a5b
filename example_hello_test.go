package tenure_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// SendInvoice is a job: its fields are stored as JSON, its kind finds the handler.
type SendInvoice struct {
	Invoice int64 `json:"invoice"`
}

// Kind implements job.Args.
func (SendInvoice) Kind() string { return "invoice.send" }

// MailInvoice is another one.
type MailInvoice struct {
	Invoice int64 `json:"invoice"`
}

// Kind implements job.Args.
func (MailInvoice) Kind() string { return "invoice.mail" }

// Invoices has the handlers that are about invoices.
type Invoices struct{ mailed chan int64 }

// Register says which handler is for what.
func (i *Invoices) Register(r *job.Registry) {
	tenure.HandleTx(r, i.Send, job.Retry("R5/PT5M"))
	job.Handle(r, i.Mail, job.Queue("mail"), job.Timeout(time.Minute))
}

// Send runs in a transaction of its tenant: the update, the next job and the end of
// this one are committed together, or none of them is.
func (i *Invoices) Send(ctx context.Context, tx pgx.Tx, j *job.Job[SendInvoice]) error {
	if _, err := tx.Exec(ctx, "UPDATE invoice SET sent = true WHERE id = $1", j.Args.Invoice); err != nil {
		return err
	}
	_, err := tenure.ClientFrom(ctx).EnqueueTx(ctx, tx, MailInvoice{j.Args.Invoice})
	return err
}

// Mail talks to another system, and so holds no transaction meanwhile.
func (i *Invoices) Mail(ctx context.Context, j *job.Job[MailInvoice]) error {
	fmt.Printf("mail invoice %d of %s\n", j.Args.Invoice, tenancy.Must(ctx).ID)
	i.mailed <- j.Args.Invoice
	return nil
}

// A program that runs jobs and enqueues them.
func Example() {
	cfg, stop := exampleConfig()
	defer stop()

	invoices := &Invoices{mailed: make(chan int64, 1)}
	registry := job.NewRegistry()
	invoices.Register(registry)
	node, err := tenure.New(cfg, registry)
	check(err)

	ctx := context.Background()
	check(node.Start(ctx)) // or node.Run, which stops when its context ends
	defer func() { check(node.Stop(ctx)) }()

	// The tenant travels in the context.
	jobs, ctx := node.Client(), tenancy.For(ctx, "acme")

	// The invoice and its job exist together or not at all.
	err = jobs.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO invoice (id) VALUES (42)"); err != nil {
			return err
		}
		_, err := jobs.EnqueueTx(ctx, tx, SendInvoice{42})
		return err
	})
	check(err)
	<-invoices.mailed

	// A job without anything else to commit.
	_, err = jobs.Enqueue(ctx, MailInvoice{43}, tenure.Unique("mail 43"))
	check(err)
	<-invoices.mailed

	err = jobs.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var sent bool
		err := tx.QueryRow(ctx, "SELECT sent FROM invoice WHERE id = 42").Scan(&sent)
		fmt.Println("invoice 42 sent:", sent)
		return err
	})
	check(err)
	// Output:
	// mail invoice 42 of acme
	// mail invoice 43 of acme
	// invoice 42 sent: true
}
