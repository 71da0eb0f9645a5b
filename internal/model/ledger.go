package model

import (
	"fmt"
	"strings"
)

// Bounds of the model. They are array sizes, so that a state is a plain value; how
// much of them a check uses is up to its [Protocol].
const (
	maxNodes    = 3
	maxLives    = 2 // sessions that one node may open, one after the other
	maxSessions = maxNodes * maxLives
	maxJobs     = 2
	maxClaims   = 4 // ids that the sequence gives out
	maxRequests = 4 // under way at a time
)

// The two jobs are of the two kinds of handlers.
const (
	jobInTx  = 0 // its effect and its end are one transaction
	jobPlain = 1 // its outcome is written afterwards
)

// Limits of a job, one lower than the product's so that they are reached sooner.
const (
	maxLosses   = 2
	maxAttempts = 2
)

// session names a session: 0 nobody, else 1 + node * maxLives + life.
type session uint8

func sessionOf(node int, life uint8) session { return session(node*maxLives) + session(life) + 1 }

func (s session) node() int   { return int(s-1) / maxLives }
func (s session) life() uint8 { return uint8(int(s-1) % maxLives) }

// set holds small numbers: jobs, or ids of claims.
type set uint8

func (s set) has(i int) bool        { return s&(1<<i) != 0 }
func (s set) with(i int) set        { return s | 1<<i }
func (s set) without(other set) set { return s &^ other }

// ledger is what a pool's database has committed. Each method is one SQL statement,
// with its WHERE conditions; the files are named beside them.
//
// Counters that are only ever compared for "has it moved since I looked" (renew_seq,
// hb_seq) are kept as a bit in the requests that name them, see [request].unmoved:
// they would make the state infinite.
type ledger struct {
	lock     lockRow
	jobs     [maxJobs]jobRow
	claims   [maxClaims]claimRow // by id; a free one has no session
	claimSeq uint8               // the next id
	sessions [maxSessions]sessionRow
}

type lockRow struct {
	holder   session
	epoch    uint8
	expired  bool // expires_at <= clock_timestamp()
	removals uint8
	lapsed   bool // ghost: it was expired at some time since it was taken
}

type jobRow struct {
	state    jobState
	turn     uint8
	attempts uint8
	losses   uint8
	effects  uint8 // ghost: rows that its handler has committed
	birth    uint8 // ghost: which of the jobs that had this id
}

type jobState uint8

// Where a job stands. A claimed job stands in tenure.job like a waiting one; timers
// are left out: a retry waits at once.
const (
	waiting jobState = iota
	finished
	dead
	removed // cancelled while it waited
	absent  // not enqueued
)

type claimRow struct {
	session session
	jobs    set
	turn    uint8
}

type sessionRow struct {
	state   sessionState
	expired bool // expires_at < clock_timestamp()
}

type sessionState uint8

const (
	unopened sessionState = iota
	live
	declaredDead
)

func (l *ledger) session(s session) *sessionRow { return &l.sessions[s-1] }

// claimed tells whether a claim holds this turn of a job.
func (l *ledger) claimed(j int, turn uint8) bool {
	for i := range l.claims {
		if c := &l.claims[i]; c.session != 0 && c.jobs.has(j) && c.turn == turn {
			return true
		}
	}
	return false
}

// flying tells whether a claim holds a job at its turn, and it has not ended.
func (l *ledger) flying(j int) bool {
	return l.jobs[j].state == waiting && l.claimed(j, l.jobs[j].turn)
}

// fence is the condition of every statement that only the holder may run.
func (l *ledger) fence(s session, epoch uint8) bool {
	return l.lock.holder == s && l.lock.epoch == epoch && !l.lock.expired
}

// take is lock_take.sql. sessionLives is what the statement's snapshot shows, which
// may be older than the lock's row if the statement had to wait for that. Whether a
// reservation has passed, and whether gossip calls a holder dead, may be so or
// otherwise at any time, so neither is a condition here.
func (l *ledger) take(f Flaws, s session, unmoved, sessionLives bool, epoch uint8) bool {
	if !sessionLives && !f.DeadSessionsTake {
		return false
	}
	if l.lock.holder != s && l.lock.holder != 0 && !unmoved && !f.TakesUnseen {
		return false
	}
	l.lock.holder, l.lock.epoch = s, epoch
	l.lock.expired, l.lock.lapsed = false, false
	return true
}

// renew is lock_renew.sql.
func (l *ledger) renew(f Flaws, s session, epoch uint8) bool {
	if l.lock.holder != s || l.lock.epoch != epoch || l.lock.expired && !f.RenewsExpired {
		return false
	}
	l.lock.expired = false
	return true
}

// offer is lock_offer.sql.
func (l *ledger) offer(s session, epoch uint8) {
	if l.lock.holder == s && l.lock.epoch == epoch {
		l.lock.holder, l.lock.expired, l.lock.lapsed = 0, false, false
	}
}

// beat is session_beat.sql.
func (l *ledger) beat(f Flaws, s session) bool {
	row := l.session(s)
	if row.state != live && !(f.DeadSessionsBeat && row.state == declaredDead) {
		return false
	}
	*row = sessionRow{state: live}
	return true
}

// claimFence is the first half of claim_insert.sql: it locks the lock's row.
func (l *ledger) claimFence(f Flaws, s session, epoch, removals uint8) bool {
	return l.lock.holder == s && !l.lock.expired &&
		(l.lock.epoch == epoch || f.ClaimsIgnoreEpoch) &&
		(l.lock.removals == removals || f.ClaimsIgnoreRemovals)
}

// claimInsert is the second half.
func (l *ledger) claimInsert(s session, jobs set, turn uint8) (id uint8) {
	id = l.claimSeq
	l.claims[id] = claimRow{s, jobs, turn}
	l.claimSeq++
	return id
}

// sweep is claim_sweep.sql.
func (l *ledger) sweep(s session, known set) {
	for id := range l.claims {
		if l.claims[id].session == s && !known.has(id) {
			l.claims[id] = claimRow{}
		}
	}
}

// declare is what session_reap.sql does behind its fence. Whether the session has expired
// is no condition: anyone who saw its heartbeat stand still for several times its time to live
// declares it dead although the database's clock, which was set back, says otherwise.
func (l *ledger) declare(s session, unmoved bool) {
	if row := l.session(s); row.state == live && unmoved {
		row.state = declaredDead
	}
}

// reap is what claim_reap.sql does behind its fence; somebody has locked the rows of some jobs.
func (l *ledger) reap(f Flaws, locked set) {
	for id := range l.claims {
		c := l.claims[id]
		if c.session == 0 || l.session(c.session).state == live {
			continue
		}
		if kept := c.jobs.without(c.jobs.without(locked)); kept != 0 {
			l.claims[id].jobs = kept
		} else {
			l.claims[id] = claimRow{}
		}
		for j := range l.jobs {
			job := &l.jobs[j]
			if !c.jobs.has(j) || locked.has(j) || job.state != waiting || job.turn != c.turn {
				continue
			}
			if !f.LossesUnrecorded {
				job.losses++
			}
			if !f.ReapKeepsTurn {
				job.turn++
			}
			if job.losses >= maxLosses {
				job.state = dead
			}
		}
	}
}

// orphaned tells whether there is something to reap.
func (l *ledger) orphaned() bool {
	for i := range l.claims {
		if s := l.claims[i].session; s != 0 && l.session(s).state != live {
			return true
		}
	}
	return false
}

// commit is tenure.finish_in_tx, or tenure.finish_batch_in_tx, with the transaction it ends: the
// handler's effects and the jobs' ends, or neither.
func (l *ledger) commit(f Flaws, r *request) bool {
	var stands set
	for j, run := range r.runs {
		if job := &l.jobs[j]; r.jobs.has(j) && job.state == waiting && (job.turn == run.turn || f.FinishIgnoresTurn) {
			stands = stands.with(j)
		}
	}
	if stands != r.jobs && !f.LostClaimsCommit && !(f.BatchesCommitInPart && stands != 0) {
		return false
	}
	for j := range l.jobs {
		if stands.has(j) {
			l.jobs[j].state = finished
		}
		if r.jobs.has(j) {
			l.jobs[j].effects++
		}
	}
	return stands == r.jobs
}

// finish and failed are finish.sql, the latter with the timer that follows it, if it does.
func (l *ledger) finish(f Flaws, j int, turn uint8) {
	if job := &l.jobs[j]; job.state == waiting && (job.turn == turn || f.FinishIgnoresTurn) {
		job.state = finished
	}
}

func (l *ledger) failed(j int, turn uint8) {
	job := &l.jobs[j]
	if job.state != waiting || job.turn != turn {
		return
	}
	job.turn++
	job.attempts++
	if job.attempts >= maxAttempts {
		job.state = dead
	}
}

// giveBack is claim_return.sql for one job, and release claim_release.sql for one
// claim. Both go by the claim's id; s is whose claim it was.
func (l *ledger) giveBack(f Flaws, s session, id uint8, j int) {
	if c := &l.claims[id]; f.ClaimsGoByID || c.session == s {
		c.jobs = c.jobs.without(set(0).with(j))
	}
}

func (l *ledger) release(f Flaws, s session, id uint8) {
	if c := &l.claims[id]; f.ClaimsGoByID || c.session == s {
		*c = claimRow{}
	}
}

// cancel is removal_lock.sql, removal_count.sql and cancel_job.sql: one transaction,
// during which nobody holds the lock's row for a claim. Asking a running job to end
// changes nothing here.
func (l *ledger) cancel(j int) {
	l.lock.removals++
	if job := &l.jobs[j]; !l.claimed(j, job.turn) {
		job.state = removed
	}
}

func (s session) String() string {
	if s == 0 {
		return "nobody"
	}
	return fmt.Sprintf("%c%d", 'A'+s.node(), s.life()+1)
}

func (s set) jobs() string {
	return [...]string{"nothing", "X", "Y", "X and Y"}[s]
}

// String tells what the ledger holds.
func (l *ledger) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock %v epoch %d", l.lock.holder, l.lock.epoch)
	if l.lock.expired {
		b.WriteString(" expired")
	}
	for j, job := range l.jobs {
		fmt.Fprintf(&b, "; %s %s", [...]string{"X", "Y"}[j], [...]string{"turn", "finished", "dead", "removed", "absent"}[job.state])
		if job.state == waiting {
			fmt.Fprintf(&b, " %d", job.turn)
		}
	}
	for id, c := range l.claims {
		if c.session != 0 {
			fmt.Fprintf(&b, "; claim %d: %v has %s turn %d", id+1, c.session, c.jobs.jobs(), c.turn)
		}
	}
	for i, row := range l.sessions {
		switch {
		case row.state == declaredDead:
			fmt.Fprintf(&b, "; %v dead", session(i+1))
		case row.state == live && row.expired:
			fmt.Fprintf(&b, "; %v expired", session(i+1))
		}
	}
	return b.String()
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
