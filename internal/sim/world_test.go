package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/routing"
)

// setup is what a world is made of. The seed decides it, and what happens in it.
type setup struct {
	seed    uint64
	nodes   int
	pools   int
	acquire acquisition.Config
	profile string
	join    []string // seeds in the configuration; none: members are found in the ledgers
	variant variant
	only    string // the episodes of this name; empty: all
}

// variant breaks something on purpose.
type variant struct {
	flaws     flaws
	forgetful bool // members are looked for when a process starts, and never again
	elector   func(acquisition.Elector) acquisition.Elector
}

func setupOf(seed uint64) setup {
	rng := rand.New(rand.NewPCG(seed, 0))
	s := setup{seed: seed, nodes: 3 + rng.IntN(3), pools: 2 + rng.IntN(4), acquire: acquisition.DefaultConfig(), profile: "lan"}
	if rng.IntN(2) == 0 {
		s.acquire.IdleWait = time.Second // shorter than a renewal: it never dozes
	}
	if rng.IntN(2) == 0 {
		s.join = []string{fmt.Sprintf("%s:%d", nodeAddr(0), gossipPort)}
	}
	return s
}

func nodeAddr(i int) string { return fmt.Sprintf("10.0.%d.%d", i/250, 1+i%250) }
func poolAddr(i int) string { return fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250) }

// world is a cluster, its databases and what joins them, all in one synctest bubble.
type world struct {
	setup   setup
	rng     *rand.Rand // of the driver, which alone decides what happens
	began   time.Time
	wires   *wires
	judge   *judge
	routing routing.Config
	ledgers []*ledger
	nodes   []*node
	ghosts  sync.WaitGroup // of crashed processes
	stats   stats
	done    chan struct{} // closed at the end
	watch   sync.WaitGroup
}

func newWorld(s setup, statements map[string]*statement) *world {
	w := &world{setup: s, rng: rand.New(rand.NewPCG(s.seed, 2)), began: time.Now(), stats: newStats(), wires: newWires(s.seed), done: make(chan struct{})}
	w.judge = newJudge(w)
	w.routing = routing.Config{Pools: map[string]routing.PoolConfig{}, Tenants: routing.TenantsConfig{Schema: "t_{tenant}"}}
	for i := range s.pools {
		name := fmt.Sprintf("p%d", i)
		w.judge.add(name)
		w.ledgers = append(w.ledgers, newLedger(w.wires, name, i+1, poolAddr(i), statements, w.judge, s.variant.flaws))
		w.routing.Pools[name] = routing.PoolConfig{DSN: fmt.Sprintf("host=%s user=sim dbname=%s sslmode=disable", poolAddr(i), name), MaxConns: 10, Insecure: true}
	}
	for i := range s.nodes {
		w.nodes = append(w.nodes, &node{w: w, name: fmt.Sprintf("n%d", i), addr: nodeAddr(i), well: map[string]time.Time{}})
	}
	w.watch.Go(func() {
		for {
			select {
			case <-w.done:
				return
			case <-time.After(time.Second):
				w.judge.look()
				w.judge.second()
			}
		}
	})
	return w
}

func (w *world) poolNames() (names []string) {
	for _, l := range w.ledgers {
		names = append(names, l.pool)
	}
	return names
}

// end stops everything and waits until nothing runs any more, whatever state it is in.
func (w *world) end() {
	close(w.done)
	w.watch.Wait()
	w.mend()
	for _, n := range w.running() {
		n.crash()
	}
	w.ghosts.Wait()
	for _, l := range w.ledgers {
		w.wires.unplug(l.host)
		l.backends.Wait()
	}
	time.Sleep(5 * time.Minute) // what memberlist and pgx leave behind ends by itself
}

// mend takes every fault away. Processes that have ended stay so.
func (w *world) mend() {
	w.wires.setLoss(0)
	all := slices.Concat(w.nodeAddrs(w.nodes), w.poolAddrs())
	w.wires.sever(all, all, false)
	for _, l := range w.ledgers {
		w.wires.freeze(l.host, false)
		w.wires.refuse(l.host, false)
	}
	for _, n := range w.running() {
		w.wires.freeze(n.run.host, false)
	}
	w.judge.look()
}

func (w *world) running() (nodes []*node) {
	for _, n := range w.nodes {
		if n.run != nil {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func (w *world) nodeAddrs(nodes []*node) (addrs []string) {
	for _, n := range nodes {
		addrs = append(addrs, n.addr)
	}
	return addrs
}

func (w *world) poolAddrs() (addrs []string) {
	for _, l := range w.ledgers {
		addrs = append(addrs, l.host.addr)
	}
	return addrs
}

// startAll starts every node that does not run.
func (w *world) startAll() {
	var group sync.WaitGroup
	for _, n := range w.nodes {
		if n.run == nil {
			group.Go(n.start)
		}
	}
	group.Wait()
}

// agreed tells whether all views are the same and right, and every lock is held by one
// that runs.
func (w *world) agreed() bool {
	var members []string
	for _, n := range w.running() {
		members = append(members, n.run.host.member)
	}
	slices.Sort(members)
	for _, n := range w.running() {
		var seen []string
		for _, m := range n.run.cluster.Members() {
			if m.Eligible() {
				seen = append(seen, m.Name)
			}
		}
		if !slices.Equal(seen, members) {
			return false
		}
	}
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	for _, r := range w.judge.pools {
		if !r.free.IsZero() || !slices.Contains(members, r.member) {
			return false
		}
	}
	return true
}

// convergeBound is how long after the last fault all nodes see the same members and
// every pool has a holder: lost members are looked for every 20 s, ± 20 %.
const convergeBound = 90 * time.Second

// converge waits for that.
func (w *world) converge() time.Duration {
	from := time.Now()
	for !w.agreed() {
		if took := time.Since(from); took > convergeBound+w.slack() {
			w.judge.fault("the nodes do not agree %v after the last fault: %s", took, w.views())
			return took
		}
		time.Sleep(250 * time.Millisecond)
	}
	return time.Since(from)
}

// slack is how far back a clock went: anyone who held a lock and died before it was
// renewed once more seems to hold it for that much longer.
func (w *world) slack() (most time.Duration) {
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	for _, r := range w.judge.pools {
		most = max(most, r.slack)
	}
	return most
}

func (w *world) views() (text string) {
	for _, n := range w.running() {
		text += fmt.Sprintf("\n  %s sees", n.run.host.member)
		for _, m := range n.run.cluster.Members() {
			text += fmt.Sprintf(" %s(%s)", m.Name, m.State())
		}
	}
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	for pool, r := range w.judge.pools {
		text += fmt.Sprintf("\n  %s is held by %s", pool, r.member)
	}
	return text
}

// moves is how often locks have moved so far.
func (w *world) moves() int { return w.judge.report().moves() }

// balanced tells whether every lock is held by the node that all elect.
func (w *world) balanced() bool {
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	for _, n := range w.running() {
		for pool, r := range w.judge.pools {
			if m, ok := n.run.cluster.Elected(pool); !ok || m.Name != r.member {
				return false
			}
		}
	}
	return true
}

// settle waits until locks are where they belong, and have been for longer than a holder
// shuns whom it has its lock from: nothing of what happened before is to move one later.
func (w *world) settle() {
	const longEnough = 90
	w.converge()
	for s, settled := 0, 0; s < 12*60 && settled < longEnough && !w.judge.broken(); s++ {
		settled++
		if !w.balanced() {
			settled = 0
		}
		time.Sleep(time.Second)
	}
}

// background is for what has no end of its own.
var background = context.Background()
