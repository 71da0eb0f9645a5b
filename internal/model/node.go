package model

import "slices"

// keep is the keeper: it opens the session, beats, and renews the lock. A call of it
// is one step: a beat that arrives late does what one does that was sent late, and
// one whose answer is lost what one does behind which the session expires.
func (e *expansion) keep(n int) {
	nd := &e.s.nodes[n]
	if nd.life >= e.Lives {
		return
	}
	me := e.s.current(n)
	if !nd.opened {
		s := e.begin()
		s.ledger.session(me).state = live
		s.nodes[n].opened, s.nodes[n].alive = true, true
		e.did("opens a session", n, -1, request{})
		return
	}
	row := e.s.ledger.session(me)
	idleBeat := row.state == live && !row.expired && nd.alive && !e.s.silent[me-1]
	if nd.epoch == 0 {
		if idleBeat { // it would change nothing
			return
		}
		s := e.begin()
		if s.beat(e.Flaws, n) {
			e.did("beats", n, -1, request{})
		} else {
			e.did("learns that its session is dead", n, -1, request{})
		}
		return
	}
	lock := &e.s.ledger.lock
	watched := false // a renewal would be seen by somebody
	for i := range e.s.requests {
		if r := &e.s.requests[i]; r.kind == take && r.unmoved && r.from != me {
			watched = true
		}
	}
	if idleBeat && lock.holder == me && lock.epoch == nd.epoch && !lock.expired && nd.trusted && !watched {
		return
	}
	s := e.begin()
	switch {
	case !s.beat(e.Flaws, n):
		e.did("learns that its session is dead", n, -1, request{})
	case s.ledger.renew(e.Flaws, me, nd.epoch):
		s.nodes[n].trusted = true
		for i := range s.requests {
			if r := &s.requests[i]; r.kind == take && r.from != me {
				r.unmoved = false
			}
		}
		e.did("renews the lock", n, -1, request{})
	default:
		s.endTerm(n)
		e.did("learns that the lock is lost", n, -1, request{})
	}
}

// beat is a heartbeat of a node's session; false: the session is lost.
func (s *State) beat(f Flaws, n int) bool {
	me, nd := s.current(n), &s.nodes[n]
	if s.ledger.beat(f, me) {
		nd.alive = true
		s.silent[me-1] = false
		for i := range s.requests {
			if r := &s.requests[i]; r.kind == declare && r.target == me {
				r.unmoved = false
			}
		}
		return true
	}
	s.endTerm(n)
	nd.life++
	nd.opened, nd.alive, nd.unsure = false, false, 0
	return false
}

// endTerm ends a term. A call under way is given up, except for a claim: that is
// waited for, as its answer would be lost for nothing.
func (s *State) endTerm(n int) {
	nd := &s.nodes[n]
	nd.trusted = false
	if nd.phase == claiming {
		return
	}
	for i := range s.requests {
		if r := &s.requests[i]; r.from != 0 && r.from.node() == n && r.kind.byAcquirer() {
			r.abandoned = true
		}
	}
	nd.phase = idle
	nd.forgetTerm()
}

func (nd *node) forgetTerm() {
	nd.epoch, nd.trusted, nd.last = 0, false, 0
	nd.own, nd.older = [maxJobs]uint8{}, [maxJobs]uint8{}
}

// acquire is the acquirer's goroutine between its calls.
func (e *expansion) acquire(n int) {
	nd := &e.s.nodes[n]
	if nd.life >= e.Lives || !nd.opened {
		return
	}
	switch nd.phase {
	case idle:
		e.settle(n)
		e.take(n)
	case taken:
		e.load(n)
		e.leaveTerm(n)
	case holding:
		e.refresh(n)
		e.claim(n)
		e.declare(n)
		e.reap(n)
		e.leaveTerm(n)
	}
}

// ask sends a request of the acquirer, which waits for the answer in phase p.
func (e *expansion) ask(n int, p phase, r request) {
	if e.s.full() {
		return
	}
	s := e.begin()
	s.nodes[n].phase = p
	r.from = s.current(n)
	if r.kind == take {
		s.left.Takes--
	}
	s.send(r)
	e.did("sends", n, -1, r)
}

// call is a request whose delay makes no difference but when it is given up, as
// nothing was looked at beforehand that it relies on. So it is executed at once,
// with its answer got or lost, or left under way by a sender that gave it up.
func (e *expansion) call(r request, what string, n, j int) {
	s := e.begin()
	s.execute(e.Flaws, &r)
	s.answered(r)
	e.did(what, n, j, r)
	e.lose(r, n)
}

// lose yields the two ways in which a call gets no answer.
func (e *expansion) lose(r request, n int) {
	if e.s.left.Lost == 0 {
		return
	}
	s := e.begin()
	s.left.Lost--
	s.execute(e.Flaws, &r)
	s.unanswered(r)
	e.did("has this executed, but gets no answer:", n, -1, r)
	if e.s.full() {
		return
	}
	s = e.begin()
	s.left.Lost--
	s.unanswered(r)
	r.abandoned = true
	s.send(r)
	e.did("gives this up, which is still under way:", n, -1, r)
}

func (e *expansion) take(n int) {
	if e.s.left.Takes > 0 && e.s.nodes[n].alive {
		e.ask(n, taking, request{kind: take, unmoved: true})
	}
}

// spared are the claims that a sweep of node n spares: those it knows. To mend
// SweepsByMemory, a sweep names the claims to be removed, so that one that arrives
// late does not remove what was claimed meanwhile.
func (e *expansion) spared(n int) set {
	known := e.s.known(n)
	if e.Flaws.SweepsByMemory {
		return known
	}
	for id := range e.s.ledger.claims {
		if e.s.ledger.claims[id].session != e.s.current(n) {
			known = known.with(id)
		}
	}
	return known
}

// known are the claims in the memory of a node's current session.
func (s *State) known(n int) (ids set) {
	nd := &s.nodes[n]
	for _, r := range nd.runs[nd.life] {
		if r.stage != none {
			ids = ids.with(int(r.claim))
		}
	}
	return ids
}

// settle removes claims whose answer was lost once somebody else has taken the lock.
func (e *expansion) settle(n int) {
	nd := &e.s.nodes[n]
	if nd.unsure != 0 && e.s.ledger.lock.epoch > nd.unsure && !e.Flaws.LeftoversStay {
		e.call(request{kind: sweep, from: e.s.current(n), known: e.spared(n)}, "settles by", n, -1)
	}
}

// load is term.load: it sweeps, and reads every claim that stands. What changes
// between the two is seen by the next refresh.
func (e *expansion) load(n int) {
	r := request{kind: sweep, from: e.s.current(n), known: e.spared(n)}
	if e.Flaws.LeftoversStay {
		r.known = 1<<maxClaims - 1
	}
	s := e.begin()
	s.execute(e.Flaws, &r)
	last := s.ledger.claimSeq
	for _, older := range s.inFlight(e.Flaws, last) {
		s := e.begin()
		s.execute(e.Flaws, &r)
		nd := &s.nodes[n]
		nd.phase, nd.unsure, nd.last, nd.older = holding, 0, last, older
		e.did("reads the claims after", n, -1, r)
	}
	e.lose(r, n)
}

// refresh reads the older claims again.
func (e *expansion) refresh(n int) {
	nd := &e.s.nodes[n]
	for _, older := range e.s.inFlight(e.Flaws, nd.last) {
		if older == nd.older {
			continue
		}
		s := e.begin()
		s.nodes[n].older = older
		e.did("reads the claims again", n, -1, request{})
	}
}

// inFlight lists what a term may believe of the claims below an id: the turn, + 1, at
// which each job is claimed. There can be several such beliefs, because a claim lists
// a job until its last one ends, also if the job was put back and claimed again.
func (s *State) inFlight(f Flaws, below uint8) (beliefs [][maxJobs]uint8) {
	var turns [maxJobs][]uint8
	for j := range turns {
		for id := range below {
			if c := &s.ledger.claims[id]; c.session != 0 && c.jobs.has(j) && !f.ClaimsUnread {
				turns[j] = append(turns[j], c.turn+1)
			}
		}
		if len(turns[j]) == 0 {
			turns[j] = []uint8{0}
		} else if !f.FlightMixesUp { // mended: the latest turn counts
			turns[j] = []uint8{slices.Max(turns[j])}
		}
	}
	for _, x := range turns[0] {
		for _, y := range turns[1] {
			beliefs = append(beliefs, [maxJobs]uint8{x, y})
		}
	}
	return beliefs
}

// claim reads a page of waiting jobs and sends a claim for some of them. A pause
// between the two does what a delay of the claim does.
func (e *expansion) claim(n int) {
	nd := &e.s.nodes[n]
	if !nd.trusted || e.s.ledger.claimSeq == maxClaims {
		return
	}
	free := func(j int) bool {
		job := &e.s.ledger.jobs[j]
		return job.state == waiting && nd.own[j] != job.turn+1 && nd.older[j] != job.turn+1 &&
			nd.runs[nd.life][j].stage == none
	}
	jobs := &e.s.ledger.jobs
	for picked := set(1); picked < 1<<maxJobs; picked++ {
		if picked.has(0) && !free(0) || picked.has(1) && !free(1) {
			continue
		}
		if e.Apart != together && (picked.has(0) && picked.has(1) || !e.mayBeside(nd, picked)) {
			continue
		}
		turn := jobs[0].turn
		if !picked.has(0) {
			turn = jobs[1].turn
		} else if picked.has(1) && (jobs[1].turn != turn || jobs[0].losses+jobs[1].losses > 0) {
			continue // a claim is of one turn, and jobs in quarantine are claimed alone
		}
		r := request{kind: claim, epoch: nd.epoch, removals: e.s.ledger.lock.removals, jobs: picked, turn: turn}
		for j := range maxJobs {
			if picked.has(j) {
				r.runs[j].birth = jobs[j].birth
			}
		}
		e.ask(n, claiming, r)
	}
}

// mayBeside tells whether a term may claim a job, as far as it knows of the other one, which is kept apart from
// it: of what is in flight, which it asks for when that may have ended; and of what stands before it.
func (e *expansion) mayBeside(nd *node, picked set) bool {
	o := jobInTx
	if picked.has(jobInTx) {
		o = jobPlain
	}
	job := &e.s.ledger.jobs[o]
	known := [...]uint8{nd.own[o], nd.older[o]} // turn + 1
	if e.Flaws.HoldsUnread {
		known[1] = 0
	}
	for _, turn := range known {
		if turn != 0 && job.state == waiting && job.turn == turn-1 {
			return false
		}
	}
	return e.Apart != byKey || o != jobPlain || job.state != waiting || e.Flaws.KeysInAnyOrder
}

// declare declares a session dead that this node saw stand still for its whole time to
// live, which it can only have seen if that was so. How much longer it has to when the
// database's clock says that the session lives on is left out.
func (e *expansion) declare(n int) {
	others := false
	for id := range e.s.nodes[n].last {
		if c := &e.s.ledger.claims[id]; c.session != 0 && c.session != e.s.current(n) {
			others = true
		}
	}
	if !others {
		return
	}
	for i := range e.s.ledger.sessions {
		target := session(i + 1)
		row := e.s.ledger.session(target)
		if target == e.s.current(n) || row.state != live || !e.s.silent[i] && !(row.expired && e.Flaws.ReapsUnwatched) {
			continue
		}
		e.ask(n, declaring, request{kind: declare, epoch: e.s.nodes[n].epoch, target: target, unmoved: true})
	}
}

func (e *expansion) reap(n int) {
	if e.s.ledger.orphaned() {
		most := set(0)
		if e.Batches {
			most = 1<<maxJobs - 1
		}
		for locked := range most + 1 {
			e.call(request{kind: reap, from: e.s.current(n), epoch: e.s.nodes[n].epoch, locked: locked}, "reaps by", n, -1)
		}
	}
}

// leaveTerm ends a term, whether or not it releases the lock.
func (e *expansion) leaveTerm(n int) {
	s := e.begin()
	s.endTerm(n)
	e.did("ends its term", n, -1, request{})
	if e.s.ledger.lock.holder == e.s.current(n) {
		s = e.begin()
		s.ledger.offer(s.current(n), s.nodes[n].epoch)
		s.endTerm(n)
		e.did("releases the lock", n, -1, request{})
	}
}

// work is what workers and completers of a node do.
func (e *expansion) work(n int) {
	nd := &e.s.nodes[n]
	for life := range uint8(maxLives) {
		for j := range maxJobs {
			r := nd.runs[life][j]
			switch r.stage {
			case queued:
				e.start(n, life, j)
			case running:
				e.end(n, life, j)
			}
		}
		e.write(n, life)
	}
}

// start is what a worker does first: it looks whether the session may have been
// declared dead. What is late behind that look counts as the run's own delay.
func (e *expansion) start(n int, life uint8, j int) {
	nd := &e.s.nodes[n]
	if nd.life == life && nd.alive || e.Flaws.StartsUnchecked {
		s := e.begin()
		e.startRun(s, n, life, j)
		e.did("starts", n, j, request{})
		if e.s.left.Returns == 0 {
			return
		}
	}
	s := e.begin()
	s.nodes[n].runs[life][j].stage = unstarted
	if nd.life == life && nd.alive {
		s.left.Returns--
	}
	e.did("does not start", n, j, request{})
}

// end is how a handler may come to its end.
func (e *expansion) end(n int, life uint8, j int) {
	if e.inTx(j) {
		e.commit(n, life, set(0).with(j))
		if j > 0 && e.s.nodes[n].runs[life][0].stage == running {
			e.commit(n, life, set(0).with(0).with(j))
		}
	} else {
		s := e.begin()
		s.nodes[n].runs[life][j].stage = succeeded
		e.did("is done with", n, j, request{})
	}
	if e.s.left.Failures > 0 {
		s := e.begin()
		s.left.Failures--
		s.nodes[n].runs[life][j].stage = errored
		e.did("fails with", n, j, request{})
	}
}

// commit ends jobs that run in one transaction.
func (e *expansion) commit(n int, life uint8, jobs set) {
	r := request{kind: commit, from: sessionOf(n, life), jobs: jobs}
	for j := range r.runs {
		if at := e.s.nodes[n].runs[life][j]; jobs.has(j) {
			r.runs[j] = run{turn: at.turn, birth: at.birth}
		}
	}
	e.call(r, "ends by", n, -1)
}

// write is a completer's flush: all that has ended, and the claims that end with it.
func (e *expansion) write(n int, life uint8) {
	nd := &e.s.nodes[n]
	if nd.writing[life] {
		return
	}
	r := request{kind: write, from: sessionOf(n, life)}
	var going set // claims that have a job left
	for j, run := range nd.runs[life] {
		switch {
		case run.ended():
			r.jobs = r.jobs.with(j)
			r.runs[j] = run
			r.runs[j].steady = false
			r.over = r.over.with(int(run.claim))
		case run.stage != none:
			going = going.with(int(run.claim))
		}
	}
	if r.jobs == 0 {
		return
	}
	r.over = r.over.without(going)
	returns, ends := false, r.over != 0
	for _, run := range r.runs {
		returns = returns || run.stage == unstarted && !r.over.has(int(run.claim))
		ends = ends || run.ended() && run.stage != unstarted
	}
	if !returns || !ends {
		e.call(r, "reports by", n, -1)
		return
	}
	// Two transactions: what never started is given back, then the other runs end.
	e.lose(r, n)
	if e.s.full() {
		return
	}
	s := e.begin()
	s.nodes[n].writing[life] = true
	s.ledger.giveBackAll(e.Flaws, &r)
	r.at = inside
	s.send(r)
	e.did("gives back what did not start, and then sends", n, -1, r)
}

// crash ends a process without a word.
func (e *expansion) crash(n int) {
	if e.s.left.Crashes == 0 {
		return
	}
	s := e.begin()
	s.left.Crashes--
	s.nodes[n] = node{down: true, life: s.nodes[n].life}
	for i := range s.requests {
		if r := &s.requests[i]; r.kind != free && r.from.node() == n {
			r.abandoned = true
		}
	}
	e.did("crashes", n, -1, request{})
}

func (e *expansion) restart(n int) {
	if e.s.nodes[n].life+1 >= e.Lives {
		return
	}
	s := e.begin()
	s.nodes[n].down = false
	s.nodes[n].life++
	e.did("starts again", n, -1, request{})
}
