package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/job"
)

// Finished is a run that came to its end.
type Finished struct {
	Record  *job.Record
	Outcome job.Outcome
	Took    time.Duration
}

// Runner is whose runs they were: the session that holds their claims, and its node,
// which goes into the errors and the finished jobs.
type Runner struct {
	Session uuid.UUID
	Node    string
}

// Finish writes the outcomes of many runs and removes the claims that are at
// their end, in one transaction and one round trip. Runs whose claim was lost
// change nothing; lost counts them. It can be repeated after an ambiguous error:
// what the first call did is then counted as lost. keep says whether finished jobs
// are retained. A job that was to run again and is wanted cancelled ends instead. ErrLocked:
// somebody has locked the row of a job or claim, see FindHeld, or more; nothing was changed. A job that
// cannot be read any more ends without its payload, and stays if it was to run again.
func Finish(ctx context.Context, db DB, by Runner, keep bool, runs []Finished, claims []int64) (lost int, err error) {
	lost, err = finish(ctx, db, by, keep, runs, claims)
	if IsUnreadable(err) {
		if runs, err = settleDamaged(ctx, db, runs); err == nil {
			lost, err = finish(ctx, db, by, keep, runs, claims)
		}
	}
	return lost, explain(err, "finish %d jobs", len(runs))
}

func finish(ctx context.Context, db DB, by Runner, keep bool, runs []Finished, claims []int64) (lost int, err error) {
	f := finishBatch{keep: keep, node: by.Node}
	for _, r := range runs {
		f.add(r)
	}
	f.batch.Queue(sqlLockPatience, milliseconds(lockTimeout), true)
	f.queue()
	if len(claims) > 0 {
		f.batch.Queue(sqlClaimRelease, by.Session, claims)
	}
	if err := db.SendBatch(ctx, &f.batch).Close(); err != nil {
		return 0, err
	}
	return max(0, f.counted-f.moved), nil
}

// Held is what keeps ends of runs from being written, because somebody has locked it.
type Held struct {
	Jobs   map[job.ID]bool // or their unique keys, or the requests to cancel them
	Claims map[int64]bool
}

// None tells whether nothing is locked.
func (h Held) None() bool { return len(h.Jobs)+len(h.Claims) == 0 }

// FindHeld finds out what somebody has locked of the jobs of some runs of a session and of
// some of its claims; it waits for nobody. Jobs that do not stand with their run's turn any
// more are not looked at.
func FindHeld(ctx context.Context, db DB, session uuid.UUID, runs []Finished, claims []int64) (Held, error) {
	var c idColumns
	for _, r := range runs {
		c.add(r.Record)
	}
	held := Held{Jobs: map[job.ID]bool{}, Claims: map[int64]bool{}}
	rows, _ := db.Query(ctx, sqlFinishHeld, c.ids, c.turns, session, notNil(claims)) // its error is the rows', too
	var id int64
	var claim bool
	_, err := pgx.ForEachRow(rows, []any{&id, &claim}, func() error {
		if claim {
			held.Claims[id] = true
		} else {
			held.Jobs[job.ID(id)] = true
		}
		return nil
	})
	if err != nil {
		return Held{}, explain(err, "look what is locked")
	}
	return held, nil
}

// finishBatch sorts runs by what becomes of them.
type finishBatch struct {
	node    string
	keep    bool
	batch   pgx.Batch
	counted int // rows that its statements should touch
	moved   int // rows that they have

	done      map[doneKey]*ranColumns
	later     laterColumns
	dead      deadColumns
	cancelled cancelledColumns
	returned  ranColumns
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

// doneKey is what runs have in common that one statement ends.
type doneKey struct {
	turn  int32
	short bool // they took less than shortRun
}

// shortRun is how long a run counts as that took less. Where jobs are so short, and so many, to say
// of each how long it took would cost half a microsecond.
const shortRun = time.Millisecond

// ranColumns are runs that may be their jobs' last.
type ranColumns struct {
	idColumns
	took []int64 // µs
}

func (c *ranColumns) add(r Finished) {
	c.idColumns.add(r.Record)
	c.took = append(c.took, r.Took.Microseconds())
}

type laterColumns struct {
	ranColumns
	delays         []int64
	charged        []bool
	errors, stacks []string
}

type cancelledColumns struct {
	ranColumns
	reasons []string
}

type deadColumns struct {
	ranColumns
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
			f.done = map[doneKey]*ranColumns{}
		}
		key := doneKey{r.Record.Turn, r.Took < shortRun}
		if f.done[key] == nil {
			f.done[key] = &ranColumns{}
		}
		f.done[key].add(r)
		if r.Record.UniqueKey != "" {
			f.uniques.tenants = append(f.uniques.tenants, r.Record.Tenant)
			f.uniques.keys = append(f.uniques.keys, r.Record.UniqueKey)
			f.uniques.ids = append(f.uniques.ids, int64(r.Record.ID))
		}
	case job.Retrying, job.Snoozed:
		f.later.add(r)
		f.later.delays = append(f.later.delays, o.Delay.Milliseconds())
		f.later.charged = append(f.later.charged, o.State == job.Retrying)
		f.later.errors = append(f.later.errors, errorText(o.Err))
		f.later.stacks = append(f.later.stacks, job.TrimText(o.Stack))
	case job.Dead:
		f.dead.add(r)
		f.dead.errors = append(f.dead.errors, errorText(o.Err))
		f.dead.stacks = append(f.dead.stacks, job.TrimText(o.Stack))
	case job.Cancelled:
		f.cancelled.add(r)
		f.cancelled.reasons = append(f.cancelled.reasons, reasonOf(o.Err))
	case job.Returned:
		f.returned.add(r)
	default:
		panic(fmt.Sprintf("store.Finish: outcome %v", o.State)) // every state is listed above
	}
}

// reasonOf is why a run says that its job is cancelled; "": it was only told so.
func reasonOf(err error) string {
	if errors.Is(err, context.Canceled) || errors.Is(err, job.ErrCancelled) {
		return ""
	}
	return errorText(err)
}

func (f *finishBatch) queue() {
	move := func(rows int, sql string, args ...any) {
		f.counted += rows
		f.batch.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error {
			f.moved += int(tag.RowsAffected())
			return nil
		})
	}
	for key, c := range f.done {
		switch {
		case !f.keep:
			move(len(c.ids), sqlFinishUnkept, c.ids, key.turn)
		case key.short:
			move(len(c.ids), sqlFinishDone, c.ids, key.turn, shortRun.Microseconds(), f.node)
		default:
			move(len(c.ids), sqlFinishDoneEach, c.ids, key.turn, c.took, f.node)
		}
	}
	if c := f.again(); len(c.ids) > 0 {
		move(0, sqlFinishUnwanted, c.ids, c.turns, f.keep, c.took, f.node) // its rows are counted below
	}
	if c := f.later; len(c.ids) > 0 {
		move(len(c.ids), sqlFinishLater, c.ids, c.turns, c.delays, c.charged, c.errors, c.stacks, f.node, c.took)
	}
	if c := f.dead; len(c.ids) > 0 {
		move(len(c.ids), sqlFinishDead, c.ids, c.turns, c.errors, c.stacks, f.node, c.took)
	}
	if c := f.returned; len(c.ids) > 0 {
		move(len(c.ids), sqlFinishReturned, c.ids, c.turns)
	}
	if c := f.cancelled; len(c.ids) > 0 { // without retention it returns no count
		f.batch.Queue(sqlFinishCancel, c.ids, c.turns, f.keep, c.took, f.node, c.reasons)
	}
	if c := f.uniques; len(c.ids) > 0 {
		f.batch.Queue(sqlUniqueFree, c.tenants, c.keys, c.ids)
	}
	f.noteEnds()
}

// noteEnds tells jobs that await others of those that have ended.
func (f *finishBatch) noteEnds() {
	var done []int64
	for _, c := range f.done {
		done = append(done, c.ids...)
	}
	for _, end := range []struct {
		how string
		ids []int64
	}{{"done", done}, {"dead", f.dead.ids}, {"cancelled", slices.Concat(f.cancelled.ids, f.again().ids)}} {
		if len(end.ids) > 0 {
			f.batch.Queue(sqlAwaitedNote, arrayText(end.ids), end.how)
		}
	}
}

// again are the runs whose jobs are to run again.
func (f *finishBatch) again() (c ranColumns) {
	c.ids = slices.Concat(f.later.ids, f.returned.ids)
	c.turns = slices.Concat(f.later.turns, f.returned.turns)
	c.took = slices.Concat(f.later.took, f.returned.took)
	return c
}

// EndInTx is the end of jobs of one turn in their handler's transaction.
type EndInTx struct {
	Turn    int32
	IDs     []job.ID
	Keep    bool // whether finished jobs are retained
	Node    string
	Took    time.Duration // the run
	Reports []Reported    // of those that said anything
}

// FinishInTx is the statement that finishes jobs of one turn in their handler's transaction. When
// the claim on one of them was lost it fails with job.ErrClaimLost (see TranslateFinish) and
// nothing of the transaction commits. It is for the pool's user, with nothing of a tenant's on
// the search path.
func FinishInTx(e EndInTx) string {
	node := literal(e.Node)
	function, which := "finish_in_tx", e.IDs[0].String()
	if len(e.IDs) > 1 {
		var list strings.Builder
		for i, id := range e.IDs {
			if i > 0 {
				list.WriteByte(',')
			}
			list.WriteString(id.String())
		}
		function, which = "finish_batch_in_tx", "'{"+list.String()+"}'"
	}
	statement := fmt.Sprintf("SELECT tenure.%s(%s, %d, %t, %d, %s)", function, which, e.Turn, e.Keep, e.Took.Microseconds(), node)
	if len(e.Reports) == 0 || !e.Keep {
		return statement
	}
	reports, err := encodeReports(e.Reports)
	if err != nil {
		return statement // an output that job.SetOutput did not make
	}
	return fmt.Sprintf("%s, tenure.write_reports_in_tx(%s, %s)", statement, literal(string(reports)), node)
}

// TryFinish does what FinishInTx says in a transaction of its own, and undoes it. The jobs are kept,
// as that takes room. It waits for nobody's locks for long; its error is the server's own.
func TryFinish(ctx context.Context, db Beginner, turn int32, ids []job.ID, node string) error {
	tx, err := db.BeginTx(ctx, readCommitted)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) // if it fails, the connection is closed, which undoes it, too
	_, err = tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d; ", lockTimeout.Milliseconds())+FinishInTx(EndInTx{Turn: turn, IDs: ids, Keep: true, Node: node}))
	return err
}

// TranslateFinish gives an error of that statement its meaning.
func TranslateFinish(err error) error { return translate(err) }

// IsDayAdded tells whether a finished job could not be kept because the partition of its day,
// which was missing, was attached just then. It succeeds when it is tried again.
func IsDayAdded(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == codeCheckViolation && pg.SchemaName == "tenure" && pg.TableName == "completed_job_rest"
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return job.TrimText(err.Error())
}
