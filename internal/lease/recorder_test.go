package lease

import (
	"slices"
	"sync"
	"time"
)

// recorder is told what a keeper learns.
type recorder struct {
	nudge chan struct{} // of size one

	mu    sync.Mutex
	ended []Ended  // guarded by mu; since the last look
	hints []string // guarded by mu; all that came
}

func newRecorder() *recorder { return &recorder{nudge: make(chan struct{}, 1)} }

func (r *recorder) Finished(batch []Ended, _ []int64) {
	r.mu.Lock()
	r.ended = append(r.ended, batch...)
	r.mu.Unlock()
	wake(r.nudge)
}

func (r *recorder) CapacityAvailable() { wake(r.nudge) }

func (r *recorder) WorkSeen(time.Duration) { wake(r.nudge) }

func (r *recorder) ClockSetBack() { wake(r.nudge) }

func (r *recorder) Notified(hint string) {
	r.mu.Lock()
	r.hints = append(r.hints, hint)
	r.mu.Unlock()
	wake(r.nudge)
}

func (r *recorder) heard() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.hints)
}

func (r *recorder) take() (ended []Ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended, r.ended = r.ended, nil
	return ended
}
