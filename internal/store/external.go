package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// MaxLosses is of how many nodes, or external workers, that do not come back to it a job is dead.
const MaxLosses = 3

// ExternalLock is what a worker outside the cluster has of a job: nobody else changes the job while
// the turn is the ledger's.
type ExternalLock struct {
	Job    job.ID
	Turn   int32
	Worker string
}

// External is a job that an external worker has locked.
type External struct {
	Record job.Record // Kind is its topic; Attempt counts this one
	Turn   int32
	Until  time.Time // by the database's clock
}

// ExternalRequest asks for jobs of a topic.
type ExternalRequest struct {
	Topic, Worker string
	LockFor       time.Duration
	Max           int
	Bytes         int      // of payload and meta; a first job may have more
	Tenants       []string // nil: all
	After         *string  // the tenant to begin behind; nil: tenants are chosen by chance
	Look          int      // how many tenants to look at
}

// AcquireExternal locks up to r.Max jobs of a topic. Tenants have equal shares, each in order of
// priority and position. Nothing is acquired of a pool or tenant that is frozen, or of a tenant that
// moves, from the moment on that this was decided. Before, it frees jobs of the topic whose lock has
// expired, as [SweepExternal] does. looked: the tenant behind which there may be more; "": there is none
// behind. Jobs that cannot be read are put off. Safe for concurrent use.
func AcquireExternal(ctx context.Context, db DB, r *ExternalRequest) (jobs []External, looked string, err error) {
	const tries = 3
	for range tries { // while a job came before another one of its exclusive key, which somebody was locking
		if jobs, looked, err = acquireExternal(ctx, db, r); !hasCode(err, codeUniqueViolation) {
			break
		}
	}
	err = putOff(err, func() ([]Damaged, error) {
		return list(ctx, db, "put damaged jobs off", pgx.RowToStructByPos[Damaged], sqlExternalPutOff, r.Topic, r.Max, r.Tenants)
	})
	if damaged := (*DamagedError)(nil); errors.As(err, &damaged) {
		jobs, looked, err = acquireExternal(ctx, db, r)
	}
	return jobs, looked, explain(err, "acquire jobs of topic %q", r.Topic)
}

func acquireExternal(ctx context.Context, db DB, r *ExternalRequest) (jobs []External, looked string, err error) {
	var b pgx.Batch
	b.Queue(sqlExternalOpen)
	b.Queue(sqlExternalSweep, max(r.Max, minSweep), MaxLosses, r.Topic)
	b.Queue(sqlExternalChoose, r.Topic, r.Tenants, r.After, r.Look, r.Max).QueryRow(func(row pgx.Row) error {
		var chosen string
		var last *string
		err := row.Scan(&chosen, &last)
		looked = deref(last)
		return err
	})
	collectInto(b.Queue(sqlExternalAcquire, r.Topic, r.Worker, r.LockFor.Milliseconds(), r.Max, r.Bytes), &jobs, func(row pgx.CollectableRow) (e External, err error) {
		rec := &e.Record
		var most *int
		var unique, correlation *string
		err = row.Scan(&rec.ID, &e.Turn, &rec.Tenant, &rec.Queue, &rec.Priority, &rec.Attempt, &most, &rec.Losses,
			&rec.CreatedAt, &e.Until, &rec.Payload, &rec.Meta, &unique, &correlation)
		rec.Kind, rec.Turn, rec.Attempt, rec.MaxAttempts = r.Topic, e.Turn, rec.Attempt+1, deref(most)
		rec.UniqueKey, rec.CorrelationID = deref(unique), deref(correlation)
		return e, err
	})
	err = db.SendBatch(ctx, &b).Close()
	return jobs, looked, err
}

// minSweep is how many jobs an acquire frees at least, of those whose time has come.
const minSweep = 100

// ExternalEnd is how a job of an external worker ends: well, or with a business error.
type ExternalEnd struct {
	ExternalLock
	Output []byte // JSON; nil: none
	Error  string // the business error; "": it ended well
}

// FinishExternal ends jobs, each whose lock still is the caller's, and returns their ids. keep retains
// them among the finished ones.
func FinishExternal(ctx context.Context, db DB, ends []ExternalEnd, keep bool) ([]job.ID, error) {
	slices.SortFunc(ends, func(a, b ExternalEnd) int { return compareLocks(a.ExternalLock, b.ExternalLock) })
	var l lockColumns
	outputs, errs := make([]*string, len(ends)), make([]*string, len(ends))
	for i, e := range ends {
		l.add(e.ExternalLock)
		outputs[i], errs[i] = nullable(string(e.Output)), nullable(e.Error)
	}
	var b pgx.Batch
	var ended []job.ID
	collectInto(b.Queue(sqlExternalFinish, l.ids, l.turns, l.workers, outputs, errs, keep), &ended, pgx.RowTo[job.ID])
	var well, badly []int64
	for _, e := range ends {
		if e.Error == "" {
			well = append(well, int64(e.Job))
		} else {
			badly = append(badly, int64(e.Job))
		}
	}
	b.Queue(sqlAwaitedNote, arrayText(well), "done")
	b.Queue(sqlAwaitedNote, arrayText(badly), "cancelled")
	err := db.SendBatch(ctx, &b).Close()
	return ended, explain(err, "finish %d jobs", len(ends))
}

// ExternalFailure is what an external worker failed with.
type ExternalFailure struct {
	ExternalLock
	Error, Stack string
	Delay        time.Duration // until it is tried again; 0: as the policy has it
	Retries      *int          // how often it is; nil: until its attempts are used up
}

// FailExternal notes failures, each of a job whose lock still is the caller's. A job that is not
// to be tried again, or was as often as it may be, by the policy unless it has a number of its own,
// is dead. The ids of all those whose lock was the caller's, and of the dead among them.
func FailExternal(ctx context.Context, db DB, failures []ExternalFailure, p job.Policy) (noted, dead []job.ID, err error) {
	slices.SortFunc(failures, func(a, b ExternalFailure) int { return compareLocks(a.ExternalLock, b.ExternalLock) })
	var l lockColumns
	n := len(failures)
	errs, stacks, delays, retries := make([]string, n), make([]*string, n), make([]*int64, n), make([]*int, n)
	for i, f := range failures {
		l.add(f.ExternalLock)
		errs[i], stacks[i], delays[i], retries[i] = f.Error, nullable(f.Stack), nullable(f.Delay.Milliseconds()), f.Retries
	}
	after := make([]int64, p.Attempts())
	for i := range after {
		after[i] = max(p.Delay(i+1), job.MinDelay).Milliseconds()
	}
	var b pgx.Batch
	b.Queue(sqlExternalFail, l.ids, l.turns, l.workers, errs, stacks, delays, retries, p.Attempts(), after).Query(func(rows pgx.Rows) error {
		var id job.ID
		var died bool
		_, err := pgx.ForEachRow(rows, []any{&id, &died}, func() error {
			noted = append(noted, id)
			if died {
				dead = append(dead, id)
			}
			return nil
		})
		return err
	})
	b.Queue(sqlAwaitedNote, arrayText(l.ids), "dead")
	err = db.SendBatch(ctx, &b).Close()
	return noted, dead, explain(err, "note the failures of %d jobs", n)
}

// ExtendExternal has locks expire after a time from now, each that still is the caller's, and
// returns their jobs' ids.
func ExtendExternal(ctx context.Context, db DB, locks []ExternalLock, by time.Duration) ([]job.ID, error) {
	l := lockColumnsOf(locks)
	return list(ctx, db, fmt.Sprintf("extend the locks of %d jobs", len(locks)), pgx.RowTo[job.ID], sqlExternalExtend, l.ids, l.turns, l.workers, by.Milliseconds())
}

// ReleaseExternal gives jobs back unfinished, uncharged, each whose lock still is the caller's, and
// returns their ids.
func ReleaseExternal(ctx context.Context, db DB, locks []ExternalLock) ([]job.ID, error) {
	l := lockColumnsOf(locks)
	return list(ctx, db, fmt.Sprintf("release the locks of %d jobs", len(locks)), pgx.RowTo[job.ID], sqlExternalRelease, l.ids, l.turns, l.workers)
}

// SweepExternal makes jobs wait whose lock has expired, or whose time has come, and dead letters of
// those whose lock expired MaxLosses times: up to max of each topic.
func SweepExternal(ctx context.Context, db DB, max int) (swept int, err error) {
	err = db.QueryRow(ctx, sqlExternalSweep, max, MaxLosses, nil).Scan(&swept)
	return swept, explain(err, "free expired locks of external workers")
}

// StandingLock is a lock that its worker still has.
type StandingLock struct {
	Job     job.ID
	Between *BetweenPoolsError // nil, unless its tenant is being moved
}

// StandingLocks lists those of locks that stand in this pool.
func StandingLocks(ctx context.Context, db DB, locks []ExternalLock) ([]StandingLock, error) {
	l := lockColumnsOf(locks)
	return list(ctx, db, fmt.Sprintf("look for the locks of %d jobs", len(locks)), func(row pgx.CollectableRow) (s StandingLock, err error) {
		var tenant, other *string
		if err = row.Scan(&s.Job, &tenant, &other); tenant != nil {
			s.Between = &BetweenPoolsError{Job: s.Job, Tenant: *tenant, Other: deref(other)}
		}
		return s, err
	}, sqlExternalStands, l.ids, l.turns, l.workers)
}

// lockColumns are locks as the statements take them.
type lockColumns struct {
	ids     []int64
	turns   []int32
	workers []string
}

func (c *lockColumns) add(l ExternalLock) {
	c.ids, c.turns, c.workers = append(c.ids, int64(l.Job)), append(c.turns, l.Turn), append(c.workers, l.Worker)
}

func lockColumnsOf(locks []ExternalLock) (c lockColumns) {
	for _, l := range slices.SortedFunc(slices.Values(locks), compareLocks) {
		c.add(l)
	}
	return c
}

// compareLocks orders locks by job, so that two callers do not wait for one another.
func compareLocks(a, b ExternalLock) int { return cmp.Compare(a.Job, b.Job) }
