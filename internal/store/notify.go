package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Listen has a connection told of what SQL enqueues, or not any more.
func Listen(ctx context.Context, conn *pgx.Conn, on bool) error {
	sql := sqlUnlisten
	if on {
		sql = sqlListen
	}
	_, err := conn.Exec(ctx, sql)
	return explain(err, "listen to what is enqueued")
}

// Notify tells the holder of a pool's lock by its database what by gossip a hint would tell.
func Notify(ctx context.Context, db DB, hint string) error {
	_, err := db.Exec(ctx, sqlNotify, hint)
	return explain(err, "tell the holder of jobs")
}
