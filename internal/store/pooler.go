package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errPooled is that a connection is no session.
var errPooled = errors.New("transactions of one connection reach different sessions")

// BehindPooler tells whether a connect failed because something in between, such as
// PgBouncer, does not pass a session's settings on.
func BehindPooler(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "08P01" // protocol_violation; Postgres itself would know the parameters
}

// RequireSession refuses a connection that is no session with the settings that its configuration
// has, of which lock_timeout is looked at. direct: it leads to Postgres itself, and not to
// something in between that keeps sessions, such as a proxy.
func RequireSession(ctx context.Context, c *pgx.Conn, pool string) (direct bool, err error) {
	var timeout string
	var pid uint32
	err = c.QueryRow(ctx, sqlPoolSettings, pgx.QueryExecModeExec).Scan(&timeout, &pid)
	if err == nil {
		direct, err = keepsSession(ctx, c, pid)
	}
	if err == nil && timeout != c.Config().RuntimeParams["lock_timeout"] || errors.Is(err, errPooled) {
		return false, NoSession(pool)
	}
	return direct, explain(err, "ask for the session's settings")
}

// NoSession says that a pool's DSN leads to a pooler.
func NoSession(pool string) error {
	return &PoolError{pool, "what its DSN leads to keeps no session with its settings, as PgBouncer in transaction mode",
		"point dsn at Postgres itself, as locks and migrations need a session; the transactions of tenants may go through a pooler, by tenant_dsn"}
}

// keepsSession refuses a connection that is no session: pid is the process that has
// answered on it. Postgres itself tells a client whose process it got, and a pooler makes a number
// up. Whether it parts transactions shows with a second connection, which gets the same
// process, or takes it away. Other things in between, such as a proxy, keep the session.
func keepsSession(ctx context.Context, c *pgx.Conn, pid uint32) (direct bool, err error) {
	if pid == c.PgConn().PID() {
		return true, nil
	}
	other, err := pgx.ConnectConfig(ctx, c.Config())
	if err != nil {
		return false, fmt.Errorf("connect once more, to see what is in between: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = other.Close(ctx)
	}()
	var others, again uint32
	tx, err := other.Begin(ctx)
	if err == nil {
		err = tx.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()", pgx.QueryExecModeExec).Scan(&others)
	}
	if err == nil {
		err = c.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()", pgx.QueryExecModeExec).Scan(&again)
	}
	switch {
	case err != nil && !errors.As(err, new(*pgconn.PgError)):
		return false, fmt.Errorf("see what is in between: %w", err)
	case err != nil, others == pid, again != pid:
		return false, errPooled
	}
	return false, nil
}
