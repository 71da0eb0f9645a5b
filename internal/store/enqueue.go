package store

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
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

// enqueueTries bounds the repeats of an enqueue whose key was just taken by a
// transaction that its snapshot did not see, or whose tenant has just arrived.
const enqueueTries = 10

// QueryRow is the one method of a DB that adding a job needs.
type QueryRow func(ctx context.Context, sql string, args ...any) pgx.Row

// Enqueue adds one job by row, which may belong to a transaction of the caller's.
// duplicate: an unfinished job of the tenant has the same unique key, and id is
// that one's. ErrWrongPool: this is not the pool with this number. TenantMovedError:
// the tenant has left it. ErrTenantArrives: a job with a unique key has to wait until
// all the tenant's keys are here. tenancy.HeldError: the transaction may write data that
// is being copied.
func Enqueue(ctx context.Context, row QueryRow, pool int, j *NewJob) (id job.ID, duplicate bool, err error) {
	args := []any{pool, j.Tenant, j.Queue, j.Kind, string(j.Payload), j.Priority, nullableInt(j.MaxAttempts), nullableJSON(j.Meta), nullable(j.CorrelationID)}
	sql := sqlEnqueueNow
	switch {
	case j.UniqueKey != "":
		sql = sqlEnqueueUnique
		args = append(args, dueAt(j), dueIn(j), j.UniqueKey)
	case j.Later():
		sql = sqlEnqueueLater
		args = append(args, dueAt(j), dueIn(j))
	}
	args = append(args, j.WithData)
	for try := 1; ; try++ {
		err = row(ctx, sql, args...).Scan(&id, &duplicate)
		if !errors.Is(err, pgx.ErrNoRows) {
			break
		}
		// Whatever was in the way may be gone by the time it is asked for.
		if why := refusal(ctx, row, pool, j.Tenant, j.WithData); !errors.Is(why, errKeyContended) || try == enqueueTries {
			return 0, false, why
		}
	}
	if err != nil {
		return 0, false, translate(err)
	}
	return id, duplicate, nil
}

// refusal finds out why an enqueue returned no row.
func refusal(ctx context.Context, row QueryRow, pool int, tenant string, withData bool) error {
	var state, other string
	var held bool
	err := row(ctx, sqlEnqueueRefused, pool, tenant).Scan(&state, &other, &held)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrWrongPool
	case err != nil:
		return translate(err)
	case state == TenantMoved:
		return &TenantMovedError{Tenant: tenancy.ID(tenant), To: other}
	case state == TenantArriving:
		return ErrTenantArrives
	case held && withData:
		return &tenancy.HeldError{Tenant: tenancy.ID(tenant), To: other}
	}
	return errKeyContended
}

func dueAt(j *NewJob) *time.Time {
	if j.DueAt.IsZero() {
		return nil
	}
	return &j.DueAt
}

func dueIn(j *NewJob) *int64 {
	if !j.DueAt.IsZero() || j.DueIn <= 0 {
		return nil
	}
	ms := j.DueIn.Milliseconds()
	return &ms
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
