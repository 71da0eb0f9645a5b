package lease

import (
	"time"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// Events is told what a keeper learns that concerns those who claim and schedule. It is called
// from several goroutines and must not block.
type Events interface {
	// Finished tells that these runs' ends are in the ledger, and which claims of them are
	// over with that.
	Finished(batch []Ended, over []int64)
	// CapacityAvailable tells that the workers, who were full, have capacity again.
	CapacityAvailable()
	// WorkSeen tells that jobs wait in these lanes, or, if there are none, that a timer is due in dueIn, if that
	// is not 0, or that jobs wait somewhere: as a renewal has seen while the lock's holder dozes, or as SQL
	// has told of what it enqueued.
	WorkSeen(lanes []store.Lane, dueIn time.Duration)
	// ClockSetBack tells that the database's clock has jumped back: schedules may be due sooner.
	ClockSetBack()
}

// Ended is how the time of a claimed job with the workers came to its end.
type Ended struct {
	Claim   *execution.ClaimedJob
	Outcome job.Outcome   // of a run
	Took    time.Duration // likewise
	How     How

	said int // bytes of what its run said, which waits with it
}

// How a claimed job left the workers.
type How int8

// The ways in which a claimed job leaves the workers.
const (
	Ran       How = iota // the outcome is to be written
	RanInTx              // it was written in the handler's transaction
	Unstarted            // to be given back as it is
)

// WaitsAgain tells whether the job waits again at once, as it was given back.
func (e *Ended) WaitsAgain() bool { return e.How == Unstarted || e.Outcome.State == job.Returned }

// DueIn is when the job is due again; ok is false if it has not become a timer.
func (e *Ended) DueIn() (d time.Duration, ok bool) {
	return e.Outcome.Delay, e.Outcome.State == job.Retrying || e.Outcome.State == job.Snoozed
}
