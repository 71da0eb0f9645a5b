package store

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// HoldupID tells one holdup from all others.
type HoldupID struct {
	What string // session, standby, prepared transaction, replication slot
	ID   string // pid, or name
	XID  string // up to which transaction rows can be tidied away
}

// Holdup is what keeps the dead rows of a database from being tidied away: the oldest
// transaction that may still want to read them.
type Holdup struct {
	HoldupID
	User        string
	Application string
	State       string
	Open        time.Duration // the transaction; 0: not known
	Age         int32         // transactions that have begun since
	HiddenFrom  string        // the user who may not see Open and State
}

// Remedy is how to end it.
func (h Holdup) Remedy() string {
	name := "'" + strings.ReplaceAll(h.ID, "'", "''") + "'"
	switch {
	case h.What == "prepared transaction":
		return "end it with COMMIT PREPARED or ROLLBACK PREPARED " + name
	case h.What == "replication slot" && h.State == "inactive":
		return "if its standby does not come back, SELECT pg_drop_replication_slot(" + name + ")"
	case h.What != "session":
		return "end the query on the standby that it sends feedback of"
	}
	return "end it with SELECT pg_terminate_backend(" + h.ID + ")"
}

// OldestHoldup finds what has kept dead rows for longest; false: nothing does.
func OldestHoldup(ctx context.Context, db DB) (h Holdup, found bool, err error) {
	all, err := Holdups(ctx, db, 1)
	if err != nil || len(all) == 0 {
		return h, false, err
	}
	return all[0], true, nil
}

// Holdups lists what keeps dead rows, the oldest first, most at most. A member of pg_read_all_stats is shown all of
// it, also one with NOINHERIT. It is for a connection
// without a transaction: in one, all that follows would be done as that role.
func Holdups(ctx context.Context, db DB, most int) (all []Holdup, err error) {
	batch := &pgx.Batch{} // one transaction
	batch.Queue(sqlStatisticsRole)
	batch.Queue(sqlTransactionOldest, most).Query(func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (h Holdup, err error) {
			var seconds float64
			err = row.Scan(&h.What, &h.ID, &h.User, &h.Application, &h.State, &h.XID, &h.Age, &seconds, &h.HiddenFrom)
			h.Open = time.Duration(seconds * float64(time.Second))
			return h, err
		})
		return err
	})
	return all, explain(db.SendBatch(ctx, batch).Close(), "look for the oldest transaction")
}

// InactiveSlots lists the server's replication slots that nobody reads from, and that keep
// dead rows or write-ahead log for who may come back.
func InactiveSlots(ctx context.Context, db DB) ([]string, error) {
	return list(ctx, db, "look for replication slots", pgx.RowTo[string], sqlSlotInactive)
}

// PublicationsOfDays lists the publications of this database whose subscribers stop when the next day's table of finished
// jobs is used, as they lack it.
func PublicationsOfDays(ctx context.Context, db DB) ([]string, error) {
	return list(ctx, db, "look for publications", pgx.RowTo[string], sqlPublicationDays)
}
