package routing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// gate stands before the connections for tenants' transactions. They are opened one at a
// time, as PgBouncer and HikariCP do: who finds none idle takes the first that comes free,
// whether another gives it back or it is new, and has one opened only after it has waited
// for as long as that takes. pgxpool alone opens one for each who finds none, and waits for
// just that one. To open a connection costs the server and this node several times what a
// short job does, so that more jobs find none meanwhile, and a short wait ends with as many
// connections as there may be, none of which was needed.
type gate struct {
	turn  chan struct{} // one place: held by who is next
	queue atomic.Int64  // who wait for it, or hold it
	freed chan struct{} // one place: a connection may have come free

	patience time.Duration // with one who opens a connection; then another may, too
	aged     time.Duration // for how long a connection may have been idle without being asked whether it is still good

	mu       sync.Mutex
	entering int           // guarded by mu; let through to an idle connection, without having it yet
	opening  *passage      // guarded by mu; who opens a connection, or was last to begin; nil: that is open
	cost     time.Duration // guarded by mu; how long the last one took
}

var (
	_ pgx.QueryTracer       = (*gate)(nil)
	_ pgxpool.AcquireTracer = (*gate)(nil)
)

// glance is how often who is next looks for itself. It may hear of a connection just before
// that can be had, and does not hear of one that is not given back but closed.
const glance = 2 * time.Millisecond

// mostCost bounds how long a connection is waited for before another is opened, where to
// open one takes long.
const mostCost = 100 * time.Millisecond

// slowOpening is when an opening is thought to hang, as when the network was cut.
const slowOpening = 250 * time.Millisecond

// guard puts a gate before the connections of a pool, which are scrubbed after use. The
// gate goes by what happens to each acquire, and not only by how it was let through: an
// idle connection may turn out to be dead, and then pgxpool opens another by itself.
func guard(c *pgxpool.Config) {
	g := &gate{turn: make(chan struct{}, 1), freed: make(chan struct{}, 1), patience: slowOpening, aged: time.Second}
	c.ConnConfig.Tracer = g
	c.ShouldPing = func(ctx context.Context, got pgxpool.ShouldPingParams) bool {
		g.got(ctx)
		return got.IdleDuration > g.aged
	}
	connect, connected := c.BeforeConnect, c.AfterConnect
	c.BeforeConnect = func(ctx context.Context, cc *pgx.ConnConfig) error {
		g.opens(ctx)
		return connect(ctx, cc)
	}
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		err := connected(ctx, conn)
		g.opened(ctx)
		return err
	}
	released := c.AfterRelease
	c.AfterRelease = func(conn *pgx.Conn) bool {
		ok := released(conn)
		g.nudge()
		return ok
	}
}

func (g *gate) nudge() {
	select {
	case g.freed <- struct{}{}:
	default:
	}
}

// passage is how far an acquire has come since it was let through.
type passage struct {
	way   way       // guarded by the gate's mu
	since time.Time // guarded by the gate's mu; toOpen
}

type way int

const (
	refused way = iota
	toIdle
	toOpen
	inside // it has a connection, or will get none
)

type (
	passageKey struct{}
	aheadKey   struct{}
)

// ahead marks who opens connections before they are needed. One that somebody gives back
// would not serve it as well, so it does not wait for that.
func ahead(ctx context.Context) context.Context { return context.WithValue(ctx, aheadKey{}, true) }

func passageOf(ctx context.Context) *passage {
	p, _ := ctx.Value(passageKey{}).(*passage)
	return p
}

// got notes that an acquire has a connection; pgxpool has yet to see whether it is good.
func (g *gate) got(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leave(passageOf(ctx))
}

// opens notes that a connection is opened for an acquire, however it was let through.
func (g *gate) opens(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := passageOf(ctx); p != nil {
		g.leave(p)
		g.open(p)
	}
}

// opened notes that the connection is there. Who wanted it may have gone: it is idle then.
func (g *gate) opened(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := passageOf(ctx); p != nil {
		g.cost = min(time.Since(p.since), mostCost)
		g.leave(p)
	}
	g.nudge()
}

// open makes p the one who opens a connection; mu is held.
func (g *gate) open(p *passage) {
	p.way, p.since = toOpen, time.Now()
	g.opening = p
}

// leave takes p out of what keeps others waiting; mu is held.
func (g *gate) leave(p *passage) {
	if p == nil {
		return
	}
	if p.way == toIdle {
		g.entering--
	}
	if g.opening == p {
		g.opening = nil
	}
	p.way = inside
}

// TraceAcquireStart implements pgxpool.AcquireTracer: it waits.
func (g *gate) TraceAcquireStart(ctx context.Context, db *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	defer g.queue.Add(-1)
	began := time.Now()
	if ctx.Value(aheadKey{}) != nil {
		began = time.Time{} // that is long ago
	}
	if g.queue.Add(1) == 1 { // nobody waits
		if p := g.pass(db, time.Since(began)); p != nil {
			return context.WithValue(ctx, passageKey{}, p)
		}
	}
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return ctx
	}
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for {
		if p := g.pass(db, time.Since(began)); p != nil {
			return context.WithValue(ctx, passageKey{}, p)
		}
		select {
		case <-ctx.Done():
			return ctx
		case <-g.freed:
		case <-tick.C:
		}
	}
}

// pass lets one through that has waited for so long, if it is time; else nil.
func (g *gate) pass(db *pgxpool.Pool, waited time.Duration) *passage {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := db.Stat() // with those who enter, or one connection would be found idle twice
	p := new(passage)
	switch p.way = g.admit(int(s.IdleConns()), int(s.TotalConns()), int(s.MaxConns()), waited); p.way {
	case refused:
		return nil
	case toIdle:
		g.entering++
	case toOpen:
		g.open(p)
	}
	return p
}

// admit tells whether one may pass: if there is an idle connection or, if there may be
// another, to open it; mu is held.
func (g *gate) admit(idle, total, most int, waited time.Duration) way {
	switch {
	case idle > g.entering:
		return toIdle
	case total >= most, total > 0 && waited < g.cost:
		return refused
	case g.opening != nil && time.Since(g.opening.since) < g.patience:
		return refused
	case g.entering > 0 && waited < glance: // that takes no time, unless the connection turns out to be dead
		return refused
	}
	return toOpen
}

// TraceAcquireEnd implements pgxpool.AcquireTracer. What was begun for one who has ceased
// to wait goes on without it.
func (g *gate) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := passageOf(ctx); p != nil && (p.way != toOpen || ctx.Err() == nil) {
		g.leave(p)
	}
	g.nudge()
}

// TraceQueryStart implements pgx.QueryTracer, as every tracer has to.
func (g *gate) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (g *gate) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
