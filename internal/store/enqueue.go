package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// NewJob is a job on its way into the ledger.
type NewJob struct {
	Tenant        string
	Queue         string
	Kind          string
	Payload       []byte
	Meta          []byte // nil: none
	Priority      int16
	MaxAttempts   int // 0: the kind's
	CorrelationID string
	UniqueKey     string
	DueAt         time.Time     // zero: see DueIn
	DueIn         time.Duration // 0: now; counted from the database's clock
	WithData      bool          // the transaction may write the tenant's own data, too
}

// Later tells whether the job becomes a timer.
func (j *NewJob) Later() bool { return !j.DueAt.IsZero() || j.DueIn > 0 }

// Lane is where the job will wait.
func (j *NewJob) Lane() Lane { return Lane{Queue: j.Queue, Tenant: j.Tenant, Priority: j.Priority} }

// QueryRow is the one method of a DB, or of a database/sql transaction, that adding a job
// needs.
type QueryRow func(ctx context.Context, sql string, args ...any) pgx.Row

// OnTx is how a job is added in a transaction of the caller's, in one round trip, whatever
// mode its connection prepares statements in.
func OnTx(tx pgx.Tx) QueryRow {
	return func(ctx context.Context, sql string, args ...any) pgx.Row {
		return tx.QueryRow(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
	}
}

// OnSQLTx is OnTx for database/sql.
func OnSQLTx(tx *sql.Tx) QueryRow {
	return func(ctx context.Context, sql string, args ...any) pgx.Row {
		return tx.QueryRowContext(ctx, sql, args...)
	}
}

// Why tenure.enqueue takes a job not in.
const (
	refusedWrongPool = "wrong pool"
	refusedForbidden = "forbidden"
	refusedMoved     = "moved"
	refusedHeld      = "held"
	refusedArriving  = "arriving"
	refusedContended = "contended"
)

// Enqueue adds one job by row, which may belong to a transaction of the caller's: that goes
// on when the job is refused. duplicate: an unfinished job of the tenant has the same unique
// key, and id is that one's. ErrWrongPool: this is not the pool with this number.
// ErrNotAllowed: the role in force may not enqueue for this tenant. TenantMovedError: the
// tenant has left the pool. ErrTenantArrives: a job with a unique key has to wait until all
// the tenant's keys are here. tenancy.HeldError: the transaction may write data that is
// being copied.
func Enqueue(ctx context.Context, row QueryRow, pool int, j *NewJob) (id job.ID, duplicate bool, err error) {
	var added struct {
		id             *job.ID
		duplicate      *bool
		refused, other *string
	}
	err = row(ctx, sqlEnqueue, pool, j.Tenant, j.Queue, j.Kind, string(j.Payload), j.Priority, nullableInt(j.MaxAttempts), nullableJSON(j.Meta),
		nullable(j.CorrelationID), dueAt(j), dueIn(j), nullable(j.UniqueKey), j.WithData).Scan(&added.id, &added.duplicate, &added.refused, &added.other)
	switch {
	case hasCode(err, codeUndefinedFunc):
		return 0, false, fmt.Errorf("%w: %w", ErrNotMigrated, err)
	case hasCode(err, codeNoPrivilege):
		return 0, false, fmt.Errorf("%w: run tenure migrate --grants, or GRANT USAGE ON SCHEMA tenure and EXECUTE ON FUNCTION tenure.enqueue to the role", err)
	case err != nil:
		return 0, false, translate(err)
	case added.refused != nil:
		return 0, false, refusal(*added.refused, j.Tenant, added.other)
	case added.id == nil || added.duplicate == nil:
		return 0, false, errors.New("tenure.enqueue returned no id: is it the function that tenure migrate makes?")
	}
	return *added.id, *added.duplicate, nil
}

// refusal is a refusal of tenure.enqueue as an error.
func refusal(why, tenant string, other *string) error {
	switch why {
	case refusedWrongPool:
		return ErrWrongPool
	case refusedForbidden:
		return ErrNotAllowed
	case refusedMoved:
		return &TenantMovedError{Tenant: tenancy.ID(tenant), To: *other}
	case refusedHeld:
		return &tenancy.HeldError{Tenant: tenancy.ID(tenant), To: *other}
	case refusedArriving:
		return ErrTenantArrives
	case refusedContended:
		return errKeyContended
	}
	return fmt.Errorf("tenure.enqueue refused the job: %s", why) // a newer ledger's
}

func dueAt(j *NewJob) *time.Time {
	if j.DueAt.IsZero() {
		return nil
	}
	return &j.DueAt
}

// dueIn is an interval as Postgres reads it.
func dueIn(j *NewJob) *string {
	if !j.DueAt.IsZero() || j.DueIn <= 0 {
		return nil
	}
	s := strconv.FormatFloat(j.DueIn.Seconds(), 'f', 6, 64) + " seconds"
	return &s
}

func nullableInt(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

func nullableJSON(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

// EnqueueMany adds jobs on a transaction: those with a unique key one by one,
// the others by COPY. It returns how many it added; jobs whose
// unique key is taken are not. The errors are those of Enqueue.
func EnqueueMany(ctx context.Context, tx pgx.Tx, pool int, jobs []NewJob) (added int, err error) {
	now, turn, err := beginMany(ctx, tx, pool, jobs)
	if err != nil {
		return 0, err
	}
	var waiting, timers []*NewJob
	for i := range jobs {
		switch j := &jobs[i]; {
		case j.UniqueKey != "":
			_, duplicate, err := Enqueue(ctx, tx.QueryRow, pool, j)
			if err != nil {
				return 0, err
			}
			if !duplicate {
				added++
			}
		case j.Later():
			timers = append(timers, j)
		default:
			waiting = append(waiting, j)
		}
	}
	for _, part := range []struct {
		jobs []*NewJob
		sql  string
		due  bool
	}{
		{waiting, "COPY tenure.job (tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, turn) FROM STDIN BINARY", false},
		{timers, "COPY tenure.timer_job (tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, turn, due_at) FROM STDIN BINARY", true},
	} {
		if len(part.jobs) == 0 {
			continue
		}
		src := &copySource{jobs: part.jobs, due: part.due, now: now, turn: turn}
		if _, err := tx.Conn().PgConn().CopyFrom(ctx, io.Reader(src), part.sql); err != nil {
			return 0, translate(err)
		}
		added += len(part.jobs)
	}
	return added, nil
}

// beginMany begins a bulk enqueue, unless one of its tenants has left, in one round trip.
func beginMany(ctx context.Context, tx pgx.Tx, pool int, jobs []NewJob) (now time.Time, turn int32, err error) {
	tenants := map[string]struct{}{}
	for i := range jobs {
		tenants[jobs[i].Tenant] = struct{}{}
	}
	var b pgx.Batch
	b.Queue(sqlEnqueueBegin, pool)
	b.Queue(sqlEnqueueMoved, slices.Collect(maps.Keys(tenants)))
	r := tx.SendBatch(ctx, &b)
	defer r.Close()
	var xid string
	var moved TenantMovedError
	if err := r.QueryRow().Scan(&xid, &now, &turn); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return now, 0, ErrWrongPool
		}
		return now, 0, translate(err)
	}
	switch err := r.QueryRow().Scan(&moved.Tenant, &moved.To); {
	case err == nil:
		return now, 0, &moved
	case !errors.Is(err, pgx.ErrNoRows):
		return now, 0, translate(err)
	}
	return now, turn, r.Close()
}
