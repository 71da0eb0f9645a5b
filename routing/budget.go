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

// budget bounds a node's connections over all pools. The locks' own are not bounded:
// a handler that waits for a connection must not cost a lock.
type budget struct {
	places chan struct{} // one per connection that is open or being opened; nil: no bound
	evict  func(ctx context.Context) (closed bool)

	evicting sync.Mutex // held by whoever evicts
}

func newBudget(most int, evict func(context.Context) bool) *budget {
	b := &budget{evict: evict}
	if most > 0 {
		b.places = make(chan struct{}, most)
	}
	return b
}

// evictAfter is how long a dial waits for a place before connections are closed that
// nobody uses just now.
const evictAfter = 5 * time.Millisecond

// bound makes the connections of a pool take places.
func (b *budget) bound(c *pgxpool.Config) {
	if b.places == nil {
		return
	}
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := b.take(ctx); err != nil {
			return nil, err
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			<-b.places
			return nil, err
		}
		return &counted{Conn: conn, budget: b}, nil
	}
}

func (b *budget) take(ctx context.Context) error {
	for {
		wait := time.NewTimer(evictAfter)
		select {
		case b.places <- struct{}{}:
			wait.Stop()
			return nil
		case <-ctx.Done():
			wait.Stop()
			return fmt.Errorf("%w: %d, see connections.per_node: %w", ErrNoConnection, cap(b.places), context.Cause(ctx))
		case <-wait.C:
		}
		if b.evicting.TryLock() {
			b.evict(ctx)
			b.evicting.Unlock()
		}
	}
}

// counted gives its place back when it is closed.
type counted struct {
	net.Conn
	budget *budget
	once   sync.Once
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.once.Do(func() { <-c.budget.places })
	return c.Conn.Close()
}

// evictIdle closes idle connections of one pool, and tells whether there were any.
func (r *Router) evictIdle(ctx context.Context) bool {
	for _, p := range r.Pools() { // in any order: an idle connection is cheap to make again
		for _, db := range p.opened() {
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

// Exceeds is an error if so many nodes may open more connections to a server than that
// has, although connections.nodes speaks of fewer: each node's own check has passed then.
func (r *Router) Exceeds(nodes int) error {
	in := r.routes.Load()
	if nodes <= in.cfg.Connections.Nodes {
		return nil
	}
	var errs []error
	checked := map[string]bool{}
	for _, p := range in.list() {
		if server, room := p.onWhich(); server != "" && !checked[server] {
			checked[server] = true
			errs = append(errs, in.checkBudget(p, server, room, nodes))
		}
	}
	return errors.Join(errs...)
}

// checkBudget refuses p when so many nodes together may open more connections to its
// server than that has, with the arithmetic.
func (r *routes) checkBudget(p *Pool, server string, room, nodes int) error {
	names, most := []string{p.Name}, p.cfg.MaxConns
	for _, other := range r.list() {
		// Those at the same address, too, if they are not in service yet: else the proposal
		// would be for some of the pools only.
		if other != p && (other.door == p.door || other.onServer(server)) {
			names, most = append(names, other.Name), most+other.cfg.MaxConns
		}
	}
	c := r.cfg.Connections
	all, bounded := most*nodes, ""
	// Besides, one node holds each lock, and two may be looking at it.
	locks := len(names) * min(nodes, 3) * lockConns
	if c.PerNode > 0 && c.PerNode*nodes+locks < all {
		most, all = c.PerNode, c.PerNode*nodes+locks
		bounded = fmt.Sprintf("; connections.per_node, and %d for the locks", locks)
	}
	if all <= room {
		return nil
	}
	who := fmt.Sprintf("this node may open %d", most)
	if nodes > 1 || bounded != "" {
		who = fmt.Sprintf("%d nodes may open %d each, %d in all", nodes, most, all)
	}
	var fixes []string // of those that are allowed
	if each := room / nodes / len(names); each >= minMaxConns {
		fixes = append(fixes, fmt.Sprintf("lower max_conns to %d", each))
	}
	if perNode := (room - locks) / nodes; perNode >= minMaxConns {
		fixes = append(fixes, fmt.Sprintf("set connections.per_node to %d", perNode))
	}
	raise := fmt.Sprintf("raise the server's max_connections by %d", all-room)
	if len(fixes) > 0 {
		raise = strings.Join(fixes, ", ") + ", or " + raise
	}
	return &store.PoolError{Pool: p.Name,
		What: fmt.Sprintf("its server has room for %d connections, and %s (pools there: %s%s)", room, who, some(names), bounded),
		Fix:  raise}
}

// some lists the first of many names.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
