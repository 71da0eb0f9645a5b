package sim

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/membership"
)

var (
	scaleNodes = flag.Int("scale.nodes", 12, "nodes of TestScale; docs/scale.md has 100")
	scalePools = flag.Int("scale.pools", 300, "pools of TestScale; docs/scale.md has 10000")
	manyPools  = flag.Int("scale.idle", 30, "pools of TestManyPools; docs/scale.md has 5000")
)

// TestManyPools runs one real node with all that belongs to it, acquirers included, on
// many idle pools. What is measured includes the other end of its connections.
func TestManyPools(t *testing.T) {
	statements := loadStatements()
	s := setupOf(1)
	s.nodes, s.pools, s.acquire, s.join = 1, *manyPools, acquisition.DefaultConfig(), nil
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(s, statements)
		before, routines := heap(), runtime.NumGoroutine()
		w.startAll()
		t.Logf("%d pools: held after %v", s.pools, w.converge())
		time.Sleep(2 * time.Minute)
		done := w.judge.report()
		time.Sleep(time.Minute)
		now := w.judge.report()
		t.Logf("idle, per pool: %.1f KiB, %.1f goroutines, %.2f renewals and %.2f reads of the lock a second",
			float64(heap()-before)/1024/float64(s.pools), float64(runtime.NumGoroutine()-routines)/float64(s.pools),
			float64(now.renewals-done.renewals)/60/float64(s.pools), float64(now.reads-done.reads)/60/float64(s.pools))
		w.end()
		require.Empty(t, w.judge.faults)
	})
}

// TestScale runs many members with many pools: real gossip, real elections, and locks
// in memory that are taken and handed over as the acquirers do it. A real acquirer for
// each pair of node and pool would be a million of them.
func TestScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScale(*scaleNodes, *scalePools)
		before := heap()
		s.startAll()
		t.Logf("%d nodes, %d pools", *scaleNodes, *scalePools)
		t.Logf("start: %s", s.measure(2*time.Minute))
		t.Logf("idle: %s", s.measure(time.Minute))
		t.Logf("memory per node: %d KiB with its election", (heap()-before)/1024/uint64(*scaleNodes))
		for _, these := range [][]*member{s.nodes[2:3], s.nodes[3 : 3+min(10, *scaleNodes/3)]} { // others join at the first two
			held := s.kill(these)
			t.Logf("loss of %d, which held %d: %s", len(these), held, s.measure(2*time.Minute))
			s.startAll()
			t.Logf("their return: %s; they hold %d", s.measure(2*time.Minute), s.heldBy(these))
		}
		t.Logf("one leaves in order and offers %d: %s", s.leave(), s.measure(time.Minute))
		require.Zero(t, s.free(), "a pool without a holder")
		s.end()
	})
}

// heap is what is in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

type scale struct {
	wires *wires
	pools []string
	nodes []*member

	mu    sync.Mutex
	locks []tiny    // guarded by mu; by pool
	moves int       // guarded by mu; from one process to another
	takes int       // guarded by mu; from nobody
	moved time.Time // guarded by mu; the last of moves
	spare sync.WaitGroup
}

// tiny is a lock's row. A holder that runs renews it.
type tiny struct {
	holder string
	from   string    // from whom that one took it; "": it was free, or offered
	began  time.Time // since when it holds
	quiet  time.Time // when its holder died; zero: it renews
}

// member is a node of it.
type member struct {
	name    string
	addr    string
	host    *host
	cluster *membership.Cluster // nil: it does not run; written with scale.mu held
	cancel  context.CancelFunc
	done    chan struct{}
}

func newScale(nodes, pools int) *scale {
	s := &scale{wires: newWires(1), locks: make([]tiny, pools)}
	for i := range pools {
		s.pools = append(s.pools, fmt.Sprintf("pool-%05d", i))
	}
	for i := range nodes {
		s.nodes = append(s.nodes, &member{name: fmt.Sprintf("node-%03d", i), addr: nodeAddr(i)})
	}
	return s
}

func (s *scale) startAll() {
	for _, m := range s.nodes {
		if m.cluster != nil {
			continue
		}
		cfg := membership.Config{Bind: fmt.Sprintf("%s:%d", m.addr, gossipPort), Insecure: true, Label: "sim", Profile: "lan",
			Join: []string{fmt.Sprintf("%s:%d", nodeAddr(0), gossipPort), fmt.Sprintf("%s:%d", nodeAddr(1), gossipPort)}}
		m.host = s.wires.plug(m.addr, nil)
		c, err := membership.New(cfg, membership.Self{Node: m.name, Role: membership.RoleNode, Version: "v1.0.0"}, zap.NewNop(), membership.OnNetwork(m.host))
		if err != nil {
			panic(err)
		}
		m.host.member = c.Self().Name
		c.SetPools(s.pools)
		if err := c.Start(background); err != nil {
			panic(err)
		}
		m.done = make(chan struct{})
		s.mu.Lock()
		m.cluster = c
		s.mu.Unlock()
		var ctx context.Context
		ctx, m.cancel = context.WithCancel(background)
		go func() {
			defer close(m.done)
			s.run(ctx, c)
		}()
	}
}

// run does for all pools what their acquirers do: take what is free for the elected
// node, take from the dead, and let others have what is beyond the node's share (see
// acquisition's heedElection and balance).
func (s *scale) run(ctx context.Context, c *membership.Cluster) {
	me := c.Self().Name
	const quiet, agreed, part = 4500 * time.Millisecond, 10 * time.Second, 8 // of acquirer.untilFree, rebalanceAfter and balancePart
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second): // electionEvery, and balanceEvery
		}
		if _, eligible := c.Rank(s.pools[0]); !eligible {
			continue
		}
		s.mu.Lock()
		surplus, given := s.count(me)-c.Share(), 0
		for i := range s.locks {
			l := &s.locks[i]
			switch {
			case l.holder == me:
				if surplus <= 0 || given >= (surplus+part-1)/part || c.StableFor() < agreed || time.Since(l.began) < agreed {
					continue
				}
				if to, ok := c.Elected(s.pools[i]); ok && to.Name != me && to.Name != l.from && s.runs(to.Name) {
					*l = tiny{holder: to.Name, began: time.Now()}
					s.move()
					surplus--
					given++
				}
			case l.holder == "":
				if to, _ := c.Elected(s.pools[i]); to.Name == me {
					*l = tiny{holder: me, began: time.Now()}
					s.takes++
				}
			case !l.quiet.IsZero() && time.Since(l.quiet) > quiet && !c.Alive(l.holder):
				if to, _ := c.Elected(s.pools[i]); to.Name == me {
					*l = tiny{holder: me, from: l.holder, began: time.Now()}
					s.move()
				}
			}
		}
		s.mu.Unlock()
	}
}

// move notes that a lock went from one process to another; s.mu is held.
func (s *scale) move() {
	s.moves++
	s.moved = time.Now()
}

// count is how many locks a process holds; s.mu is held.
func (s *scale) count(name string) (held int) {
	for i := range s.locks {
		if s.locks[i].holder == name {
			held++
		}
	}
	return held
}

func (s *scale) heldBy(these []*member) (held int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range these {
		held += s.count(m.host.member)
	}
	return held
}

func (s *scale) runs(name string) bool {
	return slices.ContainsFunc(s.nodes, func(m *member) bool { return m.cluster != nil && m.host.member == name })
}

func (s *scale) free() (free int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.locks {
		if l.holder == "" || !l.quiet.IsZero() {
			free++
		}
	}
	return free
}

// kill crashes nodes.
func (s *scale) kill(these []*member) (held int) {
	for _, m := range these {
		s.wires.unplug(m.host)
		s.mu.Lock()
		for i := range s.locks {
			if s.locks[i].holder == m.host.member {
				s.locks[i].quiet = time.Now()
				held++
			}
		}
		s.mu.Unlock()
		s.quit(m)
	}
	return held
}

func (s *scale) quit(m *member) {
	m.cancel()
	<-m.done
	s.mu.Lock()
	c := m.cluster
	m.cluster = nil
	s.mu.Unlock()
	s.spare.Go(func() {
		ctx, cancel := context.WithTimeout(background, 30*time.Second)
		defer cancel()
		_ = c.Stop(ctx)
	})
}

// leave stops a node in order: its locks are offered to whom it would have elected
// without itself.
func (s *scale) leave() (offered int) {
	m := s.nodes[len(s.nodes)-1] // it has held its locks from the beginning
	m.cluster.SetDraining(true)
	s.mu.Lock()
	for i := range s.locks {
		if s.locks[i].holder == m.host.member {
			to, _ := m.cluster.Elected(s.pools[i])
			s.locks[i] = tiny{holder: to.Name, began: time.Now()}
			offered++
		}
	}
	s.mu.Unlock()
	s.quit(m)
	return offered
}

// agreed tells whether all see all that run.
func (s *scale) agreed() bool {
	running := 0
	for _, m := range s.nodes {
		if m.cluster != nil {
			running++
		}
	}
	for _, m := range s.nodes {
		if m.cluster != nil && len(m.cluster.Prefer(s.pools[0])) != running {
			return false
		}
	}
	return true
}

// measure watches for some time.
func (s *scale) measure(d time.Duration) string {
	from, sent := time.Now(), s.wires.counted()
	s.mu.Lock()
	moves, takes := s.moves, s.takes
	s.mu.Unlock()
	var agreed, held time.Duration
	for time.Since(from) < d {
		time.Sleep(250 * time.Millisecond)
		if agreed == 0 && s.agreed() {
			agreed = time.Since(from)
		}
		if held == 0 && s.free() == 0 {
			held = time.Since(from)
		}
	}
	now := s.wires.counted()
	per := func(n int) float64 { return float64(n) / d.Seconds() / float64(len(s.nodes)) }
	s.mu.Lock()
	defer s.mu.Unlock()
	most := 0
	for _, m := range s.nodes {
		most = max(most, s.count(m.host.member))
	}
	last := max(0, s.moved.Sub(from))
	return fmt.Sprintf("all agree after %v, every lock is held after %v; %d taken, %d moved, the last after %v, no node holds more than %d; per node and second %.1f packets of %.0f bytes, %.2f streams, %.0f bytes in streams",
		agreed, held, s.takes-takes, s.moves-moves, last, most, per(now.packets-sent.packets),
		float64(now.packetBytes-sent.packetBytes)/float64(max(1, now.packets-sent.packets)), per(now.streams-sent.streams), per(now.streamBytes-sent.streamBytes))
}

func (s *scale) end() {
	for _, m := range s.nodes {
		if m.cluster != nil {
			s.wires.unplug(m.host)
			s.quit(m)
		}
	}
	s.spare.Wait()
	time.Sleep(5 * time.Minute)
}
