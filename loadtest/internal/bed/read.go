package bed

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/wait"
)

// Ask reads one value from a pool's database, on a connection of its own.
func (b *Bed) Ask(ctx context.Context, pool, sql string, answer any) error {
	conn, err := b.Connect(ctx, pool)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, sql).Scan(answer)
}

// UntilDone waits until no job is left that may still run. It needs none of the
// client's connections, which may all be in use.
func (b *Bed) UntilDone(ctx context.Context) error {
	for _, pool := range b.Pools {
		conn, err := b.Connect(ctx, pool)
		if err != nil {
			return err
		}
		err = wait.Until(ctx, 6*time.Minute, "jobs were left in "+pool, func() (bool, error) {
			var left int
			err := conn.QueryRow(ctx, "SELECT (SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.timer_job)").Scan(&left)
			return left == 0, errors.Join(err, wait.For(ctx, 50*time.Millisecond))
		})
		if err := errors.Join(err, conn.Close(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// finishedJob is when a job came and when it was done.
type finishedJob struct{ Created, Finished time.Time }

// Finished reads those of a pool.
func (b *Bed) Finished(ctx context.Context, pool string) (all []finishedJob, err error) {
	conn, err := b.Connect(ctx, pool)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT created_at, finished_at FROM tenure.completed_job")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[finishedJob])
}
