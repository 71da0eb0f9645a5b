package lease

import (
	"slices"
	"sync"
	"time"

	"github.com/tenurehq/tenure/internal/store"
)

// recorder is told what a keeper learns.
type recorder struct {
	nudge chan struct{} // of size one

	mu    sync.Mutex
	ended []Ended      // guarded by mu; since the last look
	lanes []store.Lane // guarded by mu; all in which work was seen
	looks int          // guarded by mu; how often all timers were to be looked at, too
}

func newRecorder() *recorder { return &recorder{nudge: make(chan struct{}, 1)} }

func (r *recorder) Finished(batch []Ended, _ []int64) {
	r.mu.Lock()
	r.ended = append(r.ended, batch...)
	r.mu.Unlock()
	wake(r.nudge)
}

func (r *recorder) CapacityAvailable() { wake(r.nudge) }

func (r *recorder) ClockSetBack() { wake(r.nudge) }

func (r *recorder) WorkSeen(lanes []store.Lane, dueIn time.Duration) {
	r.mu.Lock()
	r.lanes = append(r.lanes, lanes...)
	if dueIn == timerLook {
		r.looks++
	}
	r.mu.Unlock()
	wake(r.nudge)
}

func (r *recorder) seen() []store.Lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lanes)
}

func (r *recorder) looked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.looks
}

func (r *recorder) take() (ended []Ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended, r.ended = r.ended, nil
	return ended
}
