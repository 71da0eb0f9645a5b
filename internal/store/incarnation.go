package store

import (
	"context"
	"fmt"
)

// ReadIncarnation is the database's present incarnation: the first turn of the jobs that
// are made in it; 0: none has begun, or this is a standby. There is another after whatever
// may have undone commits (a crash, a restore, a promotion), and after a restart.
func ReadIncarnation(ctx context.Context, db DB) (incarnation int32, err error) {
	err = db.QueryRow(ctx, sqlIncarnationRead).Scan(&incarnation)
	return incarnation, explain(err, "read the database's incarnation")
}

// BeginIncarnation begins an incarnation unless one has begun, and returns the present one.
// With look it also looks for sequences that are behind what stands in the tables, which
// may take long; if one is, it sets them ahead and begins the next incarnation: mended.
// Concurrent calls wait for one another; nobody who enqueues waits for them.
func BeginIncarnation(ctx context.Context, db DB, look bool) (incarnation int32, mended bool, err error) {
	err = db.QueryRow(ctx, sqlIncarnationBegin, look).Scan(&incarnation, &mended)
	if hasCode(err, codeNoPrivilege) {
		err = fmt.Errorf("%w: GRANT EXECUTE ON FUNCTION tenure.begin_incarnation(boolean) to the pool's user", err)
	}
	return incarnation, mended, explain(err, "begin an incarnation of the database")
}
