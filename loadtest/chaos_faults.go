package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/faultproxy"
)

// fault is one thing that goes wrong, for a while.
type fault struct {
	At, For time.Duration // since the beginning; how long
	Kind    string
	Node    int // -1: of no node
	Server  int // -1: of no database server
	Peer    int // the other node of a gossip cut; -1: none

	began, ended time.Time // when it was done and undone
	struck       []string  // members whose process it befell
	stopped      time.Time // of a server: from when on it answered nobody, until the end
	torn         time.Time // of a fail-over: what was committed after it may not have reached the standby
}

func (f *fault) String() string {
	s := fmt.Sprintf("%v for %v", f.Kind, f.For.Round(time.Millisecond))
	if f.Node >= 0 {
		s += fmt.Sprintf(" node-%d", f.Node+1)
	}
	if f.Server >= 0 {
		s += fmt.Sprintf(" server %d", f.Server+1)
	}
	if f.Peer >= 0 {
		s += fmt.Sprintf(" to node-%d", f.Peer+1)
	}
	return s
}

// faultKind is what may go wrong, how often compared to the others, and how long, in
// terms of the default times to live; a schedule scales them as it does those.
type faultKind struct {
	name     string
	weight   int
	from, to time.Duration
	// What it happens to.
	node, server, peer bool
}

var faultKinds = []faultKind{
	{name: "kill", weight: 5, from: time.Second, to: 10 * time.Second, node: true},                  // SIGKILL; started again afterwards
	{name: blackout, weight: 1, from: time.Second, to: 10 * time.Second},                            // the same to all nodes at once
	{name: "freeze", weight: 4, from: 5 * time.Second, to: 40 * time.Second, node: true},            // SIGSTOP, SIGCONT
	{name: "cut", weight: 2, from: 2 * time.Second, to: 30 * time.Second, node: true, server: true}, // connections break, new ones too
	{name: "hole", weight: 2, from: 2 * time.Second, to: 30 * time.Second, node: true, server: true},
	{name: "deaf", weight: 2, from: 2 * time.Second, to: 30 * time.Second, node: true, server: true}, // answers do not arrive
	{name: "mute", weight: 2, from: 2 * time.Second, to: 30 * time.Second, node: true, server: true}, // questions do not arrive
	{name: "lossy", weight: 3, from: 5 * time.Second, to: 30 * time.Second, node: true, server: true},
	{name: "restart", weight: 1, from: 0, to: time.Second, server: true},                         // in order
	{name: "crash", weight: 2, from: 500 * time.Millisecond, to: 20 * time.Second, server: true}, // immediate stop, then start
	{name: "fail over", weight: 1, from: 2 * time.Second, to: 15 * time.Second, server: true},    // to a standby that did not receive what was committed last
	{name: "gossip one way", weight: 2, from: 5 * time.Second, to: 60 * time.Second, node: true, peer: true},
	{name: "gossip", weight: 2, from: 5 * time.Second, to: 60 * time.Second, node: true, peer: true},
	{name: "gossip alone", weight: 2, from: 5 * time.Second, to: 60 * time.Second, node: true}, // with nobody
}

func kindNames() (all []string) {
	for _, k := range faultKinds {
		all = append(all, k.name)
	}
	return all
}

// blackout kills all nodes at once.
const blackout = "blackout"

// plan draws a schedule: the same seed and options give the same one. A process, and a
// database server, has one fault at a time, as a dead one cannot be frozen; cuts come
// on top of that.
func plan(o chaosOptions, gossip bool) []*fault {
	r := rand.New(rand.NewPCG(o.seed, 2))
	kinds := slices.DeleteFunc(slices.Clone(faultKinds), func(k faultKind) bool { return len(o.only) > 0 && !slices.Contains(o.only, k.name) })
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	busy := map[string]time.Duration{} // until when
	var all []*fault
	end := time.Duration(o.minutes * float64(time.Minute))
	for at := time.Duration(0); at < end; {
		if o.alone {
			at += o.every
		} else {
			at += time.Duration(r.ExpFloat64() * float64(o.every))
		}
		n := r.IntN(total)
		var k faultKind
		for _, k = range kinds {
			if n -= k.weight; n < 0 {
				break
			}
		}
		f := &fault{At: at, Kind: k.name, Node: -1, Server: -1, Peer: -1}
		f.For = time.Duration(float64(k.from+time.Duration(r.Int64N(int64(k.to-k.from)))) * o.scale)
		target := "gossip"
		if k.node {
			f.Node = r.IntN(o.nodes)
			target = fmt.Sprint("process ", f.Node)
		}
		if k.server {
			f.Server = r.IntN(o.servers)
			target = fmt.Sprint("server ", f.Server, " of ", f.Node)
		}
		if k.peer {
			f.Peer = (f.Node + 1 + r.IntN(o.nodes-1)) % o.nodes
		}
		isGossip := k.peer || k.name == "gossip alone"
		if isGossip {
			target = "gossip"
		}
		targets := []string{target}
		if k.name == blackout {
			targets = nil
			for n := range o.nodes {
				targets = append(targets, fmt.Sprint("process ", n))
			}
		}
		isBusy := slices.ContainsFunc(targets, func(t string) bool { return at < busy[t] })
		if o.lasts > 0 {
			f.For = o.lasts
		}
		if f.Kind == "fail over" { // what is lost is seconds, whatever the times to live
			f.For = max(f.For, time.Second)
		}
		if at >= end || isGossip && !gossip || isBusy || o.lasts > 0 && at+f.For > end {
			continue
		}
		f.For = min(f.For, end-at) // all is well again when the schedule ends
		for _, t := range targets {
			busy[t] = at + f.For + restTime
		}
		all = append(all, f)
		if o.alone {
			at += f.For
		}
	}
	return all
}

// restTime is the least between the end of a fault and the next of its kind: a process
// or a server has to start in it.
const restTime = time.Second

// perform does and undoes every fault at its time.
func (c *chaos) perform(ctx context.Context, faults []*fault) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	began := time.Now()
	for _, f := range faults {
		if err := wait(ctx, f.At-time.Since(began)); err != nil {
			break
		}
		c.say("%v", f)
		group.Go(func() {
			f.struck = c.strikes(f)
			f.began = time.Now()
			err := c.do(ctx, f)
			f.ended = time.Now()
			if err != nil {
				cancel(fmt.Errorf("%v: %w", f, err))
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// strikes lists the members whose process a fault is about to befall.
func (c *chaos) strikes(f *fault) (members []string) {
	for i, n := range c.fleet.nodes {
		if p := n.running(); p != nil && (f.Kind == blackout || f.Node == i) {
			members = append(members, p.member)
		}
	}
	return members
}

// do makes one fault happen, waits, and mends it.
func (c *chaos) do(ctx context.Context, f *fault) error {
	if f.Server >= 0 && f.Node < 0 { // the fault before may have taken longer than planned
		c.serving[f.Server].Lock()
		defer c.serving[f.Server].Unlock()
	}
	switch f.Kind {
	case "kill":
		return c.killAndRevive(ctx, f, c.fleet.nodes[f.Node])
	case blackout:
		return c.killAndRevive(ctx, f, c.fleet.nodes...)
	case "freeze":
		p := c.fleet.nodes[f.Node].running()
		p.freeze()
		defer p.thaw()
		return wait(ctx, f.For)
	case "restart":
		f.stopped = time.Now()
		return c.bed.servers[f.Server].Restart(ctx, false)
	case "fail over":
		return c.failOver(ctx, f)
	case "crash":
		s := c.bed.servers[f.Server]
		f.stopped = time.Now()
		if err := s.Crash(ctx); err != nil {
			return err
		}
		_ = wait(ctx, f.For)
		return s.Resume(context.WithoutCancel(ctx))
	case "gossip", "gossip one way", "gossip alone":
		return c.cutGossip(ctx, f)
	}
	return c.cutDatabase(ctx, f)
}

// killAndRevive kills nodes and starts them again.
func (c *chaos) killAndRevive(ctx context.Context, f *fault, nodes ...*node) error {
	for _, n := range nodes {
		n.kill()
		c.died(n.running())
	}
	_ = wait(ctx, f.For) // also when all is over, the nodes are had back
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() { errs[i] = c.revive(ctx, n) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// failOver replaces a server by a standby that misses what was committed last.
func (c *chaos) failOver(ctx context.Context, f *fault) error {
	standby, err := c.bed.servers[f.Server].Standby(ctx)
	if err != nil {
		return err
	}
	old := c.bed.servers[f.Server]
	c.bed.servers[f.Server] = standby
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
	if err := wait(ctx, f.For); err != nil {
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
	err = until(ctx, time.Minute, "the standby does not catch up", func() (received bool, err error) {
		err = standby.QueryRow(ctx, "SELECT coalesce(pg_last_wal_receive_lsn() >= $1::pg_lsn, false)", lsn).Scan(&received)
		return received, err
	})
	return at, err
}

// cutDatabase disturbs what a node and a database server say to one another.
func (c *chaos) cutDatabase(ctx context.Context, f *fault) error {
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
	return wait(ctx, f.For)
}

// cutGossip cuts what nodes say to one another.
func (c *chaos) cutGossip(ctx context.Context, f *fault) error {
	ways := []way{{f.Node, f.Peer}}
	switch f.Kind {
	case "gossip":
		ways = append(ways, way{f.Peer, f.Node})
	case "gossip alone":
		ways = nil
		for i := range c.fleet.nodes {
			if i != f.Node {
				ways = append(ways, way{f.Node, i}, way{i, f.Node})
			}
		}
	}
	defer c.fleet.cut(ways)()
	return wait(ctx, f.For)
}

// revive starts a node again and again, as a supervisor would.
func (c *chaos) revive(ctx context.Context, n *node) error {
	ctx = context.WithoutCancel(ctx)
	var err error
	for range 10 {
		if err = n.start(ctx); err == nil {
			c.born(n.running())
			return nil
		}
		c.say("%v", err)
		c.failedStarts.Add(1)
		_ = wait(ctx, time.Second)
	}
	return err
}
