package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// ServerHealth is how a server is doing.
type ServerHealth struct {
	Clock       time.Time // its own
	Connections int       // open to all of its databases
	Vacuums     bool      // by itself, where a table does not say otherwise
}

// ReadServerHealth asks a server how it is doing. It needs no ledger.
func ReadServerHealth(ctx context.Context, db DB) (h ServerHealth, err error) {
	err = db.QueryRow(ctx, sqlServerHealth).Scan(&h.Clock, &h.Connections, &h.Vacuums)
	return h, explain(err, "ask the server how it is doing")
}

// LockRoom tells how many locks a query of all finished jobs takes, and for how many the server has room.
func LockRoom(ctx context.Context, db DB) (look, room int64, err error) {
	err = db.QueryRow(ctx, sqlServerLocks).Scan(&look, &room)
	return look, room, explain(err, "look for how many locks there is room")
}

// TableHealth is how far vacuum is behind on a table of the ledger.
type TableHealth struct {
	Name    string
	Dead    int64 // rows
	DueAt   int64 // at how many of them the table is to be vacuumed
	Vacuums bool  // false: it was told not to be vacuumed by itself
}

// TableHealths looks at all tables of the ledger.
func TableHealths(ctx context.Context, db DB) ([]TableHealth, error) {
	return list(ctx, db, "look at the tables", pgx.RowToStructByPos[TableHealth], sqlTableHealth)
}

// LongRun is a job that has been running for longer than it may.
type LongRun struct {
	ID      job.ID
	Tenant  string
	Kind    string
	Node    string
	Timeout time.Duration // its own; 0: it has none
	Running time.Duration
	Said    time.Duration // since the run has last said something of itself; 0: it has not
}

// LongRuns lists jobs that run for longer than their own timeout, or, without one, than usual;
// the longest first, most at most.
func LongRuns(ctx context.Context, db DB, usual time.Duration, most int) ([]LongRun, error) {
	return list(ctx, db, "look for long runs", func(row pgx.CollectableRow) (r LongRun, err error) {
		var timeout int32
		var running, said int64
		err = row.Scan(&r.ID, &r.Tenant, &r.Kind, &r.Node, &timeout, &running, &said)
		r.Said = time.Duration(said) * time.Millisecond
		r.Timeout, r.Running = time.Duration(timeout)*time.Millisecond, time.Duration(running)*time.Millisecond
		return r, err
	}, sqlClaimLong, usual.Milliseconds(), most)
}

// Topic is what waits for workers outside the cluster that ask for it.
type Topic struct {
	Name   string
	Jobs   int64
	Oldest time.Duration
}

// UntakenTopics lists the topics of jobs that wait for workers outside the cluster, none of which has one locked: of the
// first ten thousand of these jobs.
func UntakenTopics(ctx context.Context, db DB) ([]Topic, error) {
	return list(ctx, db, "look for topics that no worker asks for", func(row pgx.CollectableRow) (t Topic, err error) {
		var oldest float64
		err = row.Scan(&t.Name, &t.Jobs, &oldest)
		t.Oldest = time.Duration(oldest * float64(time.Second))
		return t, err
	}, sqlExternalUntaken, mostCounted)
}

// Load is what a pool has to do, and what Postgres has counted of it since its statistics began.
type Load struct {
	Pool string // of who asks several; the store leaves it empty

	Held    bool   // somebody holds the acquire lock
	Node    string // that does; "": nobody, or one that the ledger does not know
	Epoch   int64
	Frozen  bool
	Waiting int64         // jobs whose turn it is and that no node or worker has in hand; of each sort more than mostCounted are not counted
	Running int64         // jobs that nodes have in hand
	Oldest  time.Duration // since the oldest of those that wait was made
	Dead    int64         // dead letters; likewise

	Timers, Awaiting, External, Suspended int64 // jobs that stand elsewhere; likewise. Of External those that wait are in Waiting, too
	Kept                                  int64 // finished jobs, as Postgres estimates

	Added, Ended, Finished, Died int64 // rows that came into tenure.job, left it, and came among the finished jobs and the dead letters
	Failed                       int64 // rows that came among the failed runs
}

// More tells whether a number of jobs is more than is counted, so that there may be more yet.
func More(n int64) bool { return n > mostCounted }

// mostCounted bounds what a look at the load costs a database with many jobs.
const mostCounted = 10_000

// ReadLoad asks what a pool has to do. It is cheap enough to be done every second.
func ReadLoad(ctx context.Context, db DB) (l Load, err error) {
	var jobs, outside int64
	var oldest float64
	err = db.QueryRow(ctx, sqlPoolLoad, mostCounted+1).Scan(&l.Held, &l.Node, &l.Epoch, &l.Frozen, &jobs, &l.Running, &outside, &oldest, &l.Dead,
		&l.Timers, &l.Awaiting, &l.External, &l.Suspended, &l.Kept, &l.Added, &l.Ended, &l.Finished, &l.Died, &l.Failed)
	l.Waiting, l.Oldest = max(0, jobs-l.Running)+outside, time.Duration(oldest*float64(time.Second))
	return l, explain(err, "read what the pool has to do")
}

// RunTime is how long a run took, and how long before it its job had been added.
type RunTime struct{ Ran, Waited time.Duration }

// RunTimes are those of some first runs that ended lately, five hundred at most. It reads a few pages,
// however many jobs have finished.
func RunTimes(ctx context.Context, db DB, lately time.Duration) ([]RunTime, error) {
	return list(ctx, db, "read how long jobs took", func(row pgx.CollectableRow) (r RunTime, err error) {
		var ran, waited float64
		err = row.Scan(&ran, &waited)
		r.Ran, r.Waited = time.Duration(ran*float64(time.Millisecond)), time.Duration(waited*float64(time.Millisecond))
		return r, err
	}, sqlRunTimes, lately.Milliseconds())
}

// Queue is what waits in a queue.
type Queue struct {
	Pool string // of who asks several; the store leaves it empty

	Name    string
	Waiting int64         // jobs that no node or worker has in hand; more than mostCounted are not counted
	Running int64         // jobs that nodes have in hand
	Oldest  time.Duration // since the oldest of those that were counted was made
	Tenants int64         // whose those are

	Kinds       []string  // whose jobs wait there, as the nodes have told the ledger
	FrozenSince time.Time // zero: it is not frozen
}

// Queues lists the queues that have jobs, that are some kind's or that are frozen. Jobs of some tenants count, or, without any,
// of all.
func Queues(ctx context.Context, db DB, tenants []string) ([]Queue, error) {
	return list(ctx, db, "list queues", func(row pgx.CollectableRow) (q Queue, err error) {
		var oldest float64
		var frozen *time.Time
		err = row.Scan(&q.Name, &q.Waiting, &q.Running, &oldest, &q.Tenants, &q.Kinds, &frozen)
		q.FrozenSince = deref(frozen)
		q.Oldest = time.Duration(oldest * float64(time.Second))
		return q, err
	}, sqlQueueList, mostCounted+1, tenants)
}
