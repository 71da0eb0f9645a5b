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
)

var faults = map[fault]string{
	claimOld:        "P2: a claim commits under an old epoch",
	claimLapsed:     "P2: a claim passes the fence under an epoch whose lock had expired",
	claimNotWaiting: "P1: a job is claimed that does not wait any more",
	startEnded:      "P3: a job starts that has ended",
	startTwice:      "P4: a job starts a second time while the node that runs it lives",
	endedUnrun:      "P1: a job ends that never ran, by the report on another job",
	startUnrecorded: "P5: a job starts again and nothing was recorded of its last start",
}

// What a state alone shows.
const (
	effectsTwice   = "P3: the effects of a job were committed twice"
	effectsAlone   = "P3: a job's end and its effects were not committed together"
	claimedTwice   = "P2: two claims hold one turn of a job"
	unprotectedRun = "P4: the claim that protects a run is gone, and its session lives"
	stuckClaim     = "P1: a claim of a live session is known to nobody, so its jobs never run"
)

// violate notes the first promise that was broken.
func (s *State) violate(f fault) {
	if s.broken == 0 {
		s.broken = f
	}
}

// asserted tells whether the promises are asserted for a job.
func (p *Protocol) asserted(s *State, j int) bool { return !s.torn[j] || p.Unforgiving }

// claiming checks a claim that is being committed.
func (s *State) claiming(p *Protocol, r request) {
	if r.epoch != s.ledger.lock.epoch {
		s.violate(claimOld)
	}
	for j := range maxJobs {
		if job := s.ledger.jobs[j]; r.jobs.has(j) && p.asserted(s, j) && !p.PromisesOnly && (job.state != waiting || job.turn != r.turn) {
			s.violate(claimNotWaiting)
		}
	}
}

// ending checks a write that is about to end runs.
func (s *State) ending(w *request) {
	for j, r := range w.runs {
		job := &s.ledger.jobs[j]
		if (r.stage == succeeded || r.stage == errored) && job.state == waiting && job.turn == r.turn && job.birth != r.birth {
			s.violate(endedUnrun)
		}
	}
}

// starting starts a run, and checks it.
func (s *State) starting(p *Protocol, n int, life uint8, j int) {
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
		if s.starts[j] > job.attempts+job.losses {
			s.violate(startUnrecorded)
		}
	}
	s.starts[j]++
}

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
		if j == jobInTx && (job.state == finished) != (job.effects == 1) {
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
