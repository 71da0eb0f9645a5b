package external

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

// Extend has locks expire after d from now, MinLock to MaxLock. LockLostError: some
// were not the worker's any more; the others are extended.
func (w *Workers) Extend(ctx context.Context, d time.Duration, locks ...Lock) error {
	if err := checkLockFor(d); err != nil {
		return &job.InputError{Err: fmt.Errorf("extend locks: %w", err)}
	}
	return settle(ctx, w, "extend the locks of", locks, func(ctx context.Context, p *routing.Pool, some []Lock) ([]job.ID, error) {
		return store.ExtendExternal(ctx, p.Jobs(), locksOf(some), d)
	})
}

// Release gives jobs back unfinished, uncharged, to their old place. LockLostError as with Extend.
func (w *Workers) Release(ctx context.Context, locks ...Lock) error {
	return settle(ctx, w, "release", locks, func(ctx context.Context, p *routing.Pool, some []Lock) ([]job.ID, error) {
		return store.ReleaseExternal(ctx, p.Jobs(), locksOf(some))
	})
}

func locksOf[T interface{ lock() store.ExternalLock }](some []T) []store.ExternalLock {
	out := make([]store.ExternalLock, len(some))
	for i, l := range some {
		out[i] = l.lock()
	}
	return out
}

// Result says that a job is done.
type Result struct {
	Lock
	Output json.RawMessage // kept with the job for execution.retention; nil: none; at most job.MaxPayload
}

// Complete ends jobs that are done, each pool's in one statement. LockLostError: some were not the
// worker's any more, and are somebody else's now, or have ended, maybe by this very call, if it
// was made twice; the others are done.
func (w *Workers) Complete(ctx context.Context, done ...Result) error {
	for _, d := range done {
		if err := checkOutput(d.Output); err != nil {
			return &job.InputError{Err: fmt.Errorf("complete job %d: %w", d.Job, err)}
		}
	}
	return settle(ctx, w, "complete", done, func(ctx context.Context, p *routing.Pool, some []Result) ([]job.ID, error) {
		ends := make([]store.ExternalEnd, len(some))
		for i, d := range some {
			ends[i] = store.ExternalEnd{ExternalLock: d.lock(), Output: d.Output}
		}
		return store.FinishExternal(ctx, p.Jobs(), ends, w.proc.Keep)
	})
}

func checkOutput(output json.RawMessage) error {
	if output == nil {
		return nil
	}
	if err := job.CheckPayload(output); err != nil {
		return fmt.Errorf("its output: %w", err)
	}
	return nil
}

// Raised is an error of the business: trying again would not help.
type Raised struct {
	Lock
	Code    string // as a kind: letters, digits and . _ : / -, at most 128
	Message string
	Output  json.RawMessage // as of a [Result]
}

// RaiseError ends jobs with an error of the business: each is in state business_error then, with
// "code: message" as its error, is not tried again, and is no dead letter. LockLostError as with
// Complete.
func (w *Workers) RaiseError(ctx context.Context, raised ...Raised) error {
	for _, r := range raised {
		if err := cmp.Or(job.ValidateKind("code", r.Code), checkOutput(r.Output)); err != nil {
			return &job.InputError{Err: fmt.Errorf("end job %d with an error: %w", r.Job, err)}
		}
	}
	return settle(ctx, w, "end with an error", raised, func(ctx context.Context, p *routing.Pool, some []Raised) ([]job.ID, error) {
		ends := make([]store.ExternalEnd, len(some))
		for i, r := range some {
			ends[i] = store.ExternalEnd{ExternalLock: r.lock(), Output: r.Output, Error: cleanError(r.Code + ": " + r.Message)}
		}
		return store.FinishExternal(ctx, p.Jobs(), ends, w.proc.Keep)
	})
}

// Failure says that a worker failed with a job.
type Failure struct {
	Lock
	Error   string        // 16 KiB of it are kept
	Stack   string        // likewise; "": none
	Delay   time.Duration // until the job can be acquired again; 0: as execution.retry has it
	Retries *int          // how often it is to be tried again, 0: it is dead; nil: until its attempts are used up
}

// Fail notes failures: each job is tried again later, or a dead letter when it is not to be or has
// used up its attempts, tenure.MaxAttempts or those of execution.retry. LockLostError as with Complete.
func (w *Workers) Fail(ctx context.Context, failed ...Failure) error {
	for _, f := range failed {
		var err error
		switch {
		case f.Delay < 0 || f.Delay > job.MaxAhead:
			err = fmt.Errorf("delay %v: 0 to ten years are allowed", f.Delay)
		case f.Retries != nil && (*f.Retries < 0 || *f.Retries > job.MaxMaxAttempts):
			err = fmt.Errorf("retries %d: 0 to %d are allowed", *f.Retries, job.MaxMaxAttempts)
		}
		if err != nil {
			return &job.InputError{Err: fmt.Errorf("fail job %d: %w", f.Job, err)}
		}
	}
	return settle(ctx, w, "fail", failed, func(ctx context.Context, p *routing.Pool, some []Failure) ([]job.ID, error) {
		failures := make([]store.ExternalFailure, len(some))
		for i, f := range some {
			failures[i] = store.ExternalFailure{ExternalLock: f.lock(), Error: cleanError(f.Error), Stack: cleanError(f.Stack), Delay: f.Delay, Retries: f.Retries}
		}
		noted, _, err := store.FailExternal(ctx, p.Jobs(), failures, w.proc.Retry)
		return noted, err
	})
}

// cleanError is a text that Postgres can store.
func cleanError(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s[:min(len(s), maxErrorText)], "\x00", ""), "")
}

// ErrLockLost is returned for a job that is not the worker's any more: its lock has expired and
// somebody else has it, or it has ended, or was cancelled. What the worker did for it may be done again.
var ErrLockLost = errors.New("the lock on the job was lost")

// LockLostError says whose locks were lost. It is ErrLockLost, too.
type LockLostError struct{ Jobs []job.ID }

func (e *LockLostError) Error() string { return fmt.Sprintf("%v: %v", ErrLockLost, e.Jobs) }

// Is makes it ErrLockLost.
func (e *LockLostError) Is(target error) bool { return target == ErrLockLost }

// IsBetweenPools tells whether err is of a job whose tenant is being moved just now: its lock moves with
// it, so that the same call can be made again.
func IsBetweenPools(err error) bool {
	var between *store.BetweenPoolsError
	return errors.As(err, &between)
}

// settle does something to locked jobs on the pools that have them, and says of those that none has
// what has become of their locks. One whose job was moved from a pool that was asked later to one that was
// asked before is tried again.
func settle[T interface{ lock() store.ExternalLock }](ctx context.Context, w *Workers, what string, all []T, act func(context.Context, *routing.Pool, []T) ([]job.ID, error)) error {
	const tries = 5 // a tenant's move takes longer than one
	left := slices.Clone(all)
	for try := 1; ; try++ {
		errs := settleOnce(ctx, w, &left, act)
		if len(left) == 0 {
			return nil // whatever other pools said
		}
		if len(errs) == 0 {
			var again bool
			if again, errs = w.explainLost(ctx, locksOf(left)); again && try < tries {
				continue
			}
		}
		return fmt.Errorf("%s %d of %d jobs: %w", what, len(left), len(all), errors.Join(errs...))
	}
}

// settleOnce asks those pools first that the jobs were made in: only if their tenants were moved are they
// in others. Those that were settled are not left.
func settleOnce[T interface{ lock() store.ExternalLock }](ctx context.Context, w *Workers, left *[]T, act func(context.Context, *routing.Pool, []T) ([]job.ID, error)) (errs []error) {
	tried := map[*routing.Pool]map[job.ID]bool{}
	try := func(p *routing.Pool, some []T) {
		if len(some) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, process.AnswerWithin)
		defer cancel()
		if tried[p] == nil {
			tried[p] = map[job.ID]bool{}
		}
		for _, one := range some {
			tried[p][one.lock().Job] = true
		}
		err := p.Outage()
		var done []job.ID
		if err == nil {
			done, err = act(ctx, p, some)
		}
		if err != nil {
			errs = append(errs, routing.NamePool(p.Name, err))
		}
		*left = slices.DeleteFunc(*left, func(one T) bool { return slices.Contains(done, one.lock().Job) })
	}
	for _, home := range []bool{true, false} {
		for _, p := range w.proc.Router.Pools() {
			try(p, slices.DeleteFunc(slices.Clone(*left), func(one T) bool {
				id := one.lock().Job
				return tried[p][id] || home && process.MadeElsewhere(p, id) != 0
			}))
		}
	}
	return errs
}

// explainLost tells locks that were lost from those of jobs that stand between two pools, where they go
// with them; again: one stands after all, and what was to be done can be. It looks twice, as a job may be moved to
// a pool that was looked at before from one that is looked at later.
func (w *Workers) explainLost(ctx context.Context, locks []store.ExternalLock) (again bool, errs []error) {
	between, stands := map[job.ID]*store.BetweenPoolsError{}, map[job.ID]bool{}
	for range 2 {
		found, err := process.InspectEach(ctx, w.proc.Router.Pools(), func(ctx context.Context, _ *routing.Pool, db store.DB) ([]store.StandingLock, error) {
			return store.StandingLocks(ctx, db, locks)
		})
		if err != nil { // it may stand there
			return false, []error{err}
		}
		for _, s := range found {
			stands[s.Job] = true
			if s.Between != nil {
				between[s.Job] = s.Between
			}
		}
		if len(stands) == len(locks) {
			break
		}
	}
	var lost []job.ID
	for _, l := range locks {
		switch {
		case between[l.Job] != nil:
			errs = append(errs, fmt.Errorf("job %d: %w", l.Job, between[l.Job]))
		case stands[l.Job]:
			again = true
			errs = append(errs, fmt.Errorf("job %d: its tenant was moved meanwhile; try again", l.Job))
		default:
			lost = append(lost, l.Job)
		}
	}
	if len(lost) > 0 {
		errs = append(errs, &LockLostError{lost})
	}
	return again, errs
}
