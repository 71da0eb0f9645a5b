package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Fault is one thing that goes wrong, for a while.
type Fault struct {
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

func (f *Fault) String() string {
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

func Kinds() (all []string) {
	for _, k := range faultKinds {
		all = append(all, k.name)
	}
	return all
}

// blackout kills all nodes at once.
const blackout = "blackout"

// Plan draws a schedule: the same seed and options give the same one. A process, and a
// database server, has one fault at a time, as a dead one cannot be frozen; cuts come
// on top of that.
func Plan(o Options, gossip bool) []*Fault {
	r := rand.New(rand.NewPCG(o.Seed, 2))
	kinds := slices.DeleteFunc(slices.Clone(faultKinds), func(k faultKind) bool { return len(o.Only) > 0 && !slices.Contains(o.Only, k.name) })
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	busy := map[string]time.Duration{} // until when
	var all []*Fault
	end := time.Duration(o.Minutes * float64(time.Minute))
	for at := time.Duration(0); at < end; {
		if o.Alone {
			at += o.Every
		} else {
			at += time.Duration(r.ExpFloat64() * float64(o.Every))
		}
		n := r.IntN(total)
		var k faultKind
		for _, k = range kinds {
			if n -= k.weight; n < 0 {
				break
			}
		}
		f := &Fault{At: at, Kind: k.name, Node: -1, Server: -1, Peer: -1}
		f.For = time.Duration(float64(k.from+time.Duration(r.Int64N(int64(k.to-k.from)))) * o.Scale)
		target := "gossip"
		if k.node {
			f.Node = r.IntN(o.Nodes)
			target = fmt.Sprint("process ", f.Node)
		}
		if k.server {
			f.Server = r.IntN(o.Servers)
			target = fmt.Sprint("server ", f.Server, " of ", f.Node)
		}
		if k.peer {
			f.Peer = (f.Node + 1 + r.IntN(o.Nodes-1)) % o.Nodes
		}
		isGossip := k.peer || k.name == "gossip alone"
		if isGossip {
			target = "gossip"
		}
		targets := []string{target}
		if k.name == blackout {
			targets = nil
			for n := range o.Nodes {
				targets = append(targets, fmt.Sprint("process ", n))
			}
		}
		isBusy := slices.ContainsFunc(targets, func(t string) bool { return at < busy[t] })
		if o.Lasts > 0 {
			f.For = o.Lasts
		}
		if f.Kind == "fail over" { // what is lost is seconds, whatever the times to live
			f.For = max(f.For, time.Second)
		}
		if at >= end || isGossip && !gossip || isBusy || o.Lasts > 0 && at+f.For > end {
			continue
		}
		f.For = min(f.For, end-at) // all is well again when the schedule ends
		for _, t := range targets {
			busy[t] = at + f.For + restTime
		}
		all = append(all, f)
		if o.Alone {
			at += f.For
		}
	}
	return all
}

// restTime is the least between the end of a fault and the next of its kind: a process
// or a server has to start in it.
const restTime = time.Second
