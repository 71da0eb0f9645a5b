package routing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/internal/tenantconn"
	"github.com/tenurehq/tenure/tenancy"
)

// TenantConns are a pool's connections for tenants' transactions.
type TenantConns struct {
	db        *pgxpool.Pool
	admission admission
	shares    *shares // set together with db
}

// AcquireFor is Acquire for a transaction of a tenant, which waits while the tenant has its share of the
// connections. The caller calls leave once the connection is released, or destroyed. An error that wraps
// [tenancy.ErrShareInUse] says that none of the tenant's came free for five seconds.
func (t *TenantConns) AcquireFor(ctx context.Context, tenant tenancy.ID) (c *pgxpool.Conn, leave func(), err error) {
	began := time.Now()
	if leave, err = t.shares.enter(ctx, tenant); err != nil {
		return nil, nil, err
	}
	if c, err = t.acquireSince(ctx, began); err != nil {
		leave()
		return nil, nil, err
	}
	return c, leave, nil
}

// Acquire returns a connection once the admission lets the caller have one; the caller
// releases it.
func (t *TenantConns) Acquire(ctx context.Context) (*pgxpool.Conn, error) { return t.db.Acquire(ctx) }

// acquireSince is for a caller who counts as having waited since began.
func (t *TenantConns) acquireSince(ctx context.Context, began time.Time) (*pgxpool.Conn, error) {
	return t.db.Acquire(context.WithValue(ctx, beganKey{}, began))
}

// do calls fn with a connection; through a pooler within a transaction, so that all that fn
// sends reaches one session.
func (t *TenantConns) do(ctx context.Context, fn func(*pgx.Conn) error) error {
	c, err := t.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release() // closes it if a transaction is open
	begin := tenantconn.Of(c.Conn().PgConn()).Begin
	if begin == nil {
		return fn(c.Conn())
	}
	before, within := begin()
	tx, err := c.BeginTx(ctx, pgx.TxOptions{BeginQuery: before + "BEGIN ISOLATION LEVEL READ COMMITTED; " + within})
	if err != nil {
		return err
	}
	if err := fn(c.Conn()); err != nil {
		_ = tx.Rollback(ctx) // else the connection is closed
		return err
	}
	return tx.Commit(ctx)
}

// OpenAhead opens connections until there are as many, before they are needed, and lets warm do
// what each begins with. It does not wait for what others give back, which would not serve as
// well, but may take it. It ends early when ctx does, or a connection cannot be opened.
func (t *TenantConns) OpenAhead(ctx context.Context, conns int, warm func(*pgxpool.Conn)) {
	conns = min(conns, int(t.Stat().MaxConns()))
	for ctx.Err() == nil && int(t.Stat().TotalConns()) < conns {
		c, err := t.acquireSince(ctx, time.Time{}) // that is long ago
		if err != nil {
			return
		}
		defer c.Release()                                  // not before, or it would be the next one, too
		if tenantconn.Of(c.Conn().PgConn()).Begin == nil { // else whose session would it warm
			warm(c)
		}
	}
}

// Stat counts the connections, and what became of those who asked for one.
func (t *TenantConns) Stat() *pgxpool.Stat { return t.db.Stat() }

// admission decides when a connection for jobs or for tenants' transactions may be opened: one
// at a time, as in PgBouncer and HikariCP. A caller who finds none idle takes the first that comes
// free, whether another gives it back or it is new, and has one opened only after it has
// waited for as long as that takes. pgxpool alone opens one for each caller who finds none,
// and has it wait for just that one. To open a connection costs the server and this node
// several times what a short job does, so that more jobs find none meanwhile, and a short
// wait ends with as many connections as there may be, none of which was needed.
type admission struct {
	next    chan struct{} // one place: held by the caller who is next
	waiting atomic.Int64  // callers who wait for it, or hold it
	waits   waits
	freed   chan struct{} // one place: a connection may have come free
	failing atomic.Bool   // the last connection could not be opened, and nobody got one since
	used    atomic.Int64  // when one was last given back, in nanoseconds since began

	isFull    func() bool   // whether the node may open no more connections just now; nil: it always may
	working   *atomic.Int64 // how many connections of this kind to the server are in use; nil: they are not counted
	mostCost  time.Duration // bounds how long a connection is waited for before another is opened
	patience  time.Duration // with a connection that is being opened; then another may be opened, too
	pingAfter time.Duration // for how long a connection may have been idle without being asked whether it is still good

	mu       sync.Mutex
	entering int           // guarded by mu; callers let through to an idle connection, without having it yet
	opening  *ticket       // guarded by mu; of the caller who opens a connection, or was last to begin; nil: that is open
	cost     time.Duration // guarded by mu; how long the last one took
}

// recheckEvery is how often a caller who waits for a connection looks for itself. It may hear
// of one just before that can be had, and does not hear of one that is not given back but
// closed.
const recheckEvery = 2 * time.Millisecond

// Bounds of how long a connection is waited for before another is opened, where to open one
// takes long. Job SQL waits for longer: many pools of one server that all want a second
// connection would keep it so busy that each waits for long, and wants a third.
const (
	mostTenantsCost = 100 * time.Millisecond
	mostJobsCost    = time.Second
)

// mostWorking is how many connections of this node do job SQL at a server before a pool waits for the one that it has
// as if the node might open no other: what keeps a hundred pools from going faster is the server then.
const mostWorking = 16

// guard puts the admission before a pgxpool, whose hooks tell it what happens to each acquire. How that
// was let through does not tell: an idle connection may turn out to be dead, and then pgxpool opens another
// by itself.
func (a *admission) guard(c *pgxpool.Config, tracer connects, mostCost time.Duration) {
	a.next, a.freed, a.mostCost, a.pingAfter = make(chan struct{}, 1), make(chan struct{}, 1), mostCost, time.Second
	a.patience = min(5*mostCost/2, time.Second) // what takes longer is thought to hang, as when the network was cut
	c.ConnConfig.Tracer = doorkeeper{tracer, a}
	connect, connected, released := c.BeforeConnect, c.AfterConnect, c.AfterRelease
	c.ShouldPing = func(ctx context.Context, got pgxpool.ShouldPingParams) bool {
		a.noteAcquired(ticketOf(ctx))
		return got.IdleDuration > a.pingAfter
	}
	c.BeforeConnect = func(ctx context.Context, cc *pgx.ConnConfig) error {
		a.noteOpening(ticketOf(ctx))
		err := connect(ctx, cc)
		if err != nil {
			a.noteAcquired(ticketOf(ctx))
		}
		return err
	}
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		defer a.noteOpened(ticketOf(ctx))
		return connected(ctx, conn)
	}
	c.AfterRelease = func(conn *pgx.Conn) bool {
		defer a.signalFreed()
		a.used.Store(int64(time.Since(began)))
		return released(conn)
	}
}

// doorkeeper is the tracer of a guarded pgxpool, which calls it before each acquire, whoever asks.
type doorkeeper struct {
	connects
	admission *admission
}

var _ pgxpool.AcquireTracer = doorkeeper{}

// TraceAcquireStart implements pgxpool.AcquireTracer.
func (d doorkeeper) TraceAcquireStart(ctx context.Context, db *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	since, ok := ctx.Value(beganKey{}).(time.Time)
	if !ok {
		since = time.Now()
	}
	t, err := d.admission.admit(ctx, db, since)
	if err != nil { // ctx has ended, as pgxpool finds first of all
		t = &ticket{to: arrived}
	}
	t.caller = ctx
	return context.WithValue(ctx, ticketKey{}, t)
}

// TraceAcquireEnd implements pgxpool.AcquireTracer.
func (d doorkeeper) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, data pgxpool.TraceAcquireEndData) {
	if data.Err == nil {
		if d.admission.failing.Load() {
			d.admission.failing.Store(false)
		}
		d.admission.countWorking(1)
	}
	d.admission.noteEnded(ctx, ticketOf(ctx))
}

var _ pgxpool.ReleaseTracer = doorkeeper{}

// TraceRelease implements pgxpool.ReleaseTracer.
func (d doorkeeper) TraceRelease(*pgxpool.Pool, pgxpool.TraceReleaseData) {
	d.admission.countWorking(-1)
}

// countWorking counts connections that are taken, or given back.
func (a *admission) countWorking(n int64) {
	if a.working != nil {
		a.working.Add(n)
	}
}

// TraceConnectEnd implements pgx.ConnectTracer.
func (d doorkeeper) TraceConnectEnd(ctx context.Context, data pgx.TraceConnectEndData) {
	d.connects.TraceConnectEnd(ctx, data)
	if data.Err != nil { // whoever wanted it may be gone
		d.admission.failing.Store(true)
		d.admission.noteAcquired(ticketOf(ctx))
	}
}

// beganKey holds since when a caller counts as having waited.
type beganKey struct{}

func (a *admission) signalFreed() {
	select {
	case a.freed <- struct{}{}:
	default:
	}
}

// ticket is how far an acquire has come since it was let through.
type ticket struct {
	to    destination // guarded by the admission's mu
	since time.Time   // guarded by the admission's mu; toOpen
	begun bool        // guarded by the admission's mu; it is being opened
	waits bool        // guarded by the admission's mu; for a permit

	caller context.Context // whose connection it is to be
}

type destination int

const (
	notYet destination = iota
	toIdle
	toOpen
	arrived // it has a connection, or will get none
)

type ticketKey struct{}

// ticketOf is the ticket of the acquire that a hook is called for: unasked pgxpool opens nothing.
func ticketOf(ctx context.Context) *ticket { return ctx.Value(ticketKey{}).(*ticket) }

// noteAcquired notes that an acquire has a connection; pgxpool has yet to see whether it is
// good.
func (a *admission) noteAcquired(t *ticket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settle(t)
}

// noteOpening notes that a connection is opened for an acquire, however it was let through.
func (a *admission) noteOpening(t *ticket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settle(t)
	a.startOpening(t)
	t.begun = true
}

// noteWaiting notes that what opens a connection waits for a permit: that may take long, and it does not hang.
func (a *admission) noteWaiting(t *ticket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t.waits = true
}

// isWanted tells whether anybody waits for the connection that is to be opened.
func (a *admission) isWanted(t *ticket) bool { return t.caller.Err() == nil || a.waiting.Load() > 0 }

// noteDialling notes that nothing keeps it from opening the connection any more.
func (a *admission) noteDialling(t *ticket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t.waits, t.since = false, time.Now()
}

// noteOpened notes that the connection is there. The caller who wanted it may have gone: it
// is idle then.
func (a *admission) noteOpened(t *ticket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cost = min(time.Since(t.since), a.mostCost)
	a.settle(t)
	a.signalFreed()
}

// startOpening makes t the one whose connection is being opened; mu is held.
func (a *admission) startOpening(t *ticket) {
	t.to, t.since = toOpen, time.Now()
	a.opening = t
}

// settle takes t out of what keeps others waiting; mu is held.
func (a *admission) settle(t *ticket) {
	if t.to == toIdle {
		a.entering--
	}
	if a.opening == t {
		a.opening = nil
	}
	t.to = arrived
}

// admit waits until a caller that has waited since began may ask db for a connection. How that
// ends is to be noted; an error is ctx's.
func (a *admission) admit(ctx context.Context, db *pgxpool.Pool, began time.Time) (*ticket, error) {
	defer a.waiting.Add(-1)
	if a.waiting.Add(1) == 1 { // nobody else waits
		if t := a.tryAdmit(db, time.Since(began)); t != nil {
			return t, nil
		}
	}
	defer a.waits.note(time.Now())
	select {
	case a.next <- struct{}{}:
		defer func() { <-a.next }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	for {
		if t := a.tryAdmit(db, time.Since(began)); t != nil {
			return t, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-a.freed:
		case <-tick.C:
		}
	}
}

// tryAdmit lets a caller through that has waited for so long, if it is time; else nil.
func (a *admission) tryAdmit(db *pgxpool.Pool, waited time.Duration) *ticket {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := db.Stat() // with those who enter, or one connection would be found idle twice
	t := new(ticket)
	switch t.to = a.decide(int(s.IdleConns()), int(s.TotalConns()), int(s.MaxConns()), waited); t.to {
	case notYet:
		return nil
	case toIdle:
		a.entering++
	case toOpen:
		a.startOpening(t)
	}
	return t
}

// decide tells whether a caller may pass: if there is an idle connection or, if there may be
// another, to open it; mu is held.
func (a *admission) decide(idle, total, most int, waited time.Duration) destination {
	switch {
	case idle > a.entering:
		return toIdle
	case total >= most, total > 0 && waited < a.cost:
		return notYet
	case total > 0 && waited < a.mostCost && (a.isFull != nil && a.isFull() || a.working != nil && a.working.Load() >= mostWorking): // one of those comes free sooner
		return notYet
	case a.opening != nil && (a.opening.waits || time.Since(a.opening.since) < a.patience):
		return notYet
	case a.entering > 0 && waited < recheckEvery: // that takes no time, unless the connection turns out to be dead
		return notYet
	}
	return toOpen
}

// noteEnded notes that pgxpool has answered a caller. What was begun for one who has ceased to
// wait, as ctx tells, goes on without it.
func (a *admission) noteEnded(ctx context.Context, t *ticket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.to != toOpen || !t.begun || ctx.Err() == nil {
		a.settle(t)
	}
	a.signalFreed()
}
