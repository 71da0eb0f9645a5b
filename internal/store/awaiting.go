package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// arrayText is an array of ids as Postgres reads it, which any driver can send.
func arrayText[ID ~int64](ids []ID) string {
	b := append(make([]byte, 0, 2+16*len(ids)), '{')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return string(append(b, '}'))
}

// EnqueueBatch adds a batch on a transaction: its completion job, and its jobs, which must be of the
// same tenant, as [EnqueueMany] does. If an unfinished job has the completion job's unique key, which that says then,
// nothing is added. The errors are those of [Enqueue].
func EnqueueBatch(ctx context.Context, tx pgx.Tx, pool int, then *NewJob, jobs []NewJob) error {
	if _, duplicate, err := Enqueue(ctx, tx.QueryRow, pool, then); err != nil || duplicate || len(jobs) == 0 {
		return err
	}
	if err := EnqueueMany(ctx, tx, pool, jobs); err != nil {
		return err
	}
	ids := make([]job.ID, 0, len(jobs))
	for i := range jobs {
		if !jobs[i].Taken {
			ids = append(ids, jobs[i].ID)
		}
	}
	_, err := tx.Exec(ctx, sqlAwaitedAdd, then.Tenant, then.ID, ids)
	if NoPrivilege(err) {
		err = fmt.Errorf("%w: GRANT INSERT ON tenure.awaited to the user, which adds a batch's jobs", err)
	}
	return translate(err)
}

// Settled is what came of taking in ends of awaited jobs.
type Settled struct {
	Ends      int  // that were taken in
	Started   int  // jobs that await no others any more
	Cancelled int  // jobs that were cancelled as one that they awaited has failed
	Some      bool // there are jobs that await others
}

// SettleAwaited takes in up to max ends of awaited jobs, under the fence; nothing is done if the lock
// is lost. keep retains cancelled jobs. ErrLocked: somebody has locked what is needed.
func SettleAwaited(ctx context.Context, db DB, f Fence, max int, keep bool) (s Settled, err error) {
	err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		q.QueryRow(func(row pgx.Row) error { return row.Scan(&s.Ends, &s.Started, &s.Cancelled, &s.Some) })
	}, sqlAwaitedSettle, f.Session, f.Epoch, max, keep)
	return s, explain(err, "take in ends of awaited jobs")
}

// AwaitedCursor is how far a look for missed ends has come.
type AwaitedCursor struct{ job, awaiting int64 }

// NoteMissedEnds notes ends of awaited jobs that were not noted, as by a program of an earlier
// release, among the next max awaited ones, and says where to go on; the zero cursor: there are no more.
func NoteMissedEnds(ctx context.Context, db DB, after AwaitedCursor, max int) (missed int, next AwaitedCursor, err error) {
	err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		q.QueryRow(func(row pgx.Row) error { return row.Scan(&missed, &next.job, &next.awaiting) })
	}, sqlAwaitedLook, after.job, after.awaiting, max)
	return missed, next, explain(err, "look for ends of awaited jobs")
}

// NoteAwaiting looks at the next max jobs behind an id that await others, and has those settled that
// may await nothing any more. It returns the id to go on behind; 0: there are no more.
func NoteAwaiting(ctx context.Context, db DB, after job.ID, max int) (next job.ID, err error) {
	err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		q.QueryRow(func(row pgx.Row) error { return row.Scan(&next) })
	}, sqlAwaitingLook, int64(after), max)
	return next, explain(err, "look for jobs that await nothing any more")
}

// ClosedPlace is up to where jobs were looked at that await nothing any more; the zero place is before all.
type ClosedPlace struct {
	at time.Time
	id int64
}

// TrimAwaited removes up to max rows of what jobs awaited that are gone, and that began or were
// cancelled longer ago than retention, among the next max of them behind a place. It returns where to go on;
// more is false if there was nothing left.
func TrimAwaited(ctx context.Context, db DB, after ClosedPlace, max int, retention time.Duration) (next ClosedPlace, more bool, err error) {
	var removed int
	var at *time.Time
	var id *int64
	err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		q.QueryRow(func(row pgx.Row) error { return row.Scan(&removed, &at, &id) })
	}, sqlAwaitedTrim, after.at, after.id, retention.Milliseconds(), max)
	switch {
	case err != nil:
		return after, false, explain(err, "forget what jobs awaited that are gone")
	case removed == max:
		return after, true, nil
	}
	return ClosedPlace{deref(at), deref(id)}, id != nil, nil
}

// Batch is a batch as an operator sees it.
type Batch struct {
	Pool string // of who asks several; the store leaves it empty

	ID        job.ID // of its completion job, too
	Tenant    string
	OnFailure string // what becomes of the completion job when a job fails: wait, cancel or run
	CreatedAt time.Time
	ListedAt  time.Time // with its id its place in lists, as a job's: see Status
	ClosedAt  time.Time // when the completion job was let start, or cancelled; zero: the batch is open
	Jobs      int       // all that were added so far
	Done      int
	Dead      int // among the dead letters, or they were when the batch counted them as failed
	Cancelled int
	Unknown   int      // ended by a node of an earlier release, and not kept
	Open      []job.ID // the first of those that have not ended; set by who asks for them
}

// BatchFilter chooses batches; empty fields choose all.
type BatchFilter struct {
	ID     job.ID
	Tenant string
	After  Cursor // only those behind this place
	Limit  int
}

// Batches lists batches, in the order of their cursors, the newest first, without how their jobs have ended.
func Batches(ctx context.Context, db DB, f BatchFilter) ([]Batch, error) {
	at, id := f.After.args()
	return list(ctx, db, "list batches", func(row pgx.CollectableRow) (b Batch, err error) {
		var closed *time.Time
		err = row.Scan(&b.ID, &b.Tenant, &b.OnFailure, &b.CreatedAt, &closed, &b.ListedAt)
		b.ClosedAt = deref(closed)
		return b, err
	}, sqlBatchList, nullable(int64(f.ID)), nullable(f.Tenant), f.Limit, at, id)
}

// CountBatches says how the jobs of batches have ended: it has no more than their ids and that. It reads
// a row for each of their jobs.
func CountBatches(ctx context.Context, db DB, ids []int64) ([]Batch, error) {
	return list(ctx, db, "count the jobs of batches", func(row pgx.CollectableRow) (b Batch, err error) {
		err = row.Scan(&b.ID, &b.Jobs, &b.Done, &b.Dead, &b.Cancelled, &b.Unknown)
		return b, err
	}, sqlBatchCount, ids)
}

// OpenJobs are the first max jobs that a job still awaits.
func OpenJobs(ctx context.Context, db DB, id job.ID, max int) ([]job.ID, error) {
	return list(ctx, db, fmt.Sprintf("see what job %d awaits", id), pgx.RowTo[job.ID], sqlBatchOpen, int64(id), max)
}

// CloseBatch waits until no transaction is open any more that adds to a batch whose completion job was
// cancelled, and returns the batches in it.
func CloseBatch(ctx context.Context, db DB, id job.ID) (inner []job.ID, err error) {
	if _, err := db.Exec(ctx, sqlBatchLock, int64(id)); err != nil {
		return nil, explain(err, "wait for transactions that add to batch %d", id)
	}
	return list(ctx, db, fmt.Sprintf("look for batches in batch %d", id), pgx.RowTo[job.ID], sqlBatchInner, int64(id))
}

// CancelBatchJobs cancels the next max unfinished jobs of a batch behind an id: waiting and running ones
// by a request. It returns how many it has cancelled, and the id to go on behind; 0: that was all.
func CancelBatchJobs(ctx context.Context, db DB, batch, after job.ID, max int, keep bool) (n int, next job.ID, err error) {
	type row struct {
		ID        job.ID
		Cancelled bool
	}
	var rows []row
	err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		collectInto(q, &rows, pgx.RowToStructByPos[row])
	}, sqlBatchCancel, int64(batch), int64(after), max, keep)
	for _, r := range rows {
		if r.Cancelled {
			n++
		}
	}
	if len(rows) == max {
		next = rows[max-1].ID
	}
	return n, next, explain(err, "cancel jobs of batch %d", batch)
}

// moveLinks moves which of a tenant's jobs await which, and the ends that were not taken in, as Jobs
// does its jobs: some rows at a time, as a batch may have millions. Until all have come nothing is done
// with them in either pool.
func (m Move) moveLinks(ctx context.Context, e Ends, begin func(context.Context) error) error {
	for more := true; more; {
		err := pgx.BeginTxFunc(ctx, e.From, readCommitted, func(tx pgx.Tx) error {
			lines, err := list(ctx, tx, "read awaited jobs", pgx.RowTo[string], sqlAwaitedMove, m.Tenant, moveBatch)
			if more = len(lines) > 0; err != nil || !more {
				return err
			}
			if err := begin(ctx); err != nil {
				return err
			}
			err = pgx.BeginTxFunc(ctx, e.To, readCommitted, func(tx pgx.Tx) error {
				if err := durable(ctx, tx); err != nil {
					return err
				}
				if err := m.step(ctx, tx, "add awaited jobs of", sqlMoveFence, m.Tenant, m.Mover); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, sqlAwaitedInsert, lines)
				return err
			})
			if err != nil {
				return err
			}
			if _, err = tx.Exec(ctx, sqlAwaitedDelete, lines); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, sqlAwaitingDelete, lines)
			return err
		})
		if err != nil {
			return explain(err, "move what the jobs of tenant %q await", m.Tenant)
		}
	}
	return nil
}
