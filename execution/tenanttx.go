package execution

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
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

// errLate is returned when a transaction was opened too late for its job to start: the
// claim may have been lost meanwhile, or the worker was needed for other pools.
var errLate = errors.New("the transaction was not open in time for the job to start")

// openWithin is how long a job may wait for its transaction. After that it is given
// back unstarted: a database that hangs, or has fewer connections than jobs, must not
// keep the workers from the other pools.
const openWithin = 5 * time.Second

type txKey struct{}

// TxFromContext returns the tenant's transaction of a handler that runs in one.
func TxFromContext(ctx context.Context) (pgx.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*tenantTx)
	return tx, ok
}

// IsTenantTx tells whether a transaction is one that this package began for a tenant, or a
// savepoint in it.
func IsTenantTx(tx pgx.Tx) bool {
	_, ok := tx.(*tenantTx)
	return ok
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
	return tx.commit(ctx, nil, nil)
}

// doInTx runs the handler in its tenant's transaction, in which the job is
// finished too: their effects and the job's end commit together or not at all.
func (r *run) doInTx(ctx context.Context) (finished bool, err error) {
	c := r.claim
	late := time.AfterFunc(openWithin, func() { r.cancel(errLate) })
	tx, err := beginTenantTx(ctx, c.Owner.Tenants(), *c.Tenant)
	inTime := late.Stop()
	switch {
	case err == nil:
	case !inTime && errors.Is(context.Cause(ctx), errLate),
		isElsewhere(err): // whose claims ended before that
		return false, errors.Join(errLate, err)
	case ctx.Err() != nil || !refusesTenant(err): // what has ended ctx is not the job's doing, as it has not begun
		return false, errors.Join(errUnable, err)
	default:
		return false, err
	}
	defer tx.close()
	if !inTime || !c.Owner.MayStart() { // opening it may have taken long
		tx.handle.returned = true
		return false, errLate
	}
	r.slot.hold(tx)
	defer r.slot.hold(nil) // before it is closed
	err = r.handle(context.WithValue(ctx, txKey{}, tx))
	r.slot.hold(nil)
	tx.handle.returned = true
	if err != nil {
		return false, blame(err, tx.handle.failed())
	}
	if err := tx.commit(ctx, func(b *pgx.Batch) { c.Owner.QueueFinish(b, c) }, c.Owner.FinishError); err != nil {
		// Whether an unanswered COMMIT took place is found out by the failure that
		// is now reported: it finds the job's row gone if it did.
		return false, blame(err, true)
	}
	return true, nil
}

// handle is what a job's transaction and its savepoints share.
type handle struct {
	pooled *pgxpool.Conn // to give conn back by
	conn   *pgx.Conn
	role   string // none: the pool's own user
	schema string
	// lock is held, by having its one place, during a call; the end of the job takes
	// it for good. A channel, so that waiting for it can be given up.
	lock    chan struct{}
	calling atomic.Bool   // whoever holds lock is in a call, see enter
	dead    chan struct{} // closed when nothing of the transaction reaches the connection any more
	raw     bool          // guarded by lock; the handler has had the bare connection
	back    bool          // guarded by lock; a savepoint was rolled back

	abandoned bool // guarded by the slot's mu until the handler has returned; see abandon

	returned bool // written by the owner only: the handler returned, rather than panicked
	revoked  bool // written by the owner only: lock is its own
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
		return nil, &noConnectionError{fmt.Errorf("get a connection for tenant %q: %w", t.ID, err)}
	}
	begin := fmt.Sprintf("BEGIN ISOLATION LEVEL READ COMMITTED; %sSELECT tenure.begin_tenant(%s, %s, %s)",
		until(ctx, conn.Conn()), literal(t.Schema), literal(t.Role), literal(string(t.ID)))
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		discard(conn) // it may stand in the failed transaction
		if gone := notHere(err, t.ID); gone != nil {
			return nil, gone
		}
		return nil, fmt.Errorf("open a transaction for tenant %q: %w", t.ID, err)
	}
	return &tenantTx{handle: &handle{pooled: conn, conn: conn.Conn(), role: cmp.Or(t.Role, "none"), schema: t.Schema,
		lock: make(chan struct{}, 1), dead: make(chan struct{})}, tx: tx}, nil
}

// deadlineKey is what package routing marks a connection with whose timeouts may follow a
// transaction's deadline: the DSN does not set them.
const deadlineKey = "tenure.deadline"

// cancelling is how much longer than its context's deadline a transaction may take: that
// the deadline has passed is first told to the handler, and to the server by a cancel.
const cancelling = 5 * time.Second

// until gives the statements of a transaction, and its idle times, as long as ctx has; a
// process that stands still, or that the server does not hear any more, holds its locks no
// longer. Without a deadline the connection's own timeouts hold.
func until(ctx context.Context, conn *pgx.Conn) string {
	deadline, has := ctx.Deadline()
	if _, may := conn.PgConn().CustomData()[deadlineKey]; !has || !may {
		return ""
	}
	ms := min((max(time.Until(deadline), 0) + cancelling).Milliseconds(), math.MaxInt32)
	return fmt.Sprintf("SET LOCAL statement_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %[1]d; ", ms)
}

// literal quotes s for SQL; standard_conforming_strings is on, and routing has
// refused names with NUL.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// A tenant may have made functions, operators, casts and types of its own. None of them
// may run as the pool's user, so that statements of the ledger find those of Postgres only,
// and temporary ones, which are searched first if nobody says otherwise, last.
const (
	leaveTenant  = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), pg_catalog.set_config('role', 'none', true)"
	backToTenant = "SELECT pg_catalog.set_config('role', $1, true), pg_catalog.set_config('search_path', pg_catalog.quote_ident($2) || ', pg_temp', true)"
)

// commit takes the handle away and ends the transaction in one round trip. What the
// tenant has put off until the end, such as deferred constraint triggers, is done first, as
// the tenant. Then what finish has to add is done as the pool's user; meaning gives its
// errors theirs. COMMIT is the tenant's again, for what was put off once more.
func (t *tenantTx) commit(ctx context.Context, finish func(*pgx.Batch), meaning func(error) error) error {
	h := t.handle
	if err := h.revoke(); err != nil {
		return err
	}
	if err := h.unfit(); err != nil {
		return err
	}
	var b pgx.Batch
	b.Queue("SET CONSTRAINTS ALL IMMEDIATE")
	b.Queue(leaveTenant)
	ours := b.Len()
	if finish != nil {
		finish(&b)
	}
	theirs := b.Len()
	b.Queue(backToTenant, h.role, h.schema)
	b.Queue("COMMIT")
	if results, err := h.send(ctx, &b); err != nil {
		if n := succeeded(results); ours <= n && n < theirs {
			return meaning(err)
		}
		return err
	}
	h.ended = true
	_ = t.tx.Commit(over) // pgx' own handle has not seen the COMMIT: this closes it, and sends nothing
	return nil
}

// unfit says why the transaction, as its handler has left it, cannot be committed.
func (h *handle) unfit() error {
	switch pc := h.conn.PgConn(); {
	case pc.IsClosed():
		return errors.New("the connection broke while the handler ran, but the handler returned nil: return the error")
	case pc.IsBusy():
		return errors.New("the handler returned with open rows or an open batch: close them")
	case pc.TxStatus() == 'E':
		return errors.New("a statement of the handler failed and the transaction with it, but the handler returned nil: return the error, or guard the statement by a savepoint (tx.Begin)")
	case pc.TxStatus() != 'T':
		return errors.New("the handler ended the job's transaction by SQL; its effects stand, and the job's end could not be tied to them")
	}
	return nil
}

// succeeded counts the statements of a batch before the one that failed.
func succeeded(results []*pgconn.Result) int {
	n := slices.IndexFunc(results, func(r *pgconn.Result) bool { return r.Err != nil })
	if n < 0 {
		return len(results)
	}
	return n
}

// over is a context that has ended.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// send runs statements in one round trip. Each is parsed only when those before it
// have run: pgx' own batch would have them described first, in the tenant's role,
// which may not look into the ledger. Arguments go as text.
func (h *handle) send(ctx context.Context, b *pgx.Batch) ([]*pgconn.Result, error) {
	conn := h.conn
	var eqb pgx.ExtendedQueryBuilder
	var batch pgconn.Batch
	for _, q := range b.QueuedQueries {
		if err := eqb.Build(conn.TypeMap(), nil, q.Arguments); err != nil {
			return nil, err
		}
		batch.ExecParams(q.SQL, eqb.ParamValues, nil, eqb.ParamFormats, eqb.ResultFormats)
	}
	return conn.PgConn().ExecBatch(ctx, &batch).ReadAll()
}

// close takes the handle away and gives the connection back, to be scrubbed by
// its pool; after a panic, raw access or anything unclean it is destroyed.
func (t *tenantTx) close() {
	h := t.handle
	defer close(h.dead)
	if h.abandoned {
		_ = h.revoke() // whoever is in a call finds the connection broken
		return
	}
	pc := h.conn.PgConn()
	inCall := h.revoke() != nil
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout) // the run's own context may be over
	defer cancel()
	if inCall {
		_ = pc.CancelRequest(ctx) // ends that call; if it does not, the next step does
		if h.revoke() != nil {
			_ = h.pooled.Hijack().PgConn().Conn().Close() // all else on it belongs to who is in the call
			return
		}
	}
	if !h.returned || h.raw || pc.IsClosed() || pc.IsBusy() {
		discard(h.pooled)
		return
	}
	if !h.ended {
		if err := t.tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			discard(h.pooled)
			return
		}
	}
	h.pooled.Release()
}

// releaseTimeout bounds what is done to a connection after its job.
const releaseTimeout = time.Second

// revoke takes the lock for good. It waits a moment for a call that some goroutine
// of the handler left behind is still in.
func (h *handle) revoke() error {
	if h.revoked {
		return nil
	}
	wait := time.NewTimer(releaseTimeout)
	defer wait.Stop()
	select {
	case h.lock <- struct{}{}:
		h.revoked = true
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

// enter begins a call; leave ends it. It waits only for the end of the job.
func (h *handle) enter(ctx context.Context) error {
	select {
	case <-h.dead: // first, as the context has mostly ended as well
		return ErrTxRevoked
	default:
	}
	if h.calling.Load() {
		return errBusy
	}
	select {
	case h.lock <- struct{}{}:
		h.calling.Store(true)
		return nil
	case <-h.dead:
		return ErrTxRevoked
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *handle) leave() {
	h.calling.Store(false)
	<-h.lock
}

// errBusy is returned, as by pgx, to a call inside another call, such as one by a value
// that is being scanned: to wait would be to wait for itself.
var errBusy = errors.New("conn busy: the transaction is in a call already, from the same goroutine or from another")

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
func (t *tenantTx) Rollback(ctx context.Context) error {
	return t.end(ctx, func(ctx context.Context) error {
		t.handle.back = true
		return t.tx.Rollback(ctx)
	})
}

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
	return t.tx.Exec(ctx, sql, t.handle.guardArgs(args)...)
}

// Query implements pgx.Tx. Close the rows before the handler returns.
func (t *tenantTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.query(ctx, sql, args)
}

func (t *tenantTx) query(ctx context.Context, sql string, args []any) (*rows, error) {
	h := t.handle
	if err := h.enter(ctx); err != nil {
		return &rows{h: h, own: err}, err
	}
	defer h.leave()
	inner, err := t.tx.Query(ctx, sql, h.guardArgs(args)...)
	return h.guardRows(inner), err
}

// QueryRow implements pgx.Tx.
func (t *tenantTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := t.query(ctx, sql, args) // its error is the rows', too
	return firstRow{rows}
}

// SendBatch implements pgx.Tx. Close the results before the handler returns.
func (t *tenantTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	h := t.handle
	if err := h.enter(ctx); err != nil {
		return failed{err}
	}
	defer h.leave()
	guarded, fns := h.guardBatch(b)
	return &results{h: h, inner: t.tx.SendBatch(ctx, guarded), fns: fns}
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
// is destroyed after the job. Within another call they fail, and once the job has ended.
func (t *tenantTx) LargeObjects() pgx.LargeObjects {
	if !t.handle.bare() {
		return closedTx.LargeObjects()
	}
	return t.tx.LargeObjects()
}

// closedTx fails whatever it is asked for.
var closedTx = func() pgx.Tx {
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(&b, pgx.ErrTxClosed).Tx()
}()

// Conn gives the bare connection, which is destroyed after the job: nobody can
// know what was done to it. nil within another call, and once the job has ended.
func (t *tenantTx) Conn() *pgx.Conn {
	if !t.handle.bare() {
		return nil // it is destroyed, or another job's
	}
	return t.tx.Conn()
}

// bare notes that the handler gets the bare connection; false: it must not.
func (h *handle) bare() bool {
	if h.enter(context.Background()) != nil {
		return false
	}
	h.raw = true
	h.leave()
	return true
}

// failed answers every use of a batch or row with one error.
type failed struct{ err error }

func (f failed) Scan(...any) error                { return f.err }
func (f failed) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, f.err }
func (f failed) Query() (pgx.Rows, error)         { return &rows{own: f.err}, f.err }
func (f failed) QueryRow() pgx.Row                { return f }
func (f failed) Close() error                     { return f.err }
func (f failed) Tx() pgx.Tx                       { return nil }
