package job

import "encoding/json"

// AwaitedEnds is how the jobs ended that a job has awaited: those of its batch, or those it was to start
// after.
type AwaitedEnds struct {
	Done      int `json:"done"`
	Dead      int `json:"dead"`      // and not retried before they were counted
	Cancelled int `json:"cancelled"` // or deleted as dead letters
	Unknown   int `json:"unknown"`   // ended by a node of an earlier release, and not kept: it counts as no failure
}

// Awaited returns how the jobs ended that this one has awaited, which is so for the completion job of a
// batch and for a job with tenure.After. ok is false for any other, and for one that was started by
// hand before they had ended.
func (r *Record) Awaited() (ends AwaitedEnds, ok bool) {
	var meta struct {
		Awaited *AwaitedEnds `json:"tenure.awaited"`
	}
	if len(r.Meta) == 0 || json.Unmarshal(r.Meta, &meta) != nil || meta.Awaited == nil {
		return AwaitedEnds{}, false
	}
	return *meta.Awaited, true
}
