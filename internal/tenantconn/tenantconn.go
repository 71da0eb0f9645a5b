// Package tenantconn is what package routing knows of a tenant's connection and package execution has to: how
// transactions on it begin, and what cleans its session behind them. Neither imports the other.
package tenantconn

import "github.com/jackc/pgx/v5/pgconn"

// Rules are one connection's. Package routing makes them as it connects; nobody changes them later.
type Rules struct {
	// Begin returns, for a connection that leads through a pooler, what comes before the BEGIN of a transaction, in
	// the same message, and what comes right behind it. Nil: the connection leads to a session of its own.
	Begin func() (before, within string)
	// Scrub returns the statements that clean the session; whoever sends them behind a COMMIT tells Scrubbed their
	// results. Nil: there is nothing to clean.
	Scrub    func() string
	Scrubbed func([]*pgconn.Result)
	// Deadline: the timeouts of statements may follow the transaction's deadline, as the DSN does not set them.
	Deadline bool
}

// key is where a connection keeps its rules, in the place that the driver has for its users.
const key = "tenure.rules"

// Of returns a connection's rules, at first none.
func Of(c *pgconn.PgConn) *Rules {
	rules, ok := c.CustomData()[key].(*Rules)
	if !ok {
		rules = new(Rules)
		c.CustomData()[key] = rules
	}
	return rules
}
