package model

// fault is a promise that was broken by a step. What can be seen in a state alone is
// checked by [Protocol.Broken].
type fault uint8

const (
	claimOld fault = iota + 1
	claimLapsed
	claimNotWaiting
	startEnded
	startTwice
	startUnrecorded
	endedUnrun
	startBeside
	claimOutOfTurn
)

var faults = map[fault]string{
	claimOld:        "P2: a claim commits under an old epoch",
	claimLapsed:     "P2: a claim passes the fence under an epoch whose lock had expired",
	claimNotWaiting: "P1: a job is claimed that does not wait any more",
	startEnded:      "P3: a job starts that has ended",
	startTwice:      "P4: a job starts a second time while the node that runs it lives",
	endedUnrun:      "P1: a job ends that never ran, by the report on another job",
	startBeside:     "P7, P8: a job starts beside one that its key or a limit keeps from it, whose node lives",
	claimOutOfTurn:  "P7: a job is claimed while the one before it under its key waits",
	startUnrecorded: "P5: a job starts again and nothing was recorded of its last start",
}

// What a state alone shows.
const (
	effectsTwice   = "P3: the effects of a job were committed twice"
	effectsAlone   = "P3: a job's end and its effects were not committed together"
	claimedTwice   = "P2: two claims hold one turn of a job"
	claimedBeside  = "P7, P8: two jobs are in flight that a key or a limit keeps apart"
	unprotectedRun = "P4: the claim that protects a run is gone, and its session lives"
	stuckClaim     = "P1: a claim of a live session is known to nobody, so its jobs never run"
)

// asserted tells whether the promises are asserted for a job.
func (p *Protocol) asserted(s *State, j int) bool { return !s.torn[j] || p.Unforgiving }

// checkClaim checks a claim that is being committed.
func (p *Protocol) checkClaim(s *State, r request) {
	if r.epoch != s.ledger.lock.epoch {
		s.violate(claimOld)
	}
	for j := range maxJobs {
		if job := s.ledger.jobs[j]; r.jobs.has(j) && p.asserted(s, j) && !p.PromisesOnly && (job.state != waiting || job.turn != r.turn) {
			s.violate(claimNotWaiting)
		}
	}
	// One that is enqueued late may come between the look and the claim: either may go first then.
	if first := &s.ledger.jobs[jobPlain]; p.Apart == byKey && !p.Late && r.jobs.has(jobInTx) && first.state == waiting && p.asserted(s, jobInTx) && p.asserted(s, jobPlain) {
		s.violate(claimOutOfTurn)
	}
}

// checkEnds checks a write that is about to end runs.
func checkEnds(s *State, w *request) {
	for j, r := range w.runs {
		job := &s.ledger.jobs[j]
		if (r.stage == succeeded || r.stage == errored) && job.state == waiting && job.turn == r.turn && job.birth != r.birth {
			s.violate(endedUnrun)
		}
	}
}

// startRun starts a run, and checks it.
func (p *Protocol) startRun(s *State, n int, life uint8, j int) {
	r := &s.nodes[n].runs[life][j]
	r.stage, r.steady = running, true
	job := &s.ledger.jobs[j]
	if r.birth != job.birth {
		return // its job was lost by a fail-over
	}
	if p.asserted(s, j) {
		if job.state != waiting {
			s.violate(startEnded)
		}
		for i := range s.ledger.sessions {
			other := session(i + 1)
			if other == sessionOf(n, life) {
				continue
			}
			if o := s.nodes[other.node()].runs[other.life()][j]; o.stage == running && o.birth == r.birth && (o.steady || s.ledger.sessions[i].state == live) {
				s.violate(startTwice)
			}
		}
		p.checkBeside(s, j)
		if s.starts[j] > job.attempts+job.losses {
			s.violate(startUnrecorded)
		}
	}
	s.starts[j]++
}

// checkBeside checks a job that starts: the one that is kept apart from it must not run, unless it may have
// been taken from its node, which was cut off.
func (p *Protocol) checkBeside(s *State, j int) {
	if p.Apart == together || !p.asserted(s, 1-j) {
		return
	}
	for i := range s.ledger.sessions {
		at := session(i + 1)
		if o := s.nodes[at.node()].runs[at.life()][1-j]; o.stage == running && o.birth == s.ledger.jobs[1-j].birth && (o.steady || s.ledger.sessions[i].state == live) {
			s.violate(startBeside)
		}
	}
}

// inTx tells whether a job's handler runs in a transaction.
func (p *Protocol) inTx(j int) bool { return j == jobInTx || p.Batches }

// Broken implements System.
func (p *Protocol) Broken(s *State) string {
	if s.broken != 0 {
		return faults[s.broken]
	}
	l := &s.ledger
	for j, job := range l.jobs {
		if job.effects > 1 {
			return effectsTwice
		}
		if p.inTx(j) && (job.state == finished) != (job.effects == 1) {
			return effectsAlone
		}
		if !p.asserted(s, j) {
			continue
		}
		for a := range l.claims {
			for b := range a {
				if x, y := &l.claims[a], &l.claims[b]; x.session != 0 && y.session != 0 && x.turn == y.turn && x.jobs.has(j) && y.jobs.has(j) {
					return claimedTwice
				}
			}
		}
	}
	if p.PromisesOnly {
		return ""
	}
	if p.Apart != together && l.flying(jobInTx) && l.flying(jobPlain) && p.asserted(s, jobInTx) && p.asserted(s, jobPlain) {
		return claimedBeside
	}
	if p.unprotected(s) {
		return unprotectedRun
	}
	for id, c := range l.claims {
		if c.session != 0 && p.stuck(s, uint8(id), c) {
			return stuckClaim
		}
	}
	return ""
}

// unprotected tells whether a run of a live session has no claim in the ledger: the
// job can then be claimed again.
func (p *Protocol) unprotected(s *State) bool {
	for n := range p.Nodes {
		for life, runs := range s.nodes[n].runs {
			me := sessionOf(n, uint8(life))
			for j, r := range runs {
				if r.stage == none || r.ended() || !p.asserted(s, j) || s.ledger.session(me).state != live || r.birth != s.ledger.jobs[j].birth {
					continue
				}
				if c := s.ledger.claims[r.claim]; c.session != me || c.turn != r.turn || !c.jobs.has(j) {
					return true
				}
			}
		}
	}
	return false
}

// stuck tells whether nobody will ever bring a claim to its end: its session lives,
// but its process neither knows the claim nor is about to look for it.
func (p *Protocol) stuck(s *State, id uint8, c claimRow) bool {
	n := c.session.node()
	nd := &s.nodes[n]
	if s.ledger.session(c.session).state != live || nd.down || nd.life != c.session.life() || !nd.opened {
		return false // it is reaped one day
	}
	forgiven := true
	for j := range maxJobs {
		forgiven = forgiven && (!c.jobs.has(j) || !p.asserted(s, j))
	}
	return !forgiven && !s.known(n).has(int(id)) && nd.unsure == 0 && nd.phase != taken
}
