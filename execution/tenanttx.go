package execution

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/tenancy"
)

// ErrTxRevoked is returned by a transaction handle that was used after its
// handler had returned.
var ErrTxRevoked = errors.New("this transaction belonged to a job that has ended")

// errNotYours is returned to a handler that ends the job's transaction itself.
var errNotYours = errors.New("the job's transaction is committed together with the job: return nil to commit, an error to roll back")

type txKey struct{}

// TxFromContext returns the tenant's transaction of a handler that runs in one.
func TxFromContext(ctx context.Context) (pgx.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*tenantTx)
	return tx, ok
}

// InTx runs fn in a transaction of the tenant on db and commits it when fn
// returns nil. Within it the schema is first on the search path, the role is
// taken and app.tenant_id is set, all for this transaction only.
func InTx(ctx context.Context, db *pgxpool.Pool, t tenancy.Tenant, fn func(ctx context.Context, tx pgx.Tx) error) error {
	tx, err := beginTenantTx(ctx, db, t)
	if err != nil {
		return err
	}
	defer tx.close()
	err = fn(context.WithValue(ctx, txKey{}, tx), tx)
	tx.handle.returned = true
	if err != nil {
		return err
	}
	return tx.commit(ctx, nil)
}

// doInTx runs the handler in its tenant's transaction, in which the job is
// finished too: their effects and the job's end commit together or not at all.
func (r *run) doInTx(ctx context.Context) (finished bool, err error) {
	c := r.claim
	tx, err := beginTenantTx(ctx, c.Owner.Tenants(), *c.Tenant)
	if err != nil {
		return false, err
	}
	defer tx.close()
	err = r.spec.Handle(context.WithValue(ctx, txKey{}, tx), &c.Record)
	tx.handle.returned = true
	if err != nil {
		return false, err
	}
	if err := tx.commit(ctx, func(b *pgx.Batch) { c.Owner.QueueFinish(b, c) }); err != nil {
		// Whether an unanswered COMMIT took place is found out by the failure that
		// is now reported: it finds the job's row gone if it did.
		return false, c.Owner.FinishError(err)
	}
	return true, nil
}

// handle is what a job's transaction and its savepoints share.
type handle struct {
	conn *pgxpool.Conn
	role string
	// lock is held, by having its one place, during a call. A channel, so that
	// waiting for it can be given up.
	lock    chan struct{}
	revoked bool // guarded by lock
	raw     bool // guarded by lock; the handler has had the bare connection

	returned bool // written by the owner only: the handler returned, rather than panicked
	ended    bool // written by the owner only: committed, nothing left to do
}

// tenantTx is what a handler gets: a pgx.Tx that stops working when the handler
// has returned and cannot end the job's transaction. As with any pgx.Tx, one
// goroutine at a time may use it.
type tenantTx struct {
	handle    *handle
	tx        pgx.Tx
	savepoint bool
}

var _ pgx.Tx = (*tenantTx)(nil)

// beginTenantTx opens the transaction and sets the tenant up in one round trip.
func beginTenantTx(ctx context.Context, db *pgxpool.Pool, t tenancy.Tenant) (*tenantTx, error) {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("get a connection for tenant %q: %w", t.ID, err)
	}
	begin := fmt.Sprintf("BEGIN; SELECT tenure.enter_tenant(%s, %s, %s)", literal(t.Schema), literal(t.Role), literal(string(t.ID)))
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		discard(conn) // it may stand in the failed transaction
		return nil, fmt.Errorf("open a transaction for tenant %q: %w", t.ID, err)
	}
	return &tenantTx{handle: &handle{conn: conn, role: t.Role, lock: make(chan struct{}, 1)}, tx: tx}, nil
}

// literal quotes s for SQL; standard_conforming_strings is on, and routing has
// refused names with NUL.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// leaveTenant puts the pool's own user back.
const leaveTenant = "SELECT set_config('role', 'none', true), set_config('search_path', '', true)"

// commit takes the handle away, leaves the tenant's role and schema, adds what
// finish has to add, and commits, all in one round trip.
func (t *tenantTx) commit(ctx context.Context, finish func(*pgx.Batch)) error {
	h := t.handle
	if err := h.revoke(); err != nil {
		return err
	}
	switch pc := h.conn.Conn().PgConn(); {
	case pc.IsBusy():
		return errors.New("the handler returned with open rows or an open batch: close them")
	case pc.TxStatus() == 'E':
		return errors.New("a statement of the handler failed and the transaction with it, but the handler returned nil: return the error, or guard the statement by a savepoint (tx.Begin)")
	case pc.TxStatus() != 'T':
		return errors.New("the handler ended the job's transaction by SQL; its effects stand, and the job's end could not be tied to them")
	}
	var b pgx.Batch
	b.Queue(leaveTenant)
	if finish != nil {
		finish(&b)
	}
	b.Queue("COMMIT")
	if err := h.conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	h.ended = true
	return nil
}

// close takes the handle away and gives the connection back, to be scrubbed by
// its pool; after a panic, raw access or anything unclean it is destroyed.
func (t *tenantTx) close() {
	h := t.handle
	clean := h.revoke() == nil && h.returned
	pc := h.conn.Conn().PgConn()
	if !clean || h.raw || pc.IsClosed() || pc.IsBusy() {
		discard(h.conn)
		return
	}
	if !h.ended {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout) // the run's own context may be over
		defer cancel()
		if err := t.tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			discard(h.conn)
			return
		}
	}
	h.conn.Release()
}

// releaseTimeout bounds what is done to a connection after its job.
const releaseTimeout = time.Second

// revoke makes the handle dead. It waits a moment for a call that some goroutine
// of the handler left behind is still in.
func (h *handle) revoke() error {
	wait := time.NewTimer(releaseTimeout)
	defer wait.Stop()
	select {
	case h.lock <- struct{}{}:
		h.revoked = true
		<-h.lock
		return nil
	case <-wait.C:
		return errors.New("the handler returned while another goroutine of it uses the transaction")
	}
}

// discard destroys a connection instead of giving it back.
func discard(conn *pgxpool.Conn) {
	c := conn.Hijack()
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	_ = c.Close(ctx) // a connection that cannot even be closed is gone as well
}

// enter begins a call; leave ends it.
func (h *handle) enter(ctx context.Context) error {
	select {
	case h.lock <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if h.revoked {
		<-h.lock
		return ErrTxRevoked
	}
	return nil
}

func (h *handle) leave() { <-h.lock }

// Begin opens a savepoint. It ends with the handler's return at the latest.
func (t *tenantTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.handle.enter(ctx); err != nil {
		return nil, err
	}
	defer t.handle.leave()
	tx, err := t.tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &tenantTx{handle: t.handle, tx: tx, savepoint: true}, nil
}

// Commit releases a savepoint; the transaction itself commits with the job.
func (t *tenantTx) Commit(ctx context.Context) error { return t.end(ctx, t.tx.Commit) }

// Rollback goes back to a savepoint; to roll the transaction itself back, return
// an error.
func (t *tenantTx) Rollback(ctx context.Context) error { return t.end(ctx, t.tx.Rollback) }

func (t *tenantTx) end(ctx context.Context, how func(context.Context) error) error {
	if !t.savepoint {
		return errNotYours
	}
	if err := t.handle.enter(ctx); err != nil {
		return err
	}
	defer t.handle.leave()
	return how(ctx)
}

// Exec implements pgx.Tx.
func (t *tenantTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.handle.enter(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer t.handle.leave()
	return t.tx.Exec(ctx, sql, args...)
}

// Query implements pgx.Tx. Close the rows before the handler returns.
func (t *tenantTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.handle.enter(ctx); err != nil {
		return nil, err
	}
	defer t.handle.leave()
	return t.tx.Query(ctx, sql, args...)
}

// QueryRow implements pgx.Tx.
func (t *tenantTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.handle.enter(ctx); err != nil {
		return failed{err}
	}
	defer t.handle.leave()
	return t.tx.QueryRow(ctx, sql, args...)
}

// SendBatch implements pgx.Tx. Close the results before the handler returns.
func (t *tenantTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.handle.enter(ctx); err != nil {
		return failed{err}
	}
	defer t.handle.leave()
	return t.tx.SendBatch(ctx, b)
}

// CopyFrom implements pgx.Tx.
func (t *tenantTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.handle.enter(ctx); err != nil {
		return 0, err
	}
	defer t.handle.leave()
	return t.tx.CopyFrom(ctx, table, columns, src)
}

// Prepare implements pgx.Tx. The connection is destroyed after the job, as
// scrubbing keeps prepared statements.
func (t *tenantTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.handle.enter(ctx); err != nil {
		return nil, err
	}
	defer t.handle.leave()
	t.handle.raw = true
	return t.tx.Prepare(ctx, name, sql)
}

// LargeObjects implements pgx.Tx. Its calls bypass the handle, so the connection
// is destroyed after the job.
func (t *tenantTx) LargeObjects() pgx.LargeObjects {
	t.bare()
	return t.tx.LargeObjects()
}

// Conn gives the bare connection, which is destroyed after the job: nobody can
// know what was done to it.
func (t *tenantTx) Conn() *pgx.Conn {
	t.bare()
	return t.handle.conn.Conn()
}

func (t *tenantTx) bare() {
	if t.handle.enter(context.Background()) == nil { // a revoked connection gets destroyed or is another job's
		t.handle.raw = true
		t.handle.leave()
	}
}

// AsPool runs one statement of the ledger in this transaction as the pool's own
// user, not the tenant's role, in one round trip.
func (t *tenantTx) AsPool(ctx context.Context, sql string, args ...any) pgx.Row {
	if t.handle.role == "" {
		return t.QueryRow(ctx, sql, args...)
	}
	var b pgx.Batch
	b.Queue("SELECT set_config('role', 'none', true)")
	b.Queue(sql, args...)
	b.Queue("SELECT set_config('role', $1, true)", t.handle.role)
	return &asPoolRow{t.SendBatch(ctx, &b)}
}

// asPoolRow is the second result of AsPool's batch.
type asPoolRow struct{ results pgx.BatchResults }

func (r *asPoolRow) Scan(dest ...any) error {
	if _, err := r.results.Exec(); err != nil {
		return errors.Join(err, r.results.Close())
	}
	scanErr := r.results.QueryRow().Scan(dest...)
	closeErr := r.results.Close()
	if scanErr != nil {
		return scanErr
	}
	return closeErr
}

// failed answers every use of a batch or row with one error.
type failed struct{ err error }

func (f failed) Scan(...any) error                { return f.err }
func (f failed) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, f.err }
func (f failed) Query() (pgx.Rows, error)         { return nil, f.err }
func (f failed) QueryRow() pgx.Row                { return f }
func (f failed) Close() error                     { return f.err }
func (f failed) Tx() pgx.Tx                       { return nil }
