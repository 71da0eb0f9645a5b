package acquisition

import (
	"context"
	"math"
	"time"

	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
)

// maxLanes bounds how many lanes one look goes through: the next one goes on behind them.
const maxLanes = 20_000

// maxWoken bounds how many resting keys are looked up with the lanes: a sweep looks at all.
const maxWoken = 100

// rereader finds what no hint tells of: jobs behind cursors, and lanes.
type rereader struct {
	place
	*work
	lock     *holding
	settings *settings
	idleWait time.Duration
	horizon  *schedule.Horizon
	homes    *homes
	peers    *peers

	sweepDuty, rewindDuty, discoverDuty duty

	inherited bool           // the last holder dozed, or there was none
	look      store.LaneLook // the next one
	parts     sweepParts
	// bottom is up to where no job stands or can appear: nobody has to read what is dead there.
	bottom, noted int64 // noted: for the next holder
	sweeps        int   // that were begun
	wholeSweep    bool  // the one that is under way pays no heed to the bottom, as rows may have been restored below it
	wholeLook     bool  // nor is the next look for lanes to
}

// noteBottomEvery is by how many positions the bottom has to have risen to be noted.
const noteBottomEvery = 1 << 12

// wholeEvery is how many sweeps there are to one that begins at no bottom.
const wholeEvery = 10

// listDuties are those of the rereader.
func (r *rereader) listDuties(now time.Time) []*duty {
	r.sweepDuty = duty{name: "jobs that came back", every: fixed(sweepEvery), due: now.Add(sweepEvery), prepare: r.sweep, onFailure: r.parts.shorten}
	r.rewindDuty = duty{name: "jobs behind the cursors", every: fixed(tendEvery), due: now, prepare: r.rewind}
	r.discoverDuty = duty{name: "lanes with jobs", every: r.discoverEvery, due: now, prepare: r.discover}
	return []*duty{&r.sweepDuty, &r.rewindDuty, &r.discoverDuty, {name: "quotas of tenants", every: r.quotasEvery, due: firstSweep(now), query: only(r.checkQuotas)}}
}

// sweep looks behind every cursor, from its lane's start: the safety net under them, and the
// way back for what was given back. What is dead there is read with it, so that it is done in parts.
func (r *rereader) sweep() query {
	bottom := r.bottom
	if r.parts.begin(time.Now()) {
		r.homes.forgetAll()
		r.keys.WakeResting(math.MaxInt)
		r.lanes.DropEmptyKinds()
		r.lanes.RereadMissed(schedule.MissedHere)
		r.lanes.RereadMissed(schedule.MissedByPeers)
		r.discoverDuty.ask()
		r.sweeps++
		r.wholeSweep = r.sweeps%wholeEvery == 0
		r.wholeLook = r.wholeLook || r.wholeSweep
	}
	if r.wholeSweep {
		bottom = 0
	}
	behind, upTo, patience := r.parts.next(bottom)
	req := r.lookBehind(behind, upTo, true)
	return func(ctx context.Context) (use func(), err error) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		s, first, err := store.LookBack(ctx, r.pool.Jobs(), req)
		took := time.Since(began)
		return func() {
			r.lanes.Rewind(first, true)
			if due := r.parts.note(upTo, s.Position, took, time.Now()); !due.IsZero() {
				r.sweepDuty.dueBy(due)
			}
		}, err
	}
}

// rewind finds what was committed behind the cursors since they went by.
func (r *rereader) rewind() query {
	req := r.lookBehind(r.horizon.Floor(), math.MaxInt64, r.peers.haveOthers())
	return func(ctx context.Context) (use func(), err error) {
		s, first, err := store.LookBack(ctx, r.pool.Jobs(), req)
		return func() {
			r.horizon.Observe(s)
			r.parts.top = s.Position
			if s.Position < r.bottom { // it was set back
				r.setBottom(0)
			}
			r.lanes.Rewind(first, false)
		}, err
	}
}

// lookBehind asks for the first job of each lane between two positions that nobody has claimed, from which
// it is read again. That costs as much as there is dead between them, but reading all of it again would,
// too, and claims would have to wait.
func (r *rereader) lookBehind(behind, upTo int64, unsupported bool) store.BackRequest {
	req := store.BackRequest{Lanes: r.lanes.ListReadBeyond(behind), Behind: behind, UpTo: upTo, Kinds: r.peers.runnable, Foreign: unsupported}
	req.Known, req.Turns = r.quarantine.ListWaiting()
	req.Waited = r.keys.ListWaited()
	req.Apart = r.lanes.ListKinds()
	return req
}

// discover finds lanes that hold jobs. Hints make it unnecessary in the normal case: it is for
// the lost ones, and for jobs that were added by SQL.
func (r *rereader) discover() query {
	look, final := r.look, r.horizon.Final()
	if (look.Behind == store.Lane{}) {
		look.Whole, r.wholeLook = r.wholeLook, false
	}
	if r.bottom >= r.noted+noteBottomEvery || r.bottom < r.noted {
		look.Bottom, look.Fence = r.bottom, r.lock.Fence()
		r.noted = r.bottom
	}
	return func(ctx context.Context) (use func(), err error) {
		lanes, err := store.LookForLanes(ctx, r.pool.Jobs(), look)
		if err != nil {
			return nil, err
		}
		limits, err := store.Limits(ctx, r.pool.Jobs())
		return func() {
			if look.Whole {
				r.setBottom(look.BottomOf(lanes, final)) // first, as lanes that are new are read from there
			}
			r.addLanes(lanes)
			r.keys.WakeResting(maxWoken)
			r.raiseBottom(look.BottomOf(lanes, final))
			if r.gates.Differ(append(limits, (*r.settings.limits.Load())[r.pool.Name]...)) { // what is in flight has to be known with them
				r.gates.Forget()
			}
		}, err
	}
}

// discoverEvery is how often to look for lanes: when idle that is the poll. A new holder is not
// known to those who send hints: they go to the member that each takes to be elected, by a
// view that may be some rounds of gossip old, or to the last holder. Until then it looks by
// itself, and often, unless nothing was going on.
func (r *rereader) discoverEvery() time.Duration {
	switch {
	case !r.inherited && time.Since(r.lock.began) < 2*tendEvery:
		return min(tendEvery/50, r.idleWait)
	case r.look.Behind != store.Lane{}, r.lanes.HasLeft(), r.lanes.HasWork() || r.keys.HasReady() || r.gates.AnyParked() || r.lanes.AnyFull(func(string) bool { return true }): // with the lanes come limits, which may have been raised
		return tendEvery
	}
	return r.idleWait
}

// quotasEvery is how often quotas are looked after: as often as lanes, but not more than once a second.
func (r *rereader) quotasEvery() time.Duration { return max(tendEvery, r.discoverEvery()) }

// checkQuotas notes which tenants are to have no more jobs added.
func (r *rereader) checkQuotas(ctx context.Context) error {
	return store.CheckQuotas(ctx, r.pool.Jobs())
}

func (r *rereader) addLanes(found store.LanesFound) {
	r.look.Behind = found.Next
	r.raiseBottom(found.Bottom)
	r.lanes.BeginDiscovery()
	for _, l := range found.Lanes {
		r.lanes.See(l)
		r.keys.WakePaused(l.Tenant)
	}
}

// raiseBottom has nothing read any more up to a position.
func (r *rereader) raiseBottom(position int64) { r.setBottom(max(r.bottom, position)) }

func (r *rereader) setBottom(position int64) {
	r.bottom = position
	r.lanes.BeginAt(position)
	r.horizon.BeginAt(position)
}
