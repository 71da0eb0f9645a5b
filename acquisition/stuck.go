package acquisition

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// stuck are the ends of runs that cannot be written yet, because somebody has locked the
// rows of their jobs. They wait apart, so that nothing else waits with them. It is used by
// the completer's goroutine only.
type stuck struct {
	ends []ending
	at   time.Time     // when to look at them again
	rest time.Duration // until then
}

// Waits between looks whether rows are still locked.
const (
	firstUnstick = 250 * time.Millisecond
	lastUnstick  = 5 * time.Second
)

// takeOut moves the runs of held jobs out of a batch, and returns the others.
func (s *stuck) takeOut(batch []ending, held map[job.ID]bool) (free []ending) {
	if len(held) == 0 {
		return batch
	}
	for _, e := range batch {
		if e.how == ran && held[e.claim.Record.ID] {
			s.ends = append(s.ends, e)
		} else {
			free = append(free, e)
		}
	}
	return free
}

// unstick looks whose rows are locked no more, if it is time to, and lets their ends be
// written. It looks once more when ctx has ended.
func (c *completer) unstick(ctx context.Context) {
	s := &c.stuck
	if len(s.ends) == 0 {
		s.rest = 0
		return
	}
	if now := time.Now(); ctx.Err() == nil && now.Before(s.at) {
		return
	}
	runs := make([]store.Finished, len(s.ends))
	for i, e := range s.ends {
		runs[i] = store.Finished{Record: &e.claim.Record, Outcome: e.outcome}
	}
	if held, err := c.lookHeld(ctx, runs); err == nil {
		batch := s.ends
		s.ends = nil
		free := s.takeOut(batch, held)
		c.mu.Lock()
		c.waiting = append(free, c.waiting...)
		c.mu.Unlock()
	}
	c.lookAgain()
}

// lookAgain has unstick called in a while, if there is anything to look at.
func (c *completer) lookAgain() {
	s := &c.stuck
	if len(s.ends) == 0 {
		return
	}
	s.rest = min(max(2*s.rest, firstUnstick), lastUnstick)
	s.at = time.Now().Add(s.rest)
	time.AfterFunc(s.rest, func() { nudge(c.nudge) })
}

// held are the jobs of runs whose rows somebody has locked; none if that cannot be seen.
func (c *completer) held(ctx context.Context, runs []store.Finished) map[job.ID]bool {
	held, err := c.lookHeld(ctx, runs)
	if err != nil {
		c.session.log.Warn("it could not be seen which jobs are locked", zap.Error(err))
	}
	return held
}

func (c *completer) lookHeld(ctx context.Context, runs []store.Finished) (held map[job.ID]bool, err error) {
	err = tryWrite(ctx, func(ctx context.Context) (err error) {
		held, err = c.heldJobs(ctx, runs)
		return err
	})
	return held, err
}
