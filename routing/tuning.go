package routing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/tenantconn"
)

// connectTimeout bounds a connect whose DSN sets no bound, and every other step that makes a
// connection fit for use: verifying its database, and scrubbing it.
const connectTimeout = 5 * time.Second

func tuneCommon(c *pgx.ConnConfig, purpose string) {
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	store.FixSettings(c)
	c.RuntimeParams["application_name"] = "tenure " + purpose
}

func tuneForJobs(c *pgxpool.Config) {
	store.FixLedgerSettings(c.ConnConfig)
	store.Fix(c.ConnConfig, plans)
	c.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "60s"
	connected := c.AfterConnect
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		store.BoundTimes(conn.TypeMap())
		return connected(ctx, conn)
	}
}

// plans gives job SQL the one right plan: every statement walks an index, and a
// plan made while a table was small must not become a scan of millions.
var plans = map[string]string{
	"enable_seqscan":       "off",
	"enable_bitmapscan":    "off",
	"enable_hashjoin":      "off",
	"enable_mergejoin":     "off",
	"enable_indexscan":     "on",
	"enable_indexonlyscan": "on",
	"enable_nestloop":      "on",
	"plan_cache_mode":      "force_generic_plan",
}

// tuneForTenants has every statement described each time and keeps none. The next
// tenant's tables may differ: a named statement would fail there, or be planned
// again, and a remembered description would have arguments sent as the types of the
// tenant before, such as an enum that does not exist in the next schema. Every
// connection is scrubbed after use.
func tuneForTenants(c *pgxpool.Config) {
	c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	c.ConnConfig.StatementCacheCapacity = 0
	c.ConnConfig.DescriptionCacheCapacity = 0
	connected := c.AfterConnect
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		addScrubber(conn)
		return connected(ctx, conn)
	}
	c.AfterRelease = scrub
}

// tuneForLock makes a statement on the lock fail long before the lock expires. Nothing
// is prepared: a node that only watches a lock connects for each look.
func tuneForLock(c *pgx.ConnConfig) {
	store.FixLedgerSettings(c)
	store.Fix(c, plans)
	c.AfterConnect = nil // its transactions are short, and it is opened often
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	c.StatementCacheCapacity, c.DescriptionCacheCapacity = 0, 0 // they would take more memory than all else of an idle pool
	// What a caller's session has, in which the ledger's functions run as well, shows here: see store.Usable.
	delete(c.RuntimeParams, "standard_conforming_strings")
	c.RuntimeParams["statement_timeout"] = "2500"
	c.RuntimeParams["lock_timeout"] = "2000"
	c.RuntimeParams["idle_in_transaction_session_timeout"] = "5000"
}

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
		tenantconn.Of(conn.PgConn()).Deadline = true
		return connected(ctx, conn)
	}
}

// What marks a connection on which something was refused because transactions are read-only.
const (
	readOnlyKey  = "tenure.readonly"
	codeReadOnly = "25006" // read_only_sql_transaction
)

// dropReadOnly closes connections that have refused to write, once they are released, if their session is read-only
// without a handler's doing: it keeps the default_transaction_read_only that its user or database had when it began,
// also when that is mended.
func dropReadOnly(c *pgxpool.Config) {
	failed, released := c.ConnConfig.OnPgError, c.AfterRelease
	c.ConnConfig.OnPgError = func(pc *pgconn.PgConn, e *pgconn.PgError) bool {
		if e.Code == codeReadOnly {
			pc.CustomData()[readOnlyKey] = true
		}
		return failed(pc, e)
	}
	c.AfterRelease = func(conn *pgx.Conn) bool {
		if released != nil && !released(conn) {
			return false
		}
		data := conn.PgConn().CustomData()
		if data[readOnlyKey] == nil {
			return true
		}
		delete(data, readOnlyKey)
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		var readOnly bool
		err := conn.QueryRow(ctx, "SELECT pg_catalog.current_setting('default_transaction_read_only')::pg_catalog.bool").Scan(&readOnly)
		return err == nil && !readOnly
	}
}

// addTypes has connections know the program's own types as well.
func addTypes(c *pgxpool.Config, types Types) {
	if types == nil {
		return
	}
	connected := c.AfterConnect
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := connected(ctx, conn); err != nil {
			return err
		}
		if err := types(ctx, conn); err != nil {
			return fmt.Errorf("register types (tenure.WithTypes): %w", err)
		}
		return nil
	}
}

// scrubberKey marks connections for tenants.
const scrubberKey = "tenure.scrubber"

// scrubber keeps what is known of a connection's session since it was scrubbed.
type scrubber struct {
	done   bool   // by the last message of its user
	dblink string // the schema of dblink, as SQL writes it; "": the database has none
	pooled bool   // there is no session: another message would scrub another
}

func addScrubber(c *pgx.Conn) {
	s, rules := &scrubber{}, tenantconn.Of(c.PgConn())
	c.PgConn().CustomData()[scrubberKey] = s
	rules.Scrub, rules.Scrubbed = scrubStatements, s.noteDone
}

// noteDone takes in what the statements have returned.
func (s *scrubber) noteDone(results []*pgconn.Result) {
	columns := results[len(results)-1].Rows[0]
	s.done, s.dblink = true, string(columns[len(columns)-1]) // null: ""
}

// scrub scrubs a connection after its user, unless its user's last message has done so.
func scrub(c *pgx.Conn) bool {
	s := c.PgConn().CustomData()[scrubberKey].(*scrubber)
	if !s.pooled && (!s.done || s.dblink != "") {
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		if !s.finish(ctx, c) {
			return false
		}
	}
	s.done = false // its next user has it
	var err error
	for err == nil { // what was notified has arrived by now, and is handed out although the context has ended
		_, err = c.WaitForNotification(ended)
	}
	return !c.IsClosed()
}

// finish does what is left to do.
func (s *scrubber) finish(ctx context.Context, c *pgx.Conn) bool {
	if !s.done {
		results, err := c.PgConn().Exec(ctx, scrubStatements()).ReadAll()
		if err != nil {
			return false
		}
		s.noteDone(results)
	}
	return s.dblink == "" || closeDblink(ctx, c, s.dblink)
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// scrubStatements take off a session what a handler may have left on it. They do what DISCARD ALL does, but keep
// the plans, which PL/pgSQL would have to make again for every job. They also reset what DISCARD ALL leaves: the seed
// of random(), and the connections of dblink; the last column says in which schema that is.
func scrubStatements() string {
	return scrubSession +
		"SELECT pg_catalog.pg_advisory_unlock_all(), " + "pg_catalog.setseed(" + newSeed() + "), " +
		"(SELECT extnamespace::pg_catalog.regnamespace FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'dblink')"
}

const scrubSession = "SET SESSION AUTHORIZATION DEFAULT; " + "RESET ALL; " + "CLOSE ALL; " + "UNLISTEN *; " + "DEALLOCATE ALL; " + "DISCARD TEMP; " + "DISCARD SEQUENCES; "

func newSeed() string { return strconv.FormatFloat(2*rand.Float64()-1, 'f', -1, 64) }

// closeDblink closes the connections that a handler has opened by dblink, those with a name
// and the one without; false: it could not.
func closeDblink(ctx context.Context, c *pgx.Conn, schema string) bool {
	_, err := c.Exec(ctx, fmt.Sprintf("SELECT %[1]s.dblink_disconnect(name) FROM pg_catalog.unnest(%[1]s.dblink_get_connections()) AS name", schema))
	if err != nil {
		return false
	}
	_, err = c.Exec(ctx, fmt.Sprintf("SELECT %s.dblink_disconnect()", schema))
	var none *pgconn.PgError
	return err == nil || errors.As(err, &none) && none.Code == "08003" // connection_does_not_exist
}
