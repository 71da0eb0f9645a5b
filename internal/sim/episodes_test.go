package sim

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// episode is one thing that goes wrong, alone, and what must hold then beside what is
// checked all the time. It begins in a cluster that agrees and may leave any fault
// behind: what follows mends it.
type episode struct {
	name string
	run  func(w *world)
}

var episodes = []episode{
	{"crash", func(w *world) {
		from := len(w.judge.report().takeoverGaps)
		for _, n := range w.some(1 + w.rng.IntN(len(w.nodes)-1)) {
			n.crash()
		}
		w.pass(30*time.Second, 2*time.Minute)
		for _, gap := range w.judge.report().takeoverGaps[from:] {
			w.stats.crashGaps = append(w.stats.crashGaps, gap)
			if gap > crashBound {
				w.judge.fault("a pool was without a holder for %v after a crash", gap)
			}
		}
	}},
	{"crash of all", func(w *world) {
		for _, n := range w.running() {
			n.crash()
		}
		w.pass(0, time.Minute)
	}},
	{"pause", func(w *world) {
		for _, n := range w.some(1 + w.rng.IntN(len(w.nodes)-1)) {
			w.pause(n)
		}
		w.pass(time.Second, 3*time.Minute)
	}},
	{"split", func(w *world) {
		w.settle()
		w.still("a split of gossip", func() {
			side := w.some(1 + w.rng.IntN(len(w.nodes)-1))
			w.split(side)
			w.pass(30*time.Second, 10*time.Minute)
		})
	}},
	{"one way", func(w *world) {
		w.settle()
		w.still("gossip that passes one way only", func() {
			side := w.some(1 + w.rng.IntN(len(w.nodes)-1))
			w.judge.note("gossip does not pass from %v to the others", names(side))
			w.wires.sever(w.nodeAddrs(side), w.nodeAddrs(w.others(side)), true)
			w.pass(10*time.Second, 10*time.Minute)
		})
	}},
	{"flapping", func(w *world) {
		w.settle()
		w.still(flapping, func() {
			for range 3 + w.rng.IntN(6) {
				w.split(w.some(1 + w.rng.IntN(len(w.nodes)-1)))
				w.pass(time.Second, 20*time.Second)
				w.mend()
				w.pass(time.Second, 20*time.Second)
			}
		})
	}},
	{"loss", func(w *world) {
		w.settle()
		w.still("lost packets", func() {
			p := 0.05 + 0.25*w.rng.Float64()
			w.judge.note("%.0f %% of the packets are lost", 100*p)
			w.wires.setLoss(p)
			w.pass(time.Minute, 10*time.Minute)
		})
	}},
	{"no packets", func(w *world) {
		w.settle()
		w.still("gossip without packets", func() {
			w.judge.note("no packet arrives, and streams do")
			w.wires.setLoss(1)
			for until := time.Now().Add(10 * time.Minute); time.Now().Before(until) && !w.judge.broken(); w.pass(0, 5*time.Second) {
				if !w.agreed() {
					w.judge.fault("somebody was given up, or missed, of whom only packets did not arrive: %s", w.views())
				}
			}
		})
	}},
	{"database cut off from some", func(w *world) {
		l := w.ledgers[w.rng.IntN(len(w.ledgers))]
		w.cutOff(w.some(1+w.rng.IntN(len(w.nodes)-1)), l)
		w.pass(time.Second, 3*time.Minute)
	}},
	{"database down", func(w *world) {
		for _, l := range w.ledgers {
			if w.rng.IntN(2) == 0 {
				w.down(l)
			}
		}
		w.pass(time.Second, 3*time.Minute)
	}},
	{"clock jumps", func(w *world) {
		w.clock(w.ledgers[w.rng.IntN(len(w.ledgers))])
		w.pass(time.Second, time.Minute)
		if w.rng.IntN(2) == 0 {
			w.some(1)[0].crash()
			w.pass(time.Second, time.Minute)
		}
	}},
	{"restart", func(w *world) {
		w.settle()
		w.restart(w.some(1)[0])
	}},
	{"rolling restart", func(w *world) {
		w.settle()
		for _, n := range slices.Clone(w.nodes) {
			w.restart(n)
		}
	}},
	{"several at once", func(w *world) {
		var group sync.WaitGroup
		for range 2 + w.rng.IntN(4) {
			switch w.rng.IntN(7) {
			case 0:
				if up := w.running(); len(up) > 1 {
					up[w.rng.IntN(len(up))].crash()
				}
			case 1:
				if up := w.running(); len(up) > 1 {
					w.pause(up[w.rng.IntN(len(up))])
				}
			case 2:
				w.split(w.some(1 + w.rng.IntN(len(w.nodes)-1)))
			case 3:
				w.cutOff(w.some(1+w.rng.IntN(len(w.nodes)-1)), w.ledgers[w.rng.IntN(len(w.ledgers))])
			case 4:
				w.down(w.ledgers[w.rng.IntN(len(w.ledgers))])
			case 5:
				w.clock(w.ledgers[w.rng.IntN(len(w.ledgers))])
			case 6:
				if up := w.running(); len(up) > 1 {
					n := up[w.rng.IntN(len(up))]
					p := n.leave()
					group.Go(p)
				}
			}
			w.pass(0, 40*time.Second)
		}
		group.Wait()
		w.pass(0, 2*time.Minute)
	}},
}

// pass lets some time pass.
func (w *world) pass(least, most time.Duration) {
	time.Sleep(least + time.Duration(w.rng.Int64N(int64(most-least))))
}

// some picks nodes, of those that should run.
func (w *world) some(n int) []*node {
	var picked []*node
	for _, i := range w.rng.Perm(len(w.nodes))[:n] {
		picked = append(picked, w.nodes[i])
	}
	return picked
}

func (w *world) others(than []*node) (others []*node) {
	for _, n := range w.nodes {
		if !slices.Contains(than, n) {
			others = append(others, n)
		}
	}
	return others
}

func names(nodes []*node) (names []string) {
	for _, n := range nodes {
		names = append(names, n.name)
	}
	return names
}

func (w *world) split(side []*node) {
	w.judge.note("gossip is split: %v | %v", names(side), names(w.others(side)))
	a, b := w.nodeAddrs(side), w.nodeAddrs(w.others(side))
	w.wires.sever(a, b, true)
	w.wires.sever(b, a, true)
}

// pause stops a process' sockets. Its goroutines cannot be stopped; what they send
// leaves when the process goes on, as if they had done so then.
func (w *world) pause(n *node) {
	if n.run == nil {
		return
	}
	w.judge.mu.Lock()
	w.judge.noteLocked("%s is paused", n.name)
	w.judge.strandLocked(n)
	w.judge.mu.Unlock()
	w.wires.freeze(n.run.host, true)
	w.judge.look()
}

// cutOff parts nodes from a database, silently or with a reset.
func (w *world) cutOff(nodes []*node, l *ledger) {
	w.judge.note("%v are cut off from pool %s", names(nodes), l.pool)
	a, b := w.nodeAddrs(nodes), []string{l.host.addr}
	w.wires.sever(a, b, true)
	w.wires.sever(b, a, true)
	w.judge.look()
}

// down makes a database unreachable for everybody: it refuses, or it stands still.
func (w *world) down(l *ledger) {
	if w.rng.IntN(2) == 0 {
		w.judge.note("pool %s refuses connections", l.pool)
		w.wires.refuse(l.host, true)
	} else {
		w.judge.note("pool %s stands still", l.pool)
		w.wires.freeze(l.host, true)
	}
	w.judge.look()
}

// clock sets a database's clock by up to ten minutes, ahead or back.
func (w *world) clock(l *ledger) {
	by := time.Duration(w.rng.Int64N(int64(20*time.Minute))) - 10*time.Minute
	w.judge.note("the clock of pool %s is set by %v", l.pool, by)
	w.judge.jumped(l.pool, by)
	l.jump(by)
}

// still runs a fault of gossip alone. No lock may move, neither while it lasts nor once
// it is over: anyone who sees fewer others has a larger share, and keeps what it has.
func (w *world) still(what string, fault func()) {
	before, reads, from := w.judge.report(), map[string]int{}, time.Now()
	for _, l := range w.ledgers {
		reads[l.pool] = w.judge.readsOf(l.pool)
	}
	fault()
	took := time.Since(from)
	for _, l := range w.ledgers {
		rate := float64(w.judge.readsOf(l.pool)-reads[l.pool]) / took.Seconds()
		if what == flapping {
			w.stats.flapReads = max(w.stats.flapReads, rate)
			continue // everybody looks whenever the view changes
		}
		w.stats.reads = max(w.stats.reads, rate)
		if rate > readsBound {
			w.judge.fault("pool %s: its lock was read %.1f times a second during %s", l.pool, rate, what)
		}
	}
	during := w.moves() - before.moves()
	w.mend()
	w.healed(w.converge())
	time.Sleep(time.Minute)
	if after := w.moves() - before.moves() - during; during+after > 0 {
		w.judge.fault("%d locks moved during %s, and %d once it was over", during, what, after)
	}
	w.stats.still[what]++
}

const flapping = "flapping gossip"

// readsBound is how often a lock may be read in a second while gossip is in pieces.
const readsBound = 2

// restart stops a node in order and starts it again.
func (w *world) restart(n *node) {
	held, member := w.heldBy(n), n.run.host.member
	before, from := w.moves(), len(w.judge.report().handoverGaps)
	n.stop()
	w.healed(w.converge())
	time.Sleep(30 * time.Second)
	away := w.moves() - before
	for i, t := from, w.judge.report(); i < len(t.handoverGaps); i++ {
		if gap := t.handoverGaps[i]; t.handoverFrom[i] == member && gap > handoverBound {
			w.judge.fault("a lock was free for %v after %s let go of it", gap, n.name)
		}
	}
	w.stats.restarts++
	w.stats.restartHeld += held
	w.stats.restartAway += away
	n.start()
	w.settle()
	back := w.moves() - before - away
	w.stats.restartBack += back
	if most := len(w.ledgers); away > most || back > most {
		w.judge.fault("of %d pools %d moved when %s stopped, which held %d, and %d when it came back", most, away, n.name, held, back)
	}
}

// crashBound is how long a pool may be without a holder when nodes crash and all else is
// well: a dozing lock has to stand still for 8.5 s, and gossip may need longer than that
// to find several dead.
const crashBound = 40 * time.Second

// handoverBound is how long a lock may be free when its holder leaves in order.
const handoverBound = 100 * time.Millisecond

func (w *world) heldBy(n *node) (held int) {
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	for _, r := range w.judge.pools {
		if r.member == n.run.host.member {
			held++
		}
	}
	return held
}

// leave begins to stop a node in order; the rest of it is returned.
func (n *node) leave() (rest func()) {
	p := n.run
	n.w.judge.ends(n, true)
	return func() {
		p.stop()
		n.w.wires.unplug(p.host)
	}
}

// stats is what a run is reported with, beside totals.
type stats struct {
	episodes                                        map[string]int
	converged                                       []time.Duration
	crashGaps                                       []time.Duration // without a holder, when nothing but crashes went wrong
	reads, flapReads                                float64         // most per second and pool, over a fault of gossip
	still                                           map[string]int  // faults of gossip in which no lock may move
	restarts, restartHeld, restartAway, restartBack int
}

func (w *world) healed(took time.Duration) { w.stats.converged = append(w.stats.converged, took) }

// live runs the world for some time.
func (w *world) live(d time.Duration) {
	w.startAll()
	w.converge()
	for time.Since(w.began) < d && !w.judge.broken() {
		e := episodes[w.rng.IntN(len(episodes))]
		if w.setup.only != "" && e.name != w.setup.only {
			continue
		}
		w.stats.episodes[e.name]++
		w.judge.note("--- %s", e.name)
		e.run(w)
		w.judge.note("--- over")
		w.mend()
		w.startAll()
		w.healed(w.converge())
		w.pass(0, 30*time.Second)
	}
}

func (s *stats) add(o stats) {
	for k, n := range o.episodes {
		s.episodes[k] += n
	}
	for k, n := range o.still {
		s.still[k] += n
	}
	s.converged = append(s.converged, o.converged...)
	s.crashGaps = append(s.crashGaps, o.crashGaps...)
	s.reads = max(s.reads, o.reads)
	s.flapReads = max(s.flapReads, o.flapReads)
	s.restarts += o.restarts
	s.restartHeld += o.restartHeld
	s.restartAway += o.restartAway
	s.restartBack += o.restartBack
}

func newStats() stats { return stats{episodes: map[string]int{}, still: map[string]int{}} }

func (t *totals) add(o totals) {
	t.takes += o.takes
	t.handovers += o.handovers
	t.takeovers += o.takeovers
	t.thefts += o.thefts
	t.renewals += o.renewals
	t.claims += o.claims
	t.refused += o.refused
	t.reads += o.reads
	t.unheeded += o.unheeded
	t.handoverGaps = append(t.handoverGaps, o.handoverGaps...)
	t.takeoverGaps = append(t.takeoverGaps, o.takeoverGaps...)
	t.worstVacancy = max(t.worstVacancy, o.worstVacancy)
	t.worstReads = max(t.worstReads, o.worstReads)
	t.worstBelief = max(t.worstBelief, o.worstBelief)
}

// spread says how durations are spread.
func spread(d []time.Duration) string {
	if len(d) == 0 {
		return "none"
	}
	slices.Sort(d)
	at := func(p int) time.Duration { return d[min(len(d)-1, len(d)*p/100)].Round(time.Millisecond) }
	return fmt.Sprintf("%d, p50 %v, p99 %v, most %v", len(d), at(50), at(99), at(100))
}
