package execution

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/internal/tenantconn"
	"github.com/tenurehq/tenure/tenancy"
)

// beginTenantTx gets a connection for a transaction of the tenant, and sets the tenant up in it. Where
// a pooler has led to another database than before, it tries once more: the way there is looked at again
// then.
//
// With a memory the transaction begins with the first statement that is sent in it, by one message: the
// connection has answered within the last second. Without one, and through a pooler, it begins here.
func beginTenantTx(ctx context.Context, db Conns, t tenancy.Tenant, m *memory) (*tenantTx, error) {
	tx, err := tryTenantTx(ctx, db, t, m)
	if ledElsewhere(err) {
		return tryTenantTx(ctx, db, t, m)
	}
	return tx, err
}

func tryTenantTx(ctx context.Context, db Conns, t tenancy.Tenant, m *memory) (*tenantTx, error) {
	conn, leave, err := db.AcquireFor(ctx, t.ID)
	if err != nil {
		return nil, &noConnectionError{fmt.Errorf("get a connection for tenant %q: %w", t.ID, err)}
	}
	h := &handle{
		pooled: conn, conn: conn.Conn(), leave: leave, tenant: t, role: cmp.Or(t.Role, "none"), memory: m,
		lock: make(chan struct{}, 1), dead: make(chan struct{}),
	}
	before, within, pooled := beginning(h.conn)
	h.behindPooler = pooled
	h.opening = func() []string {
		return []string{before + "BEGIN ISOLATION LEVEL READ COMMITTED", within + h.becoming(ctx)}
	}
	if m == nil || pooled {
		if err := h.begin(ctx); err != nil {
			destroyConn(conn) // it may stand in the failed transaction
			leave()
			return nil, err
		}
	}
	return &tenantTx{handle: h}, nil
}

// becoming is the statement that makes the transaction the tenant's. tenure.begin_tenant does not know what
// a tenant has in common with others: what is searched, too, is set behind it.
func (h *handle) becoming(ctx context.Context) string {
	t := h.tenant
	become := fmt.Sprintf("tenure.begin_tenant(%s, %s, %s)", quoteAnyhow(t.Schema, ""), quoteAnyhow(t.Role, ""), quoteAnyhow(string(t.ID), ""))
	if t.Shared != "" {
		become += ", pg_catalog.set_config('search_path', " + quoteAnyhow(searchPath(quoteName(t.Schema), t.Shared), "") + ", true)"
	}
	return "SELECT " + timeoutsFor(ctx, h.conn) + become
}

// searchPath is what SET search_path takes, of names that are quoted.
func searchPath(schema, shared string) string {
	if shared != "" {
		schema += ", " + shared
	}
	return schema + ", pg_temp"
}

// timeoutsFor gives the statements of a transaction, and its idle times, as long as ctx has; a
// process that stands still, or that the server does not hear any more, holds its locks no
// longer. They get cancelGrace more: that the deadline has passed is first told to the handler,
// and to the server by a cancel. Without a deadline the connection's own timeouts hold.
func timeoutsFor(ctx context.Context, conn *pgx.Conn) string {
	deadline, has := ctx.Deadline()
	if !has || !tenantconn.Of(conn.PgConn()).Deadline {
		return ""
	}
	ms := min(max(time.Until(deadline), 0).Milliseconds()+cancelGrace.Milliseconds(), math.MaxInt32)
	return fmt.Sprintf("pg_catalog.set_config('statement_timeout', '%d', true), pg_catalog.set_config('idle_in_transaction_session_timeout', '%[1]d', true), ", ms)
}

// begin begins the transaction, unless that is done.
func (h *handle) begin(ctx context.Context) error {
	if h.void != nil || h.opening == nil {
		return h.void
	}
	_, err := h.conn.PgConn().Exec(ctx, strings.Join(h.opening(), "; ")).ReadAll()
	return h.noteBegun(err)
}

// noteBegun takes in how the transaction has begun. What Postgres answers makes the transaction void, whatever
// the handler makes of it. A connection that broke instead is a statement's failure like others, and so is that
// the handler's own context ended the statement while the transaction began: it has failed then, and stays so.
func (h *handle) noteBegun(err error) error {
	if err == nil {
		h.opening = nil
		return nil
	}
	t := h.tenant
	var answer *pgconn.PgError
	gone := elsewhereError(err, t.ID)
	if gone == nil {
		gone = fmt.Errorf("open a transaction for tenant %q: %w%s", t.ID, err, placeMend(err, t, h.conn.Config().User))
	}
	if errors.As(err, &answer) && answer.Code != codeCancelled && answer.Code != codeInFailed {
		h.void = gone
	}
	return gone
}

const (
	codeCancelled = "57014" // query_canceled
	codeInFailed  = "25P02" // in_failed_sql_transaction
)

// whyVoid says why nothing that the handler did counts: the transaction did not begin, or a statement went out
// with types that have changed. With begin it has the transaction begin, if the handler has sent nothing. nil also
// while another goroutine, which the handler has left behind, is in a call: nobody knows then.
func (h *handle) whyVoid(ctx context.Context, begin bool) error {
	if !h.revoked {
		select {
		case h.lock <- struct{}{}:
			defer func() { <-h.lock }()
		default:
			return nil
		}
	}
	if begin {
		_ = h.begin(ctx) // the connection's own failure is told apart later
	}
	return h.void
}
