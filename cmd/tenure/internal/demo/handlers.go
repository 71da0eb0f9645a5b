package demo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)

// call stands for one call of the traffic: it takes as long as the recording says,
// scaled down, and writes one effect.
type call struct {
	Function string        `json:"function"`
	Took     time.Duration `json:"took"`
}

// Kind implements job.Args.
func (call) Kind() string { return "traffic.call" }

// invoice is a job that changes the tenant's own data.
type invoice struct {
	Invoice int `json:"invoice"`
}

// Kind implements job.Args.
func (invoice) Kind() string { return "invoice.send" }

// registry holds the demo's handlers, which say in the effect table which node ran
// them.
func registry(node string) *job.Registry {
	r := job.NewRegistry()
	effect := func(ctx context.Context, tx pgx.Tx, id job.ID, kind string) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect (job_id, kind, node) VALUES ($1, $2, $3)", int64(id), kind, node)
		return err
	}
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[call]) error {
		if err := effect(ctx, tx, j.ID, j.Kind); err != nil {
			return err
		}
		return wait(ctx, j.Args.Took) // the work; behind the effect, so that a killed node leaves it half done
	}, job.Retry("R10/PT1S"))
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[invoice]) error {
		if _, err := tx.Exec(ctx, "UPDATE invoice SET sent_at = now(), times_sent = times_sent + 1 WHERE id = $1", j.Args.Invoice); err != nil {
			return err
		}
		return effect(ctx, tx, j.ID, j.Kind)
	}, job.Retry("R10/PT1S"))
	return r
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
