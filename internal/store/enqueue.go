package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// NewJob is a job on its way into the ledger.
type NewJob struct {
	Tenant        string
	Queue         string // "": its kind's, which is known once it was added
	Kind          string
	Payload       []byte
	Meta          []byte // nil: none
	Tagged        bool   // meta has tags in it
	Priority      int16
	MaxAttempts   int // 0: the kind's
	CorrelationID string
	UniqueKey     string
	UniqueFor     time.Duration // how long the unique key is taken, whatever becomes of the job; 0: until it ends
	ExclusiveKey  string
	Timeout       time.Duration // of each run, in whole milliseconds; 0: the kind's
	DueAt         time.Time     // zero: see DueIn
	DueIn         time.Duration // 0: now; counted from the database's clock
	External      bool          // for workers outside the cluster; Kind is the topic
	WithData      bool          // the transaction may write the tenant's own data, too
	Links         *Links        // to other jobs; nil: none

	// ID and Taken are known once it was tried to add the job. Taken: it was not added, as another has its unique key,
	// and ID is that one's.
	ID    job.ID
	Taken bool
}

// Links are what links a job to others of its tenant.
type Links struct {
	After     []int64 // the jobs that it starts after
	OnFailure string  // what becomes of it when one of these fails: wait, cancel or run
	Batch     bool    // it is the completion job of a batch
	In        int64   // the batch that it is added to; 0: none
}

// Awaits tells whether the job starts when others have ended.
func (j *NewJob) Awaits() bool { return j.Links != nil && (j.Links.Batch || len(j.Links.After) > 0) }

// single tells whether the job is added by a statement of its own, with many others, too.
func (j *NewJob) single() bool { return j.UniqueKey != "" || j.Tagged || j.Links != nil }

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

// Enqueue adds one job by row, which may belong to a transaction of the caller's: that goes
// on when the job is refused. duplicate: an unfinished job of the tenant has the same unique
// key, and id is that one's. ErrWrongPool: this is not the pool with this number.
// ErrNotAllowed: the role in force may not enqueue for this tenant. tenancy.MovedError: the
// tenant has left the pool. ErrTenantArrives: a job with a unique key has to wait until all
// the tenant's keys are here. tenancy.HeldError: the transaction may write data that is
// being copied. [job.LinkError]: what it is linked to is not there.
func Enqueue(ctx context.Context, row QueryRow, pool int, j *NewJob) (id job.ID, duplicate bool, err error) {
	return scanEnqueued(row(ctx, sqlEnqueue, enqueueArgs(pool, j)...), j)
}

func enqueueArgs(pool int, j *NewJob) []any {
	args := []any{"enqueue", pool, j.Tenant, nullable(j.Queue), j.Kind, string(j.Payload), j.Priority, nullable(j.MaxAttempts), nullable(string(j.Meta)),
		nullable(j.CorrelationID), nullable(j.DueAt), dueIn(j), nullable(j.UniqueKey), j.WithData, nullable(j.ExclusiveKey), interval(j.Timeout),
		interval(j.UniqueFor)}
	if j.External {
		args[0] = "enqueue_external"
	}
	if l := j.Links; l != nil {
		args[0] = "enqueue_linked"
		return append(args, arrayText(l.After), cmp.Or(l.OnFailure, "wait"), l.Batch, nullable(l.In))
	}
	return append(args, nil, nil, nil, nil)
}

func scanEnqueued(row pgx.Row, j *NewJob) (id job.ID, duplicate bool, err error) {
	var added struct {
		id                    *job.ID
		duplicate             *bool
		refused, other, queue *string
	}
	err = row.Scan(&added.id, &added.duplicate, &added.refused, &added.other, &added.queue)
	switch {
	case err != nil:
		return 0, false, explainEnqueue(err)
	case added.refused != nil:
		return 0, false, refusal(*added.refused, j.Tenant, added.other)
	case added.id == nil || added.duplicate == nil:
		return 0, false, errNoID
	}
	j.ID, j.Taken, j.Queue = *added.id, *added.duplicate, cmp.Or(j.Queue, deref(added.queue))
	return j.ID, j.Taken, nil
}

// So much EnqueueEach sends at a time. By the simple protocol it is one text, which the ledger reads for each of the
// jobs, to see that it calls it itself.
const (
	enqueuedTogether = 50
	enqueuedBytes    = 32 << 10 // of payload and meta; one job may have more
)

// countTogether is how many of the jobs, of which there are some, are sent at a time.
func countTogether(jobs []NewJob) int {
	bytes := 0
	for n := range min(len(jobs), enqueuedTogether) {
		if bytes += len(jobs[n].Payload) + len(jobs[n].Meta); n > 0 && bytes > enqueuedBytes {
			return n
		}
	}
	return min(len(jobs), enqueuedTogether)
}

// EnqueueEach adds jobs on a transaction as [Enqueue] does, up to fifty in a round trip.
// If one of them is refused, which is number at, those before it are there: roll back.
func EnqueueEach(ctx context.Context, tx pgx.Tx, pool int, jobs []NewJob) (at int, err error) {
	for len(jobs) > 0 {
		n := countTogether(jobs)
		some := jobs[:n]
		jobs = jobs[n:]
		var b pgx.Batch
		for i := range some {
			b.Queue(sqlEnqueue, enqueueArgs(pool, &some[i])...)
		}
		r := tx.SendBatch(ctx, &b)
		for i := range some {
			if _, _, err := scanEnqueued(r.QueryRow(), &some[i]); err != nil {
				_ = r.Close() // what it says is said
				return at, err
			}
			at++
		}
		if err := r.Close(); err != nil {
			return at - 1, translate(err)
		}
	}
	return at, nil
}

var errNoID = errors.New("tenure.enqueue returned no id: is it the function that tenure migrate makes?")

// explainEnqueue gives an error of tenure.enqueue its meaning.
func explainEnqueue(err error) error {
	switch {
	case hasCode(err, codeUndefinedFunc):
		return fmt.Errorf("%w: %w", ErrNotMigrated, err)
	case hasCode(err, codeNoPrivilege):
		return fmt.Errorf("%w: run tenure migrate --grants, or GRANT USAGE ON SCHEMA tenure and EXECUTE ON FUNCTION tenure.enqueue to the role", err)
	}
	return translate(err)
}

// EnqueueClaimed adds one job that is due and has no unique key, in a transaction of its own,
// and claims it for the session that holds the lock. claim is 0 if the job was added and not
// claimed: the lock is lost, the tenant rests, somebody has just taken jobs away, or limits were changed
// more often than limits says. The
// errors are those of Enqueue, and ErrUnsure: it is not known what was committed.
func EnqueueClaimed(ctx context.Context, db DB, f Fence, limits int64, pool int, j *NewJob) (r job.Record, claim int64, err error) {
	var id *job.ID
	var refused, other *string
	var claimed *int64
	var turn *int32
	r = job.Record{Tenant: j.Tenant, Queue: j.Queue, Kind: j.Kind, Priority: j.Priority, Attempt: 1, MaxAttempts: j.MaxAttempts, CorrelationID: j.CorrelationID, Timeout: j.Timeout}
	err = db.QueryRow(ctx, sqlEnqueueClaimed, f.Session, f.Epoch, f.Incarnation, pool, j.Tenant, j.Queue, j.Kind, string(j.Payload), j.Priority,
		nullable(j.MaxAttempts), nullable(string(j.Meta)), nullable(j.CorrelationID), interval(j.Timeout), limits).Scan(&id, &refused, &other, &claimed, &turn, &r.CreatedAt, &r.Payload, &r.Meta)
	switch {
	case err != nil && (wasRolledBack(err) || pgconn.SafeToRetry(err)):
		return r, 0, explainEnqueue(err)
	case err != nil:
		return r, 0, fmt.Errorf("%w: %w", ErrUnsure, err)
	case refused != nil:
		return r, 0, refusal(*refused, j.Tenant, other)
	case id == nil:
		return r, 0, errNoID
	}
	r.ID, r.Turn = *id, deref(turn)
	return r, deref(claimed), nil
}

// ErrUnsure is returned when the answer to a statement got lost: it is not known whether it
// was committed.
var ErrUnsure = errors.New("it is not known whether that was committed")

// wasRolledBack tells whether an error is Postgres's word that a statement came to nothing. A
// session that ends may have committed before.
func wasRolledBack(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && cmp.Or(pg.SeverityUnlocalized, pg.Severity) == "ERROR"
}

// refusal is a refusal of tenure.enqueue as an error.
func refusal(why, tenant string, other *string) error {
	switch why {
	case "wrong pool":
		return ErrWrongPool
	case "forbidden":
		return ErrNotAllowed
	case "moved":
		return &tenancy.MovedError{Tenant: tenancy.ID(tenant), To: *other}
	case "held":
		return &tenancy.HeldError{Tenant: tenancy.ID(tenant), To: *other}
	case "arriving":
		return ErrTenantArrives
	case "quota":
		most, _ := strconv.Atoi(deref(other))
		return &QuotaError{Tenant: tenancy.ID(tenant), Most: most}
	case "no job", "no batch":
		id, _ := job.ParseID(*other)
		return &job.LinkError{ID: id, Batch: why == "no batch"}
	case "contended":
		return errKeyContended
	}
	return fmt.Errorf("tenure.enqueue refused the job: %s", why) // a newer ledger's
}

// IsRefusal tells whether the ledger did not take a job for what the job or its tenant is.
func IsRefusal(err error) bool {
	for _, one := range []error{ErrWrongPool, ErrNotAllowed, ErrTenantArrives} {
		if errors.Is(err, one) {
			return true
		}
	}
	return errors.As(err, new(*tenancy.MovedError)) || errors.As(err, new(*tenancy.HeldError)) || errors.As(err, new(*QuotaError)) || errors.As(err, new(*job.LinkError))
}

// dueIn is how long a job waits for its time, if it says so.
func dueIn(j *NewJob) *string {
	if !j.DueAt.IsZero() {
		return nil
	}
	return interval(j.DueIn)
}

// interval is a duration as Postgres reads it; nil: none.
func interval(d time.Duration) *string {
	if d <= 0 {
		return nil
	}
	s := strconv.FormatFloat(d.Seconds(), 'f', 6, 64) + " seconds"
	return &s
}

// inOrderOfKeys lists jobs so that two calls with the same unique keys do not wait for one another in a circle. Those
// with exclusive keys run in the order in which they are added, and so that is kept.
func inOrderOfKeys(jobs []NewJob) []*NewJob {
	list := make([]*NewJob, len(jobs))
	for i := range jobs {
		list[i] = &jobs[i]
	}
	if !slices.ContainsFunc(jobs, func(j NewJob) bool { return j.UniqueKey != "" && j.ExclusiveKey != "" }) {
		slices.SortStableFunc(list, func(a, b *NewJob) int {
			if a.UniqueKey == "" || b.UniqueKey == "" {
				return cmp.Compare(min(len(a.UniqueKey), 1), min(len(b.UniqueKey), 1))
			}
			return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.UniqueKey, b.UniqueKey))
		})
	}
	return list
}

// AgainIfDeadlocked calls do, which begins a transaction, or a savepoint, and ends it. It does so again if others have
// waited for that and it for them, ten times in all: what it had locked is free by then.
func AgainIfDeadlocked(do func() error) (err error) {
	for range 10 {
		if err = do(); !hasCode(err, codeDeadlock) {
			break
		}
	}
	return err
}

// EnqueueMany adds jobs on a transaction: those with a unique key, tags or links one by one,
// the others by COPY. Each then has its ID, and says whether its unique key was taken. The errors are those of Enqueue.
func EnqueueMany(ctx context.Context, tx pgx.Tx, pool int, jobs []NewJob) error {
	// If one with an exclusive key is added by itself, all are, as they run in their order.
	keysAlone := slices.ContainsFunc(jobs, func(j NewJob) bool { return j.single() && j.ExclusiveKey != "" })
	var alone, copied []*NewJob
	tables := map[string][]*NewJob{}
	for _, j := range inOrderOfKeys(jobs) {
		switch {
		case j.single() || keysAlone && j.ExclusiveKey != "":
			alone = append(alone, j)
			continue
		case j.External:
			tables["external_job"] = append(tables["external_job"], j)
		case j.Later():
			tables["timer_job"] = append(tables["timer_job"], j)
		default:
			tables["job"] = append(tables["job"], j)
		}
		copied = append(copied, j)
	}
	now, turn, err := beginMany(ctx, tx, pool, jobs, copied)
	if err != nil {
		return err
	}
	for _, j := range alone {
		if _, _, err := Enqueue(ctx, tx.QueryRow, pool, j); err != nil {
			return err
		}
	}
	for _, table := range []string{"job", "timer_job", "external_job"} {
		if err := copyJobs(ctx, tx, table, tables[table], now, turn); err != nil {
			return err
		}
	}
	return nil
}

// beginMany begins a bulk enqueue, unless one of its tenants has left, draws ids for what is copied, and fills in queues, in
// one round trip.
func beginMany(ctx context.Context, tx pgx.Tx, pool int, jobs []NewJob, copied []*NewJob) (now time.Time, turn int32, err error) {
	tenants := map[string]struct{}{}
	for i := range jobs {
		tenants[jobs[i].Tenant] = struct{}{}
	}
	var b pgx.Batch
	b.Queue(sqlEnqueueBegin, pool)
	b.Queue(sqlEnqueueMoved, slices.Collect(maps.Keys(tenants)))
	b.Queue(sqlEnqueueIDs, len(copied))
	lacksQueue := func(j *NewJob) bool { return j.Queue == "" && !j.External }
	if slices.ContainsFunc(copied, lacksQueue) {
		b.Queue(sqlKindQueueList)
	}
	r := tx.SendBatch(ctx, &b)
	defer r.Close()
	var xid string
	var tenant, refused string
	var other *string
	if err := r.QueryRow().Scan(&xid, &now, &turn); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return now, 0, ErrWrongPool
		}
		return now, 0, translate(err)
	}
	switch err := r.QueryRow().Scan(&tenant, &refused, &other); {
	case err == nil:
		return now, 0, refusal(refused, tenant, other)
	case !errors.Is(err, pgx.ErrNoRows):
		return now, 0, translate(err)
	}
	var ids []job.ID
	if err := r.QueryRow().Scan(&ids); err != nil {
		return now, 0, translate(err)
	}
	queues := map[string]string{}
	if slices.ContainsFunc(copied, lacksQueue) {
		rows, _ := r.Query() // whose error the rows have
		if queues, err = scanKindQueues(rows); err != nil {
			return now, 0, err
		}
	}
	for i, j := range copied {
		j.ID = ids[i]
		if lacksQueue(j) {
			j.Queue = queues[j.Kind]
		}
		j.Queue = cmp.Or(j.Queue, job.DefaultQueue)
	}
	return now, turn, r.Close()
}
