package execution

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/internal/tenantconn"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// ErrTxRevoked is returned by a transaction handle that was used after its
// handler had returned.
var ErrTxRevoked = errors.New("this transaction belonged to a function that has returned: use it within that only")

// errNotYours is returned to a handler that ends the job's transaction itself.
var errNotYours = errors.New("this transaction is not the function's to end: return nil to commit, an error to roll back")

// errEndedBySQL is returned to a handler that goes on behind a COMMIT or ROLLBACK of its own.
var errEndedBySQL = errors.New("a statement has ended this transaction, which is not the function's to end: leave out COMMIT and ROLLBACK")

// errLate is returned when a transaction was opened too late for its job to start: the
// claim may have been lost meanwhile, or the worker was needed for other pools.
var errLate = errors.New("the transaction was not open in time for the job to start")

// errOthersLost is returned when of several jobs that were finished in one transaction some had been
// lost. What was done for the others is undone with it, through no fault of theirs.
var errOthersLost = errors.New("the transaction was shared with jobs that were lost")

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
func InTx(ctx context.Context, db Conns, t tenancy.Tenant, fn func(ctx context.Context, tx pgx.Tx) error) error {
	tx, err := beginTenantTx(ctx, db, t, nil)
	if err != nil {
		return err
	}
	defer tx.close()
	err = fn(context.WithValue(ctx, txKey{}, tx), tx)
	tx.handle.returned = true
	if err != nil {
		return err
	}
	return tx.commit(ctx, "", nil)
}

// callInTx runs the handler in its tenant's transaction, in which the job is
// finished too: their effects and the job's end commit together or not at all.
func (r *run) callInTx(ctx context.Context) (finished bool, err error) {
	c := r.claim
	r.ends, r.failed = nil, failure{} // of a try before
	late := time.AfterFunc(openWithin, func() { r.cancel(errLate) })
	tx, err := beginTenantTx(ctx, c.Owner.Tenants(), *c.Tenant, r.memory)
	inTime := late.Stop()
	if err != nil {
		if !inTime && errors.Is(context.Cause(ctx), errLate) {
			return false, errors.Join(errLate, err)
		}
		return false, r.notBegun(ctx, err)
	}
	defer tx.close()
	if !inTime || !c.Owner.MayStart() { // opening it may have taken long
		tx.handle.returned = true
		return false, errLate
	}
	r.slot.setTx(tx)
	defer r.slot.setTx(nil) // before it is closed
	panicked, err := r.handleOrPanic(context.WithValue(ctx, txKey{}, tx))
	r.slot.setTx(nil)
	tx.handle.returned = !panicked
	done := r.listDone()
	if void := tx.handle.whyVoid(ctx, err != nil || len(done) == 0); void != nil { // whatever the handler has made of that
		r.ends = nil
		return false, r.notBegun(ctx, void)
	}
	if panicked {
		return false, err
	}
	r.failed = tx.handle.failed(ctx)
	if err != nil {
		return false, classify(err, r.failed)
	}
	if len(done) == 0 { // nothing would tie to a job's end what the handler did
		return false, nil
	}
	if err := tx.commit(ctx, c.Owner.FinishInTx(done), c.Owner.FinishError); err != nil {
		if void := tx.handle.whyVoid(ctx, false); void != nil {
			r.ends = nil
			return false, r.notBegun(ctx, void)
		}
		if len(done) > 1 && errors.Is(err, job.ErrClaimLost) {
			return false, errors.Join(errOthersLost, err)
		}
		// Whether an unanswered COMMIT took place is found out by the failure that
		// is now reported: it finds the job's row gone if it did.
		r.failed = tx.handle.failed(ctx)
		return false, classify(err, r.failed)
	}
	return true, nil
}

// handleOrPanic is handleJob with a panic as an error.
func (r *run) handleOrPanic(ctx context.Context) (panicked bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			panicked, err = true, job.ReadPanic(v, debug.Stack())
		}
	}()
	err = r.handleJob(ctx)
	var told *job.PanicError // to middleware
	return errors.As(err, &told), err
}

// notBegun says what it means for the run that its transaction has not begun.
func (r *run) notBegun(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errTypesChanged):
		return err
	case errors.Is(err, tenancy.ErrShareInUse), leftPool(err): // whose claims ended before that
		return errors.Join(errLate, err)
	case ctx.Err() != nil: // what has ended it is not the job's doing, as it has not begun
		return errors.Join(errUnavailable, err)
	case !refusesTenant(err):
		r.tellPutOff(ctx, err)
		return errors.Join(errUnavailable, err)
	default:
		r.tellPutOff(ctx, err)
		return errors.Join(errNoPlace, err)
	}
}

// tellPutOff has the run's jobs tell why they are put off: their run ends without an error.
func (r *run) tellPutOff(ctx context.Context, err error) {
	r.reports.open()
	defer r.reports.close()
	for c := range r.claim.call() {
		if why := "put off: " + err.Error(); r.workers.deferrals.tellsNew(c.Record.ID, why) {
			job.Log(job.NewContext(ctx, &c.Record), why)
		}
	}
}

// handle is what a job's transaction and its savepoints share.
type handle struct {
	pooled *pgxpool.Conn // to give conn back by
	leave  func()        // to be called once it was given back; more than once does nothing
	conn   *pgx.Conn
	tenant tenancy.Tenant
	role   string  // none: the pool's own user
	memory *memory // nil: there is none
	// behindPooler: what follows the transaction runs on another session. So none of the handler's
	// statements may end the transaction.
	behindPooler bool
	// lock is held, by having its one place, during a call; the end of the job takes
	// it for good. A channel, so that waiting for it can be given up.
	lock       chan struct{}
	calling    atomic.Bool   // the holder of lock is in a call, see beginCall
	dead       chan struct{} // closed when nothing of the transaction reaches the connection any more
	givenUp    atomic.Bool   // the handler rolled the whole transaction back
	unclean    bool          // guarded by lock; the handler has had what bypasses this, or what scrubbing keeps
	rolledBack bool          // guarded by lock; a savepoint was rolled back
	savepoints int           // guarded by lock; so many were made

	opening func() []string // guarded by lock; the two statements that begin the transaction; nil: it has begun
	void    error           // guarded by lock; see whyVoid

	abandoned bool // guarded by the slot's mu until the handler has returned; see dropConn

	returned bool // written by the owner only: the handler returned, rather than panicked
	revoked  bool // written by the owner only: lock is its own
	ended    bool // written by the owner only: committed, nothing left to do
}

// tenantTx is what a handler gets: a pgx.Tx that stops working when the handler
// has returned and cannot end the job's transaction. As with any pgx.Tx, one
// goroutine at a time may use it.
type tenantTx struct {
	handle    *handle
	savepoint string // "": the transaction itself
	closed    bool   // guarded by the handle's lock; the savepoint was
}

var _ pgx.Tx = (*tenantTx)(nil)

// quoteLiteral quotes s for SQL; standard_conforming_strings is on, and routing has
// refused names with NUL.
func quoteLiteral(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// A tenant may have made functions, operators, casts and types of its own. None of them
// may run as the pool's user, so that statements of the ledger find those of Postgres only,
// and temporary ones, which are searched first if nobody says otherwise, last.
// They are SET, which is not planned as calls of set_config are.
const (
	searchPostgres = "SET LOCAL search_path = pg_catalog, pg_temp"
	becomePoolUser = "SET LOCAL role = none"
)

// becomeTenant are the statements that take a tenant's role and schema again.
func (h *handle) becomeTenant() []string {
	client := h.conn.PgConn().ParameterStatus("client_encoding")
	return []string{"SET LOCAL role = " + quoteAnyhow(h.role, client), "SET LOCAL search_path = " + searchPath(quoteAnyhow(h.tenant.Schema, client), h.tenant.Shared)}
}

// quoteAnyhow quotes s for SQL whatever a handler has made of standard_conforming_strings and
// of the client's encoding.
func quoteAnyhow(s, client string) string {
	s = strings.ReplaceAll(quoteLiteral(s), `\`, `\\`)
	if client == "UTF8" {
		return "E" + s
	}
	var b strings.Builder
	b.WriteString("E")
	for _, r := range s {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\U%08X`, r)
		}
	}
	return b.String()
}

// commit takes the handle away and ends the transaction by one message, so that a pooler runs
// all of it on one session. What the tenant has put off until the end, such as deferred
// constraint triggers, is done first, as the tenant. Then what finish says, if anything, is done
// as the pool's user; meaning gives its errors theirs. COMMIT is the tenant's again, for what was
// put off once more. Behind it the session is scrubbed, of what happened at COMMIT, too: Postgres
// skips what follows a statement that fails.
func (t *tenantTx) commit(ctx context.Context, finish string, meaning func(error) error) error {
	h := t.handle
	if err := h.revoke(); err != nil {
		return err
	}
	if err := h.checkCommittable(); err != nil {
		return err
	}
	scrub, noteScrubbed := h.scrubbing()
	var statements []string
	if h.opening != nil {
		statements = h.opening()
	}
	begun := len(statements)
	statements = append(statements, "SET CONSTRAINTS ALL IMMEDIATE", searchPostgres, becomePoolUser)
	ours := len(statements)
	if finish != "" {
		statements = append(statements, finish)
	}
	theirs := len(statements)
	statements = append(statements, h.becomeTenant()...)
	statements = append(statements, "COMMIT")
	committed := len(statements) // as many have succeeded then
	statements = append(statements, scrub)
	results, err := h.conn.PgConn().Exec(ctx, strings.Join(statements, "; ")).ReadAll()
	switch n := countSucceeded(results); {
	case n >= committed && results[committed-1].CommandTag.String() == "COMMIT":
		if err == nil {
			noteScrubbed(results[committed:])
		}
	case err == nil:
		return errors.New("the job's transaction was rolled back instead of committed")
	case n < begun:
		return h.noteBegun(err)
	case ours <= n && n < theirs:
		if code := sqlState(err); tellsOutage(code) && code != codeReadOnly { // nothing of the tenant's has failed there, but it may have set that
			return errors.Join(errUnavailable, err)
		}
		return meaning(err)
	default:
		return err
	}
	h.ended = true
	return nil
}

// scrubbing is what else is to be done behind COMMIT, and what is told its results. Nothing
// on connections that are not scrubbed, or that are destroyed.
func (h *handle) scrubbing() (statements string, note func([]*pgconn.Result)) {
	rules := tenantconn.Of(h.conn.PgConn())
	if rules.Scrub == nil || h.unclean {
		return "", func([]*pgconn.Result) {}
	}
	return rules.Scrub(), rules.Scrubbed
}

// checkCommittable says why the transaction, as its handler has left it, cannot be committed.
func (h *handle) checkCommittable() error {
	switch pc := h.conn.PgConn(); {
	case pc.IsClosed():
		return errors.New("the connection broke while the handler ran, but the handler returned nil: return the error")
	case pc.IsBusy():
		return errors.New("the handler returned with open rows or an open batch: close them")
	case h.void != nil:
		return h.void
	case h.givenUp.Load():
		return errors.New("the handler called tx.Rollback, and returned nil: return an error to roll back, and call nothing to commit")
	case pc.TxStatus() == 'E':
		return errors.New("a statement of the handler failed and the transaction with it, but the handler returned nil: return the error, or guard the statement by a savepoint (tx.Begin)")
	case h.opening != nil: // the handler has sent nothing
	case pc.TxStatus() != 'T':
		return errors.New("the handler ended the job's transaction by SQL; its effects stand, and the job's end could not be tied to them")
	}
	return nil
}

// countSucceeded counts the statements of a message before the one that failed.
func countSucceeded(results []*pgconn.Result) int {
	n := slices.IndexFunc(results, func(r *pgconn.Result) bool { return r.Err != nil })
	if n < 0 {
		return len(results)
	}
	return n
}

// close takes the handle away and gives the connection back, to be scrubbed by
// its pool; after a panic or anything unclean it is destroyed.
func (t *tenantTx) close() {
	h := t.handle
	defer close(h.dead)
	defer h.leave()
	if h.abandoned {
		_ = h.revoke() // a goroutine in a call finds the connection broken
		return
	}
	pc := h.conn.PgConn()
	inCall := h.revoke() != nil
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout) // the run's own context may be over
	defer cancel()
	if inCall {
		_ = pc.CancelRequest(ctx) // ends that call; if it does not, the next step does
		if h.revoke() != nil {
			_ = h.pooled.Hijack().PgConn().Conn().Close() // all else on it belongs to the goroutine in the call
			return
		}
	}
	if !h.returned || h.unclean || pc.IsClosed() || pc.IsBusy() {
		destroyConn(h.pooled)
		return
	}
	if !h.ended && pc.TxStatus() != 'I' { // else its handler has ended it by SQL
		if err := h.rollBack(ctx); err != nil {
			destroyConn(h.pooled)
			return
		}
	}
	h.pooled.Release()
}

// rollBack rolls the transaction back and scrubs the session by one message, as commit does.
func (h *handle) rollBack(ctx context.Context) error {
	scrub, noteScrubbed := h.scrubbing()
	results, err := h.conn.PgConn().Exec(ctx, "ROLLBACK; "+scrub).ReadAll()
	if err == nil {
		noteScrubbed(results[1:])
	}
	return err
}

// releaseTimeout bounds what is done to a connection after its job.
const releaseTimeout = time.Second

// revoke takes the lock for good. It waits a moment for a call that some goroutine
// of the handler left behind is still in.
func (h *handle) revoke() error {
	if h.revoked {
		return nil
	}
	select {
	case h.lock <- struct{}{}: // mostly
		h.revoked = true
		return nil
	default:
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

// destroyConn destroys a connection instead of giving it back.
func destroyConn(conn *pgxpool.Conn) {
	c := conn.Hijack()
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	_ = c.Close(ctx) // a connection that cannot even be closed is gone as well
}

// beginCall begins a call; endCall ends it. It waits only for the end of the job.
func (h *handle) beginCall(ctx context.Context) error {
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

func (h *handle) endCall() {
	h.calling.Store(false)
	<-h.lock
}

// errBusy is returned, as by pgx, to a call inside another call, such as one by a value
// that is being scanned: to wait would be to wait for itself.
var errBusy = errors.New("conn busy: the transaction is in a call already, from the same goroutine or from another")

// enter begins a call on the transaction or savepoint.
func (t *tenantTx) enter(ctx context.Context) error {
	err := t.handle.beginCall(ctx)
	if err != nil {
		return err
	}
	switch {
	case t.closed:
		err = pgx.ErrTxClosed
	case t.handle.isEndedBySQL():
		err = errEndedBySQL
	default:
		return nil
	}
	t.handle.endCall()
	return err
}

// isEndedBySQL tells whether the handler has ended the transaction by a statement: the next one would not be the tenant's, but that
// of the user whom nodes connect as.
func (h *handle) isEndedBySQL() bool {
	pc := h.conn.PgConn()
	return h.opening == nil && h.void == nil && !pc.IsClosed() && !pc.IsBusy() && pc.TxStatus() == 'I'
}

// enterBegun begins a call before which the transaction has to have begun.
func (t *tenantTx) enterBegun(ctx context.Context) error {
	err := t.enter(ctx)
	if err != nil {
		return err
	}
	if err = t.handle.begin(ctx); err != nil {
		t.handle.endCall()
	}
	return err
}

// Begin opens a savepoint. It ends with the handler's return at the latest.
func (t *tenantTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.enterBegun(ctx); err != nil {
		return nil, err
	}
	h := t.handle
	defer h.endCall()
	h.savepoints++
	s := &tenantTx{handle: h, savepoint: fmt.Sprintf("tenure_%d", h.savepoints)}
	if _, err := h.conn.Exec(ctx, "SAVEPOINT "+s.savepoint); err != nil {
		return nil, err
	}
	return s, nil
}

// Commit releases a savepoint; the transaction itself commits with the job.
func (t *tenantTx) Commit(ctx context.Context) error { return t.endSavepoint(ctx, "RELEASE ") }

// Rollback goes back to a savepoint; to roll the transaction itself back, return
// an error. Who calls it for the transaction itself and returns nil gets an error then, rather than a commit.
func (t *tenantTx) Rollback(ctx context.Context) error {
	if t.savepoint == "" {
		t.handle.givenUp.Store(true)
	}
	return t.endSavepoint(ctx, rollbackTo)
}

const rollbackTo = "ROLLBACK TO "

func (t *tenantTx) endSavepoint(ctx context.Context, how string) error {
	if t.savepoint == "" {
		return errNotYours
	}
	if err := t.enterBegun(ctx); err != nil {
		return err
	}
	h := t.handle
	defer h.endCall()
	h.rolledBack = h.rolledBack || how == rollbackTo
	_, err := h.conn.Exec(ctx, how+t.savepoint)
	t.closed = true
	return err
}

// Exec implements pgx.Tx.
func (t *tenantTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.enter(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	h := t.handle
	defer h.endCall()
	args = wrapArgs(args)
	if h.behindPooler && mayEndTx.MatchString(sql) {
		args, err := single(sql, args)
		if err != nil {
			return pgconn.CommandTag{}, err
		}
		rows, _ := h.conn.Query(ctx, sql, args...) // Exec would send it as several
		rows.Close()
		return rows.CommandTag(), explainSingle(rows.Err())
	}
	return h.exec(ctx, sql, args)
}

// Query implements pgx.Tx. Close the rows before the handler returns.
func (t *tenantTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.queryRows(ctx, sql, args)
}

func (t *tenantTx) queryRows(ctx context.Context, sql string, args []any) (*rows, error) {
	h := t.handle
	if err := t.enter(ctx); err != nil {
		return &rows{h: h, own: err}, err
	}
	defer h.endCall()
	args = wrapArgs(args)
	if h.behindPooler && mayEndTx.MatchString(sql) {
		var err error
		if args, err = single(sql, args); err != nil {
			return &rows{h: h, own: err}, err
		}
	}
	inner, err := h.query(ctx, sql, args)
	if inner == nil {
		return &rows{h: h, own: err}, err
	}
	return h.wrapRows(inner), err
}

// QueryRow implements pgx.Tx.
func (t *tenantTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := t.queryRows(ctx, sql, args) // its error is the rows', too
	return firstRow{rows}
}

// SendBatch implements pgx.Tx. Close the results before the handler returns.
func (t *tenantTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	h := t.handle
	if pgx.FailedBatchResults(b, errNotYours).Tx() != nil { // what b.BeginTx was called for
		return failedResult{errNotYours}
	}
	if err := t.enterBegun(ctx); err != nil {
		return failedResult{err}
	}
	defer h.endCall()
	wrapped, fns := wrapBatch(b)
	for _, q := range wrapped.QueuedQueries {
		if h.behindPooler && endsTx(q.SQL) {
			return failedResult{errNotYours}
		}
	}
	return &results{h: h, inner: h.conn.SendBatch(ctx, wrapped), fns: fns}
}

// Prepare implements pgx.Tx. The connection is destroyed after the job, as
// scrubbing keeps prepared statements; through a pooler it is refused.
func (t *tenantTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.enterBegun(ctx); err != nil {
		return nil, err
	}
	h := t.handle
	defer h.endCall()
	if h.behindPooler {
		return nil, errBehindPooler
	}
	h.unclean = true
	return h.conn.Prepare(ctx, name, sql)
}

// LargeObjects implements pgx.Tx. Its calls bypass the handle, so the connection
// is destroyed after the job. Within another call they fail, and once the job has ended, and
// through a pooler.
func (t *tenantTx) LargeObjects() pgx.LargeObjects {
	h := t.handle
	ctx, cancel := context.WithTimeout(context.Background(), openWithin)
	defer cancel()
	if h.behindPooler || t.enterBegun(ctx) != nil {
		return closedTx.LargeObjects()
	}
	defer h.endCall()
	if h.conn.PgConn().IsBusy() { // with rows
		return closedTx.LargeObjects()
	}
	h.unclean = true
	tx, err := h.conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: ";"}) // pgx' own handle of what has begun
	if err != nil {
		return closedTx.LargeObjects()
	}
	return tx.LargeObjects()
}

// closedTx fails whatever it is asked for.
var closedTx = func() pgx.Tx {
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(&b, pgx.ErrTxClosed).Tx()
}()

// Conn implements pgx.Tx: nil. Handlers get no bare connection. Destroying it after the job, as
// nobody can know what was done to it, would not do: what a handler keeps of the bytes that it reads
// there is in buffers that go on to other connections, and shows what those read.
func (t *tenantTx) Conn() *pgx.Conn { return nil }

// failedResult answers every use of a batch or row with one error.
type failedResult struct{ err error }

func (f failedResult) Scan(...any) error                { return f.err }
func (f failedResult) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, f.err }
func (f failedResult) Query() (pgx.Rows, error)         { return &rows{own: f.err}, f.err }
func (f failedResult) QueryRow() pgx.Row                { return f }
func (f failedResult) Close() error                     { return f.err }
func (f failedResult) Tx() pgx.Tx                       { return nil }
