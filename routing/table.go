package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// TableConn is tenants.table without a [Router], for who looks at it from outside. It is used by one goroutine.
type TableConn struct {
	cfg    Config
	owners map[schemaIn]tenancy.ID
	conn   *pgx.Conn
}

// ConnectTable connects to the database of tenants.table as the user whom nodes ask it as.
func (c Config) ConnectTable(ctx context.Context) (*TableConn, error) {
	owners, err := c.Tenants.owners()
	if err != nil {
		return nil, err
	}
	conn, err := c.connectForTenants(ctx, c.Tenants.Table.Pool)
	if err != nil {
		return nil, err
	}
	return &TableConn{c, owners, conn}, nil
}

// connectForTenants connects as tenants' transactions in a pool do.
func (c Config) connectForTenants(ctx context.Context, pool string) (*pgx.Conn, error) {
	p := c.Pools[pool]
	to, err := pgxpool.ParseConfig(cmp.Or(p.TenantDSN, p.DSN)) // the others' settings are no parameters of a connection
	if err != nil {
		return nil, errBadDSN
	}
	to.ConnConfig.RuntimeParams["application_name"] = "tenure doctor"
	if p.TenantDSN != "" { // a pooler may refuse parameters
		to.ConnConfig.RuntimeParams = map[string]string{}
	}
	to.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // nothing is prepared, as a pooler may be between
	conn, err := pgx.ConnectConfig(ctx, to.ConnConfig)
	return conn, store.Denied(pool, to.ConnConfig, err)
}

// TryTenants begins a transaction in a pool by its tenant_dsn, and rolls it back. Without one there is nothing to try.
func (c Config) TryTenants(ctx context.Context, pool string) error {
	if c.Pools[pool].TenantDSN == "" {
		return nil
	}
	conn, err := c.connectForTenants(ctx, pool)
	if err != nil {
		return err
	}
	defer closeInTime(ctx, conn)
	_, err = conn.Exec(ctx, "BEGIN; SELECT 1; ROLLBACK")
	return err
}

// Close closes the connection.
func (t *TableConn) Close(ctx context.Context) error { return t.conn.Close(ctx) }

// Check says what keeps the table's query, and what its other statements, from being executed.
func (t *TableConn) Check(ctx context.Context) (query, rest error) {
	table := t.cfg.Tenants.Table
	return table.check(ctx, t.conn), table.checkRest(ctx, t.conn)
}

// List asks the table who lives in a pool; none: it cannot be asked that.
func (t *TableConn) List(ctx context.Context, pool string) ([]tenancy.ID, error) {
	if t.cfg.Tenants.Table.List == "" {
		return nil, nil
	}
	return t.cfg.Tenants.Table.list(ctx, t.conn, pool)
}

// Placed is what the table says of a tenant: where it lives or, with an error, why it lives nowhere: tenancy.ErrUnknownTenant or a *RouteError.
type Placed struct {
	tenancy.Tenant
	Err error
}

// Ask asks the table for tenants, all at once.
func (t *TableConn) Ask(ctx context.Context, ids []tenancy.ID) (out []Placed, err error) {
	batch := &pgx.Batch{}
	for _, id := range ids {
		batch.Queue(t.cfg.Tenants.Table.Query, string(id))
	}
	results := t.conn.SendBatch(ctx, batch)
	defer func() {
		if closed := results.Close(); err == nil { // else it says the same
			err = closed
		}
	}()
	for _, id := range ids {
		rows, _ := results.Query() // its error is the rows', too
		place, err := t.cfg.Tenants.readPlace(id, rows, t.owners)
		if err == nil {
			err = t.cfg.checkPlace(place)
		}
		if !isAnswer(err) {
			return nil, t.cfg.Tenants.Table.explain(err, t.conn)
		}
		place.ID = id
		out = append(out, Placed{place, err})
	}
	return out, nil
}

// checkPlace refuses a place in no pool, and a role that nodes connect as.
func (c Config) checkPlace(t tenancy.Tenant) error {
	p, ok := c.Pools[t.Pool]
	if !ok {
		return noSuchPool(t)
	}
	if t.Role != "" && slices.Contains(usersOf(p.DSN, p.TenantDSN), t.Role) {
		return nodesRole(t)
	}
	return nil
}

func noSuchPool(t tenancy.Tenant) error {
	return rowError("tenant %q is routed to pool %q, which is not configured: add it under pools, or correct the row", t.ID, t.Pool)
}

func nodesRole(t tenancy.Tenant) error {
	return &RouteError{fmt.Errorf("tenant %q: its role %q is the user that nodes connect to pool %q as, which has all tenants' jobs: give the tenant another role, or have nodes connect as another user", t.ID, t.Role, t.Pool)}
}

// check executes the query for NULL, which is no tenant: a description alone would not say that the user may not.
func (t *TableConfig) check(ctx context.Context, c *pgx.Conn) error {
	return t.tryOut(ctx, c, t.Query, nil)
}

// checkRest is check for the statements that tenants can do without: of a move that changes something the plan is made.
func (t *TableConfig) checkRest(ctx context.Context, c *pgx.Conn) error {
	var errs []error
	if t.List != "" {
		if err := t.tryOut(ctx, c, t.List, nil); err != nil {
			errs = append(errs, fmt.Errorf("list: %w", err))
		}
	}
	if t.Move != "" {
		if err := t.tryOut(ctx, c, "EXPLAIN "+t.Move, nil, nil); err != nil {
			errs = append(errs, fmt.Errorf("move: %w", err))
		}
	}
	return errors.Join(errs...)
}

// tryOut executes a statement. What it raises on NULL, or because one before it has failed in its transaction, is no fault: only what
// Postgres finds wrong with the statement, or the user, is.
func (t *TableConfig) tryOut(ctx context.Context, c *pgx.Conn, sql string, args ...any) error {
	err := drain(c.Query(ctx, sql, args...))
	var pg *pgconn.PgError
	if errors.As(err, &pg) && !strings.HasPrefix(pg.Code, "42") && !strings.HasPrefix(pg.Code, "3F") {
		return nil
	}
	return t.explain(err, c)
}

func drain(rows pgx.Rows, _ error) error { // the error is the rows', too
	rows.Close()
	return rows.Err()
}

// fromTable finds the schema, if it is named, and the table that a query reads.
var fromTable = regexp.MustCompile(`(?i)\bFROM\s+(?:ONLY\s+)?(?:([\w$]+|"[^"]+")\s*\.\s*)?([\w$]+|"[^"]+")\s*(\(?)`)

// TableError says that a user may not execute the statements of tenants.table, and which SQL mends that.
type TableError struct {
	err  error
	Mend string
}

// Error says both.
func (e *TableError) Error() string { return fmt.Sprintf("%v: %s", e.err, e.Mend) }

// Unwrap returns what the database said.
func (e *TableError) Unwrap() error { return e.err }

// explain makes a TableError of an error that says that a connection's user may not.
func (t *TableConfig) explain(err error, c *pgx.Conn) error {
	if !store.NoPrivilege(err) {
		return err
	}
	user := pgx.Identifier{c.Config().User}.Sanitize()
	rights := "SELECT"
	if t.Move != "" {
		rights += ", UPDATE"
	}
	grants := fmt.Sprintf("GRANT USAGE on the schema of what the query reads, and %s on the table or EXECUTE on the function, TO %s", rights, user)
	if at := fromTable.FindStringSubmatch(t.Query); at != nil && at[3] == "" {
		schema, table := at[1], at[2]
		grants = fmt.Sprintf("GRANT %s ON %s TO %s", rights, table, user)
		if schema != "" {
			grants = fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s; GRANT %s ON %[1]s.%[4]s TO %[2]s", schema, user, rights, table)
		}
	}
	return &TableError{err, fmt.Sprintf("execute in pool %s, as its owner: %s", t.Pool, grants)}
}
