package model

import (
	"cmp"
	"slices"
)

// State is all there is at one moment.
type State struct {
	ledger   ledger
	replica  ledger // what a fail-over would go back to
	copied   bool   // there is a replica
	nodes    [maxNodes]node
	requests [maxRequests]request
	left     Bounds // faults that may still happen; not all of them are used

	// Ghosts: what no participant knows.
	clock  uint8             // the highest epoch ever given out
	silent [maxSessions]bool // no heartbeat was executed for a whole time to live
	starts [maxJobs]uint8
	births uint8         // jobs that were enqueued as Y
	torn   [maxJobs]bool // a fail-over rolled back something of this job
	broken fault
}

// node is the memory of one process.
type node struct {
	down   bool
	life   uint8 // which of its sessions is the current one
	opened bool  // that session was opened
	alive  bool  // it trusts its session
	phase  phase // of the acquirer

	epoch   uint8 // of the term; 0: none
	trusted bool  // it trusts the lock
	unsure  uint8 // the epoch under which a claim may have been committed that it does not know of
	own     [maxJobs]uint8
	older   [maxJobs]uint8 // in flight, claimed in this term or before it; turn + 1, 0: not
	last    uint8          // claims from this id on are the term's own

	writing [maxLives]bool // a session's completer waits for an answer
	runs    [maxLives][maxJobs]run
}

// phase says what the acquirer does.
type phase uint8

const (
	idle      phase = iota
	taking          // waits for an answer
	taken           // has the lock, and has not looked what is in flight
	holding         // ready to claim and to reap
	claiming        // waits for an answer
	declaring       // waits for an answer
)

// run is one claimed job with the workers.
type run struct {
	stage  stage
	turn   uint8
	claim  uint8
	steady bool  // ghost: its session was never silent since it started
	birth  uint8 // ghost: which job it is a run of
}

type stage uint8

const (
	none stage = iota
	queued
	running
	// What follows waits to be written.
	unstarted
	succeeded
	committed
	errored
)

func (r run) ended() bool { return r.stage >= unstarted }

// request is a statement on its way to the database, or in it. Anyone who sent it may
// have given it up; it is executed all the same, or never.
type request struct {
	kind      kind
	from      session
	at        where
	abandoned bool // nobody waits for the answer
	unmoved   bool // take, declare: the counter it names has not moved
	lives     bool // take that waits: its snapshot shows the session alive
	epoch     uint8
	removals  uint8        // claim
	jobs      set          // claim, write, commit
	turn      uint8        // claim
	target    session      // declare
	known     set          // sweep: claims to be spared
	over      set          // write: claims to be released
	locked    set          // reap: jobs that are passed over
	runs      [maxJobs]run // write, commit

	ok bool  // the answer
	id uint8 // claim: part of the answer
}

type kind uint8

const (
	free kind = iota // no request
	take
	sweep
	claim
	declare
	reap
	write
	commit
)

// byAcquirer tells whether it is the acquirer's goroutine that waits for the answer.
func (k kind) byAcquirer() bool { return k >= take && k <= reap }

type where uint8

const (
	sent   where = iota
	waits        // take: it has its snapshot and waits for the lock's row
	inside       // claim, declare: it holds the lock's row; write: its first statement has run
)

// locks tells whether a request holds FOR KEY SHARE on the lock's row.
func (r *request) locks() bool { return r.at == inside && (r.kind == claim || r.kind == declare) }

// tidy puts the requests in one order, as theirs means nothing.
func (s *State) tidy() {
	slices.SortFunc(s.requests[:], func(a, b request) int { return cmp.Compare(b.key(), a.key()) })
}

// key orders requests. Two that differ may share one; that costs a few states more.
func (r *request) key() uint64 {
	k := uint64(r.kind)
	add := func(bits int, v uint8) { k = k<<bits | uint64(v) }
	add(3, uint8(r.from))
	add(2, uint8(r.at))
	add(3, r.epoch)
	add(2, uint8(r.jobs))
	add(2, r.turn)
	add(3, uint8(r.target))
	add(4, uint8(r.known))
	add(4, uint8(r.over))
	add(2, r.removals)
	for j := range r.runs {
		add(3, uint8(r.runs[j].stage))
		add(2, r.runs[j].turn)
		add(2, r.runs[j].claim)
	}
	for _, b := range [...]bool{r.abandoned, r.unmoved, r.lives} {
		k <<= 1
		if b {
			k |= 1
		}
	}
	return k
}

// full tells whether no more requests fit in.
func (s *State) full() bool { return s.requests[maxRequests-1].kind != free }

// send puts a request under way.
func (s *State) send(r request) {
	r.ok, r.id = false, 0
	for i := range s.requests {
		if s.requests[i].kind == free {
			s.requests[i] = r
			return
		}
	}
}

// current is the session of a node.
func (s *State) current(n int) session { return sessionOf(n, s.nodes[n].life) }

func (s *State) expireLock() {
	if s.ledger.lock.holder != 0 {
		s.ledger.lock.expired, s.ledger.lock.lapsed = true, true
	}
}

// violate notes the first promise that was broken.
func (s *State) violate(f fault) {
	if s.broken == 0 {
		s.broken = f
	}
}
