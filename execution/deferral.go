package execution

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/backoff"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// When so many jobs in a row could not be run by an owner's database, the owner gets no slots
// for a while: the rest of its queue would fare no better, and connecting in vain costs a
// server that is in need.
const failuresInARow = 8

var pausePolicy = backoff.Policy{First: time.Second, Longest: 30 * time.Second}

// noConnectionPolicy is for a database that has no connection left: that is nobody's doing, and
// the next caller learns it without asking the server, so its pause is doubled only twice; see
// routing.ErrCrowded.
var noConnectionPolicy = backoff.Policy{First: pausePolicy.First, Longest: 4 * pausePolicy.First}

// pauses are those of owners whose databases could not run jobs lately. Safe for concurrent
// use.
type pauses struct {
	mu  sync.Mutex
	all map[Owner]*pause // guarded by mu
	any atomic.Bool      // all is not empty
}

// pause is how an owner's database has failed jobs.
type pause struct {
	inARow int
	times  int       // pauses in a row
	until  time.Time // no slots before that
}

// isPaused tells whether an owner is to wait. It is told when that is over.
func (p *pauses) isPaused(o Owner) bool {
	if !p.any.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.all[o]
	return s != nil && time.Now().Before(s.until)
}

// noteFailure says that a job could not be run by its owner's database. When that is so of
// many in a row, the owner pauses, by policy. all: it has come to that, and none could be run
// since.
func (p *pauses) noteFailure(o Owner, policy backoff.Policy) (all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.all[o]
	if s == nil {
		if p.all == nil {
			p.all = map[Owner]*pause{}
		}
		s = &pause{}
		p.all[o] = s
		p.any.Store(true)
	}
	now := time.Now()
	if s.inARow++; s.inARow < failuresInARow || now.Before(s.until) {
		return s.times > 0
	}
	s.times++
	wait := policy.Exactly(s.times)
	s.inARow, s.until = 0, now.Add(wait)
	time.AfterFunc(wait, o.CapacityAvailable)
	return true
}

// forget says that a job could be run, or that the owner has stopped.
func (p *pauses) forget(o Owner) {
	if !p.any.Load() {
		return
	}
	p.mu.Lock()
	delete(p.all, o)
	p.any.Store(len(p.all) > 0)
	p.mu.Unlock()
}

// A job that its database cannot run waits a little, and longer each time on this
// node. What looks like the database may be the job's own doing, as when it alone needs
// more space than there is: while others can be run it waits long. While none can, all of
// them should go on soon after that is over, and how few are tried is up to the pauses. So
// it begins below the shortest of those, and ends far beyond the longest.
var deferPolicy = backoff.Policy{First: pausePolicy.First / 4, Longest: 10 * pausePolicy.Longest} // and as much again of jitter

// mostDeferred bounds the jobs that are remembered.
const mostDeferred = 10_000

// logEvery spaces out what is logged of deferred jobs: a few lines in the longest pause.
var logEvery = pausePolicy.Longest / 3

// deferrals are of jobs whose database could not run them.
type deferrals struct {
	mu     sync.Mutex
	times  map[any]deferral  // guarded by mu; of each job.ID, and of each tenancy.Tenant whose jobs were for what that is
	told   map[job.ID]string // guarded by mu; what jobs have said last of why they are
	since  time.Time         // guarded by mu; when these last began
	logged time.Time         // guarded by mu
}

// deferral is how often a job was deferred, or the jobs of a tenant together, and for how long the last time.
type deferral struct {
	times int
	until time.Time
}

// nextDelay is how long a job is to wait now, and whether that should be logged. of is whose waits grow: the job's, or
// its tenant's. Without its jitter the wait is no longer than longest.
func (d *deferrals) nextDelay(of any, longest time.Duration) (wait time.Duration, log bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.forget(now)
	last := d.times[of]
	_, together := of.(tenancy.Tenant)
	switch {
	case together && now.Before(last.until): // another one of the jobs that were deferred then, of which more may come all the time
		wait = min(deferPolicy.Exactly(last.times), longest)
		return wait + rand.N(wait), d.mayLogAt(now)
	case together && now.After(last.until.Add(2*longest)): // the tenant has had what it lacked
		last.times = 1
	default:
		last.times++
	}
	wait = min(deferPolicy.Exactly(last.times), longest)
	d.times[of] = deferral{last.times, now.Add(wait)}
	return wait + rand.N(wait), d.mayLogAt(now)
}

// mayLog tells whether what is logged of deferred jobs is due a line.
func (d *deferrals) mayLog() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mayLogAt(time.Now())
}

// mayLogAt is mayLog; mu is held.
func (d *deferrals) mayLogAt(now time.Time) bool {
	due := now.Sub(d.logged) >= logEvery
	if due {
		d.logged = now
	}
	return due
}

// forget begins again after a while, or when there are many: only a few jobs are deferred for so long.
func (d *deferrals) forget(now time.Time) {
	if d.times == nil || len(d.times) >= mostDeferred || len(d.told) >= mostDeferred || now.Sub(d.since) > 12*deferPolicy.Longest {
		d.times, d.told, d.since = map[any]deferral{}, map[job.ID]string{}, now
	}
}

// tellsNew tells whether a job is to say why it is deferred: not the same each time, as its runs' reports are few.
func (d *deferrals) tellsNew(id job.ID, why string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(time.Now())
	last := d.told[id]
	d.told[id] = why
	return last != why
}

// deferJob is the outcome for a job of a run that its database is to blame for.
func (r *run) deferJob(c *ClaimedJob, err error) job.Outcome {
	policy, longest := pausePolicy, deferPolicy.Longest
	if none := (*noConnectionError)(nil); errors.As(err, &none) {
		policy, longest = noConnectionPolicy, noConnectionPolicy.Longest/2
	}
	if !r.noted { // once for all jobs of a batch
		r.noted, r.allFail = true, r.workers.pauses.noteFailure(c.Owner, policy)
	}
	if r.allFail {
		longest = min(longest, pausePolicy.Longest/2)
	}
	return r.deferFor(c, c.Record.ID, "jobs are deferred: their database cannot run them now; they are tried again, and no attempt is charged", longest, err)
}

// deferFor is the outcome for a job that cannot run now for a reason that is not its own, which what tells;
// it waits for longest at most, and jitter. See [deferrals.nextDelay] for of.
func (r *run) deferFor(c *ClaimedJob, of any, what string, longest time.Duration, err error) job.Outcome {
	wait, log := r.workers.deferrals.nextDelay(of, longest)
	if log {
		r.logDeferred(c, what, wait, err)
	}
	return job.Outcome{State: job.Snoozed, Delay: wait, Err: err}
}

func (r *run) logDeferred(c *ClaimedJob, what string, wait time.Duration, err error) {
	r.workers.log.Warn(what, zap.Stringer("job", c.Record.ID), zap.String("tenant", c.Record.Tenant), zap.Duration("for", wait), zap.Error(err))
}

// A transaction that conflicts with another one is run again at once, a few times. If that does
// not help, many compete for the same rows: the job is deferred for a while, so that some get
// through, and no attempt is charged, so many times. After that it is, as for a handler that will
// never get through.
const (
	mostTries     = 4
	mostUncharged = 20
)

// conflictPolicy spaces out tries in one run, rerunPolicy runs.
var (
	conflictPolicy = backoff.Policy{First: 2 * time.Millisecond, Longest: lookahead / 2}
	rerunPolicy    = backoff.Policy{First: lookahead, Longest: pausePolicy.Longest}
)

// conflicts are of jobs that were deferred because their transactions conflicted.
type conflicts struct {
	mu    sync.Mutex
	times map[job.ID]int // guarded by mu
}

// next is for how long to defer a job; false: it has been deferred often enough.
func (c *conflicts) next(id job.ID) (wait time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.times == nil || len(c.times) >= mostDeferred { // begin again
		c.times = map[job.ID]int{}
	}
	c.times[id]++
	n := c.times[id]
	if n > mostUncharged {
		delete(c.times, id)
		return 0, false
	}
	return rerunPolicy.Wait(n), true
}
