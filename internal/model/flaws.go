package model

import (
	"reflect"
	"strings"
)

// Flaws are ways to break the protocol on purpose. Each takes one protection away;
// the tests show that the check then finds a history in which a promise is broken.
type Flaws struct {
	ClaimsIgnoreEpoch    bool // a claim checks the lock's holder, but not its epoch
	ClaimsHoldNoLock     bool // a claim looks at the lock's row without FOR KEY SHARE
	ClaimsIgnoreRemovals bool // a claim does not check the removals
	ClaimsUnread         bool // a term begins without reading the claims that stand
	RenewsExpired        bool // an expired lock can be renewed
	EpochsRepeat         bool // the epoch is one more than the row's, and does not follow the clock
	FinishIgnoresTurn    bool // a run's end goes by the job's id alone
	LostClaimsCommit     bool // a transaction commits though it finished no row
	BatchesCommitInPart  bool // a transaction of two jobs commits though it finished one of them only
	ReapKeepsTurn        bool // reaping does not raise the turn
	LossesUnrecorded     bool // reaping does not count a loss
	ReapsUnwatched       bool // a session is declared dead because it expired, its heartbeat unwatched
	DeadSessionsBeat     bool // a heartbeat brings a session back that was declared dead
	DeadSessionsTake     bool // a session that was declared dead can take the lock
	TakesUnseen          bool // a lock can be taken whose renewals were not seen to stand still
	StartsUnchecked      bool // a job starts though the session may be dead
	LeftoversStay        bool // claims whose answer was lost are not looked for
	HoldsUnread          bool // a term does not learn which keys are held, and what limits count, under claims of before
	KeysInAnyOrder       bool // under an exclusive key whichever job was read is claimed, and not the first one

	// Those below are no fancies: the product had them when the model was made, and
	// the model found them. A check of the whole protocol takes them as mended, or it
	// would see nothing behind them. See docs/model.md.

	SweepsByMemory bool // a sweep removes what its sender did not know when it was sent, whenever it arrives
	FlightMixesUp  bool // of two claims that list one job, at an old turn and at its present one, a term heeds either
	JobIDsRepeat   bool // a fail-over gives the ids of lost jobs out again, to other jobs, at the same turn
	ClaimsGoByID   bool // a claim is released by its id alone, and a fail-over gives ids out again
}

// Bounds limit the faults of one history, and with them the number of states. What
// is not listed may happen at any time: any delay, any order, every expiry.
type Bounds struct {
	Nodes     int
	Jobs      int   // 1: only the one whose handler runs in a transaction
	Lives     uint8 // sessions that one node may open, one after the other
	Batches   bool  // both jobs' handler runs in a transaction, and may have them in one; reaping may pass over a job, as one that is locked
	Apart     apart // what keeps the jobs from being in flight at the same time
	Late      bool  // job Y is enqueued during the history, not before
	Calm      bool  // nothing expires by itself: for long histories of other faults
	Takes     uint8 // tries to take the lock
	Lost      uint8 // calls that get no answer; they may still be executed later, or have been
	Crashes   uint8
	Jumps     uint8 // of the database's clock: lock and sessions expire while their nodes are well, or dead sessions seem to live on
	Failovers uint8 // the database goes back to what a replica had
	Cancels   uint8 // of waiting jobs, from outside
	Failures  uint8 // runs that end with an error
	Returns   uint8 // claimed jobs given back before they start
}

// apart is what keeps two jobs apart.
type apart uint8

const (
	together apart = iota // nothing does
	byLimit               // one may be in flight at a time of both: P8
	byKey                 // likewise, and Y goes first as long as it waits: P7
)

func (a apart) String() string { return [...]string{"nothing", "a limit", "a key"}[a] }

// String names the flaws there are.
func (f Flaws) String() string {
	var names []string
	for i, v := 0, reflect.ValueOf(f); i < v.NumField(); i++ {
		if v.Field(i).Bool() {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	if names == nil {
		return "without a flaw"
	}
	return strings.Join(names, ", ")
}
