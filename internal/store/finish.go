package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/job"
)

// Finished is a run that came to its end.
type Finished struct {
	Record  *job.Record
	Outcome job.Outcome
}

// Runner is whose runs they were: the session that holds their claims, and its node,
// which goes into the errors.
type Runner struct {
	Session uuid.UUID
	Node    string
}

// Finish writes the outcomes of many runs and removes the claims that are at
// their end, in one transaction and one round trip. Runs whose claim was lost
// change nothing; lost counts them. It can be repeated after an ambiguous error:
// what the first call did is then counted as lost. keep says whether finished jobs
// are retained. Whoever was to run again and is wanted cancelled ends instead. ErrLocked:
// somebody has locked the row of a job, see HeldJobs, or more; nothing was changed.
func Finish(ctx context.Context, db DB, by Runner, keep bool, runs []Finished, claims []int64) (lost int, err error) {
	f := finishBatch{keep: keep, node: by.Node}
	for _, r := range runs {
		f.add(r)
	}
	f.batch.Queue(sqlLockPatience, milliseconds(lockTimeout), true)
	f.queue()
	if len(claims) > 0 {
		f.batch.Queue(sqlClaimRelease, by.Session, claims)
	}
	res := db.SendBatch(ctx, &f.batch)
	_, err = res.Exec() // the patience
	moved := int64(0)
	for range f.moves {
		if err != nil {
			break
		}
		var tag pgconn.CommandTag
		tag, err = res.Exec()
		moved += tag.RowsAffected()
	}
	if closeErr := res.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return 0, fmt.Errorf("finish %d jobs: %w", len(runs), translate(err))
	}
	return max(0, f.counted-int(moved)), nil
}

// HeldJobs are the jobs among those of some runs whose row somebody has locked; it waits
// for nobody. Jobs that do not stand with their run's turn any more are not among them.
func HeldJobs(ctx context.Context, db DB, runs []Finished) (map[job.ID]bool, error) {
	var c idColumns
	for _, r := range runs {
		c.add(r.Record)
	}
	ids, err := collectIDs(ctx, db, "look which jobs are locked", sqlFinishHeld, c.ids, c.turns)
	held := make(map[job.ID]bool, len(ids))
	for _, id := range ids {
		held[job.ID(id)] = true
	}
	return held, err
}

// finishBatch sorts runs by what becomes of them.
type finishBatch struct {
	node    string
	keep    bool
	batch   pgx.Batch
	moves   int // statements at the head of the batch whose rows are counted
	counted int // rows they should touch

	done      map[int32][]int64 // by turn
	later     laterColumns
	dead      deadColumns
	cancelled idColumns
	returned  idColumns
	uniques   uniqueColumns
}

type idColumns struct {
	ids   []int64
	turns []int32
}

func (c *idColumns) add(r *job.Record) {
	c.ids = append(c.ids, int64(r.ID))
	c.turns = append(c.turns, r.Turn)
}

type laterColumns struct {
	idColumns
	delays         []int64
	charged        []bool
	errors, stacks []string
}

type deadColumns struct {
	idColumns
	errors, stacks []string
}

type uniqueColumns struct {
	tenants, keys []string
	ids           []int64
}

func (f *finishBatch) add(r Finished) {
	o := r.Outcome
	switch o.State {
	case job.Done:
		if f.done == nil {
			f.done = map[int32][]int64{}
		}
		f.done[r.Record.Turn] = append(f.done[r.Record.Turn], int64(r.Record.ID))
		if r.Record.UniqueKey != "" {
			f.uniques.tenants = append(f.uniques.tenants, r.Record.Tenant)
			f.uniques.keys = append(f.uniques.keys, r.Record.UniqueKey)
			f.uniques.ids = append(f.uniques.ids, int64(r.Record.ID))
		}
	case job.Retrying, job.Snoozed:
		f.later.add(r.Record)
		f.later.delays = append(f.later.delays, o.Delay.Milliseconds())
		f.later.charged = append(f.later.charged, o.State == job.Retrying)
		f.later.errors = append(f.later.errors, errorText(o.Err))
		f.later.stacks = append(f.later.stacks, job.TrimText(o.Stack))
	case job.Dead:
		f.dead.add(r.Record)
		f.dead.errors = append(f.dead.errors, errorText(o.Err))
		f.dead.stacks = append(f.dead.stacks, job.TrimText(o.Stack))
	case job.Cancelled:
		f.cancelled.add(r.Record)
	case job.Returned:
		f.returned.add(r.Record)
	default:
		panic(fmt.Sprintf("store.Finish: outcome %v", o.State)) // every state is listed above
	}
}

func (f *finishBatch) queue() {
	move := func(rows int, sql string, args ...any) {
		f.batch.Queue(sql, args...)
		f.moves++
		f.counted += rows
	}
	for turn, ids := range f.done {
		if f.keep {
			move(len(ids), sqlFinishDone, ids, turn)
		} else {
			move(len(ids), sqlFinishUnkept, ids, turn)
		}
	}
	if c := f.again(); len(c.ids) > 0 {
		move(0, sqlFinishUnwanted, c.ids, c.turns, f.keep) // its rows are counted below
	}
	if c := f.later; len(c.ids) > 0 {
		move(len(c.ids), sqlFinishLater, c.ids, c.turns, c.delays, c.charged, c.errors, c.stacks, f.node)
	}
	if c := f.dead; len(c.ids) > 0 {
		move(len(c.ids), sqlFinishDead, c.ids, c.turns, c.errors, c.stacks, f.node)
	}
	if c := f.returned; len(c.ids) > 0 {
		move(len(c.ids), sqlFinishReturned, c.ids, c.turns)
	}
	if c := f.cancelled; len(c.ids) > 0 { // without retention it returns no count
		f.batch.Queue(sqlFinishCancel, c.ids, c.turns, f.keep)
	}
	if c := f.uniques; len(c.ids) > 0 {
		f.batch.Queue(sqlUniqueFree, c.tenants, c.keys, c.ids)
	}
}

// again are the runs whose jobs are to run again.
func (f *finishBatch) again() (c idColumns) {
	c.ids = slices.Concat(f.later.ids, f.returned.ids)
	c.turns = slices.Concat(f.later.turns, f.returned.turns)
	return c
}

// QueueFinishInTx adds the finishing of one job to a batch that runs in the
// handler's transaction. When the claim was lost the statement fails with
// job.ErrClaimLost (see TranslateFinish) and nothing of the transaction commits.
func QueueFinishInTx(b *pgx.Batch, r *job.Record, keep bool) {
	b.Queue(sqlFinishInTx, int64(r.ID), r.Turn, keep)
}

// TranslateFinish gives an error of such a batch its meaning.
func TranslateFinish(err error) error { return translate(err) }

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return job.TrimText(err.Error())
}
