package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// Listen makes the server tell a connection of what SQL enqueues, or stop that.
func Listen(ctx context.Context, conn *pgx.Conn, on bool) error {
	sql := sqlUnlisten
	if on {
		sql = sqlListen
	}
	_, err := conn.Exec(ctx, sql)
	return explain(err, "listen to what is enqueued")
}

// Notify tells the holder of a pool's lock by its database what a hint would tell by gossip: which
// jobs were enqueued; none: it is to look.
func Notify(ctx context.Context, db DB, jobs []job.ID) error {
	_, err := db.Exec(ctx, sqlNotify, arrayText(jobs))
	return explain(err, "tell the holder of jobs")
}

// Notified looks up jobs that somebody says were enqueued: in which lanes they wait, and when the first
// one is due that is for later; 0: none is.
func Notified(ctx context.Context, db DB, jobs []job.ID) (lanes []Lane, dueIn time.Duration, err error) {
	var (
		lane Lane
		due  *int64
	)
	rows, _ := db.Query(ctx, sqlNotified, arrayText(jobs))
	_, err = pgx.ForEachRow(rows, []any{&lane.Queue, &lane.Tenant, &lane.Priority, &due}, func() error {
		if due == nil {
			lanes = append(lanes, lane)
		} else {
			dueIn = max(time.Duration(*due)*time.Millisecond, time.Nanosecond)
		}
		return nil
	})
	return lanes, dueIn, explain(err, "look up jobs that were enqueued")
}
