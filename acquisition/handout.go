package acquisition

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// assignment is the jobs that one session is to run.
type assignment struct {
	peer  *peer // nil: this node
	jobs  []store.Waiting
	calls map[string]int // of this node's: by tenant, with jobs that share none
}

// dispatcher claims jobs that were picked and hands them out: every claim of a term is made
// here.
type dispatcher struct {
	place
	*work
	lock     *holding
	workers  *execution.Workers
	elector  Elector
	settings *settings
	horizon  *schedule.Horizon
	peers    *peers

	claimed bool // some claim was committed in this term
}

// assign shares out what was picked: as many calls to this node as it has slots for, the rest to
// peers, each in proportion to its capacity. What nobody can run now is read again when
// somebody can. This node's assignment comes first.
func (d *dispatcher) assign(picked []store.Waiting, slots int, ready []*peer, portions []schedule.Portion) []assignment {
	as := make([]assignment, 1, len(ready)+1)
	for _, p := range ready {
		as = append(as, assignment{peer: p})
	}
	own, room, calls := picked[:0], d.workers.Room(), 0
	for i := range picked {
		j := &picked[i]
		mine := d.settings.handles(j.Record.Kind)
		p := &portions[j.Lane]
		joins := mine && room.Joins(j.Record.Tenant, j.Record.Kind)
		fits, takes := mine && (joins || calls < slots && p.Here > 0), room.Take
		counted := fits && d.gates.Counts(&j.Record)
		if counted { // what waits for a worker keeps others out of its limit that would run at once elsewhere
			takes = room.TakeAtOnce
		}
		if j.TooLarge && calls < slots || fits && takes(j.Record.Tenant, j.Record.Kind) {
			if !joins || j.TooLarge {
				calls++
			}
			if !joins && !j.TooLarge { // that is not run
				p.Here--
			}
			own = append(own, *j)
			continue
		}
		var a *assignment
		if counted {
			d.peers.noteCounted()
			if a = choosePeer(as[1:], &j.Record, (*peer).countIdle); a == nil && room.Take(j.Record.Tenant, j.Record.Kind) {
				if !joins {
					calls++
					p.Here--
				}
				own = append(own, *j)
				continue
			}
		}
		if a == nil {
			a = choosePeer(as[1:], &j.Record, (*peer).countCredit)
		}
		if a != nil {
			a.jobs = append(a.jobs, *j)
			continue
		}
		if mine && p.Head != nil { // its key is looked up again
			continue
		}
		if mine && p.Here == 0 { // else it would be read again at once, for a peer that cannot run it
			d.lanes.MarkFullHere(*p)
		}
		d.lanes.NoteMissed(p.Lane, j.Position, j.Record.Kind, mine)
	}
	as[0].jobs, as[0].calls = own, room.Calls()
	d.lanes.DropInactive()
	return slices.DeleteFunc(as, func(a assignment) bool { return len(a.jobs) == 0 })
}

// choosePeer finds the peer with most of something left among those that can run a job, and more
// of its tenant's.
func choosePeer(as []assignment, r *job.Record, count func(*peer) int) (best *assignment) {
	most := 0
	for i := range as {
		a := &as[i]
		if left := count(a.peer) - len(a.jobs); left > most && a.peer.kinds.Has(r.Kind) && !a.peer.full[r.Tenant] {
			best, most = a, left
		}
	}
	return best
}

// handOut claims the jobs of assignments and hands them out. For this node's, which come first
// if it has any, slots are reserved.
func (d *dispatcher) handOut(ctx context.Context, removals int64, as []assignment, portions []schedule.Portion, slots *reservedSlots) (claimed int, err error) {
	if len(as) == 0 {
		return 0, nil
	}
	waits, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	conn, err := d.pool.Jobs().Acquire(waits) // first: while it is waited for, nothing is unsure
	if err != nil {
		return 0, d.pool.Blame(err)
	}
	defer conn.Release()
	here := as[0].peer == nil
	if here {
		defer d.lock.session.BeginClaim()()
	}
	req := d.requestClaims(removals, as)
	req.Spend(d.gates.Spend(time.Now(), eachRecord(as)))
	made, err := d.commit(ctx, conn, req)
	if err != nil && (here || !errors.Is(err, store.ErrFenced)) {
		return 0, err
	}
	alone := map[job.ID]bool{}
	for _, a := range as {
		for k := range a.jobs {
			if d.isAlone(&a, &a.jobs[k]) {
				alone[a.jobs[k].Record.ID] = true
			}
		}
	}
	claims := map[uuid.UUID]madeClaims{} // by session; none if no peer lives
	for _, c := range made {
		d.horizon.BoundBy(c.XID)
		if claims[c.Session].byTurn == nil {
			claims[c.Session] = madeClaims{byTurn: map[int32]int64{}, alone: map[job.ID]int64{}}
		}
		if alone[c.First] {
			claims[c.Session].alone[c.First] = c.ID
		} else {
			claims[c.Session].byTurn[c.Turn] = c.ID
		}
	}
	for _, a := range as {
		switch {
		case a.peer == nil:
			d.runHere(a.jobs, claims[d.lock.session.ID()].byTurn, portions, slots)
		case claims[a.peer.session].byTurn != nil:
			d.noteAssigned(a, claims[a.peer.session])
		default: // its session has ended
			d.peers.dropPeer(a.peer)
			for k := range a.jobs {
				j := &a.jobs[k]
				d.lanes.NoteMissed(portions[j.Lane].Lane, j.Position, j.Record.Kind, d.settings.handles(j.Record.Kind))
			}
			continue
		}
		d.charge(a.jobs, portions)
		claimed += len(a.jobs)
	}
	return claimed, err
}

// madeClaims are the claims that were made for a session.
type madeClaims struct {
	byTurn map[int32]int64
	alone  map[job.ID]int64 // those of one job each
}

// of is the claim that a job is in.
func (m madeClaims) of(r *job.Record) int64 {
	if id, ok := m.alone[r.ID]; ok {
		return id
	}
	return m.byTurn[r.Turn]
}

// isAlone tells whether a job is to be in a claim of its own: a peer tells when a claim is over, and
// not of each of its jobs, and others may wait for one with an exclusive key, or a limit.
func (d *dispatcher) isAlone(a *assignment, j *store.Waiting) bool {
	return a.peer != nil && (j.Record.ExclusiveKey != "" || d.gates.Counts(&j.Record))
}

// eachRecord is the jobs of assignments.
func eachRecord(as []assignment) iter.Seq[*job.Record] {
	return func(yield func(*job.Record) bool) {
		for _, a := range as {
			for k := range a.jobs {
				if !yield(&a.jobs[k].Record) {
					return
				}
			}
		}
	}
}

// requestClaims lists the jobs of assignments.
func (d *dispatcher) requestClaims(removals int64, as []assignment) *store.ClaimRequest {
	jobs := 0
	for _, a := range as {
		jobs += len(a.jobs)
	}
	r := store.NewClaimRequest(removals, jobs)
	for _, a := range as {
		if a.peer != nil {
			r.AddPeer(a.peer.session)
		}
		for k := range a.jobs {
			if !d.isAlone(&a, &a.jobs[k]) {
				r.Add(a.jobs[k].Record.ID, a.jobs[k].Record.Turn)
			}
		}
		for k := range a.jobs {
			if d.isAlone(&a, &a.jobs[k]) {
				r.AddPeer(a.peer.session)
				r.Add(a.jobs[k].Record.ID, a.jobs[k].Record.Turn)
			}
		}
	}
	return r
}

// runHere hands claimed jobs to this node's workers. made is their claims, by turn.
func (d *dispatcher) runHere(jobs []store.Waiting, made map[int32]int64, portions []schedule.Portion, slots *reservedSlots) {
	perClaim := map[int64]int{}
	claims := make([]execution.ClaimedJob, len(jobs))
	for i := range jobs {
		one := &claims[i]
		one.Record = jobs[i].Record
		one.ID = made[one.Record.Turn]
		one.Tenant = portions[jobs[i].Lane].Lane.Home()
		one.Owner = d.lock.session
		one.Ready = jobs[i].Ready
		one.Weight = d.lanes.WeightOf(one.Record.Tenant)
		perClaim[one.ID]++
	}
	d.submit(perClaim, claims, jobs, slots)
}

// submit hands claimed jobs to the workers: so many of each claim.
func (d *dispatcher) submit(perClaim map[int64]int, claims []execution.ClaimedJob, jobs []store.Waiting, slots *reservedSlots) {
	for i := range claims {
		d.inFlight.Add(claims[i].Record.ID, claims[i].Record.Turn)
	}
	d.gates.NoteClaimed(time.Now(), jobs...)
	for id, n := range perClaim {
		d.lock.session.OpenClaim(id, n)
	}
	d.metrics.claimed.WithLabelValues(d.pool.Name).Add(float64(len(claims)))
	slots.use(len(claims))
	d.workers.Submit(d.lock.session, d.deadLetterLarge(claims, jobs))
}

// deadLetterLarge sends jobs to the dead letters whose payload is too large to be read, and
// returns the other claims. jobs are those of claims, pairwise.
func (d *dispatcher) deadLetterLarge(claims []execution.ClaimedJob, jobs []store.Waiting) []execution.ClaimedJob {
	if !slices.ContainsFunc(jobs, func(w store.Waiting) bool { return w.TooLarge }) {
		return claims
	}
	rest := make([]execution.ClaimedJob, 0, len(claims))
	for i := range claims {
		if !jobs[i].TooLarge {
			rest = append(rest, claims[i])
			continue
		}
		d.workers.Release(1)
		d.lock.session.DeadLetter(&claims[i])
	}
	return rest
}

// charge counts claimed jobs as what their tenants' queues and lanes have had.
func (d *dispatcher) charge(jobs []store.Waiting, portions []schedule.Portion) {
	now := time.Now()
	for i := range jobs {
		portions[jobs[i].Lane].Lane.Charge(d.workers.Expect(jobs[i].Record.Kind), now)
	}
}

// noteAssigned notes the claims of a peer, and tells it.
func (d *dispatcher) noteAssigned(a assignment, claims madeClaims) {
	p := a.peer
	for k := range a.jobs {
		r := &a.jobs[k].Record
		d.inFlight.Assign(claims.of(r), p.session, r.ID, r.Turn)
		p.bytes += a.jobs[k].Bytes
	}
	d.gates.NoteClaimed(time.Now(), a.jobs...)
	p.assigned += int64(len(a.jobs))
	p.credit -= len(a.jobs)
	p.idle -= len(a.jobs)
	if err := d.elector.Send(p.member, MessageAssigned, About{Pool: d.pool.Name}.Encode()); err != nil {
		d.log.Debug("a node could not be told of its claims; it finds them by itself", zap.String("to", p.member), zap.Error(err))
	}
	d.metrics.assigned.WithLabelValues(d.pool.Name).Add(float64(len(a.jobs)))
}

// commit makes claims. An error other than ErrFenced leaves it open whether they stand, and
// ends the term: see errUnsure.
func (d *dispatcher) commit(ctx context.Context, db store.DB, r *store.ClaimRequest) ([]store.Claimed, error) {
	if !d.lock.Trusted() {
		return nil, lease.ErrTrustOver
	}
	// Not to be cut short by a stop: the reply would be lost for nothing.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.CallTimeout)
	defer cancel()
	made, err := store.InsertClaims(ctx, db, d.lock.Fence(), r)
	switch {
	case err == nil:
		d.claimed = true
	case !errors.Is(err, store.ErrFenced):
		err = fmt.Errorf("%w: %w", errUnsure, err)
	}
	return made, err
}

// reservedSlots are slots with the workers for jobs that are not claimed yet. They are given
// back after two bursts: a database that hangs must not keep them from other pools.
type reservedSlots struct {
	workers *execution.Workers
	n       int
	used    bool
	late    *time.Timer // has given them back
}

func holdReserved(w *execution.Workers, n int) *reservedSlots {
	return &reservedSlots{workers: w, n: n, late: time.AfterFunc(2*burst, func() { w.Release(n) })}
}

// use keeps some of them for claims that stand now, and gives the others back. If all were given back before, the
// claims exceed what the workers have room for. So do claims that share others' calls, until the workers have them.
func (r *reservedSlots) use(n int) {
	r.used = true
	have := 0
	if r.late.Stop() {
		have = r.n
	}
	if n > have {
		r.workers.TakeSlots(n - have)
	} else {
		r.workers.Release(have - n)
	}
}

// release gives them back unless they were used.
func (r *reservedSlots) release() {
	if !r.used {
		r.use(0)
	}
}
