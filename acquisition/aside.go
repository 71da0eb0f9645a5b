package acquisition

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
)

// A look reads the database beside the term's loop, on another connection: what it
// asks may take long, as when much has been left dead that cannot be tidied away, and
// claiming must not wait for it. What it finds is used by the loop. That it fails is no reason
// not to claim: it is tried again.
type look func(context.Context) (use func(), err error)

// aside is where looks are taken, one at a time.
type aside struct {
	duties []duty
	taken  *duty       // whose look is under way; nil: none is
	result chan looked // one place
}

// duty is a look to be taken now and then.
type duty struct {
	what    string // it looks for
	at      *time.Time
	every   func() time.Duration
	begin   func() look // called by the loop
	instead func()      // called when the look has failed; nil: nothing is
	planned time.Time
	failed  int // how often in a row
}

type looked struct {
	use  func()
	err  error
	took time.Duration
}

func newAside(t *term) *aside {
	every := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	c := &t.chores
	return &aside{result: make(chan looked, 1), duties: []duty{
		{what: "jobs that came back", at: &c.sweep, every: every(sweepEvery), begin: t.sweep, instead: t.restart},
		{what: "jobs behind the cursors", at: &c.rewind, every: every(rewindEvery), begin: t.rewind},
		{what: "lanes with jobs", at: &c.discover, every: t.discoverEvery, begin: t.discover},
		{what: "finished jobs to be tidied", at: &c.retention, every: every(retentionEvery), begin: t.retain},
		{what: "cancel requests to be forgotten", at: &c.requests, every: every(sweepEvery), begin: t.forgetRequests},
		{what: "jobs that wait in vain", at: &c.unhandled, every: every(sweepEvery), begin: t.reportUnhandled},
		{what: "old transactions", at: &c.holdups, every: every(holdupsEvery), begin: t.reportHoldup},
		{what: "sequences that have fallen back", at: &c.sequences, every: every(sweepEvery), begin: t.mendSequences},
	}}
}

func (a *aside) busy() bool { return a.taken != nil }

// lookAside begins the look that has been due for longest, unless one is under way.
func (t *term) lookAside(ctx context.Context) {
	a := t.aside
	if a.busy() {
		return
	}
	now := time.Now()
	for i := range a.duties {
		if d := &a.duties[i]; !now.Before(*d.at) && (a.taken == nil || d.at.Before(*a.taken.at)) {
			a.taken = d
		}
	}
	if a.taken == nil {
		return
	}
	d := a.taken
	d.planned = now.Add(d.every())
	*d.at = d.planned // before, so that it can be asked for once more meanwhile
	look := d.begin()
	t.group.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, queryTimeout)
		defer cancel()
		use, err := look(ctx)
		a.result <- looked{use, err, time.Since(now)} // not what the loop takes until it comes by
		nudge(t.keeper.inbox.nudge)
	})
}

// lookAgain and lookAgainAtMost bound the rest after a look that failed, longer each time.
const (
	lookAgain       = time.Second
	lookAgainAtMost = time.Minute
)

// lookedAside makes use of what a look has found, if one has ended.
func (t *term) lookedAside(ctx context.Context) {
	a := t.aside
	var r looked
	select {
	case r = <-a.result:
	default:
		return
	}
	d := a.taken
	a.taken = nil
	if r.err != nil {
		if ctx.Err() != nil { // so is the term
			return
		}
		if d.instead != nil {
			d.instead()
		}
		again := min(max(dutyFactor*r.took, lookAgain<<d.failed), lookAgainAtMost)
		d.failed = min(d.failed+1, 10)
		*d.at = time.Now().Add(again)
		t.log.Warn("could not look for "+d.what+"; trying again, jobs are claimed meanwhile", zap.Duration("in", again), zap.Error(r.err))
		return
	}
	d.failed = 0
	if r.use != nil {
		r.use()
	}
	postpone(d.at, d.planned, r.took)
}

// askFor makes a chore be due now, or leaves it as long overdue as it is.
func askFor(at *time.Time) { *at = earlier(*at, time.Now()) }

// rewind finds what was committed behind the cursors since they went by.
func (t *term) rewind() look {
	return t.lookBack(t.horizon.behind(), len(t.elector.Peers()) > 0, false)
}

// sweep looks behind every cursor, from its lane's start: the safety net under them, and
// the way back for what was given back.
func (t *term) sweep() look {
	t.unplace()
	t.lanes.retry(missedHere)
	t.lanes.retry(missedByPeers)
	askFor(&t.chores.discover)
	return t.lookBack(0, true, true)
}

// restart is what a sweep comes to when it fails: that every lane is read from its start,
// page by page.
func (t *term) restart() { t.lanes.restart() }

// unplace makes every tenant be placed anew. What was read of suspects goes by where
// tenants lived, too, and is read again.
func (t *term) unplace() {
	t.placed = t.router.Applied()
	t.lanes.unplace()
	for _, s := range t.suspects.queue {
		l := t.lanes.see(s.lane.Lane)
		l.after = min(l.after, s.Position-1)
	}
	t.suspects.clear()
}

// reroute heeds that tenants may live elsewhere now.
func (t *term) reroute() {
	t.unplace()
	askFor(&t.chores.sweep)
}

// lookBack makes lanes be read again from their first job behind a position that nobody
// has claimed. That costs as much as there is dead behind it, but reading all of it again
// would, too, and claims would have to wait.
func (t *term) lookBack(behind int64, foreign, always bool) look {
	r := store.BackRequest{Lanes: t.lanes.beyond(behind), Behind: behind, Kinds: t.peers.kinds, Foreign: foreign}
	r.Known, r.Turns = t.suspects.list()
	return func(ctx context.Context) (use func(), err error) {
		s, first, err := store.LookBack(ctx, t.pool.Jobs(), r)
		return func() {
			t.horizon.observe(s)
			t.lanes.rewind(first, always)
		}, err
	}
}

// discover looks for lanes that hold jobs. Hints make it unnecessary in the normal
// case: it is for the lost ones, and for jobs that were added by SQL.
func (t *term) discover() look {
	return func(ctx context.Context) (use func(), err error) {
		lanes, err := store.Lanes(ctx, t.pool.Jobs(), maxLanes)
		if err != nil {
			return nil, err
		}
		limits, err := store.TenantLimits(ctx, t.pool.Jobs())
		return func() {
			t.found(lanes)
			t.limits.set(limits)
		}, err
	}
}

// discoverEvery is how often to look for lanes: when idle that is the poll.
func (t *term) discoverEvery() time.Duration {
	switch {
	case !t.wasIdle && time.Since(t.began) < unknownFor:
		return min(unknownEvery, t.cfg.IdleWait)
	case t.lanes.hasWork():
		return discoverEvery
	}
	return t.cfg.IdleWait
}

func (t *term) found(lanes []store.Lane) {
	for _, l := range lanes {
		t.lanes.see(l)
	}
}

// retain keeps the partitions of finished jobs in order. That it fails is no reason
// not to acquire jobs. What somebody's lock keeps from being done, such as a backup's, is
// tried again as other looks are.
func (t *term) retain() look {
	return func(ctx context.Context) (use func(), err error) {
		if !t.keeper.keep() {
			return nil, nil
		}
		err = store.KeepDays(ctx, t.pool.Jobs(), t.keeper.retention)
		switch {
		case errors.Is(err, store.ErrLocked):
			return nil, err
		case err != nil && !errors.Is(err, context.Canceled):
			t.log.Warn("finished jobs could not be tidied; they go to the default partition", zap.Error(err))
		}
		return nil, nil
	}
}

// mendSequences sets sequences ahead that are behind what stands in the tables: some rows
// were restored, or this is a logical replica that was switched over to. It is looked for at
// the beginning of a term, and once a minute. Finding it ends the term, whose memory is of
// other positions.
func (t *term) mendSequences() look {
	return func(ctx context.Context) (use func(), err error) {
		_, mended, err := store.BeginIncarnation(ctx, t.pool.Jobs(), true)
		if mended {
			t.log.Warn("the sequences of the ledger had fallen back behind its jobs and were set ahead; " +
				"was it restored, or replaced by a replica that did not follow its sequences?")
		}
		return nil, err
	}
}

// forgetRequests removes what was asked of jobs that had ended before they heard of it:
// each busy node reads all requests with every heartbeat.
func (t *term) forgetRequests() look {
	return func(ctx context.Context) (use func(), err error) {
		return nil, store.ForgetCancelRequests(ctx, t.pool.Jobs())
	}
}

// reportUnhandled says which jobs wait in vain: deployment's mistake number one, and
// those that were added with SQL where a tenant no longer lives.
func (t *term) reportUnhandled() look {
	return func(ctx context.Context) (use func(), err error) {
		kinds, err := store.Unhandled(ctx, t.pool.Jobs())
		if err != nil {
			return nil, err
		}
		if len(kinds) > 0 {
			t.log.Warn("jobs wait and no live node has a handler for their kind", zap.Any("kinds", kinds))
		}
		left, err := store.LeftBehind(ctx, t.pool.Jobs())
		if err != nil {
			return nil, err
		}
		for _, one := range left {
			t.log.Warn("jobs wait in a pool that their tenant has left; bring them along with `tenure tenants move`", zap.String("tenant", one.Tenant), zap.String("to", one.Other))
		}
		return nil, nil
	}
}
