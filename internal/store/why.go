package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// Wait is what decides whether a job may start, as far as the ledger knows.
type Wait struct {
	Later       bool      // its time has not come
	Due         time.Time // of a timer; zero: it is none
	Pending     int       // jobs that it awaits and that have not ended, up to MaxAhead
	Awaited     []job.ID  // the first five of them
	AwaitedDead job.ID    // one of them that is a dead letter; 0: none is
	Paused      bool      // the pool is frozen
	Held        bool      // somebody holds the pool's lock
	Holder      string    // the node that does
	TenantState string
	Other       string  // the other pool of a move
	Frozen      bool    // the tenant
	Rests       *Frozen // its queue or kind, if that is frozen
	Handled     bool    // some live node has a handler for its kind
	Rival       job.ID  // that goes before it under its exclusive key; 0: none
	RivalState  string  // running, locked, retrying or waiting
	RivalDue    time.Time
	Limits      []LimitRow // that apply to it, in the order in which they are asked
	Share       int        // jobs of its tenant that the nodes with a handler for it run at a time, if these have as many; 0: they have not
	Flying      int        // how many they have; 0: not known, as Share is 0
	Ahead       int        // jobs that wait before it in its lane, up to MaxAhead
	External    bool       // it is for workers outside the cluster
}

// MaxAhead is up to how many jobs are counted that wait before one.
const MaxAhead = 10_000

// ReadWait reads why a job waits; ok is false if it does not. shared are the pool's shares of limits of the whole
// cluster.
func ReadWait(ctx context.Context, db DB, j Status, shared []Limit) (w Wait, ok bool, err error) {
	rows, err := list(ctx, db, fmt.Sprintf("see why job %d waits", j.ID), func(row pgx.CollectableRow) (w Wait, err error) {
		var later *bool
		var due, rivalDue *time.Time
		var node, other, state *string
		var rival, dead *job.ID
		var share, flying *int
		var rest restRow
		err = row.Scan(&later, &due, &w.Paused, &w.Held, &node, &w.TenantState, &other, &w.Frozen, &w.Handled,
			&rival, &state, &rivalDue, &w.Ahead, &w.Pending, &w.Awaited, &dead, &w.External, &share, &flying, &rest.scope, &rest.name, &rest.since)
		w.Later, w.Due, w.Holder, w.Other = deref(later), deref(due), deref(node), deref(other)
		w.Rival, w.RivalState, w.RivalDue, w.AwaitedDead = deref(rival), deref(state), deref(rivalDue), deref(dead)
		w.Share, w.Flying, w.Rests = deref(share), deref(flying), rest.frozen()
		return w, err
	}, sqlJobWhy, int64(j.ID), MaxAhead)
	if err != nil || len(rows) == 0 {
		return Wait{}, false, err
	}
	w = rows[0]
	w.Limits, err = LimitsOf(ctx, db, j, shared)
	return w, true, err
}

// restRow is what is frozen, or null, as a row has it.
type restRow struct {
	scope *Scope
	name  *string
	since *time.Time
}

func (r restRow) frozen() *Frozen {
	if r.scope == nil {
		return nil
	}
	return &Frozen{*r.scope, *r.name, *r.since}
}

// FirstRefusing is the first limit that does not let the job start; nil: none.
func (w *Wait) FirstRefusing() *LimitRow {
	for i := range w.Limits {
		if l := &w.Limits[i]; l.IsFull() || l.NextIn() > 0 {
			return l
		}
	}
	return nil
}

// TenantWait is what decides whether a tenant's jobs may start, as far as the ledger knows. Jobs are
// counted up to MaxAhead in each state.
type TenantWait struct {
	Paused      bool   // the pool is frozen
	Held        bool   // somebody holds the pool's lock
	Holder      string // the node that does
	TenantState string
	Other       string // the other pool of a move
	Frozen      bool
	Rests       *Frozen // a queue or kind of what waits, if all that waits is of frozen ones
	Most        int     // jobs that may be in flight; 0: any number
	Quota       int     // jobs that may wait, if so many do; 0: there is room
	Share       int     // jobs of a tenant that the nodes with handlers run at a time, if they have as many; 0: they have not
	Running     int
	Waiting     int
	Runnable    int       // of those that wait: some live node has a handler for them
	Example     job.ID    // one of these; 0: there is none
	Unhandled   string    // the kind of one that has none
	Due         time.Time // of the next timer; zero: there is none
	Suspended   int
	External    int // wait for external workers
	Dead        int
}

// ReadTenantWait reads why a tenant's jobs wait.
func ReadTenantWait(ctx context.Context, db DB, tenant string) (w TenantWait, err error) {
	var node, other, unhandled *string
	var most, quota, share *int
	var due *time.Time
	var example *job.ID
	var rest restRow
	err = db.QueryRow(ctx, sqlTenantWhy, tenant, MaxAhead).Scan(&w.Paused, &w.Held, &node, &w.TenantState, &other, &w.Frozen, &most, &quota,
		&w.Running, &w.Waiting, &w.Runnable, &example, &unhandled, &due, &w.Suspended, &w.External, &w.Dead, &share, &rest.scope, &rest.name, &rest.since)
	w.Holder, w.Other, w.Unhandled, w.Quota, w.Due = deref(node), deref(other), deref(unhandled), deref(quota), deref(due)
	w.Share, w.Rests, w.Example = deref(share), rest.frozen(), deref(example)
	if most != nil {
		w.Most = max(*most, 1)
	}
	return w, explain(err, "see why the jobs of tenant %q wait", tenant)
}
