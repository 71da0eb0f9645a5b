package acquisition

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// quarantineClaimer claims the jobs of the quarantine, one by one.
type quarantineClaimer struct {
	place
	*work
	lock       *holding
	workers    *execution.Workers
	settings   *settings
	duties     *duties
	peers      *peers
	dispatcher *dispatcher
	sweep      *duty // of the rereader
}

// startOne chooses the job that is to run next and counts it as running. What others have waited for long
// enough for loses its last loss.
func (q *quarantineClaimer) startOne(ctx context.Context) (one schedule.Quarantined, ok bool, err error) {
	now := time.Now()
	q.quarantine.Review(func(r schedule.Run) bool { return q.inFlight.Has(r.ID, r.Turn) }, now)
	start := func() (one schedule.Quarantined, ok bool) {
		one, ok = q.quarantine.BringForward(func(r *job.Record) bool { return q.gates.MayPass(schedule.PasserOf(r), now) })
		return one, ok && q.quarantine.Start(one, now)
	}
	if one, ok = start(); ok {
		return one, true, nil
	}
	run, spare := q.quarantine.ToSpare(one, now)
	if !spare {
		return one, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lease.CallTimeout)
	defer cancel()
	if err = store.SpareSuspect(ctx, q.pool.Jobs(), run.ID, run.Turn); errors.Is(err, store.ErrLocked) {
		q.duties.logLocked("quarantine", err)
		return one, false, nil
	}
	if err != nil {
		return one, false, err
	}
	q.quarantine.Spare(run)
	one, ok = start()
	return one, ok, nil
}

// claimOne claims one job that is in quarantine, by itself: for this node, or, if it
// cannot run its kind, for a peer.
func (q *quarantineClaimer) claimOne(ctx context.Context) (claimed int, err error) {
	one, ok, err := q.startOne(ctx)
	if !ok || err != nil {
		return 0, err
	}
	taken := false
	defer func() {
		if claimed > 0 {
			return
		}
		q.quarantine.End(one)
		if taken {
			q.keys.PauseWaiting(one.Run())
		}
	}()
	a, slots := assignment{jobs: []store.Waiting{one.Waiting}}, 0
	a.jobs[0].Lane = 0 // of the one portion
	if q.settings.handles(one.Record.Kind) {
		if slots = q.workers.Reserve(q.lock.session, 1); slots == 0 {
			return 0, nil
		}
	} else {
		ready, _ := q.peers.listReady()
		if i := slices.IndexFunc(ready, func(p *peer) bool { return p.kinds.Has(one.Record.Kind) }); i >= 0 {
			a.peer = ready[i]
		}
	}
	q.quarantine.TakeFirst()
	taken = true
	if slots == 0 && a.peer == nil {
		q.lanes.NoteMissed(one.Lane, one.Position, one.Record.Kind, false)
		return 0, nil
	}
	reserved := holdReserved(q.workers, slots)
	defer reserved.release()
	claimed, err = q.dispatcher.handOut(ctx, one.Removals, []assignment{a}, []schedule.Portion{{Lane: one.Lane}}, reserved)
	if errors.Is(err, store.ErrFenced) { // what was read is void, and the sweep finds it again
		q.clearQuarantine()
		q.sweep.ask()
		return 0, q.lock.verify(ctx, q.pool)
	}
	return claimed, err
}
