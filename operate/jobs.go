package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/internal/backoff"
	"github.com/tenurehq/tenure/internal/jobstate"
	"github.com/tenurehq/tenure/internal/notify"
	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Jobs lists, explains, changes, cancels and retries jobs. See [Jobs.List].
type Jobs struct{ proc *process.Process }

// JobStatus is a job as an operator sees it.
type JobStatus struct {
	Pool          string
	ID            job.ID
	State         string // waiting, claimed, running, scheduled, retrying, awaiting, suspended, dead, done, cancelled
	Tenant        string
	Queue         string
	Kind          string
	Priority      int16
	Attempt       int // runs so far, the running one not included
	MaxAttempts   int // 0: the kind's
	Losses        int
	CreatedAt     time.Time
	At            time.Time // claim started, due, suspended, died or finished, by state
	StartedAt     time.Time // of the last run of a finished job, or of the run of a running one that has reported; else zero
	Node          string    // of a claimed, running or finished job
	Error         string    // the last one
	Payload       []byte
	Meta          []byte
	UniqueKey     string
	ExclusiveKey  string
	CorrelationID string
	Timeout       time.Duration   // of each run; 0: the kind's
	Handled       bool            // whether some live node has a handler for it
	External      bool            // it is for workers outside the cluster; Node is the one that has locked it until At
	ResumeAt      time.Time       // when a suspended job is to be resumed; zero: when somebody says so
	ListedAt      time.Time       // by which lists are ordered, and then by ids: when it was made, or, of the unfinished ones, a little earlier
	CancelAsked   time.Time       // when somebody asked for it to be cancelled, which waits; zero: nobody did; of a single job only, not in lists
	Reports       []job.RunReport // what its runs said of themselves, in their order; of a single job only, not in lists
}

// Get returns one job with what its runs said and those that failed, as soon as its pool has answered.
// ErrNotFound: no pool has it. UnansweredError: those that answered have not, and it says which did not.
func (o *Jobs) Get(ctx context.Context, id job.ID) (JobStatus, []job.RunError, error) {
	return o.read(ctx, o.proc.Router.Pools(), id)
}

// WithKey returns the job that has a tenant's unique key in its pool, or took it for a period that is not over.
// ErrNotFound: none has, or it is not kept any more.
func (o *Jobs) WithKey(ctx context.Context, tenant tenancy.ID, key string) (JobStatus, error) {
	_, home, err := o.proc.Router.Resolve(ctx, tenant)
	var id job.ID
	if err == nil {
		id, err = process.Inspect(ctx, home, func(ctx context.Context, _ *routing.Pool, db store.DB) (job.ID, error) {
			return store.JobWithKey(ctx, db, string(tenant), key)
		})
	}
	if err == nil && id == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return JobStatus{}, fmt.Errorf("unique key %.80q of tenant %q: %w", key, tenant, err)
	}
	j, _, err := o.Get(ctx, id)
	return j, err
}

// GetIn is [Jobs.Get] for a job whose pool is known: no other one is asked.
func (o *Jobs) GetIn(ctx context.Context, pool string, id job.ID) (JobStatus, []job.RunError, error) {
	pools, err := o.proc.PoolsOf(pool)
	if err != nil {
		return JobStatus{}, nil, err
	}
	return o.read(ctx, pools, id)
}

// awaitJobEvery is how often [Jobs.Await] looks: sooner at first, as most jobs are short.
var awaitJobEvery = backoff.Policy{First: 20 * time.Millisecond, Longest: time.Second}

// Await waits until a job has ended, be it done, cancelled, dead or in business_error, and returns what
// [Jobs.Get] does then: a caller finds what came of it in the Output of its last report. It looks after
// 20 ms, and ever more seldom, down to once a second; a pool that does not answer is asked again.
// ErrNotFound: no pool has the job, or it has ended and is not kept (execution.retention). When ctx
// ends first it returns that error, with the job as it was last seen.
func (o *Jobs) Await(ctx context.Context, id job.ID) (j JobStatus, errs []job.RunError, err error) {
	gone := false
	for looks := 1; ; looks++ {
		now, failed, err := o.findAgain(ctx, j.Pool, id)
		var unanswered *UnansweredError
		switch {
		case ctx.Err() != nil:
			return j, errs, fmt.Errorf("await job %d: %w", id, context.Cause(ctx))
		case err == nil:
			j, errs, gone = now, failed, false
		case errors.As(err, &unanswered): // it is asked again
		case gone || j.ID == 0:
			return j, errs, err
		default:
			gone = true // or its tenant was just being moved
		}
		if jobstate.Of(j.State).Ended() {
			return j, errs, nil
		}
		select {
		case <-time.After(awaitJobEvery.Wait(looks)):
		case <-ctx.Done():
		}
	}
}

// findAgain is [Jobs.Get] for one that was in a pool, if that is known, and may have moved since.
func (o *Jobs) findAgain(ctx context.Context, pool string, id job.ID) (JobStatus, []job.RunError, error) {
	if pool != "" {
		if j, errs, err := o.GetIn(ctx, pool, id); err == nil {
			return j, errs, nil
		}
	}
	return o.Get(ctx, id)
}

func (c *Jobs) read(ctx context.Context, pools []*routing.Pool, id job.ID) (JobStatus, []job.RunError, error) {
	type found struct {
		job    JobStatus
		errors []job.RunError
	}
	f, err := inspectFirst(ctx, c.proc, pools, func(ctx context.Context, p *routing.Pool, db store.DB) (*found, error) {
		rows, err := store.List(ctx, db, store.Filter{ID: id, Limit: 1})
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		if rows[0].Reports, err = store.Reports(ctx, db, id); err != nil {
			return nil, err
		}
		if rows[0].CancelAsked, err = store.CancelAsked(ctx, db, id); err != nil {
			return nil, err
		}
		errs, err := store.Errors(ctx, db, id)
		rows[0].Pool = p.Name
		return &found{JobStatus(rows[0]), errs}, err
	})
	if f == nil {
		return JobStatus{}, nil, fmt.Errorf("job %d: %w", id, cmp.Or(err, store.ErrNotFound))
	}
	return f.job, f.errors, nil
}

// Explain says why a job does not run: the first true reason, as its pool's ledger has it.
// What only the memory of the lock's holder knows, such as whose turn it is just now, is told as waiting
// for its turn. Errors are those of [Jobs.Get].
func (o *Jobs) Explain(ctx context.Context, id job.ID) (Explanation, error) {
	return o.explainIn(ctx, o.proc.Router.Pools(), id)
}

func (o *Jobs) explainIn(ctx context.Context, pools []*routing.Pool, id job.ID) (Explanation, error) {
	type found struct {
		job   JobStatus
		wait  store.Wait
		waits bool
		full  []store.BusyNode
		why   string        // it was cancelled
		lost  time.Duration // since its node was heard of; 0: that is alive
	}
	f, err := inspectFirst(ctx, o.proc, pools, func(ctx context.Context, p *routing.Pool, db store.DB) (*found, error) {
		rows, err := store.List(ctx, db, store.Filter{ID: id, Limit: 1})
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		rows[0].Pool = p.Name
		f := found{job: JobStatus(rows[0])}
		if f.job.State != "running" && f.job.State != "claimed" {
			if f.wait, f.waits, err = store.ReadWait(ctx, db, rows[0], listShares(o.proc.Cfg.Load(), p.Name)); f.waits && err == nil {
				f.full, err = store.FullNodes(ctx, db, f.job.Kind)
			}
		} else {
			if f.job.CancelAsked, err = store.CancelAsked(ctx, db, id); err == nil {
				f.lost, err = nodeLost(ctx, p, db, f.job.Node)
			}
		}
		if f.job.State == "cancelled" && err == nil {
			if failed, outcome, err := store.AwaitedFailed(ctx, db, id); err != nil {
				return nil, err
			} else if failed != 0 {
				became := "became a dead letter"
				if outcome == "cancelled" {
					became = "was cancelled, deleted as a dead letter, or ended with a business error"
				}
				f.why = fmt.Sprintf("it awaited job %d, which %s", failed, became)
			}
		}
		if f.wait.Later && err == nil {
			f.job.Reports, err = store.Reports(ctx, db, id)
		}
		return &f, err
	})
	if f == nil {
		return Explanation{}, fmt.Errorf("job %d: %w", id, cmp.Or(err, store.ErrNotFound))
	}
	e := Explanation{Job: f.job}
	unrouted := o.unrouted(ctx, tenancy.ID(f.job.Tenant), f.job.Pool)
	switch {
	case !f.waits:
		e.explainState(f.why, f.lost)
	case unrouted != nil && f.wait.TenantState == store.TenantActive && !f.wait.External:
		e.explainRoute(unrouted)
	default:
		e.explainWait(&f.wait, f.full)
		if e.Reason == WaitsForMove && f.wait.TenantState != store.TenantMoved {
			e.Text, e.Advice = explainMove(ctx, o.proc, e.Job.Tenant, e.Job.Pool, f.wait.TenantState, f.wait.Other)
		}
	}
	name := map[WaitReason]string{WaitsForTenant: e.Job.Tenant, WaitsForQueue: e.Job.Queue, WaitsForKind: e.Job.Kind}[e.Reason]
	e.Frozen = frozenBy(ctx, o.proc, e.Job.Pool, e.Reason, name)
	return e, nil
}

// nodeLost is for how long nothing was heard of a node whose session in a pool has expired, and which nobody has declared
// dead; 0: it is alive.
func nodeLost(ctx context.Context, p *routing.Pool, db store.DB, node string) (lost time.Duration, err error) {
	all, err := listSessions(ctx, p, db)
	for _, s := range all {
		switch {
		case s.Node != node || s.State != "live":
		case !s.Expired:
			return 0, err
		default:
			lost = s.Unseen
		}
	}
	return lost, err
}

// strayError is of a tenant that has jobs in another pool than the one it lives in.
type strayError struct {
	tenant     tenancy.ID
	home, pool string
}

func (e *strayError) Error() string {
	return fmt.Sprintf("tenant %q lives in pool %q, but has jobs in pool %q", e.tenant, e.home, e.pool)
}

// mend is what to do about it.
func (e *strayError) mend() string {
	return fmt.Sprintf("tenure tenants move %s --to %s brings the tenant's jobs there; or correct its route", e.tenant, e.home)
}

// unrouted is why no job of a tenant is claimed in a pool, as far as that is up to routing rules; nil: one leads there,
// or could not be asked.
func (o *Jobs) unrouted(ctx context.Context, id tenancy.ID, pool string) error {
	var unusable *routing.RouteError
	switch _, home, err := o.proc.Router.Resolve(ctx, id); {
	case errors.Is(err, tenancy.ErrUnknownTenant), errors.As(err, &unusable):
		return err
	case err == nil && home.Name != pool:
		return &strayError{tenant: id, home: home.Name, pool: pool}
	}
	return nil
}

// MaxAttempts is how often a job is tried in all: what it says itself, else its kind's policy, or the configuration's.
// 0: this process does not know its kind.
func (o *Jobs) MaxAttempts(j JobStatus) int {
	spec, known := o.proc.Registry.Find(j.Kind)
	switch {
	case j.MaxAttempts > 0:
		return j.MaxAttempts
	case j.External:
	case !known:
		return 0
	case spec.Retry != nil:
		return spec.Retry.Attempts()
	}
	return o.proc.Retry.Attempts()
}

// OpenPayload returns a job's arguments, decrypted if they are encrypted. The error is [encryption.ErrNoKey]
// if this process has not the key for it.
func (o *Jobs) OpenPayload(ctx context.Context, j JobStatus) ([]byte, error) {
	return o.proc.Cipher.Open(ctx, j.Tenant, j.Kind, j.Payload)
}

// Cancel ends an unfinished job. StateError: it has ended. A waiting one is gone when Cancel returns; for a
// running one, which running reports, the handler's context is cancelled within a
// heartbeat of its node. While some session has locked the job's row nothing else waits
// for that; after five seconds, or when ctx ends, Cancel gives up and says so.
func (o *Jobs) Cancel(ctx context.Context, id job.ID) (running bool, err error) {
	return o.cancelIn(ctx, o.proc.Router.Pools(), id)
}

// cancelIn is [Jobs.Cancel] for a job of some pools.
func (o *Jobs) cancelIn(ctx context.Context, pools []*routing.Pool, id job.ID) (running bool, err error) {
	err = o.changeOneIn(ctx, pools, id, "cancel", func(ctx context.Context, _ *routing.Pool, db *pgxpool.Conn) (err error) {
		running, err = store.Cancel(ctx, store.Noted(db, o.proc.JobDeed(ctx, "job.cancel", id, nil)), id, o.proc.Keep)
		return err
	})
	return running, err
}

// CancelInBackground cancels the unfinished jobs that f chooses, those that were made before the call, as an
// operation: the holder of each pool's lock does it, whatever becomes of the caller, at perSecond in each pool; 0: as
// fast as that goes. Waiting jobs do not start any more, and end within some seconds; running ones are
// cancelled within a heartbeat of their node, as with [Jobs.Cancel]. A job that goes from one state to another meanwhile
// is cancelled, too, if f chooses it when its turn comes. See [DeadLetters.RetryInBackground] for what it returns and by.
func (o *Jobs) CancelInBackground(ctx context.Context, f Selection, perSecond float64, by string) (uuid.UUID, error) {
	return (&Operations{o.proc}).cancelJobs(ctx, f, perSecond, by)
}

// CountCancellable counts the jobs that [Jobs.CancelInBackground] would cancel now; see [More] for how
// far. When some pools do not answer, the others' are returned together with an error.
func (o *Jobs) CountCancellable(ctx context.Context, f Selection) (int64, error) {
	if err := f.check("cancel", CancelStates...); err != nil {
		return 0, err
	}
	chosen := f.chosen()
	chosen.Wanted = true
	return o.countMovable(ctx, f.Pool, chosen, append([]string{store.PlaceSuspended}, suspendable...))
}

// StateError says that a job is in a state in which what was to be done to it cannot be. It is
// ErrNotFound, too.
type StateError struct {
	State string
	doing string
}

func (e *StateError) Error() string {
	switch state := jobstate.Of(e.State); {
	case e.doing == "rerun" && e.State == "dead":
		return "it is dead; retry it"
	case e.doing == "rerun" && state.Stage != jobstate.Finished:
		return "it is " + e.State + ", and has not finished"
	case e.doing == "cancel" && (state.Ended() || e.State == "closed"):
		return "it is " + e.State + ", and there is nothing left to cancel"
	case e.doing == "delete" && e.State != "dead":
		return "it is " + e.State + ", and no dead letter"
	case state.Stage == jobstate.Finished:
		return "it is " + e.State + ", and does not run again: rerun it as a new job"
	case e.doing == "retry" && e.State == "waiting":
		return "it waits already, and runs as soon as its turn comes"
	case e.doing == "retry" && (e.State == "claimed" || e.State == "running"):
		return "it is " + e.State + "; if its run fails, it is tried again by itself"
	case (e.doing == "retry" || e.doing == "run") && e.State == "suspended":
		return "it is suspended; resume it first"
	case e.State == "locked":
		return "an external worker has locked it; " + e.doing + " it when that has ended, or cancel it"
	case e.State == "claimed" || e.State == "running":
		return "it is " + e.State + "; " + e.doing + " it when its run has ended, or cancel it"
	case e.State == "dead":
		return "it is dead; retry it first"
	case e.doing == "resume" && e.State != "suspended":
		return "it is " + e.State + ", and not suspended"
	case e.doing == "resume":
		return "some session has locked it; try again"
	}
	return "it is " + e.State + ", and was something else a moment ago: try again"
}

// Is makes it ErrNotFound: there is no such job to do that to.
func (e *StateError) Is(target error) bool { return target == store.ErrNotFound }

// Retry makes a dead job, or one that waits for its time, run now. A dead one gets
// all its attempts again. [job.KeyTakenError]: an unfinished job has the dead one's unique
// key, and nothing was changed. StateError: the job is in another state.
func (o *Jobs) Retry(ctx context.Context, id job.ID) error { return o.retryAs(ctx, id, nil) }

// retryAs is Retry with a priority; nil: as it is.
func (o *Jobs) retryAs(ctx context.Context, id job.ID, priority *int) error {
	return o.changeOne(ctx, id, "retry", func(ctx context.Context, p *routing.Pool, db *pgxpool.Conn) error {
		var lane store.Lane
		detail := map[string]any{}
		if priority != nil {
			detail["priority"] = *priority
		}
		err := store.InNoted(ctx, db, o.proc.JobDeed(ctx, "job.retry", id, detail), func(db store.DB) (err error) {
			lane, err = store.RetryAs(ctx, db, id, priority)
			return err
		})
		if err == nil {
			h := notify.Hint{Pool: p.Name}
			h.AddLane(lane)
			o.proc.Notifier.Notify(h)
		}
		return err
	})
}

// Rerun adds a job that is what a finished one was, and returns its id: with its arguments, meta, tags, correlation id,
// keys, priority, queue, attempts and timeout. The finished one stays as it is, and the new one's meta names it as
// "tenure:rerun_of". Links to other jobs and batches are not the new one's. It needs the finished job to be kept, see
// execution.retention in the configuration. [job.KeyTakenError]: an unfinished job has its unique key. StateError: the
// job has not finished; a dead one is retried. Doing it again adds another job.
func (o *Jobs) Rerun(ctx context.Context, id job.ID) (added job.ID, err error) {
	err = o.changeOne(ctx, id, "rerun", func(ctx context.Context, p *routing.Pool, db *pgxpool.Conn) error {
		number, err := p.Number()
		if err != nil {
			return err
		}
		var lane store.Lane
		err = store.InNoted(ctx, db, o.proc.JobDeed(ctx, "job.rerun", id, nil), func(db store.DB) (err error) {
			added, lane, err = store.Rerun(ctx, db, number, id)
			return err
		})
		if err == nil {
			h := notify.Hint{Pool: p.Name}
			h.AddLane(lane)
			o.proc.Notifier.Notify(h)
		}
		return err
	})
	return added, err
}

// Run has a job run now, by whichever node's turn it is, before all others of its tenant and queue: one
// that waits for its turn or its time, or a dead one, which gets all its attempts again. It has the
// highest priority from then on. It is claimed like any other, so what keeps others waiting keeps it, too:
// a limit, an exclusive key, a tenant that is frozen, a kind that no node handles. One that runs
// already is left alone. What became of it [Jobs.Get] says. StateError: it is suspended, or has
// ended. [job.KeyTakenError]: as for [Jobs.Retry].
func (o *Jobs) Run(ctx context.Context, id job.ID) error {
	first := job.MaxPriority
	var before JobStatus
	for tries := 1; ; tries++ {
		j, _, err := o.Get(ctx, id)
		switch {
		case tries > 1 && (errors.Is(err, store.ErrNotFound) || j.State == "done" || j.Attempt > before.Attempt): // it has run meanwhile
			return nil
		case err != nil:
			return fmt.Errorf("run: %w", err)
		}
		switch j.State {
		case "claimed", "running":
			return nil
		case "waiting":
			err = o.Change(ctx, id, JobChange{Priority: &first})
		case "scheduled", "retrying", "dead":
			err = o.retryAs(ctx, id, &first)
		default:
			return fmt.Errorf("run job %d: %w", id, &StateError{j.State, "run"})
		}
		if !errors.As(err, new(*StateError)) || tries == 3 { // else it has gone on meanwhile
			return err
		}
		before = j
	}
}

// Suspend puts a job aside that waits, for its turn or for its time, until [Jobs.Resume]. With
// a time it is resumed then; the zero time stands for none. It keeps all that it is: its
// attempts, its unique key, and when its timer is due. One that is suspended already gets the new
// time. StateError: it is running, or in another state.
func (o *Jobs) Suspend(ctx context.Context, id job.ID, until time.Time) error {
	if err := checkUntil(until); err != nil {
		return err
	}
	return o.changeOne(ctx, id, "suspend", func(ctx context.Context, p *routing.Pool, db *pgxpool.Conn) error {
		err := store.SuspendJob(ctx, store.Noted(db, o.proc.JobDeed(ctx, "job.suspend", id, given("until", until))), id, until)
		if err == nil {
			o.notifyUntil(p, until)
		}
		return err
	})
}

// Resume puts a suspended job back where it was: it waits behind the jobs that wait now, or for the
// time that its timer is due at, and fires at once if that has passed. StateError: it is not
// suspended.
func (o *Jobs) Resume(ctx context.Context, id job.ID) error {
	return o.changeOne(ctx, id, "resume", func(ctx context.Context, p *routing.Pool, db *pgxpool.Conn) error {
		var resumed []store.Resumed
		err := store.InNoted(ctx, db, o.proc.JobDeed(ctx, "job.resume", id, nil), func(db store.DB) (err error) {
			resumed, err = store.Resume(ctx, db, []int64{int64(id)})
			if err == nil && len(resumed) == 0 {
				err = store.ErrNotFound
			}
			return err
		})
		if err == nil {
			o.notifyResumed(p, resumed)
		}
		return err
	})
}

// CountSuspendable counts the jobs that [Jobs.SuspendAll] would look at, those that run and are left
// alone among them, until it is known that there are more than ten thousand: see [More]. When some
// pools do not answer, the others' jobs are counted and an error returned.
func (o *Jobs) CountSuspendable(ctx context.Context, f Selection) (int64, error) {
	if err := f.check("suspend", SuspendStates...); err != nil {
		return 0, err
	}
	return o.countMovable(ctx, f.Pool, f.chosen(), suspendable)
}

// CountSuspended counts the jobs that [Jobs.ResumeAll] would resume, likewise.
func (o *Jobs) CountSuspended(ctx context.Context, f Selection) (int64, error) {
	if err := f.check("resume", suspended); err != nil {
		return 0, err
	}
	return o.countMovable(ctx, f.Pool, f.chosen(), []string{store.PlaceSuspended})
}

// CountRetryable counts the jobs that [Jobs.RetryAll] would look at, likewise.
func (o *Jobs) CountRetryable(ctx context.Context, f Selection) (int64, error) {
	if err := f.check("retry", RetryStates...); err != nil {
		return 0, err
	}
	return o.countMovable(ctx, f.Pool, f.chosen(), timed)
}

// Change changes a job that waits, for its turn or for its time, or that is suspended. A
// waiting one that gets another priority goes behind those that have it; one that gets a time
// waits for that. StateError: it is running, or in another state.
func (o *Jobs) Change(ctx context.Context, id job.ID, c JobChange) error {
	if err := c.check(); err != nil {
		return err
	}
	return o.changeOne(ctx, id, "change", func(ctx context.Context, p *routing.Pool, db *pgxpool.Conn) error {
		at, err := store.ChangeJob(ctx, store.Noted(db, o.proc.JobDeed(ctx, "job.change", id, c.detail())), id, store.Change(c))
		if err == nil {
			o.notifyResumed(p, []store.Resumed{at})
		}
		return err
	})
}

// changeOne does something to a job on the pool that has it, or says in which state it is instead.
func (o *Jobs) changeOne(ctx context.Context, id job.ID, what string, fn func(context.Context, *routing.Pool, *pgxpool.Conn) error) error {
	return o.changeOneIn(ctx, o.proc.Router.Pools(), id, what, fn)
}

func (o *Jobs) changeOneIn(ctx context.Context, pools []*routing.Pool, id job.ID, what string, fn func(context.Context, *routing.Pool, *pgxpool.Conn) error) error {
	err := o.onPoolOf(ctx, pools, id, what, fn)
	var unanswered *UnansweredError
	if errors.As(err, &unanswered) || errors.Is(err, store.ErrNotFound) {
		if j, _, found := o.read(ctx, pools, id); found == nil && (unanswered == nil || !slices.Contains(unanswered.Pools, j.Pool)) {
			return fmt.Errorf("%s job %d: %w", what, id, &StateError{j.State, what})
		}
	}
	return err
}

// onPoolOf runs fn on that of pools which has a job: most likely the one it was made in,
// else, if its tenant was moved, another.
func (o *Jobs) onPoolOf(ctx context.Context, pools []*routing.Pool, id job.ID, what string, fn func(context.Context, *routing.Pool, *pgxpool.Conn) error) error {
	pools = slices.Clone(pools)
	slices.SortStableFunc(pools, func(a, b *routing.Pool) int {
		return cmp.Compare(process.MadeElsewhere(a, id), process.MadeElsewhere(b, id))
	})
	var errs []error
	failures := make([]error, len(pools)) // to answer
	for i, p := range pools {
		err := process.Operate(ctx, p, func(ctx context.Context, db *pgxpool.Conn) error { return fn(ctx, p, db) })
		switch {
		case err == nil:
			return nil
		case errors.As(err, new(*job.KeyTakenError)), errors.As(err, new(*store.BetweenPoolsError)): // it was found, so no other pool has it
			return fmt.Errorf("%s job %d: %w", what, id, err)
		case errors.Is(err, store.ErrLocked): // there is something that could be locked
			return fmt.Errorf("%s job %d: %w", what, id, routing.NamePool(p.Name, err))
		case p.Unfit() != nil, store.IsGone(err), errors.Is(err, context.DeadlineExceeded):
			failures[i] = err
		case !errors.Is(err, store.ErrNotFound):
			errs = append(errs, routing.NamePool(p.Name, err))
		}
	}
	return fmt.Errorf("%s job %d: %w", what, id, cmp.Or(errors.Join(errs...), unanswered(ctx, pools, failures), store.ErrNotFound))
}

// List lists jobs over all pools, the newest first: those that were made last. With the cursor of a
// page's last job it goes on behind that, so that each job is on one page, whatever becomes of it
// meanwhile; those that are made meanwhile are on none. When some pools do not answer, the
// others' jobs are returned together with an error.
func (o *Jobs) List(ctx context.Context, f JobFilter) ([]JobStatus, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	after, _ := parseCursor(f.After, "jobs")
	pools, err := o.proc.PoolsOf(f.Pool)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(f.Limit, 100)
	out, err := process.InspectEach(ctx, pools, func(ctx context.Context, p *routing.Pool, db store.DB) ([]JobStatus, error) {
		rows, err := store.List(ctx, db, store.Filter{State: f.State, Tenant: f.Tenant, Kind: f.Kind, Queue: f.Queue,
			Tags: f.Tags, CorrelationID: f.CorrelationID, Since: f.Since, Until: f.Until, Error: f.Error, Node: f.Node, After: after, Limit: limit})
		out := make([]JobStatus, len(rows))
		for i, r := range rows {
			r.Pool = p.Name
			out[i] = JobStatus(r)
		}
		return out, f.explainSlowness(ctx, err)
	})
	slices.SortStableFunc(out, CompareJobs)
	return out[:min(limit, len(out))], err
}
