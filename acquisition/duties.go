package acquisition

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
)

// dutyFactor spaces out a duty that takes long: it takes one part of the time in so many, at
// most.
const dutyFactor = 10

// duty is something that a holder does now and then: in the loop of its term, or as a query
// beside it.
type duty struct {
	name  string               // what it is about, for logs
	every func() time.Duration // how often, unless it takes long
	due   time.Time

	do        func(context.Context) error // in the loop; nil: it is a background query
	query     query
	prepare   func() query // called by the loop to begin a query that needs what the loop knows; nil: query is set
	onFailure func()       // called by the loop when the query has failed; nil: nothing is
	failures  int          // of the query, in a row
}

// query reads the database beside the term's loop, on another connection: what it asks may
// take long, as when much is dead that cannot be vacuumed, and claiming must not wait for it.
// What it finds is used by the loop. That it fails is no reason not to claim: it is
// tried again. It touches only what no other query and nothing in the loop does, but for its use.
type query func(context.Context) (use func(), err error)

// only is a query that finds nothing for the loop to use.
func only(do func(context.Context) error) query {
	return func(ctx context.Context) (use func(), err error) { return nil, do(ctx) }
}

// byStep is a query that goes on after ten times what a step of it has taken, while there is more.
func (d *duty) byStep(step func(context.Context) (more bool, err error)) query {
	return func(ctx context.Context) (use func(), err error) {
		began := time.Now()
		more, err := step(ctx)
		took := time.Since(began)
		return func() {
			if more {
				d.dueBy(time.Now().Add(dutyFactor * took))
			}
		}, err
	}
}

// fixed is for duties that are done as often at all times.
func fixed(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// ask makes a duty due now, or leaves it as long overdue as it is.
func (d *duty) ask() { d.dueBy(time.Now()) }

// dueBy makes a duty due at a time, unless it is sooner.
func (d *duty) dueBy(at time.Time) { d.due = earlier(d.due, at) }

// spaceOut leaves a duty that has taken long for longer, unless it was asked for since it was
// planned.
func (d *duty) spaceOut(planned time.Time, took time.Duration) {
	if next := time.Now().Add(dutyFactor * took); d.due.Equal(planned) && planned.Before(next) {
		d.due = next
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// duties does a term's duties when they are due. It is used by the term's goroutine only.
type duties struct {
	log     *zap.Logger
	group   *sync.WaitGroup // waits for background queries
	wake    func()          // has the loop come by
	inLoop  []*duty         // in the order in which they are done
	queries []*duty         // done beside the loop, one at a time

	running *duty      // whose query is under way; nil: none is
	planned time.Time  // when that one is due again
	result  chan found // of size one

	failed     prometheus.Counter
	saidLocked time.Time // when it was last said that a duty was deferred because of a lock
}

// found is what came of a background query.
type found struct {
	use  func()
	err  error
	took time.Duration
}

func newDuties(log *zap.Logger, failed prometheus.Counter, group *sync.WaitGroup, wake func()) *duties {
	return &duties{log: log, failed: failed, group: group, wake: wake, result: make(chan found, 1)}
}

// plan has these done from now on.
func (ds *duties) plan(lists ...[]*duty) {
	ds.inLoop, ds.queries = nil, nil
	for _, d := range slices.Concat(lists...) {
		if d.do != nil {
			ds.inLoop = append(ds.inLoop, d)
		} else {
			ds.queries = append(ds.queries, d)
		}
	}
}

// doDue does what is due in the loop, and begins the background query that is.
func (ds *duties) doDue(ctx context.Context) error {
	ds.useResult(ctx)
	ds.beginQuery(ctx)
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	for _, d := range ds.inLoop {
		began := time.Now()
		if began.Before(d.due) {
			continue
		}
		planned := began.Add(d.every())
		d.due = planned // before, so that a duty may set it itself
		switch err := d.do(ctx); {
		case errors.Is(err, store.ErrLocked): // claims must not wait for it
			ds.failed.Inc()
			ds.logLocked(d.name, err)
		case err != nil:
			return err
		}
		d.spaceOut(planned, time.Since(began))
	}
	return nil
}

// logLocked says now and then that a duty is deferred because of somebody's lock.
func (ds *duties) logLocked(what string, err error) {
	if time.Since(ds.saidLocked) < sweepEvery {
		return
	}
	ds.saidLocked = time.Now()
	ds.log.Warn("somebody has locked what a duty needs; it is deferred, and claims do not wait for it; if this goes on, tenure doctor says who has locked a table", zap.String("duty", what), zap.Error(err))
}

// hasQuery tells whether a background query is under way, or was not used yet.
func (ds *duties) hasQuery() bool { return ds.running != nil }

// nextDue is when a duty is due.
func (ds *duties) nextDue() time.Time {
	next := time.Now().Add(sweepEvery)
	for _, d := range ds.inLoop {
		next = earlier(next, d.due)
	}
	if !ds.hasQuery() { // else its end wakes the loop
		for _, d := range ds.queries {
			next = earlier(next, d.due)
		}
	}
	return next
}

// beginQuery begins the query that has been due for longest, unless one is under way.
func (ds *duties) beginQuery(ctx context.Context) {
	if ds.hasQuery() {
		return
	}
	now := time.Now()
	for _, d := range ds.queries {
		if !now.Before(d.due) && (ds.running == nil || d.due.Before(ds.running.due)) {
			ds.running = d
		}
	}
	if ds.running == nil {
		return
	}
	d := ds.running
	ds.planned = now.Add(d.every())
	d.due = ds.planned // before, so that it can be asked for once more meanwhile
	run := d.query
	if d.prepare != nil {
		run = d.prepare()
	}
	ds.group.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, queryTimeout)
		defer cancel()
		use, err := run(ctx)
		ds.result <- found{use, err, time.Since(now)} // not what the loop takes until it comes by
		ds.wake()
	})
}

// useResult makes use of what a query has found, if one has ended.
func (ds *duties) useResult(ctx context.Context) {
	var f found
	select {
	case f = <-ds.result:
	default:
		return
	}
	d := ds.running
	ds.running = nil
	if f.err != nil {
		if ctx.Err() != nil { // so is the term
			return
		}
		ds.failed.Inc()
		if d.onFailure != nil {
			d.onFailure()
		}
		d.failures++
		wait := min(max(dutyFactor*f.took, queryRetries.Exactly(d.failures)), queryRetries.Longest)
		d.due = time.Now().Add(wait)
		if errors.Is(f.err, store.ErrLocked) {
			if d.failures == 1 { // a backup may take hours
				ds.log.Warn("somebody has locked what a background query needs, as a backup does; it is tried again until that is over, and claims do not wait for it; if this goes on, tenure doctor says who has locked a table",
					zap.String("for", d.name), zap.Error(f.err))
			}
			return
		}
		ds.log.Warn("background query failed; trying again, and claims do not wait for it", zap.String("for", d.name), zap.Duration("in", wait), zap.Error(f.err))
		return
	}
	d.failures = 0
	if f.use != nil {
		f.use()
	}
	d.spaceOut(ds.planned, f.took)
}
