package lease

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/backoff"
	"github.com/tenurehq/tenure/internal/store"
)

// Outcomes are written together: flushEvery after the last ones were, or as soon as flushSize of them wait or one of
// them has an exclusive key, which others may wait for; but never more than flushMost at a time, so
// that no transaction holds its rows for long.
const (
	flushEvery = 5 * time.Millisecond
	flushSize  = 1000
	flushMost  = 4000
)

// completer writes the ends of a session's runs in batches.
type completer struct {
	ledger ledger
	events Events
	lost   prometheus.Counter // runs that ended after their claim was lost
	log    *zap.Logger

	ctx     context.Context // of run
	stop    context.CancelFunc
	started sync.Once     // run, by the first claim
	stopped chan struct{} // closed when run has ended

	nudge      chan struct{}  // of size one; written by add, read by run
	reportsDue chan struct{}  // as nudge; written when reports have waited for reportEvery
	locked     lockedOutcomes // used by run only
	unreported int            // likewise; how often in a row what runs say could not be written
	failing    atomic.Bool    // ends cannot be written; written by run only

	mu           sync.Mutex
	reporting    map[*execution.ClaimedJob]bool // guarded by mu; whose runs go on and have news
	reportsTimed bool                           // guarded by mu; reportsDue will be written
	kept         int                            // guarded by mu; bytes of what was said that waits with ends
	waiting      []Ended                        // guarded by mu
	urgent       bool                           // guarded by mu; some of them have an exclusive key
	claims       map[int64]int                  // guarded by mu; jobs of each claim that have not ended
	idle         chan struct{}                  // guarded by mu; closed while claims is empty
	outlived     outlivedRuns                   // guarded by mu
}

// outlivedRuns are runs that were reported in vain, their claim being lost: they did not end
// this process.
type outlivedRuns struct {
	ids   []int64
	turns []int32
}

func newCompleter(ledger ledger, events Events, lost prometheus.Counter, log *zap.Logger) *completer {
	c := &completer{ledger: ledger, events: events, lost: lost, log: log, stopped: make(chan struct{}),
		nudge: make(chan struct{}, 1), reportsDue: make(chan struct{}, 1), claims: map[int64]int{}, idle: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.locked.nudge = c.nudge
	close(c.idle)
	return c
}

// start makes it write from now on.
func (c *completer) start() {
	c.started.Do(func() {
		go func() {
			defer close(c.stopped)
			c.run(c.ctx)
		}()
	})
}

// end stops it after a last try to write what waits, and waits for that.
func (c *completer) end() {
	c.stop()
	c.started.Do(func() { close(c.stopped) }) // nothing was ever claimed
	<-c.stopped
}

// openClaim notes a claim of n jobs.
func (c *completer) openClaim(claim int64, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.claims) == 0 {
		c.idle = make(chan struct{})
	}
	c.claims[claim] += n
}

// listClaims lists the claims that are open.
func (c *completer) listClaims() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.claims))
}

// noteOutlived notes runs that were all reported in vain, as they are when the session is dead.
func (c *completer) noteOutlived(runs []store.Finished) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := &c.outlived
	if len(o.ids) > flushMost { // of claims that were lost one by one, which nobody will ask for
		*o = outlivedRuns{}
	}
	for _, r := range runs {
		o.ids, o.turns = append(o.ids, int64(r.Record.ID)), append(o.turns, r.Record.Turn)
	}
}

// spareOutlived says of runs of a session that was declared dead that they did not end this
// process, which was cut off from the database, or stood still. It is tried once: that they
// stay charged costs their jobs some caution and, at the third time, a dead letter.
func (c *completer) spareOutlived(ctx context.Context) {
	c.mu.Lock()
	runs := c.outlived
	c.mu.Unlock()
	if len(runs.ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	if err := c.ledger.spare(ctx, runs); err != nil {
		c.log.Warn("losses could not be taken back of jobs that this process has outlived", zap.Int("jobs", len(runs.ids)), zap.Error(err))
	}
}

// hasClaims tells whether any claim is open.
func (c *completer) hasClaims() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.claims) > 0
}

// whenIdle is closed once no claim is open.
func (c *completer) whenIdle() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.idle
}

func (c *completer) addEnded(e Ended) {
	c.mu.Lock()
	c.keepReport(&e)
	c.waiting = append(c.waiting, e)
	delete(c.reporting, e.Claim) // its last report goes with its end
	n, urgent := len(c.waiting), e.Claim.Record.ExclusiveKey != ""
	c.urgent = c.urgent || urgent
	c.mu.Unlock()
	if n == 1 || n == flushSize || urgent {
		wake(c.nudge)
	}
}

// run flushes until ctx ends and nothing waits.
func (c *completer) run(ctx context.Context) {
	timer := time.NewTimer(flushEvery)
	timer.Stop()
	defer timer.Stop()
	last := time.Now()
	for {
		select {
		case <-c.nudge:
		case <-c.reportsDue:
			c.flushReports(ctx)
			continue
		case <-ctx.Done():
			c.flushAll(ctx)
			return
		}
		timer.Reset(flushEvery - time.Since(last)) // what comes after a pause is written at once: a limit may wait for it
		for full := c.isDue(); !full; {
			select {
			case <-c.nudge:
				full = c.isDue()
			case <-timer.C:
				full = true
			case <-ctx.Done():
				full = true
			}
		}
		timer.Stop()
		if !c.flushAll(ctx) {
			return
		}
		last = time.Now()
		if c.countWaiting() > 0 { // came in meanwhile
			wake(c.nudge)
		}
	}
}

// isDue tells whether what waits is to be written at once.
func (c *completer) isDue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.urgent || len(c.waiting) >= flushSize
}

func (c *completer) countWaiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// flushAll writes what waits now, batch by batch; false when ctx ended and the
// database does not answer.
func (c *completer) flushAll(ctx context.Context) bool {
	c.putBack(c.locked.release(ctx, c.readHeld))
	for left := c.countWaiting(); left > 0; {
		n := c.flushBatch(ctx)
		if n == 0 {
			return false
		}
		left -= n
	}
	return true
}

// putBack lets ends that were taken out wait again, before all others.
func (c *completer) putBack(ends []Ended) {
	if len(ends) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(ends, c.waiting...)
}

// takeBatch takes the next batch out of what waits.
func (c *completer) takeBatch() *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.waiting), flushMost)
	b := &batch{ends: c.waiting[:n], jobs: map[int64]int{}}
	c.waiting = c.waiting[n:]
	if len(c.waiting) == 0 {
		c.waiting, c.urgent = nil, false
	}
	for i := range b.ends {
		b.jobs[b.ends[i].Claim.ID]++
	}
	for id, n := range b.jobs {
		if c.claims[id] == n {
			b.over = append(b.over, id)
		}
	}
	return b
}

// flushBatch writes one batch, trying until it succeeds or ctx ends and the database
// does not answer. It returns how many endings it took care of.
func (c *completer) flushBatch(ctx context.Context) int {
	b := c.takeBatch()
	if len(b.ends) == 0 {
		return 0
	}
	b.sort()
	held, written := c.writeBatch(ctx, b)
	if !written {
		free := c.locked.takeOut(b.ends, held)
		c.putBack(free)
		return len(b.ends) - len(free)
	}
	c.forget(b)
	c.events.Finished(b.ends, b.over)
	return len(b.ends)
}

// forget takes in that a batch is written.
func (c *completer) forget(b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range b.ends {
		b.ends[i].Claim.ForgetReport()
		c.kept -= b.ends[i].said
	}
	for id, n := range b.jobs {
		if c.claims[id] -= n; c.claims[id] <= 0 {
			delete(c.claims, id)
		}
	}
	if len(c.claims) == 0 {
		select {
		case <-c.idle:
		default:
			close(c.idle)
		}
	}
}

// rewrites spaces out the tries to write a batch.
var rewrites = backoff.Policy{First: 10 * flushEvery, Longest: 2 * retryEvery}

// writeTimeout bounds one try to write while the session goes on, and lastWrite from its end
// on, when a stop waits for it.
const (
	writeTimeout = 30 * time.Second
	lastWrite    = 3 * retryEvery
)

// failingAfter is the try to write a batch, about half a second after the first, with which failing to is no hiccup any more. Until
// one succeeds the session starts no more jobs: they would run as often as this process is restarted, and be kept in memory.
const failingAfter = 4

// writeBatch puts a batch into the ledger. It is not written when ctx ended, or when somebody
// has locked what some of it needs, which is held: the others need not wait for that. It
// may take lastWrite after ctx has ended: a stop must not lose outcomes that can still be
// written, nor wait for a database that hangs.
func (c *completer) writeBatch(ctx context.Context, b *batch) (held store.Held, written bool) {
	reported := false
	defer c.failing.Store(false)
	for try := 1; ; try++ {
		b.tries = try
		if !reported {
			if reported, held = c.writeLastReports(ctx, b); !held.None() {
				return held, false
			}
		}
		lost, err := tryWrite(ctx, func(ctx context.Context) (int, error) { return c.ledger.write(ctx, b) })
		if err == nil {
			if lost > 0 && try == 1 { // a repeated write counts what the first one did
				c.lost.Add(float64(lost))
				c.log.Info("runs ended after their claim was lost", zap.Int("runs", lost))
			}
			if lost > 0 && lost == len(b.runs) {
				c.noteOutlived(b.runs)
			}
			return store.Held{}, true
		}
		if errors.Is(err, store.ErrLocked) {
			if held = c.listBlocking(ctx, b, err); !held.None() {
				return held, false
			}
		}
		c.failing.Store(try >= failingAfter || store.NoPrivilege(err)) // which no next try mends
		c.ledger.noteUnwritten(ctx, err)
		if isNews(try) || ctx.Err() != nil {
			c.log.Warn("outcomes could not be written; trying again", zap.Int("runs", len(b.runs)), zap.Int("try", try), zap.Error(err))
		}
		if ctx.Err() != nil {
			return store.Held{}, false
		}
		select {
		case <-time.After(rewrites.Wait(try)):
		case <-ctx.Done(): // once more
		}
	}
}

// isNews tells whether a failure is worth a line in the log, which has that many before it and itself: the first, the
// second, the fourth, and so on. An outage may last for hours.
func isNews(failures int) bool { return failures&(failures-1) == 0 }

// tryWrite bounds one try to write: as long as ctx goes on, and once it has ended.
func tryWrite[T any](ctx context.Context, write func(context.Context) (T, error)) (T, error) {
	tryCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWrite, cancel) })()
	return write(tryCtx)
}

// listBlocking is what somebody has locked that a batch needs, after err said that something is.
func (c *completer) listBlocking(ctx context.Context, b *batch, err error) store.Held {
	held := c.listHeld(ctx, b.runs, slices.Concat(b.over, b.returnClaims))
	if !held.None() {
		c.log.Warn("somebody has locked the rows of jobs that have ended, or of their claims; their ends are written later",
			zap.Int("jobs", len(held.Jobs)), zap.Int("claims", len(held.Claims)), zap.Error(err))
	}
	return held
}

// listHeld is what somebody has locked of runs and claims; nothing if that cannot be seen.
func (c *completer) listHeld(ctx context.Context, runs []store.Finished, claims []int64) store.Held {
	held, err := c.readHeld(ctx, runs, claims)
	if err != nil {
		c.log.Warn("locked jobs could not be listed", zap.Error(err))
	}
	return held
}

func (c *completer) readHeld(ctx context.Context, runs []store.Finished, claims []int64) (store.Held, error) {
	return tryWrite(ctx, func(ctx context.Context) (store.Held, error) { return c.ledger.findHeld(ctx, runs, claims) })
}

// wake makes the reader of a channel of size one look again.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
