package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/internal/jobstate"
	"github.com/tenurehq/tenure/internal/notify"
	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Selection chooses unfinished jobs; empty fields choose all.
type Selection struct {
	Pool          string
	Tenant        string
	Kind          string
	Queue         string
	State         string // one of those that the method names
	Tag           string
	CorrelationID string
	Before        time.Time // made before then; in any case before the call
}

// CancelStates, SuspendStates and RetryStates are the states that [Jobs.CancelInBackground], [Jobs.SuspendAll] and
// [Jobs.RetryAll] find jobs in: all in which a job has not ended, all in which it waits, and those in which it waits for its time.
// Dead letters are retried by [DeadLetters.Retry] and deleted by [DeadLetters.Delete].
var (
	CancelStates  = jobstate.Words(jobstate.Waits, jobstate.InFlight, jobstate.Aside)
	SuspendStates = jobstate.Words(jobstate.Waits)
	RetryStates   = []string{"retrying", "scheduled"}
)

// suspended is the state of suspended jobs.
const suspended = "suspended"

// check refuses what cannot be; states are those that are meant.
func (f Selection) check(what string, states ...string) error {
	var err error
	if f.State != "" && !slices.Contains(states, f.State) {
		err = fmt.Errorf("state %.40q is not one of %v", f.State, states)
	}
	for field, text := range map[string]string{"tenant": f.Tenant, "kind": f.Kind, "queue": f.Queue, "tag": f.Tag, "correlation id": f.CorrelationID} {
		err = errors.Join(err, job.ValidateText(field, text))
	}
	if err != nil {
		return &job.InputError{Err: fmt.Errorf("%s jobs: %w", what, err)}
	}
	return nil
}

func (f Selection) chosen() store.MovableFilter {
	return store.MovableFilter{Tenant: f.Tenant, Kind: f.Kind, Queue: f.Queue, State: f.State, Tag: f.Tag, CorrelationID: f.CorrelationID, Before: f.Before}
}

// detail is the selection as the audit has it.
func (f Selection) detail() map[string]any {
	return chosenBy(f.Tenant, "kind", f.Kind, "queue", f.Queue, "state", f.State, "tag", f.Tag, "correlation_id", f.CorrelationID, "before", f.Before)
}

// SuspendResult counts what became of the jobs that were chosen.
type SuspendResult struct {
	Suspended int
	Running   int // are claimed and go on; their next attempt is not suspended
	Left      int // stay, because their tenant is being moved, somebody has locked them, or they cannot be read
}

// JobChange is what is to be different in a job; nil: stays as it is.
type JobChange struct {
	Priority    *int           // job.MinPriority to job.MaxPriority
	DueAt       *time.Time     // one that has passed: at once
	MaxAttempts *int           // in all; 1 to job.MaxMaxAttempts
	Timeout     *time.Duration // of each run, in whole milliseconds, from 1 ms
}

func (c JobChange) check() error {
	var err error
	switch {
	case c == JobChange{}:
		err = errors.New("nothing is to be changed")
	case c.Priority != nil && (*c.Priority < job.MinPriority || *c.Priority > job.MaxPriority):
		err = fmt.Errorf("priority %d: %d to %d are allowed", *c.Priority, job.MinPriority, job.MaxPriority)
	case c.DueAt != nil && (c.DueAt.Year() < 1970 || c.DueAt.Year() > 9999):
		err = fmt.Errorf("due %v: years 1970 to 9999 are allowed", c.DueAt)
	case c.MaxAttempts != nil && (*c.MaxAttempts < 1 || *c.MaxAttempts > job.MaxMaxAttempts):
		err = fmt.Errorf("max attempts %d: 1 to %d are allowed", *c.MaxAttempts, job.MaxMaxAttempts)
	case c.Timeout != nil && (*c.Timeout < time.Millisecond || *c.Timeout > job.MaxTimeout):
		err = fmt.Errorf("timeout %v: 1ms to 24 days are allowed", *c.Timeout)
	default:
		return nil
	}
	return &job.InputError{Err: fmt.Errorf("change a job: %w", err)}
}

// detail is the change as the audit has it.
func (c JobChange) detail() map[string]any {
	out := map[string]any{}
	if c.Priority != nil {
		out["priority"] = *c.Priority
	}
	if c.DueAt != nil {
		out["due_at"] = *c.DueAt
	}
	if c.MaxAttempts != nil {
		out["max_attempts"] = *c.MaxAttempts
	}
	if c.Timeout != nil {
		out["timeout_ms"] = c.Timeout.Milliseconds()
	}
	return out
}

// checkUntil refuses a time that has passed.
func checkUntil(until time.Time) error {
	if !until.IsZero() && (!until.After(time.Now()) || until.Year() > 9999) {
		return &job.InputError{Err: fmt.Errorf("suspend until %s: a time in the future is needed, before the year 10000; none: until somebody resumes it", until.Format(time.RFC3339))}
	}
	return nil
}

// SuspendAll is [Jobs.Suspend] for all jobs that f chooses, those of before the call, over all
// pools, in steps that each last: after an interruption the same call goes on. Running jobs
// are not suspended, and nor is their next attempt. Nobody's lock on a job is waited for.
func (c *Jobs) SuspendAll(ctx context.Context, f Selection, until time.Time) (all SuspendResult, _ error) {
	if err := checkUntil(until); err != nil {
		return all, err
	}
	if err := f.check("suspend", SuspendStates...); err != nil {
		return all, err
	}
	left, err := c.eachMovable(ctx, "suspend", f, given("until", until), suspendable, suspendPause, func() int { return all.Suspended }, func(ctx context.Context, p *routing.Pool, db *pgxpool.Conn, ids []int64) error {
		n, err := store.Suspend(ctx, db, ids, until)
		all.Suspended, all.Running, all.Left = all.Suspended+n.Suspended, all.Running+n.Running, all.Left+n.Left
		if err == nil {
			c.notifyUntil(p, until)
		}
		return err
	})
	all.Left += left
	return all, err
}

// ResumeAll is [Jobs.Resume] for all suspended jobs that f chooses, over all pools, and returns
// how many were resumed. After an interruption the same call goes on.
func (c *Jobs) ResumeAll(ctx context.Context, f Selection) (all int, _ error) {
	if err := f.check("resume", suspended); err != nil {
		return 0, err
	}
	_, err := c.eachMovable(ctx, "resume", f, nil, []string{store.PlaceSuspended}, 0, func() int { return all }, func(ctx context.Context, p *routing.Pool, db *pgxpool.Conn, ids []int64) error {
		resumed, err := store.Resume(ctx, db, ids)
		all += len(resumed)
		c.notifyResumed(p, resumed)
		return err
	})
	return all, err
}

// RetryResult counts what became of the jobs that were chosen.
type RetryResult struct {
	Retried int
	Left    int // stay, because their tenant is being moved, somebody has locked them, or they cannot be read
}

// RetryAll makes the retrying or scheduled jobs that f chooses run now, those of before the call, over all pools: f.State is one of
// RetryStates. With a rate, perSecond of them in a second become due, one after the other, and none later than it would have been
// anyway; 0: all at once. It lasts as soon as it returns; after an interruption the same call goes on. Nobody's lock on a job is
// waited for. For dead letters see [DeadLetters.Retry].
func (c *Jobs) RetryAll(ctx context.Context, f Selection, perSecond float64) (all RetryResult, _ error) {
	if f.State == "" { // else jobs whose retries were meant might take jobs with them that are for later
		return all, &job.InputError{Err: fmt.Errorf("retry jobs: say of which state: %s", strings.Join(RetryStates, " or "))}
	}
	if err := cmp.Or(f.check("retry", RetryStates...), checkRate("retry jobs", perSecond)); err != nil {
		return all, err
	}
	var gap time.Duration
	if perSecond > 0 {
		gap = time.Duration(float64(time.Second) / perSecond)
	}
	began := time.Now()
	left, err := c.eachMovable(ctx, "retry", f, given("per_second", perSecond), timed, 0, func() int { return all.Retried }, func(ctx context.Context, p *routing.Pool, db *pgxpool.Conn, ids []int64) error {
		first := max(0, time.Duration(all.Retried)*gap-time.Since(began))
		n, err := store.Hurry(ctx, db, ids, first, gap)
		all.Retried, all.Left = all.Retried+n.Hurried, all.Left+n.Left
		if err == nil {
			h := notify.Hint{Pool: p.Name}
			h.AddTimer(max(first, time.Millisecond))
			c.proc.Notifier.Notify(h)
		}
		return err
	})
	all.Left += left
	return all, err
}

// notifyUntil tells when suspended jobs are to be resumed, if they are.
func (c *Jobs) notifyUntil(p *routing.Pool, until time.Time) {
	if !until.IsZero() {
		h := notify.Hint{Pool: p.Name}
		h.AddTimer(max(time.Until(until), time.Millisecond))
		c.proc.Notifier.Notify(h)
	}
}

// notifyResumed tells where jobs wait and when timers are due now.
func (c *Jobs) notifyResumed(p *routing.Pool, resumed []store.Resumed) {
	if len(resumed) == 0 {
		return
	}
	h := notify.Hint{Pool: p.Name}
	for _, r := range resumed {
		if r.DueIn == nil {
			h.AddLane(r.Lane)
		} else {
			h.AddTimer(max(time.Duration(*r.DueIn)*time.Millisecond, time.Millisecond))
		}
	}
	c.proc.Notifier.Notify(h)
}

const (
	// movablePage is how many jobs are looked at in one statement.
	movablePage = 5000
	// movableStep is how many are changed in one, at most: no job is claimed meanwhile.
	movableStep = 500
	// suspendPause is for how long jobs are claimed, at least, between two steps that void what was
	// read to be claimed.
	suspendPause = 100 * time.Millisecond
)

// eachMovable does something, step by step, to the jobs of some tables that f chooses and that were
// made before it began; more goes into the audit beside the selection. Between two steps jobs are claimed for as long as the step took, and rest at
// least. A pool that fails does not keep it from the others. done tells how many steps have changed; left counts the jobs that it
// cannot be done to.
func (c *Jobs) eachMovable(ctx context.Context, what string, f Selection, more map[string]any, places []string, rest time.Duration, done func() int, step func(context.Context, *routing.Pool, *pgxpool.Conn, []int64) error) (left int, _ error) {
	pools, err := c.proc.PoolsOf(f.Pool)
	if err != nil {
		return 0, err
	}
	var errs []error
	subject := "selection " + uuid.NewString()
	for _, p := range pools {
		detail := f.detail()
		maps.Copy(detail, more)
		d := c.proc.Deed(ctx, "jobs."+what, tenancy.ID(f.Tenant), subject, detail)
		if err := c.proc.Note(ctx, p, d); err != nil {
			errs = append(errs, fmt.Errorf("%s jobs: %w", what, routing.NamePool(p.Name, err)))
			continue
		}
		chosen := f.chosen()
		doneBefore, leftBefore := done(), left
		for _, place := range places {
			n, err := eachMovableIn(ctx, p, place, &chosen, rest, step)
			if left += n; err != nil {
				errs = append(errs, fmt.Errorf("%s jobs: %w", what, routing.NamePool(p.Name, err)))
				break
			}
		}
		if err := noteEnd(ctx, c.proc, p, d, map[string]int{"done": done() - doneBefore, "skipped": left - leftBefore}); err != nil {
			errs = append(errs, fmt.Errorf("%s jobs: %w", what, routing.NamePool(p.Name, err)))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return left, errors.Join(errs...)
}

// The tables of jobs that can be suspended. Timers come first: one that fires meanwhile is found among the
// waiting jobs then.
var suspendable = []string{store.PlaceTimer, store.PlaceJob, store.PlaceExternal}

// timed are the tables of jobs that wait for their time.
var timed = []string{store.PlaceTimer, store.PlaceExternal}

// countMovable counts the jobs that a filter chooses in some tables, up to a bound in each pool.
func (c *Jobs) countMovable(ctx context.Context, pool string, chosen store.MovableFilter, places []string) (n int64, _ error) {
	pools, err := c.proc.PoolsOf(pool)
	if err != nil {
		return 0, err
	}
	counts, err := routing.AskEach(ctx, pools, process.AnswerWithin, func(ctx context.Context, p *routing.Pool) ([]int64, error) {
		var here int64
		err := p.Operate(ctx, func(db *pgxpool.Conn) error {
			for _, place := range places {
				for last, more := store.BeforeAllJobs, true; more && !More(here); {
					ids, behind, further, _, err := store.ReadMovable(ctx, db, place, chosen, last, movablePage)
					if err != nil {
						return err
					}
					last, more, here = behind, further, here+int64(len(ids))
				}
			}
			return nil
		})
		return []int64{here}, err
	})
	for _, here := range counts {
		n += here
	}
	return n, err
}

// eachMovableIn is eachMovable for one table of a pool.
func eachMovableIn(ctx context.Context, p *routing.Pool, place string, f *store.MovableFilter, rest time.Duration, step func(context.Context, *routing.Pool, *pgxpool.Conn, []int64) error) (left int, _ error) {
	for last, more := store.BeforeAllJobs, true; more; {
		var ids []int64
		var now time.Time
		err := process.Operate(ctx, p, func(ctx context.Context, db *pgxpool.Conn) (err error) {
			ids, last, more, now, err = store.ReadMovable(ctx, db, place, *f, last, movablePage)
			return err
		})
		if err != nil {
			return left, err
		}
		if f.Before.IsZero() || f.Before.After(now) {
			f.Before = now
		}
		for some := range slices.Chunk(ids, movableStep) {
			began := time.Now()
			n, err := inParts(some, store.IsUnreadable, func(some []int64) error {
				return process.Operate(ctx, p, func(ctx context.Context, db *pgxpool.Conn) error { return step(ctx, p, db, some) })
			})
			if left += n; err != nil {
				return left, err
			}
			_ = wait.For(ctx, max(time.Since(began), rest)) // whose end the next step finds
		}
	}
	return left, nil
}
