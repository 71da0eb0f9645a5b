package acquisition

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// Outcomes are written together: after flushEvery, or as soon as flushSize of them
// wait, but never more than flushMost at a time, so that no transaction holds its
// rows for long.
const (
	flushEvery = 5 * time.Millisecond
	flushSize  = 1000
	flushMost  = 4000
)

// completer writes the ends of a session's runs in batches.
type completer struct {
	session   *session
	writeOnce func(ctx context.Context, runs []store.Finished, over, returnClaims, returnJobs []int64) (lost int, err error)
	heldJobs  func(ctx context.Context, runs []store.Finished) (map[job.ID]bool, error)
	nudge     chan struct{} // one place; written by add, read by run
	stuck     stuck         // used by run only

	mu       sync.Mutex
	waiting  []ending      // guarded by mu
	claims   map[int64]int // guarded by mu; jobs of each claim that have not ended
	idle     chan struct{} // guarded by mu; closed while claims is empty
	outlived []endedJob    // guarded by mu; runs that were reported in vain, the claim being lost
}

// ending is how the time of a claimed job with the workers came to its end.
type ending struct {
	claim   *execution.Claim
	outcome job.Outcome
	how     how
}

type how int8

const (
	ran       how = iota // the outcome is to be written
	ranInTx              // it was written in the handler's transaction
	unstarted            // to be given back as it is
)

func newCompleter(s *session) *completer {
	idle := make(chan struct{})
	close(idle)
	return &completer{session: s, writeOnce: s.writeOnce, heldJobs: s.heldJobs, nudge: make(chan struct{}, 1), claims: map[int64]int{}, idle: idle}
}

// open notes a claim of n jobs.
func (c *completer) open(claim int64, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.claims) == 0 {
		c.idle = make(chan struct{})
	}
	c.claims[claim] += n
}

// known lists the claims that are open.
func (c *completer) known() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := make([]int64, 0, len(c.claims))
	for id := range c.claims {
		ids = append(ids, id)
	}
	return ids
}

// outlive notes runs that were all reported in vain, as they are when the session is dead.
func (c *completer) outlive(runs []store.Finished) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.outlived) > flushMost { // of claims that were lost one by one, which nobody will ask for
		c.outlived = nil
	}
	for _, r := range runs {
		c.outlived = append(c.outlived, endedJob{r.Record.ID, r.Record.Turn})
	}
}

// busy tells whether any claim is open.
func (c *completer) busy() bool {
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

func (c *completer) add(e ending) {
	c.mu.Lock()
	c.waiting = append(c.waiting, e)
	n := len(c.waiting)
	c.mu.Unlock()
	if n == 1 || n == flushSize {
		nudge(c.nudge)
	}
}

// nudge makes the reader of a one-place channel look again.
func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// run flushes until ctx ends and nothing waits.
func (c *completer) run(ctx context.Context) {
	timer := time.NewTimer(flushEvery)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-c.nudge:
		case <-ctx.Done():
			c.flushAll(ctx)
			return
		}
		timer.Reset(flushEvery)
		for full := c.size() >= flushSize; !full; {
			select {
			case <-c.nudge:
				full = c.size() >= flushSize
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
		if c.size() > 0 { // came in meanwhile
			nudge(c.nudge)
		}
	}
}

func (c *completer) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// flushAll writes what waits now, batch by batch; false when ctx ended and the
// database does not answer.
func (c *completer) flushAll(ctx context.Context) bool {
	c.unstick(ctx)
	for left := c.size(); left > 0; {
		n := c.flush(ctx)
		if n == 0 {
			return false
		}
		left -= n
	}
	return true
}

// flush writes one batch, trying until it succeeds or ctx ends and the database
// does not answer. It returns how many endings it took care of.
func (c *completer) flush(ctx context.Context) int {
	c.mu.Lock()
	batch := c.waiting
	if len(batch) > flushMost {
		batch = batch[:flushMost]
	}
	c.waiting = c.waiting[len(batch):]
	if len(c.waiting) == 0 {
		c.waiting = nil
	}
	ended := map[int64]int{}
	for i := range batch {
		ended[batch[i].claim.ID]++
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
	held, written := c.write(ctx, batch, over)
	if !written {
		free := c.stuck.takeOut(batch, held)
		if len(held) > 0 {
			c.stuck.rest = 0
			c.lookAgain()
		}
		c.mu.Lock()
		c.waiting = append(free, c.waiting...)
		c.mu.Unlock()
		return len(batch) - len(free)
	}
	c.mu.Lock()
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
	c.session.ended(batch, over)
	return len(batch)
}

// Waits between tries to write a batch, and the bounds on one try: as long as the
// session goes on, and from its end on.
const (
	firstRewrite = 50 * time.Millisecond
	lastRewrite  = 2 * time.Second
	writeTimeout = 30 * time.Second
	lastWrite    = 3 * time.Second
)

// write puts a batch into the ledger. It is not written when ctx ended, or when somebody
// has locked the rows of some jobs, which are held: the others need not wait for that. It
// may take lastWrite after ctx has ended: a stop must not lose outcomes that can still be
// written, nor wait for a database that hangs.
func (c *completer) write(ctx context.Context, batch []ending, over []int64) (held map[job.ID]bool, written bool) {
	s := c.session
	runs := make([]store.Finished, 0, len(batch))
	gone := map[int64]bool{}
	for _, id := range over {
		gone[id] = true
	}
	var returnClaims, returnJobs []int64
	for i := range batch {
		switch e := &batch[i]; e.how {
		case ran:
			runs = append(runs, store.Finished{Record: &e.claim.Record, Outcome: e.outcome})
		case unstarted:
			if !gone[e.claim.ID] {
				returnClaims = append(returnClaims, e.claim.ID)
				returnJobs = append(returnJobs, int64(e.claim.Record.ID))
			}
		}
	}
	wait := firstRewrite
	for try := 1; ; try++ {
		var lost int
		err := tryWrite(ctx, func(ctx context.Context) (err error) {
			lost, err = c.writeOnce(ctx, runs, over, returnClaims, returnJobs)
			return err
		})
		if err == nil {
			if lost > 0 && try == 1 { // a repeated write counts what the first one did
				s.keeper.metrics.lost.Add(float64(lost))
				s.log.Info("runs ended after their claim was lost", zap.Int("runs", lost))
			}
			if lost > 0 && lost == len(runs) {
				c.outlive(runs)
			}
			return nil, true
		}
		if errors.Is(err, store.ErrLocked) {
			if held = c.held(ctx, runs); len(held) > 0 {
				s.log.Warn("somebody has locked the rows of jobs that have ended; their ends are written later", zap.Int("jobs", len(held)), zap.Error(err))
				return held, false
			}
		}
		s.log.Warn("outcomes could not be written; trying again", zap.Int("runs", len(runs)), zap.Int("try", try), zap.Error(err))
		if ctx.Err() != nil {
			return nil, false
		}
		select {
		case <-time.After(wait + rand.N(wait/2)):
		case <-ctx.Done(): // once more
		}
		wait = min(2*wait, lastRewrite)
	}
}

// tryWrite bounds one try to write: as long as ctx goes on, and once it has ended.
func tryWrite(ctx context.Context, write func(context.Context) error) error {
	tryCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWrite, cancel) })()
	return write(tryCtx)
}
