package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ServerState is which server a connection leads to, as far as the server says it.
type ServerState struct {
	// ID is the same for a primary and its standbys: the system identifier, or, where that
	// cannot be read, what the ledger makes up for it. "": there is no ledger of this
	// program's version, or it is closed to this user.
	ID string
	// Timeline is raised by each promotion; 0: it is a standby. It is always 1 where it cannot be
	// read and need not be, as the storage keeps commits.
	Timeline int32
	// Refused is why the timeline cannot be read; "": it can.
	Refused string
	// Database is when the server started, and the database's name: what tells it from others as
	// long as they run.
	Database string
	// Installed is when the ledger was made, in µs by the server's clock. A dump that is restored
	// keeps it.
	Installed int64
	owner     string // of the ledger, who reads it
}

// unknownTimeline is that of a server which does not let it be read, although it has to be.
const unknownTimeline = -1

// ServerIs asks a connection which server it leads to, by one message, which a pooler does not
// part. It asks the ledger, whose owner may be allowed more than the connection's user.
func ServerIs(ctx context.Context, db DB) (s ServerState, err error) {
	err = db.QueryRow(ctx, sqlServerIs, pgx.QueryExecModeExec).Scan(&s.ID, &s.Timeline, &s.Refused, &s.owner, &s.Database, &s.Installed)
	switch {
	case hasCode(err, codeUndefinedFunc), hasCode(err, codeUndefinedSchema), hasCode(err, codeNoPrivilege):
		return ServerState{}, nil
	case err != nil:
		return ServerState{}, fmt.Errorf("ask the server who it is: %w", err)
	}
	return s, nil
}

// Constant tells whether the timeline is the same for ever, so that it does not tell a primary
// that was replaced from its successor.
func (s ServerState) Constant() bool { return s.Refused != "" }

// Usable refuses a server of which it cannot be told whether it was replaced, and whose storage
// may have lost commits when it was; nil: it can be told, or need not be.
func (s ServerState) Usable(pool string) error {
	if s.Timeline != unknownTimeline {
		return nil
	}
	return &PoolError{pool, fmt.Sprintf("its server does not let the ledger's owner %q read which timeline it is on (%s), so a primary that was replaced could not be told from its successor", s.owner, s.Refused),
		fmt.Sprintf(`execute there as a superuser: GRANT EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) TO %q; or, only if the server's storage loses no commit in a fail-over and refuses the writes of a server that was replaced, as Amazon Aurora's does, execute as the ledger's owner: UPDATE tenure.pool SET storage_keeps_commits = true`, s.owner)}
}
