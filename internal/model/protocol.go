package model

import (
	"cmp"
	"hash/maphash"
	"slices"
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
	steady bool // ghost: its session was never silent since it started
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

// request is a statement on its way to the database, or in it. Whoever sent it may
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

// Start implements System: nobody holds the lock, both jobs wait, every node has a
// session.
func (p *Protocol) Start() State {
	s := State{left: p.Bounds}
	s.left.Nodes, s.left.Jobs, s.left.Lives, s.left.Calm = 0, 0, 0, false
	for j := p.Jobs; j < maxJobs; j++ {
		s.ledger.jobs[j].state = removed
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
	nd.opened, nd.alive = false, false
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
		turn := jobs[0].turn
		if !picked.has(0) {
			turn = jobs[1].turn
		} else if picked.has(1) && (jobs[1].turn != turn || jobs[0].losses+jobs[1].losses > 0) {
			continue // a claim is of one turn, and suspects are claimed alone
		}
		e.ask(n, claiming, request{kind: claim, epoch: nd.epoch, removals: e.s.ledger.lock.removals, jobs: picked, turn: turn})
	}
}

// declare declares a session dead that expired by the database's clock and that this
// node saw stand still for its whole time to live, which it can only have seen if
// that was so.
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
		if target == e.s.current(n) || row.state != live || !row.expired || !e.s.silent[i] && !e.Flaws.ReapsUnwatched {
			continue
		}
		e.ask(n, declaring, request{kind: declare, epoch: e.s.nodes[n].epoch, target: target, unmoved: true})
	}
}

func (e *expansion) reap(n int) {
	if e.s.ledger.orphaned() {
		e.call(request{kind: reap, from: e.s.current(n), epoch: e.s.nodes[n].epoch}, "reaps by", n, -1)
	}
}

// leaveTerm ends a term, with the lock let go of or not.
func (e *expansion) leaveTerm(n int) {
	s := e.begin()
	s.endTerm(n)
	e.did("ends its term", n, -1, request{})
	if e.s.ledger.lock.holder == e.s.current(n) {
		s = e.begin()
		s.ledger.offer(s.current(n), s.nodes[n].epoch)
		s.endTerm(n)
		e.did("lets go of the lock", n, -1, request{})
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
		s.starting(e.Protocol, n, life, j)
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
	if j == jobInTx {
		r := request{kind: commit, from: sessionOf(n, life), jobs: set(0).with(j)}
		r.runs[j].turn = e.s.nodes[n].runs[life][j].turn
		e.call(r, "ends by", n, -1)
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
	r.over = r.over.less(going)
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
	e.did("starts anew", n, -1, request{})
}

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
		s.claiming(e.Protocol, r)
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
			s.ledger.reap(f)
		}
	case write:
		if r.at == sent {
			s.ledger.giveBackAll(f, r)
		}
		s.ledger.finishAll(f, r)
	case commit:
		for j := range maxJobs {
			if r.jobs.has(j) {
				r.ok = s.ledger.commit(f, j, r.runs[j].turn)
			}
		}
	}
}

// giveBackAll and finishAll are the two transactions of session.writeOnce.
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

// blocked tells whether somebody holds FOR KEY SHARE on the lock's row: whoever
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
				nd.runs[life][j] = run{stage: queued, turn: r.turn, claim: r.id}
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
	}
}

func (s *State) expireLock() {
	if s.ledger.lock.holder != 0 {
		s.ledger.lock.expired, s.ledger.lock.lapsed = true, true
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

// claimsOf is the part of the claims that concerns a job.
func (l *ledger) claimsOf(j int) (rows [maxClaims]claimRow) {
	for id, c := range l.claims {
		if c.session != 0 && c.jobs.has(j) {
			rows[id] = claimRow{c.session, set(0).with(j), c.turn}
		}
	}
	return rows
}

// Canonical implements System: it sorts the nodes by what they and their sessions
// are like. That nodes may tie does no harm but a few states more.
func (p *Protocol) Canonical(s *State) State {
	var keys [maxNodes]uint64
	order := [maxNodes]int{0, 1, 2}
	for n := range p.Nodes {
		keys[n] = maphash.Comparable(p.seed, s.view(n))
	}
	slices.SortStableFunc(order[:p.Nodes], func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
	if order == [maxNodes]int{0, 1, 2} {
		return *s
	}
	out := *s
	var names [maxSessions + 1]session // new ones by old ones
	for to, from := range order {
		out.nodes[to] = s.nodes[from]
		for life := range uint8(maxLives) {
			names[sessionOf(from, life)] = sessionOf(to, life)
		}
	}
	rename := func(l, old *ledger) {
		l.lock.holder = names[l.lock.holder]
		for i := range l.claims {
			l.claims[i].session = names[l.claims[i].session]
		}
		for i, row := range old.sessions {
			l.sessions[names[i+1]-1] = row
		}
	}
	rename(&out.ledger, &s.ledger)
	rename(&out.replica, &s.replica)
	for i, silent := range s.silent {
		out.silent[names[i+1]-1] = silent
	}
	for i := range out.requests {
		r := &out.requests[i]
		r.from, r.target = names[r.from], names[r.target]
	}
	out.tidy()
	return out
}

// nodeView is what distinguishes a node from others, without names.
type nodeView struct {
	node     node
	sessions [2][maxLives]sessionRow
	silent   [maxLives]bool
	holds    [2]uint8            // 1 + the life that holds the lock
	claims   [2][maxClaims]uint8 // 1 + the life whose claim it is
	requests uint64
}

func (s *State) view(n int) nodeView {
	v := nodeView{node: s.nodes[n]}
	first := int(sessionOf(n, 0)) - 1
	for k, l := range []*ledger{&s.ledger, &s.replica} {
		v.sessions[k] = [maxLives]sessionRow(l.sessions[first : first+maxLives])
		if h := l.lock.holder; h != 0 && h.node() == n {
			v.holds[k] = 1 + h.life()
		}
		for i, c := range l.claims {
			if c.session != 0 && c.session.node() == n {
				v.claims[k][i] = 1 + c.session.life()
			}
		}
	}
	copy(v.silent[:], s.silent[first:first+maxLives])
	for _, r := range s.requests {
		if r.kind != free && r.from.node() == n {
			r.from, r.target = session(1+r.from.life()), 0
			v.requests += r.key()
		}
	}
	return v
}
