package lease

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

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
	events    Events
	metrics   *metrics
	log       *zap.Logger
	writeOnce func(ctx context.Context, runs []store.Finished, over, returnClaims, returnJobs []int64) (lost int, err error)
	findHeld  func(ctx context.Context, runs []store.Finished, claims []int64) (store.Held, error)
	nudge     chan struct{}  // of size one; written by add, read by run
	locked    lockedOutcomes // used by run only

	reportOnce func(ctx context.Context, reports []store.Reported) error
	reportsDue chan struct{} // as nudge; written when reports have waited for reportEvery

	mu           sync.Mutex
	reporting    map[*execution.Claim]bool // guarded by mu; whose runs go on and have news
	reportsTimed bool                      // guarded by mu; reportsDue will be written
	kept         int                       // guarded by mu; bytes of what was said that waits with ends
	waiting      []Ended                   // guarded by mu
	urgent       bool                      // guarded by mu; some of them have an exclusive key
	claims       map[int64]int             // guarded by mu; jobs of each claim that have not ended
	idle         chan struct{}             // guarded by mu; closed while claims is empty
	outlived     outlivedRuns              // guarded by mu
}

// outlivedRuns are runs that were reported in vain, their claim being lost: they did not end
// this process.
type outlivedRuns struct {
	ids   []int64
	turns []int32
}

// newCompleter returns one whose ways to the ledger, writeOnce, findHeld and reportOnce, are still
// to be set.
func newCompleter(events Events, m *metrics, log *zap.Logger) *completer {
	idle := make(chan struct{})
	close(idle)
	return &completer{events: events, metrics: m, log: log, nudge: make(chan struct{}, 1), reportsDue: make(chan struct{}, 1), claims: map[int64]int{}, idle: idle}
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
	c.retryLocked(ctx)
	for left := c.countWaiting(); left > 0; {
		n := c.flushBatch(ctx)
		if n == 0 {
			return false
		}
		left -= n
	}
	return true
}

// flushBatch writes one batch, trying until it succeeds or ctx ends and the database
// does not answer. It returns how many endings it took care of.
func (c *completer) flushBatch(ctx context.Context) int {
	c.mu.Lock()
	batch := c.waiting
	if len(batch) > flushMost {
		batch = batch[:flushMost]
	}
	c.waiting = c.waiting[len(batch):]
	if len(c.waiting) == 0 {
		c.waiting, c.urgent = nil, false
	}
	ended := map[int64]int{}
	for i := range batch {
		ended[batch[i].Claim.ID]++
	}
	var over []int64 // claims whose last job is in this batch
	for id, n := range ended {
		if c.claims[id] == n {
			over = append(over, id)
		}
	}
	c.mu.Unlock()
	if len(batch) == 0 {
		return 0
	}
	held, written := c.writeBatch(ctx, batch, over)
	if !written {
		free := c.locked.takeOut(batch, held)
		if !held.None() {
			c.locked.checks = 0
			c.scheduleRetry()
		}
		c.mu.Lock()
		c.waiting = append(free, c.waiting...)
		c.mu.Unlock()
		return len(batch) - len(free)
	}
	c.mu.Lock()
	for i := range batch {
		batch[i].Claim.ForgetReport()
		c.kept -= batch[i].said
	}
	for id, n := range ended {
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
	c.mu.Unlock()
	c.events.Finished(batch, over)
	return len(batch)
}

// rewrites spaces out the tries to write a batch.
var rewrites = backoff.Policy{First: 10 * flushEvery, Longest: 2 * retryEvery}

// writeTimeout bounds one try to write while the session goes on, and lastWrite from its end
// on, when a stop waits for it.
const (
	writeTimeout = 30 * time.Second
	lastWrite    = 3 * retryEvery
)

// writeBatch puts a batch into the ledger. It is not written when ctx ended, or when somebody
// has locked what some of it needs, which is held: the others need not wait for that. It
// may take lastWrite after ctx has ended: a stop must not lose outcomes that can still be
// written, nor wait for a database that hangs.
func (c *completer) writeBatch(ctx context.Context, batch []Ended, over []int64) (held store.Held, written bool) {
	runs := make([]store.Finished, 0, len(batch))
	gone := map[int64]bool{}
	for _, id := range over {
		gone[id] = true
	}
	var returnClaims, returnJobs []int64
	for i := range batch {
		switch e := &batch[i]; e.How {
		case Ran:
			runs = append(runs, store.Finished{Record: &e.Claim.Record, Outcome: e.Outcome, Took: e.Took})
		case Unstarted:
			if !gone[e.Claim.ID] {
				returnClaims = append(returnClaims, e.Claim.ID)
				returnJobs = append(returnJobs, int64(e.Claim.Record.ID))
			}
		}
	}
	reported := false
	for try := 1; ; try++ {
		if !reported {
			if reported, held = c.writeLastReports(ctx, batch, runs, slices.Concat(over, returnClaims)); !held.None() {
				return held, false
			}
		}
		var lost int
		err := tryWrite(ctx, func(ctx context.Context) (err error) {
			lost, err = c.writeOnce(ctx, runs, over, returnClaims, returnJobs)
			return err
		})
		if err == nil {
			if lost > 0 && try == 1 { // a repeated write counts what the first one did
				c.metrics.lost.Add(float64(lost))
				c.log.Info("runs ended after their claim was lost", zap.Int("runs", lost))
			}
			if lost > 0 && lost == len(runs) {
				c.noteOutlived(runs)
			}
			return store.Held{}, true
		}
		if errors.Is(err, store.ErrLocked) {
			if held = c.listBlocking(ctx, runs, slices.Concat(over, returnClaims), err); !held.None() {
				return held, false
			}
		}
		c.log.Warn("outcomes could not be written; trying again", zap.Int("runs", len(runs)), zap.Int("try", try), zap.Error(err))
		if ctx.Err() != nil {
			return store.Held{}, false
		}
		select {
		case <-time.After(rewrites.Wait(try)):
		case <-ctx.Done(): // once more
		}
	}
}

// tryWrite bounds one try to write: as long as ctx goes on, and once it has ended.
func tryWrite(ctx context.Context, write func(context.Context) error) error {
	tryCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWrite, cancel) })()
	return write(tryCtx)
}

// retryLocked checks whose rows are not locked any more, if it is time to, and has their ends
// written. It checks once more when ctx has ended.
func (c *completer) retryLocked(ctx context.Context) {
	s := &c.locked
	if len(s.outcomes) == 0 {
		s.checks = 0
		return
	}
	if now := time.Now(); ctx.Err() == nil && now.Before(s.at) {
		return
	}
	var runs []store.Finished
	claims := make([]int64, len(s.outcomes))
	for i, e := range s.outcomes {
		if claims[i] = e.Claim.ID; e.How == Ran {
			runs = append(runs, store.Finished{Record: &e.Claim.Record, Outcome: e.Outcome})
		}
	}
	if held, err := c.readHeld(ctx, runs, claims); err == nil {
		batch := s.outcomes
		s.outcomes = nil
		free := s.takeOut(batch, held)
		c.mu.Lock()
		c.waiting = append(free, c.waiting...)
		c.mu.Unlock()
	}
	c.scheduleRetry()
}

// scheduleRetry has retryLocked called in a while, if any row is locked.
func (c *completer) scheduleRetry() {
	s := &c.locked
	if len(s.outcomes) == 0 {
		return
	}
	s.checks++
	wait := unlockChecks.Exactly(s.checks)
	s.at = time.Now().Add(wait)
	time.AfterFunc(wait, func() { wake(c.nudge) })
}

// listBlocking is what somebody has locked of ended runs and of claims, after err said that
// something is.
func (c *completer) listBlocking(ctx context.Context, runs []store.Finished, claims []int64, err error) store.Held {
	held := c.listHeld(ctx, runs, claims)
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

func (c *completer) readHeld(ctx context.Context, runs []store.Finished, claims []int64) (held store.Held, err error) {
	err = tryWrite(ctx, func(ctx context.Context) (err error) {
		held, err = c.findHeld(ctx, runs, claims)
		return err
	})
	return held, err
}

// wake makes the reader of a channel of size one look again.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
