package routing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/tenantconn"
)

// pooled is a way to a pool's database that leads through a pooler, such as PgBouncer in
// transaction mode, for tenants' transactions. A connection there is no session: each
// transaction, and each message outside of one, may reach another, on which others have worked
// meanwhile, and behind which another server may be. What a transaction needs of its session is
// therefore in the message that begins it: the session is scrubbed, the server is asked whether
// it is still the one that was checked, and what the DSN and the configuration set is set for
// this transaction. Safe for concurrent use.
type pooled struct {
	dsn      *pgxpool.Config        // what tenant_dsn says
	name     atomic.Pointer[string] // of the database that the pool's own DSN leads to; nil: not known yet
	database atomic.Pointer[string] // where it leads, as was checked last (store.ServerState); nil: to be checked
}

// begunKey holds what database a connection's last transaction was to be in.
const begunKey = "tenure.begun"

// codeOtherDatabase is the SQLSTATE of tenure.require_database.
const codeOtherDatabase = "TN005"

// tune makes connections for tenants, which are tuned as if they led to sessions, fit for a
// pooler. Parameters at the start are not passed on by PgBouncer, or refused.
func (w *pooled) tune(c *pgxpool.Config) {
	settings := w.takeSettings(c.ConnConfig)
	sendNoCancels(c.ConnConfig)
	connected, prepared, failed := c.AfterConnect, c.PrepareConn, c.ConnConfig.OnPgError
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		data := conn.PgConn().CustomData()
		rules := tenantconn.Of(conn.PgConn())
		rules.Begin = func() (before, within string) {
			at := w.database.Load()
			data[begunKey] = at
			return w.begin(settings, at)
		}
		if err := connected(ctx, conn); err != nil {
			return err
		}
		rules.Scrub = scrubPooled
		data[scrubberKey].(*scrubber).pooled = true
		return w.noteDatabase(conn)
	}
	c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		if w.database.Load() == nil {
			return false, nil
		}
		return prepared(ctx, conn)
	}
	c.ConnConfig.OnPgError = func(pc *pgconn.PgConn, e *pgconn.PgError) bool {
		if e.Code == codeOtherDatabase { // the next connection finds out what is there now
			at, _ := pc.CustomData()[begunKey].(*string)
			w.database.CompareAndSwap(at, nil) // unless it was found out since
			return false
		}
		return failed(pc, e)
	}
}

// takeSettings takes what a connection would be opened with out of its configuration, and returns
// the statement that sets it for a transaction.
func (w *pooled) takeSettings(c *pgx.ConnConfig) string {
	params := c.RuntimeParams
	c.RuntimeParams = map[string]string{}
	if _, own := params[checkInterval]; !own { // see sendNoCancels
		params[checkInterval] = "1s"
	}
	return setLocally(params)
}

const checkInterval = "client_connection_check_interval"

// sendNoCancels has a call whose context ends close its connection, and ask for nothing: a
// request to cancel it may cancel another client's statement in PgBouncer before 1.18, and ends
// PgBouncer itself in 1.18. The pooler closes the session then, whose server looks each second
// whether it was.
func sendNoCancels(c *pgx.ConnConfig) {
	c.BuildContextWatcherHandler = func(pc *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: pc.Conn()}
	}
	dial := c.DialFunc
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if network == noCancel {
			return nil, errNoCancel
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return pooledConn{conn}, nil
	}
}

// pooledConn is a connection to a pooler. pgx sends requests to cancel to where it leads.
type pooledConn struct{ net.Conn }

// RemoteAddr implements net.Conn.
func (pooledConn) RemoteAddr() net.Addr { return nowhere{} }

type nowhere struct{}

const noCancel = "no requests to cancel"

func (nowhere) Network() string { return noCancel }
func (nowhere) String() string  { return "" }

var errNoCancel = errors.New("poolers are sent no requests to cancel a statement")

// noteDatabase notes where a connection leads that was checked.
func (w *pooled) noteDatabase(c *pgx.Conn) error {
	is, _ := c.PgConn().CustomData()[stateKey].(store.ServerState)
	_, name, _ := strings.Cut(is.Database, "/")
	if want := w.name.Load(); want != nil && name != *want {
		return fmt.Errorf("tenant_dsn leads to database %q, and dsn to %q", name, *want)
	}
	w.database.Store(&is.Database)
	return nil
}

// begin is how a transaction begins: what comes before its own BEGIN, and what comes right
// behind it.
func (w *pooled) begin(settings string, at *string) (before, within string) {
	is := ""
	if at != nil {
		is = *at
	}
	return "BEGIN; " + scrubPooled() + "; COMMIT; ", settings + "SELECT tenure.require_database(" + quoteEscaped(is) + "); "
}

// scrubPooled is scrubStatements, with the connections of dblink closed by the same message.
func scrubPooled() string {
	return scrubSession + "SELECT pg_catalog.pg_advisory_unlock_all(), pg_catalog.setseed(" + newSeed() + "), tenure.close_dblink()"
}

// setLocally is what sets for one transaction what is otherwise set for a connection. The
// isolation is left out: a transaction has said it when it began.
func setLocally(params map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if name != "default_transaction_isolation" {
			all = append(all, "pg_catalog.set_config("+quoteEscaped(name)+", "+quoteEscaped(params[name])+", true)")
		}
	}
	return "SELECT " + strings.Join(all, ", ") + "; " // there is application_name, at least
}

// quoteEscaped quotes s for SQL whatever standard_conforming_strings is on the session.
func quoteEscaped(s string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
}

// inspect looks whether the way can be used, and leads to the database that the pool's own DSN
// leads to: when it started, and its name.
func (w *pooled) inspect(ctx context.Context, p *Pool, database string) error {
	tuned := w.dsn.Copy()
	tuneCommon(tuned.ConnConfig, "tenants")
	boundTenants(tuned, p.bounds)
	cfg := tuned.ConnConfig
	renewSecrets(cfg, p.latest.Load().TenantDSN)
	settings := w.takeSettings(cfg)
	sendNoCancels(cfg)
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return store.Denied(p.Name, cfg, fmt.Errorf("connect by tenant_dsn: %w", err))
	}
	defer closeInTime(ctx, c)
	if _, err := c.Exec(ctx, "SELECT 1"); err != nil {
		return fmt.Errorf("ask what tenant_dsn leads to: %w", err)
	}
	if _, err := c.Exec(ctx, "BEGIN"); store.BehindPooler(err) { // although it has answered before
		return &store.PoolError{Pool: p.Name, What: fmt.Sprintf("what its tenant_dsn leads to refuses transactions of several messages, as PgBouncer in statement mode (%v)", err),
			Fix: "set pool_mode = transaction for this database in pgbouncer.ini, and RELOAD"}
	} else if err != nil {
		return fmt.Errorf("begin a transaction by tenant_dsn: %w", err)
	}
	if _, err := c.Exec(ctx, settings); err != nil {
		return (&store.PoolError{Pool: p.Name, What: fmt.Sprintf("its tenants' transactions cannot be given the settings of its tenant_dsn: %v", err),
			Fix: "take them out of tenant_dsn, and set them by ALTER ROLE"}).Because(err)
	}
	var pid uint32
	if err := c.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()").Scan(&pid); err != nil {
		return fmt.Errorf("ask what tenant_dsn leads to: %w", err)
	}
	is, err := store.ServerIs(ctx, c)
	if err != nil {
		return err
	}
	if is.Database != database {
		return &store.PoolError{Pool: p.Name, What: "its tenant_dsn leads to another database than its dsn, or to another server",
			Fix: "have both lead to the same primary: host and dbname under [databases] in pgbouncer.ini, and the DSNs"}
	}
	if pid == c.PgConn().PID() {
		p.log.Warn("tenant_dsn leads to Postgres itself; leave it out, and the connections of tenants' transactions are sessions and are counted against the server's")
	}
	_, name, _ := strings.Cut(database, "/")
	w.name.Store(&name)
	return nil
}
