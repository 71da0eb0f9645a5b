package routing

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// deadlineKey marks a connection on which a tenant's transaction may be given as much time
// as its context has, instead of what it was opened with. Package execution reads it.
const deadlineKey = "tenure.deadline"

// boundTenants bounds what tenants' transactions wait and run for, so that one that waits
// for a lock, or was forgotten, holds up others for so long at most. They are the
// connection's own settings: RESET in a handler brings them back, and so does the scrubbing
// after it. What the DSN says holds instead.
func boundTenants(c *pgxpool.Config, bounds ConnectionsConfig) {
	bound := func(name string, d time.Duration) (own bool) {
		params := c.ConnConfig.RuntimeParams
		if _, own = params[name]; own || strings.Contains(params["options"], name) {
			return true
		}
		params[name] = strconv.FormatInt(d.Milliseconds(), 10)
		return false
	}
	bound("lock_timeout", bounds.LockTimeout)
	statement := bound("statement_timeout", bounds.TransactionTimeout)
	if idle := bound("idle_in_transaction_session_timeout", bounds.TransactionTimeout); idle || statement {
		return
	}
	connected := c.AfterConnect
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		conn.PgConn().CustomData()[deadlineKey] = true
		return connected(ctx, conn)
	}
}
