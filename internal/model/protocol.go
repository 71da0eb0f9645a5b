package model

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// Protocol is the system that is checked: nodes that take the lock of one pool, claim
// and run its two jobs, and take back what dead nodes held.
type Protocol struct {
	Bounds
	Flaws Flaws
	// Unforgiving asserts every promise also for jobs whose history a fail-over
	// rolled back.
	Unforgiving bool
	// PromisesOnly asserts nothing but what a user would notice: starts, effects, and
	// claims of one turn. A counterexample then goes on until that is reached.
	PromisesOnly bool

	seed maphash.Seed
}

var _ System[State, Step] = (*Protocol)(nil)

// New returns a protocol to check.
func New(b Bounds, f Flaws) *Protocol {
	return &Protocol{Bounds: b, Flaws: f, seed: maphash.MakeSeed()}
}

// Start implements System: nobody holds the lock, both jobs wait, every node has a
// session.
func (p *Protocol) Start() State {
	var s State
	s.left = Bounds{Takes: p.Takes, Lost: p.Lost, Crashes: p.Crashes, Jumps: p.Jumps, Failovers: p.Failovers,
		Cancels: p.Cancels, Failures: p.Failures, Returns: p.Returns}
	for j := p.Jobs; j < maxJobs; j++ {
		s.ledger.jobs[j].state = removed
	}
	if p.Late {
		s.ledger.jobs[jobPlain].state = absent
	}
	for n := range p.Nodes {
		s.nodes[n] = node{opened: true, alive: true}
		s.ledger.session(sessionOf(n, 0)).state = live
	}
	return s
}

// Step is one atomic step, for [Protocol.Tell].
type Step struct {
	what    string
	node    int     // -1: none
	job     int     // -1: none
	request request // its kind is free: none
}

// expansion yields the steps out of one state.
type expansion struct {
	*Protocol
	s     *State
	next  State // the state a step leads to, while it is being made
	yield func(Step, *State)
}

// Next implements System.
func (p *Protocol) Next(s *State, yield func(Step, *State)) {
	e := &expansion{Protocol: p, s: s, yield: yield}
	for n := range p.Nodes {
		if s.nodes[n].down {
			e.restart(n)
			continue
		}
		e.keep(n)
		e.acquire(n)
		e.work(n)
		e.crash(n)
	}
	for i := range s.requests {
		if s.requests[i].kind == free {
			continue
		}
		e.serve(i)
		e.giveUp(i)
	}
	e.time()
	e.outside()
}

// begin makes next a copy of the state, to be changed.
func (e *expansion) begin() *State {
	e.next = *e.s
	return &e.next
}

// did yields the step that begin began.
func (e *expansion) did(what string, n, j int, r request) {
	e.next.tidy()
	e.yield(Step{what, n, j, r}, &e.next)
}

// time is what passes: locks and sessions expire. A node's own trust ends with that
// at the latest, as it counts from before it sent the request, less a margin. That it
// may end earlier does no harm and is left out.
func (e *expansion) time() {
	lock := &e.s.ledger.lock
	if lock.holder != 0 && !lock.expired && !e.Calm {
		s := e.begin()
		s.expireLock()
		nd := &s.nodes[lock.holder.node()]
		if nd.epoch == lock.epoch {
			nd.trusted = false
		}
		e.did("the lock expires", -1, -1, request{})
	}
	for i := range e.s.ledger.sessions {
		row := e.s.ledger.sessions[i]
		if row.state != live || row.expired && e.s.silent[i] || e.Calm {
			continue
		}
		who := session(i + 1)
		s := e.begin()
		s.ledger.sessions[i].expired = true
		s.silent[i] = true
		nd := &s.nodes[who.node()]
		if nd.life == who.life() {
			nd.alive = false
		}
		for j := range maxJobs {
			nd.runs[who.life()][j].steady = false
		}
		e.did("is silent for a whole time to live; its session expires", who.node(), -1, request{})
	}
	if e.s.left.Jumps > 0 {
		s := e.begin()
		s.left.Jumps--
		s.expireLock()
		for i := range s.ledger.sessions {
			if s.ledger.sessions[i].state == live {
				s.ledger.sessions[i].expired = true
			}
		}
		e.did("the database's clock jumps forward", -1, -1, request{})
		s = e.begin()
		s.left.Jumps--
		for i := range s.ledger.sessions {
			s.ledger.sessions[i].expired = false
		}
		e.did("the database's clock jumps back", -1, -1, request{})
	}
}

// outside is what neither nodes nor time do.
func (e *expansion) outside() {
	for j := range maxJobs {
		if e.s.left.Cancels > 0 && e.s.ledger.jobs[j].state == waiting && !e.blocked() {
			s := e.begin()
			s.left.Cancels--
			s.ledger.cancel(j)
			e.did("somebody cancels", -1, j, request{})
		}
	}
	if e.s.ledger.jobs[jobPlain].state == absent && (e.s.births == 0 || e.Flaws.JobIDsRepeat) {
		s := e.begin()
		s.births++
		s.ledger.jobs[jobPlain] = jobRow{birth: s.births}
		s.torn[jobPlain], s.starts[jobPlain] = false, 0
		e.did("somebody enqueues", -1, jobPlain, request{})
	}
	if e.s.left.Failovers == 0 {
		return
	}
	if !e.s.copied {
		s := e.begin()
		s.replica, s.copied = s.ledger, true
		e.did("the replica receives nothing from here on", -1, -1, request{})
		return
	}
	if e.s.replica == e.s.ledger {
		return // nothing is lost
	}
	s := e.begin()
	s.left.Failovers--
	for j := range maxJobs {
		if s.ledger.jobs[j] != s.replica.jobs[j] || s.ledger.claimsOf(j) != s.replica.claimsOf(j) {
			s.torn[j] = true
		}
	}
	s.ledger, s.replica, s.copied = s.replica, ledger{}, false
	for i, r := range s.requests {
		if r.kind != free && !r.abandoned {
			s.unanswered(r)
		}
		s.requests[i] = request{} // its connection is broken
	}
	e.did("FAIL-OVER: the replica is the database now", -1, -1, request{})
}

// Tell implements System.
func (p *Protocol) Tell(step Step, next *State) string {
	var b strings.Builder
	switch {
	case step.node >= 0:
		fmt.Fprintf(&b, "node %c ", 'A'+step.node)
	case step.request.kind != free:
		b.WriteString("database ")
	}
	b.WriteString(step.what)
	if step.job >= 0 {
		fmt.Fprintf(&b, " %s", jobName(step.job))
	}
	if step.request.kind != free {
		b.WriteString(" " + step.request.String())
	}
	return fmt.Sprintf("%-80s | %s", b.String(), &next.ledger)
}

func jobName(j int) string { return [...]string{"job X", "job Y"}[j] }
