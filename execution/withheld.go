package execution

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tenurehq/tenure/job"
)

// withheld are jobs that are not to begin here, by owner: somebody has cancelled them since they were claimed.
type withheld struct {
	some atomic.Bool // so that where there are none, which is nearly always, nobody locks
	mu   sync.Mutex
	jobs map[Owner][]job.ID // guarded by mu
}

// Withhold says which jobs of o are not to begin here, in the place of those that it said before: when their turn comes they
// are given back. What runs goes on, see [Workers.Cancel].
func (w *Workers) Withhold(o Owner, ids []job.ID) {
	w.withheld.mu.Lock()
	defer w.withheld.mu.Unlock()
	if len(ids) == 0 {
		delete(w.withheld.jobs, o)
	} else {
		if w.withheld.jobs == nil {
			w.withheld.jobs = map[Owner][]job.ID{}
		}
		w.withheld.jobs[o] = ids
	}
	w.withheld.some.Store(len(w.withheld.jobs) > 0)
}

// withhold gives back those jobs of a call that are not to begin, and returns the call of the others; nil: there are none,
// and the worker is free.
func (w *Workers) withhold(c *ClaimedJob) *ClaimedJob {
	if !w.withheld.some.Load() {
		return c
	}
	w.withheld.mu.Lock()
	ids := w.withheld.jobs[c.Owner]
	w.withheld.mu.Unlock()
	var kept, back []*ClaimedJob
	for one := range c.call() {
		if slices.Contains(ids, one.Record.ID) {
			back = append(back, one)
		} else {
			kept = append(kept, one)
		}
	}
	if len(back) == 0 {
		return c
	}
	if len(kept) == 0 {
		w.dropCall(c)
		return nil
	}
	c.with = nil
	rest := kept[0] // which has the call's slot now
	rest.with, rest.slotless = kept[1:], false
	for _, one := range back {
		one.slotless = true
		w.giveBack(one)
	}
	return rest
}
