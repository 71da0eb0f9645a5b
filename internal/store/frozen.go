package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Frozen is a queue or kind of which no job is claimed, whichever tenant's.
type Frozen struct {
	Scope Scope // ScopeQueue or ScopeKind
	Name  string
	Since time.Time
}

// ErrNotFrozen: a queue or kind that was to be thawed is not frozen. It is ErrNotFound, too.
var ErrNotFrozen error = absence("it is not frozen")

// FreezeJobs keeps the jobs of a queue or kind from being claimed, and from being acquired by external workers, or
// lets them again. When it returns no claim on them is being made; those that were go on. ErrNotFrozen: nothing was changed.
func FreezeJobs(ctx context.Context, db Beginner, scope Scope, name string, frozen bool) error {
	return changeLimits(ctx, db, fmt.Sprintf("freeze or thaw %s %q", scope, name), func(tx pgx.Tx) error {
		changed := false
		err := tx.QueryRow(ctx, sqlFreeze, string(scope), name, frozen).Scan(&changed)
		if err == nil && !changed && !frozen {
			err = ErrNotFrozen
		}
		return err
	})
}

// ListCommon lists the schedules and limits that operators have set for every tenant, in words.
func ListCommon(ctx context.Context, db DB) ([]string, error) {
	return list(ctx, db, "list what is set for every tenant", pgx.RowTo[string], sqlCommonList)
}

// ListFrozen lists the queues and kinds that are frozen.
func ListFrozen(ctx context.Context, db DB) ([]Frozen, error) {
	return list(ctx, db, "list what is frozen", pgx.RowToStructByPos[Frozen], sqlFrozenList)
}
