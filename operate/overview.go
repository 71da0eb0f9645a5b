package operate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// PoolOverview is what one look at a pool shows: its lock and how that has changed lately, what it has to do,
// the nodes that work there, and how long some jobs took that ended within the last minute.
type PoolOverview struct {
	Pool     string
	Lock     LockStatus // without what server it is on
	Load     PoolLoad
	Sessions []SessionStatus
	Changes  []LockChange // the newest first, thirty at most
	Runs     []RunTime    // of jobs that succeeded or were cancelled in their first run
}

// RunTime is how long a run took, and how long before it its job had been added.
type RunTime struct{ Ran, Waited time.Duration }

// More tells whether a number of jobs, as in a [PoolLoad] or [QueueStatus], is more than is counted, so
// that there may be more yet.
func More(n int64) bool { return store.More(n) }

// What can befall an acquire lock: a [LockChange]'s Change.
const (
	LockTaken    = store.LockTaken
	LockReleased = store.LockReleased
	LockFrozen   = store.LockFrozen // with its pool
	LockThawed   = store.LockThawed
)

// LockChange is a change of a pool's acquire lock.
type LockChange struct {
	Pool string

	Epoch  int64
	Change string // LockTaken, LockReleased, LockFrozen or LockThawed
	At     time.Time
	Node   string // that took or released it; "": the pool was frozen or thawed
	Member string // the start of that node; likewise
	// LostBy is the node that had the lock until it was taken, and had not released it: it died, was
	// cut off, or its lock had expired. The same node: it took the lock once more. "": it was free.
	LostBy string
}

// Text says what happened.
func (c LockChange) Text() string {
	switch {
	case c.Change == LockFrozen:
		return "the pool was frozen"
	case c.Change == LockThawed:
		return "the pool was thawed"
	case c.Change == LockReleased:
		return c.who() + " released the lock"
	case c.LostBy == "":
		return c.who() + " took the lock"
	case c.LostBy == c.Node:
		return c.who() + " took the lock once more"
	default:
		return fmt.Sprintf("%s took the lock, which %s had not released", c.who(), c.LostBy)
	}
}

func (c LockChange) who() string { return cmp.Or(c.Node, c.Member, "a node") }

// LockChangeFilter chooses changes of locks.
type LockChangeFilter struct {
	Pool  string // "": all
	Limit int    // of each pool and in all; 0: 100
}

// SortLockChanges puts the newest first; those of one pool in the order of its lock's epochs, whatever
// its clock has done.
func SortLockChanges(all []LockChange) {
	slices.SortStableFunc(all, func(a, b LockChange) int {
		if a.Pool == b.Pool && a.Epoch != b.Epoch {
			return cmp.Compare(b.Epoch, a.Epoch)
		}
		return b.At.Compare(a.At)
	})
}

// LoadFilter chooses whose load is looked at.
type LoadFilter struct {
	Pool    string       // "": all
	Tenants []tenancy.ID // whose jobs count; none: all
}

// QueueStatus is a queue of a pool, and what waits there.
type QueueStatus struct {
	Pool string

	Name    string
	Waiting int64         // jobs that no node or worker has in hand; more than mostCounted are not counted
	Running int64         // jobs that nodes have in hand
	Oldest  time.Duration // since the oldest of those that were counted could start
	Tenants int64         // whose those are

	Kinds       []string  // whose jobs wait there, as the nodes have told the ledger
	FrozenSince time.Time // zero: it is not frozen
}
