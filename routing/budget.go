package routing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/internal/store"
)

// ErrNoConnection is returned when this node has as many connections as
// connections.per_node allows and none of them came free in time.
var ErrNoConnection = errors.New("all connections of this node are in use")

// budget bounds how many connections a node has, over all pools. The locks' own are not
// bounded: a handler that waits for a connection must not cost a lock.
type budget struct {
	permits chan struct{} // one per connection that is open or being opened; nil: no bound
	evict   func(ctx context.Context) (closed bool)

	evicting sync.Mutex // held while connections are evicted
}

func newBudget(most int, evict func(context.Context) bool) *budget {
	b := &budget{evict: evict}
	if most > 0 {
		b.permits = make(chan struct{}, most)
	}
	return b
}

// evictAfter is how long a dial waits for a permit before connections are closed that
// nobody uses just now.
const evictAfter = 2 * recheckEvery

// limit makes the connections of a pool take permits.
func (b *budget) limit(c *pgxpool.Config) {
	if b.permits == nil {
		return
	}
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := b.takePermit(ctx); err != nil {
			return nil, err
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			<-b.permits
			return nil, err
		}
		return &permittedConn{Conn: conn, budget: b}, nil
	}
}

func (b *budget) takePermit(ctx context.Context) error {
	for {
		select {
		case b.permits <- struct{}{}:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: %d, see connections.per_node: %w", ErrNoConnection, cap(b.permits), context.Cause(ctx))
		case <-time.After(evictAfter):
		}
		if b.evicting.TryLock() {
			b.evict(ctx)
			b.evicting.Unlock()
		}
	}
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

// evictIdle closes idle connections of one pool, and tells whether there were any.
func evictIdle(ctx context.Context, pools []*Pool) bool {
	for _, p := range pools { // in any order: an idle connection is cheap to make again
		for _, db := range p.madePools() {
			if db.Stat().IdleConns() == 0 {
				continue
			}
			idle := db.AcquireAllIdle(ctx)
			for _, c := range idle {
				closeInTime(ctx, c.Hijack())
			}
			if len(idle) > 0 {
				return true
			}
		}
	}
	return false
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
