package chaos

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
)

// InjectAll does and undoes every fault at its time.
func (c *Cluster) InjectAll(ctx context.Context, faults []*Fault) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	began := time.Now()
	for _, f := range faults {
		if err := wait.For(ctx, f.At-time.Since(began)); err != nil {
			break
		}
		c.Say("%v", f)
		group.Go(func() {
			f.struck = c.struckBy(f)
			f.began = time.Now()
			err := c.inject(ctx, f)
			f.ended = time.Now()
			if err != nil {
				cancel(fmt.Errorf("%v: %w", f, err))
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// struckBy lists the members whose process a fault is about to befall.
func (c *Cluster) struckBy(f *Fault) (members []string) {
	for i, n := range c.Fleet.Nodes {
		if p := n.Running(); p != nil && (f.Kind == blackout || f.Node == i) {
			members = append(members, p.Member)
		}
	}
	return members
}

// inject makes one fault happen, waits, and mends it.
func (c *Cluster) inject(ctx context.Context, f *Fault) error {
	if f.Server >= 0 && f.Node < 0 { // the fault before may have taken longer than planned
		c.serving[f.Server].Lock()
		defer c.serving[f.Server].Unlock()
	}
	switch f.Kind {
	case "kill":
		return c.killAndRevive(ctx, f, c.Fleet.Nodes[f.Node])
	case blackout:
		return c.killAndRevive(ctx, f, c.Fleet.Nodes...)
	case "freeze":
		p := c.Fleet.Nodes[f.Node].Running()
		p.Freeze()
		defer p.Thaw()
		return wait.For(ctx, f.For)
	case "restart":
		f.stopped = time.Now()
		return c.Bed.Servers[f.Server].Restart(ctx, false)
	case "fail over":
		return c.failOver(ctx, f)
	case "crash":
		s := c.Bed.Servers[f.Server]
		f.stopped = time.Now()
		if err := s.Crash(ctx); err != nil {
			return err
		}
		_ = wait.For(ctx, f.For)
		return s.Resume(context.WithoutCancel(ctx))
	case "gossip", "gossip one way", "gossip alone":
		return c.cutGossip(ctx, f)
	}
	return c.cutDatabase(ctx, f)
}

// killAndRevive kills nodes and starts them again.
func (c *Cluster) killAndRevive(ctx context.Context, f *Fault, nodes ...*fleet.Node) error {
	for _, n := range nodes {
		n.Kill()
		c.died(n.Running())
	}
	_ = wait.For(ctx, f.For) // also when all is over, the nodes are had back
	return fleet.Together(nodes, func(n *fleet.Node) error { return c.revive(ctx, n) })
}

// failOver replaces a server by a standby that misses what was committed last.
func (c *Cluster) failOver(ctx context.Context, f *Fault) error {
	standby, err := c.Bed.Servers[f.Server].Standby(ctx)
	if err != nil {
		return err
	}
	old := c.Bed.Servers[f.Server]
	c.Bed.Servers[f.Server] = standby
	ctx = context.WithoutCancel(ctx) // half a fail-over would leave no server
	defer func() { _ = old.Stop(ctx) }()
	conn, err := pgx.Connect(ctx, standby.DSN("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if f.torn, err = caughtUp(ctx, old, conn); err != nil {
		return err
	}
	for _, sql := range []string{"ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if err := wait.For(ctx, f.For); err != nil {
		return err
	}
	f.stopped = time.Now()
	if err := old.Stop(ctx); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_promote()"); err != nil {
		return err
	}
	for _, node := range c.proxies {
		if err := node[f.Server].SetServer(standby.DSN("postgres")); err != nil {
			return err
		}
	}
	return nil
}

// caughtUp waits until a standby has received all that its primary had written at some
// time, and returns that time.
func caughtUp(ctx context.Context, primary *devpg.Server, standby *pgx.Conn) (at time.Time, err error) {
	conn, err := pgx.Connect(ctx, primary.DSN("postgres"))
	if err != nil {
		return at, err
	}
	defer conn.Close(ctx)
	var lsn string
	at = time.Now()
	if err := conn.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&lsn); err != nil {
		return at, err
	}
	err = wait.Until(ctx, time.Minute, "the standby does not catch up", func() (received bool, err error) {
		err = standby.QueryRow(ctx, "SELECT coalesce(pg_last_wal_receive_lsn() >= $1::pg_lsn, false)", lsn).Scan(&received)
		return received, err
	})
	return at, err
}

// cutDatabase disturbs what a node and a database server say to one another.
func (c *Cluster) cutDatabase(ctx context.Context, f *Fault) error {
	p := c.proxies[f.Node][f.Server]
	all := func(string) bool { return true }
	switch f.Kind {
	case "cut":
		p.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
		p.Cut(nil)
		defer p.SetRule(nil)
	case "lossy": // one statement in a hundred, and every other of those is done
		var n atomic.Int64
		n.Store(int64(f.At))
		p.SetRule(func(faultproxy.Event) faultproxy.Verdict {
			switch n.Add(1) % 200 {
			case 0:
				return faultproxy.CutBefore
			case 100:
				return faultproxy.CutAfter
			}
			return faultproxy.Pass
		})
		defer p.SetRule(nil)
	case "hole":
		p.Hold(all)
	case "deaf":
		p.HoldWay(faultproxy.ToClient, all)
	case "mute":
		p.HoldWay(faultproxy.ToServer, all)
	default:
		panic("loadtest: no such fault: " + f.Kind)
	}
	defer p.Hold(nil)
	return wait.For(ctx, f.For)
}

// cutGossip cuts what nodes say to one another.
func (c *Cluster) cutGossip(ctx context.Context, f *Fault) error {
	ways := []fleet.Way{{From: f.Node, To: f.Peer}}
	switch f.Kind {
	case "gossip":
		ways = append(ways, fleet.Way{From: f.Peer, To: f.Node})
	case "gossip alone":
		ways = nil
		for i := range c.Fleet.Nodes {
			if i != f.Node {
				ways = append(ways, fleet.Way{From: f.Node, To: i}, fleet.Way{From: i, To: f.Node})
			}
		}
	}
	defer c.Fleet.CutGossip(ways)()
	return wait.For(ctx, f.For)
}

// revive starts a node again and again, as a supervisor would.
func (c *Cluster) revive(ctx context.Context, n *fleet.Node) error {
	ctx = context.WithoutCancel(ctx)
	var err error
	for range 10 {
		if err = n.Start(ctx); err == nil {
			c.born(n.Running())
			return nil
		}
		c.Say("%v", err)
		c.failedStarts.Add(1)
		_ = wait.For(ctx, time.Second)
	}
	return err
}
