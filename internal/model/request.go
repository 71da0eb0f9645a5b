package model

import (
	"fmt"
	"slices"
)

// serve lets the database do the next thing for a request.
func (e *expansion) serve(i int) {
	r := e.s.requests[i]
	switch {
	case r.kind == take:
		e.serveTake(i)
	case r.kind == claim && r.at == sent:
		s := e.begin()
		if s.ledger.claimFence(e.Flaws, r.from, r.epoch, r.removals) {
			s.requests[i].at = inside
			if s.ledger.lock.lapsed && !e.PromisesOnly {
				s.violate(claimLapsed)
			}
			e.did("lets in", -1, -1, r)
			return
		}
		s.requests[i] = request{}
		s.answered(r)
		e.did("refuses", -1, -1, r)
	case r.kind == claim:
		if e.s.ledger.claimSeq == maxClaims {
			return
		}
		s := e.begin()
		e.checkClaim(s, r)
		e.finishServing(i, r)
	case r.kind == declare && r.at == sent && e.s.ledger.fence(r.from, r.epoch):
		s := e.begin()
		s.requests[i].at = inside
		e.did("lets in", -1, -1, r)
	default:
		e.begin()
		e.finishServing(i, r)
	}
}

// finishServing executes a request to its end; begin was called.
func (e *expansion) finishServing(i int, r request) {
	e.next.execute(e.Flaws, &r)
	e.next.requests[i] = request{}
	executed := e.next
	e.next.answered(r)
	e.did("executes", -1, -1, r)
	if e.s.left.Lost > 0 && !r.abandoned {
		e.next = executed
		e.next.left.Lost--
		e.next.unanswered(r)
		e.did("executes, and the answer is lost:", -1, -1, r)
	}
}

// execute does what is left to do for a request in the database, and puts the answer
// into it.
func (s *State) execute(f Flaws, r *request) {
	r.ok = true
	switch r.kind {
	case take:
		epoch := s.clock + 1
		if f.EpochsRepeat {
			epoch = s.ledger.lock.epoch + 1
		}
		if r.ok = s.ledger.take(f, r.from, r.unmoved, r.lives, epoch); r.ok {
			r.epoch = epoch
			s.clock = max(s.clock, epoch)
			for k := range s.requests { // it moves renew_seq
				s.requests[k].unmoved = s.requests[k].unmoved && s.requests[k].kind != take
			}
		}
	case sweep:
		s.ledger.sweep(r.from, r.known)
	case claim:
		r.id = s.ledger.claimInsert(r.from, r.jobs, r.turn)
	case declare:
		if r.at == inside {
			s.ledger.declare(r.target, r.unmoved)
		}
	case reap:
		if r.ok = s.ledger.fence(r.from, r.epoch); r.ok {
			s.ledger.reap(f, r.locked)
		}
	case write:
		if r.at == sent {
			s.ledger.giveBackAll(f, r)
		}
		checkEnds(s, r)
		s.ledger.finishAll(f, r)
	case commit:
		r.ok = s.ledger.commit(f, r)
	}
}

// giveBackAll and finishAll are the two transactions of the write of a pool's ledger in lease.
func (l *ledger) giveBackAll(f Flaws, r *request) {
	for j, run := range r.runs {
		if run.stage == unstarted && !r.over.has(int(run.claim)) {
			l.giveBack(f, r.from, run.claim, j)
		}
	}
}

func (l *ledger) finishAll(f Flaws, r *request) {
	for j, run := range r.runs {
		switch run.stage {
		case succeeded:
			l.finish(f, j, run.turn)
		case errored:
			l.failed(j, run.turn)
		}
	}
	for id := range maxClaims {
		if r.over.has(id) {
			l.release(f, r.from, uint8(id))
		}
	}
}

// blocked tells whether somebody holds FOR KEY SHARE on the lock's row: anyone who
// changes its epoch or locks it FOR UPDATE has to wait.
func (e *expansion) blocked() bool {
	for i := range e.s.requests {
		if r := &e.s.requests[i]; r.locks() && !(r.kind == claim && e.Flaws.ClaimsHoldNoLock) {
			return true
		}
	}
	return false
}

func (e *expansion) serveTake(i int) {
	r := e.s.requests[i]
	lives := e.s.ledger.session(r.from).state == live
	if r.at == waits {
		lives = r.lives
	}
	if e.blocked() {
		// What it waits with matters only if the wait may change what it has seen.
		changing := slices.ContainsFunc(e.s.requests[:], func(o request) bool {
			return o.kind == declare && o.at == inside && o.target == r.from
		})
		if r.at == sent && changing {
			s := e.begin()
			s.requests[i].at, s.requests[i].lives = waits, lives
			e.did("lets wait", -1, -1, r)
		}
		return
	}
	e.begin()
	r.lives = lives
	e.finishServing(i, r)
}

// answered lets the sender have the answer. That it takes its time is left out: a
// sender that has its answer and does nothing yet is the same.
func (s *State) answered(r request) {
	if r.abandoned {
		return
	}
	n, life := r.from.node(), r.from.life()
	nd := &s.nodes[n]
	switch r.kind {
	case take:
		nd.phase = idle
		if r.ok {
			nd.phase, nd.epoch, nd.trusted = taken, r.epoch, true
		}
	case sweep: // of settle
		nd.unsure = 0
	case claim:
		nd.phase = holding
		if lock := &s.ledger.lock; life != nd.life || !r.ok && (lock.holder != r.from || lock.epoch != nd.epoch || lock.expired) {
			nd.phase = idle
			nd.forgetTerm()
		}
		for j := range maxJobs {
			if r.ok && r.jobs.has(j) {
				nd.runs[life][j] = run{stage: queued, turn: r.turn, claim: r.id, birth: r.runs[j].birth}
				if nd.phase == holding {
					nd.own[j] = r.turn + 1
				}
			}
		}
	case declare:
		nd.phase = holding
	case reap:
		if !r.ok {
			s.endTerm(n)
		}
	case write:
		nd.writing[life] = false
		for j, ended := range r.runs {
			if ended.stage == none {
				continue
			}
			nd.runs[life][j] = run{}
			if nd.life == life && nd.own[j] == ended.turn+1 {
				nd.own[j] = 0
			}
		}
	case commit:
		for j := range maxJobs {
			if r.jobs.has(j) && r.ok {
				nd.runs[life][j].stage = committed
			} else if r.jobs.has(j) {
				nd.runs[life][j].stage = errored
			}
		}
	}
}

// giveUp makes a sender stop waiting for a request that is under way.
func (e *expansion) giveUp(i int) {
	r := e.s.requests[i]
	if e.s.left.Lost == 0 || r.abandoned {
		return
	}
	s := e.begin()
	s.left.Lost--
	s.unanswered(r)
	s.requests[i].abandoned = true
	e.did("gives this up, which is still under way:", r.from.node(), -1, r)
}

// unanswered is what a sender makes of a call that failed.
func (s *State) unanswered(r request) {
	n, life := r.from.node(), r.from.life()
	nd := &s.nodes[n]
	switch r.kind {
	case write:
		nd.writing[life] = false // it is tried again
	case commit:
		for j := range maxJobs {
			if r.jobs.has(j) {
				nd.runs[life][j].stage = errored
			}
		}
	case claim:
		if life == nd.life {
			nd.unsure = r.epoch
		}
		nd.phase = idle
		nd.forgetTerm()
	case take, sweep, declare, reap:
		nd.phase = idle
		nd.forgetTerm()
	}
}

// String tells a request.
func (r request) String() string {
	what := [...]string{take: "take", sweep: "sweep", claim: "claim", declare: "declaration", reap: "reaping", write: "write", commit: "commit"}[r.kind]
	s := fmt.Sprintf("%v's %s", r.from, what)
	switch r.kind {
	case claim:
		s += fmt.Sprintf(" of %s, turn %d, epoch %d", r.jobs.jobs(), r.turn, r.epoch)
	case declare:
		s += fmt.Sprintf(" that %v is dead", r.target)
	case commit:
		s += " of " + r.jobs.jobs()
	case write:
		for j, run := range r.runs {
			if run.stage != none {
				s += fmt.Sprintf(" %s %s at turn %d", [...]string{"X", "Y"}[j], [...]string{unstarted: "unstarted", succeeded: "done", committed: "committed", errored: "failed"}[run.stage], run.turn)
			}
		}
	}
	if r.abandoned {
		s += " (given up)"
	}
	return s
}
