package routing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
)

// ErrNoConnection is returned when this node has as many connections as
// connections.per_node allows and none of them came free in time.
var ErrNoConnection = errors.New("all connections of this node are in use")

// budget bounds how many connections a node has, over all pools. The locks' own are not
// bounded: a handler that waits for a connection must not cost a lock. Where more are wanted,
// those are closed first that nobody has used for the longest, and then those that have served
// their pool for a while: to open one costs the server as much as some hundred jobs.
type budget struct {
	permits chan struct{}  // one per connection that is open or being opened; nil: no bound
	pools   func() []*Pool // those whose connections are bounded
	look    sync.Mutex     // held while one looks for idle connections
	looked  time.Time      // guarded by look; when one did last

	log *zap.Logger

	mu       sync.Mutex
	waiting  int       // guarded by mu; dials that wait for a permit
	promised int       // guarded by mu; of them, those for which a connection is being closed
	warned   time.Time // guarded by mu; when it was last said that dials wait for long
}

func newBudget(most int, pools func() []*Pool, log *zap.Logger) *budget {
	b := &budget{pools: pools, log: log}
	if most > 0 {
		b.permits = make(chan struct{}, most)
	}
	return b
}

const (
	// evictAfter is how long a connection has not been used that is closed for others at once.
	evictAfter = 50 * time.Millisecond
	// lookEvery is how often one looks for such connections at most, over all pools.
	lookEvery = evictAfter / 10
	// longestSpell is how long a connection serves its pool before it is closed for another
	// pool's; it is shorter where so many wait that the last would wait in vain.
	longestSpell = 2 * time.Second
)

// openedKey holds when a connection was opened.
const openedKey = "tenure.opened"

// limit makes the connections of a pool take permits. What waits for one is bounded by the time that its caller has
// for all it wants, and not by that for a connect; it goes on without its caller, and a, the pool's admission,
// lets nobody open another meanwhile.
func (b *budget) limit(c *pgxpool.Config, a *admission) {
	released := c.AfterRelease
	if released == nil {
		released = func(*pgx.Conn) bool { return true }
	}
	c.AfterRelease = released
	if b.permits == nil {
		return
	}
	a.isFull = func() bool { return len(b.permits) == cap(b.permits) }
	dial, connected := c.ConnConfig.DialFunc, c.AfterConnect
	own := new(int) // of those that wait; guarded by the budget's mu
	bound := c.ConnConfig.ConnectTimeout
	c.ConnConfig.ConnectTimeout = 24 * time.Hour // it counts the wait for the permit, too, and pgxpool makes two minutes of none
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		t, asked := ctx.Value(ticketKey{}).(*ticket)
		if !asked { // a request to cancel a statement, which is over soon, and must not wait for it
			return dial(ctx, network, addr)
		}
		a.noteWaiting(t)
		if err := b.takePermit(ctx, own, func() bool { return a.isWanted(t) }); err != nil {
			return nil, err
		}
		a.noteDialling(t)
		deadline := time.Now().Add(bound)
		ctx, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			<-b.permits
			return nil, err
		}
		conn = &permittedConn{Conn: conn, budget: b}
		if err := conn.SetDeadline(deadline); err != nil { // for all that is said until it is connected
			_ = conn.Close()
			return nil, err
		}
		return conn, nil
	}
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		conn.PgConn().CustomData()[openedKey] = time.Now()
		if err := conn.PgConn().Conn().SetDeadline(time.Time{}); err != nil {
			return err
		}
		return connected(ctx, conn)
	}
	c.AfterRelease = func(conn *pgx.Conn) bool {
		return !b.takesBack(own, conn.PgConn().CustomData()[openedKey].(time.Time)) && released(conn)
	}
}

// takePermit waits for a permit as one of those that own counts, for as long as a connection is wanted.
func (b *budget) takePermit(ctx context.Context, own *int, wanted func() bool) error {
	select {
	case b.permits <- struct{}{}:
		b.note(own, 0, true)
		return nil
	default:
	}
	b.note(own, 1, false)
	tick := time.NewTicker(2 * recheckEvery)
	defer tick.Stop()
	long := time.NewTimer(longestSpell)
	defer long.Stop()
	for {
		select {
		case b.permits <- struct{}{}:
			b.note(own, -1, true)
			return nil
		case <-long.C:
			b.warn()
		case <-ctx.Done():
			b.note(own, -1, false)
			return fmt.Errorf("%w: %d, see connections.per_node: %w", ErrNoConnection, cap(b.permits), context.Cause(ctx))
		case <-tick.C:
			if !wanted() {
				b.note(own, -1, false)
				return fmt.Errorf("%w: %d, see connections.per_node; who wanted one waits no more", ErrNoConnection, cap(b.permits))
			}
			b.lookForIdle(ctx)
		}
	}
}

// warn says, now and then, that connections are waited for.
func (b *budget) warn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.warned) < warnEvery {
		return
	}
	b.warned = time.Now()
	b.log.Warn("pools wait for connections, as this node has as many as connections.per_node allows: jobs and calls are late; raise it, or spread the pools over more nodes",
		zap.Int("per_node", cap(b.permits)), zap.Int("waiting", b.waiting))
}

// warnEvery is how often that is said at most.
const warnEvery = time.Minute

// note notes that so many more wait for a permit, and whether one was taken.
func (b *budget) note(own *int, more int, taken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*own += more
	b.waiting += more
	if taken && b.promised > 0 {
		b.promised--
	}
	b.promised = min(b.promised, b.waiting)
}

// takesBack tells whether a connection that was opened then and is not used just now is to be
// closed, for one who waits and is not among its own pool's.
func (b *budget) takesBack(own *int, opened time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.promised >= b.waiting-*own || time.Since(opened) < b.spell() {
		return false
	}
	b.promised++
	return true
}

// isCrowded tells whether a pool waits for one of this node's connections, as it may open no more.
func (b *budget) isCrowded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting > 0
}

// spell is for how long a connection may serve while so many wait; mu is held.
func (b *budget) spell() time.Duration {
	fair := connectTimeout / 2 * time.Duration(cap(b.permits)) / time.Duration(b.waiting)
	return min(longestSpell, max(evictAfter, fair))
}

// lookForIdle closes idle connections, unless one who waits has looked for them just now.
func (b *budget) lookForIdle(ctx context.Context) {
	if !b.look.TryLock() {
		return
	}
	defer b.look.Unlock()
	if time.Since(b.looked) >= lookEvery {
		b.looked = time.Now()
		b.evict(ctx)
	}
}

// evict closes idle connections, as many as are waited for, of the pool that has used none of its for the longest.
func (b *budget) evict(ctx context.Context) {
	var oldest guarded
	since := int64(time.Since(began) - evictAfter)
	for _, p := range b.pools() {
		for _, db := range p.madePools() {
			if used := db.admission.used.Load(); used < since && db.Stat().IdleConns() > 0 {
				oldest, since = db, used
			}
		}
	}
	if oldest.Pool == nil {
		return
	}
	for _, c := range oldest.AcquireAllIdle(ctx) {
		if b.promise() {
			closeInTime(ctx, c.Hijack())
		} else {
			oldest.admission.countWorking(1) // its release counts it off
			c.Release()
		}
	}
}

// promise promises a connection that is to be closed to one who waits, if any has none yet.
func (b *budget) promise() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.promised >= b.waiting {
		return false
	}
	b.promised++
	return true
}

// permittedConn gives its permit back when it is closed.
type permittedConn struct {
	net.Conn
	budget *budget
	once   sync.Once
}

// Close implements net.Conn.
func (c *permittedConn) Close() error {
	defer c.once.Do(func() { <-c.budget.permits })
	return c.Conn.Close()
}

// checkCapacity refuses p when so many nodes together may open more connections to its
// server than that has, with the arithmetic.
func (r *routes) checkCapacity(p *Pool, server string, maxConns, nodes int) error {
	names, most := []string{p.Name}, p.serverConns()
	for _, other := range r.list() {
		// Those at the same address, too, if they are not in service yet: else the proposal
		// would be for some of the pools only.
		if on, _ := other.serverInUse(); other != p && (other.server == p.server || on == server) {
			names, most = append(names, other.Name), most+other.serverConns()
		}
	}
	return r.cfg.Connections.checkServer(names, most, maxConns, nodes)
}

// CheckServer is what a node would say that is asked to serve these pools, of one server that has
// room for so many connections: an error with the arithmetic if so many nodes could open more.
func (c Config) CheckServer(pools []string, maxConns, nodes int) error {
	c = c.WithDefaults()
	most := 0
	for _, name := range pools {
		most += c.Pools[name].serverConns()
	}
	return c.Connections.checkServer(pools, most, maxConns, nodes)
}

// checkServer is an error if so many nodes, each with most connections to the pools of a server,
// may open more than that has.
func (c ConnectionsConfig) checkServer(names []string, most, maxConns, nodes int) error {
	all, bounded := most*nodes, ""
	// Besides, one node holds each lock, and two may be looking at it.
	locks := len(names) * min(nodes, 3) * lockConns
	if c.PerNode > 0 && c.PerNode*nodes+locks < all {
		most, all = c.PerNode, c.PerNode*nodes+locks
		bounded = fmt.Sprintf("; connections.per_node, and %d for the locks", locks)
	}
	if all <= maxConns {
		return nil
	}
	who := fmt.Sprintf("this node may open %d", most)
	if nodes > 1 || bounded != "" {
		who = fmt.Sprintf("%d nodes may open %d each, %d in all", nodes, most, all)
	}
	var fixes []string // of those that are allowed
	if each := maxConns / nodes / len(names); each >= minMaxConns {
		fixes = append(fixes, fmt.Sprintf("lower max_conns to %d", each))
	}
	if perNode := (maxConns - locks) / nodes; perNode >= minMaxConns {
		fixes = append(fixes, fmt.Sprintf("set connections.per_node to %d", perNode))
	}
	raise := fmt.Sprintf("raise the server's max_connections by %d", all-maxConns)
	if len(fixes) > 0 {
		raise = strings.Join(fixes, ", ") + ", or " + raise
	}
	return &store.PoolError{Pool: names[0],
		What: fmt.Sprintf("its server has room for %d connections, and %s (pools there: %s%s)", maxConns, who, firstOf(names), bounded),
		Fix:  raise}
}

// firstOf lists the first of many names.
func firstOf(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
