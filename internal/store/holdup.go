package store

import (
	"context"
	"errors"
	"fmt"
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
	var seconds float64
	err = db.QueryRow(ctx, sqlTransactionOldest).Scan(&h.What, &h.ID, &h.User, &h.Application, &h.State, &h.XID, &seconds)
	if errors.Is(err, pgx.ErrNoRows) {
		return h, false, nil
	}
	if err != nil {
		return h, false, fmt.Errorf("look for the oldest transaction: %w", translate(err))
	}
	h.Open = time.Duration(seconds * float64(time.Second))
	return h, true, nil
}
