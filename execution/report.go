package execution

import (
	"sync"

	"github.com/tenurehq/tenure/job"
)

// reports has the reporters of a call's jobs, for as long as its handler is called.
type reports struct {
	claim *ClaimedJob // the first of the call

	mu     sync.Mutex
	taking bool // guarded by mu; the handler is called
}

var _ job.Reporters = (*reports)(nil)

func (r *reports) open() {
	r.mu.Lock()
	r.taking = true
	r.mu.Unlock()
}

// close has what is said from now on count for nothing, as the run's end is about to be written.
func (r *reports) close() {
	r.mu.Lock()
	r.taking = false
	r.mu.Unlock()
}

// Reporter implements job.Reporters. The first one that asks for a job's has it made.
func (r *reports) Reporter(id job.ID) *job.Reporter {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.taking {
		return nil
	}
	for c := range r.claim.call() {
		if c.Record.ID == id {
			return c.OpenReport()
		}
	}
	return nil
}
