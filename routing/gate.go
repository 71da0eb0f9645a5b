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

	mu       sync.Mutex
	entering int           // guarded by mu; let through to an idle connection, without having it yet
	opening  time.Time     // guarded by mu; when one was last let through to open a connection; zero: that is open
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

// guard puts a gate before the connections of a pool, which are scrubbed after use.
func guard(c *pgxpool.Config) {
	g := &gate{turn: make(chan struct{}, 1), freed: make(chan struct{}, 1), patience: slowOpening}
	c.ConnConfig.Tracer = g
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

// passage is how an acquire was let through.
type passage struct {
	way way
	at  time.Time // toOpen
}

type way int

const (
	refused way = iota
	toIdle
	toOpen
)

type passageKey struct{}

// TraceAcquireStart implements pgxpool.AcquireTracer: it waits.
func (g *gate) TraceAcquireStart(ctx context.Context, db *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	defer g.queue.Add(-1)
	began := time.Now()
	if g.queue.Add(1) == 1 { // nobody waits
		if p := g.pass(db, 0); p.way != refused {
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
		if p := g.pass(db, time.Since(began)); p.way != refused {
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

// pass lets one through that has waited for so long, if it is time.
func (g *gate) pass(db *pgxpool.Pool, waited time.Duration) passage {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := db.Stat() // with those who enter, or one connection would be found idle twice
	p := passage{way: g.admit(int(s.IdleConns()), int(s.TotalConns()), int(s.MaxConns()), waited)}
	switch p.way {
	case toIdle:
		g.entering++
	case toOpen:
		p.at = time.Now()
		g.opening = p.at
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
	case !g.opening.IsZero() && time.Since(g.opening) < g.patience:
		return refused
	case g.entering > 0 && waited < glance: // that takes no time, unless the connection turns out to be dead
		return refused
	}
	return toOpen
}

// TraceAcquireEnd implements pgxpool.AcquireTracer.
func (g *gate) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, end pgxpool.TraceAcquireEndData) {
	p, _ := ctx.Value(passageKey{}).(passage)
	g.mu.Lock()
	switch p.way {
	case toIdle:
		g.entering--
	case toOpen:
		g.opening = time.Time{}
		if end.Err == nil {
			g.cost = min(time.Since(p.at), mostCost)
		}
	}
	g.mu.Unlock()
	g.nudge()
}

// TraceQueryStart implements pgx.QueryTracer, as every tracer has to.
func (g *gate) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (g *gate) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
