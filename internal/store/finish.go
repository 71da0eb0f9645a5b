package store

import (
	"context"
	"errors"
	"fmt"
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

// finishBatch sorts runs by the statement that ends them.
type finishBatch struct {
	node    string
	keep    bool
	batch   pgx.Batch
	counted int // rows that its statements should touch
	moved   int // rows that they have

	short map[int32][]int64 // the ids by turn of those that finish_done ends
	other endColumns
}

type idColumns struct {
	ids   []int64
	turns []int32
}

func (c *idColumns) add(r *job.Record) {
	c.ids = append(c.ids, int64(r.ID))
	c.turns = append(c.turns, r.Turn)
}

// shortRun is how long a run counts as that took less. Where jobs are so short, and so many, to say
// of each how long it took would cost half a microsecond.
const shortRun = time.Millisecond

// endColumns are what finish.sql asks for.
type endColumns struct {
	idColumns
	outcomes       []string
	took           []int64 // µs
	errors, stacks []string
	delays         []int64 // ms
}

func (f *finishBatch) add(r Finished) {
	o, c := r.Outcome, &f.other
	if o.State == job.Done && r.Record.UniqueKey == "" && (r.Took < shortRun || !f.keep) {
		if f.short == nil {
			f.short = map[int32][]int64{}
		}
		f.short[r.Record.Turn] = append(f.short[r.Record.Turn], int64(r.Record.ID))
		return
	}
	reason := errorText(o.Err)
	if o.State == job.Cancelled && (errors.Is(o.Err, context.Canceled) || errors.Is(o.Err, job.ErrCancelled)) {
		reason = "" // it was only told so
	}
	c.add(r.Record)
	if o.State < job.Done || o.State > job.Returned {
		panic(fmt.Sprintf("store.Finish: outcome %v", o.State)) // the statement would take its job for one that is over
	}
	c.outcomes = append(c.outcomes, o.State.String())
	c.took = append(c.took, r.Took.Microseconds())
	c.errors = append(c.errors, reason)
	c.stacks = append(c.stacks, job.TrimText(o.Stack))
	c.delays = append(c.delays, o.Delay.Milliseconds())
}

func (f *finishBatch) queue() {
	var short []int64
	for turn, ids := range f.short {
		f.counted += len(ids)
		sql, more := sqlFinishUnkept, []any(nil)
		if f.keep {
			sql, more = sqlFinishDone, []any{shortRun.Microseconds(), f.node}
		}
		end := f.batch.Queue(sql, append([]any{ids, turn}, more...)...)
		end.Exec(func(tag pgconn.CommandTag) error {
			f.moved += int(tag.RowsAffected())
			return nil
		})
		short = append(short, ids...)
	}
	if c := f.other; len(c.ids) > 0 {
		f.counted += len(c.ids)
		f.batch.Queue(sqlFinish, c.ids, c.turns, c.outcomes, c.took, c.errors, c.stacks, c.delays, f.node, f.keep).QueryRow(func(row pgx.Row) error {
			var moved int
			err := row.Scan(&moved)
			f.moved += moved
			return err
		})
	}
	if len(short) > 0 { // finish.sql does that by itself
		f.batch.Queue(sqlAwaitedNote, arrayText(short), "done")
	}
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
