package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// What can befall an acquire lock.
const (
	LockTaken    = "taken"
	LockReleased = "released"
	LockFrozen   = "frozen" // the pool was: nobody has its lock until it is thawed
	LockThawed   = "thawed"
)

// LockChange is a change of a pool's acquire lock. What programs of before ledger version 28 do is
// not noted.
type LockChange struct {
	Pool string // of who asks several; the store leaves it empty

	Epoch  int64
	Change string // LockTaken, LockReleased, LockFrozen or LockThawed
	At     time.Time
	Node   string // that took or released it; "": the pool was frozen or thawed
	Member string // the start of that node; likewise
	// LostBy is the node that had the lock until it was taken, and had not released it: it died, was
	// cut off, or its lock had expired. The same node: it took the lock once more. "": it was free.
	LostBy string
}

// LockChanges lists the newest changes of the pool's acquire lock, at most so many, the newest first.
func LockChanges(ctx context.Context, db DB, most int) ([]LockChange, error) {
	all, err := list(ctx, db, "list the changes of the acquire lock", scanLockChange, sqlLockChanges, most+before)
	return noteLosses(all, most), err
}

// before is how many older changes are needed to say whether a take found the lock free: a pool may
// have been frozen and thawed since it was taken before.
const before = 4

func scanLockChange(row pgx.CollectableRow) (c LockChange, err error) {
	err = row.Scan(&c.Epoch, &c.Change, &c.At, &c.Node, &c.Member)
	return c, err
}

// noteLosses works out who lost the lock, and leaves the newest changes, at most so many.
func noteLosses(all []LockChange, most int) []LockChange {
	holder := ""
	for i := range slices.Backward(all) {
		switch c := &all[i]; c.Change {
		case LockTaken:
			c.LostBy, holder = holder, c.Node
		case LockReleased, LockFrozen:
			holder = ""
		}
	}
	return all[:min(most, len(all))]
}
