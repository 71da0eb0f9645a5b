package store

import (
	"context"
	"time"
)

// Overview is what a look at a pool shows.
type Overview struct {
	Lock     Lock
	Load     Load
	Sessions []Session
	Changes  []LockChange // of the lock, the newest first, changesShown at most
	Runs     []RunTime    // some that ended in the last minute
}

const (
	changesShown = 30
	runsLately   = time.Minute
)

// ReadOverview looks at a pool on one connection.
func ReadOverview(ctx context.Context, db interface {
	DB
	Beginner
}) (o Overview, err error) {
	// These have plans that are kept.
	if o.Lock, err = ReadLock(ctx, db); err != nil {
		return o, err
	}
	if o.Changes, err = LockChanges(ctx, db, changesShown); err != nil {
		return o, err
	}
	if o.Runs, err = RunTimes(ctx, db, runsLately); err != nil {
		return o, err
	}
	return o, Inspect(ctx, db, func(db DB) (err error) {
		if o.Load, err = ReadLoad(ctx, db); err == nil {
			o.Sessions, err = Sessions(ctx, db)
		}
		return err
	})
}
