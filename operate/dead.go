package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/internal/deadletter"
	"github.com/tenurehq/tenure/internal/notify"
	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// DeadLetters groups, retries and deletes dead letters, however many there are. It is safe for
// concurrent use, and may be used beside anything that runs: each of its statements is short.
type DeadLetters struct{ proc *process.Process }

// DeadGroup is the dead letters of one kind that died of the same cause, as far as their errors
// tell: numbers, ids, times and quoted text in them do not count. Its ID is the same in all pools
// and on all days. Of more than 10,000 groups the last ones are taken together by kind, without
// a Pattern.
type DeadGroup struct {
	ID      string // follows from Kind and Pattern, whatever the pool and the day
	Kind    string
	Pattern string // their error, without what differs
	Count   int
	First   time.Time // the earliest death
	Last    time.Time
	Sample  job.ID // the one that died last
}

// MaxDeadGroups is how many groups are told apart.
const MaxDeadGroups = deadletter.MaxGroups

// DeadFilter chooses dead letters; empty fields choose all.
type DeadFilter struct {
	Pool   string
	Tenant string
	Kind   string
	Error  string    // text that the error contains, in upper or lower case
	Group  string    // the ID of a [DeadGroup]
	Before time.Time // died before then

	Tag, CorrelationID string
}

// DeadResult counts what became of the dead letters that were chosen.
type DeadResult struct {
	Done     int // retried, or deleted
	KeyTaken int // stay dead, because an unfinished job has their unique key
	Left     int // stay dead, because their tenant is being moved, somebody has locked or changed them, or their unique key, or they cannot be read
}

const (
	// deadPage is how many dead letters are looked at in one statement.
	deadPage = 5000
	// deadStep is how many are retried or deleted in one, at most: what is added to a queue at
	// once delays others' jobs.
	deadStep = 500
	// groupLimit bounds how long the dead letters of a pool may take to be read.
	groupLimit = time.Hour
	// stepsPerSecond is into how many steps a second is divided when there is a rate.
	stepsPerSecond = 10
)

// Groups groups the dead letters that f chooses, over all pools, the largest group first. When
// some pools do not answer, the others' groups are returned together with an error.
func (d *DeadLetters) Groups(ctx context.Context, f DeadFilter) ([]DeadGroup, error) {
	pools, err := d.proc.PoolsOf(f.Pool)
	if err != nil {
		return nil, err
	}
	found, err := routing.AskEach(ctx, pools, groupLimit, func(ctx context.Context, p *routing.Pool) ([]DeadGroup, error) {
		here := deadletter.NewGroups()
		err := readDead(ctx, p, f, func(one store.Dead, pattern string) {
			here.Add(deadletter.Group{Kind: one.Kind, Pattern: pattern, Count: 1, First: one.DiedAt, Last: one.DiedAt, Sample: one.ID})
		}, nil)
		return groupsOf(here), err
	})
	return MergeGroups(found), err
}

// MergeGroups puts together what several calls of [DeadLetters.Groups] have found, the largest group first.
func MergeGroups(parts []DeadGroup) []DeadGroup {
	all := deadletter.NewGroups()
	for _, g := range parts {
		all.Add(deadletter.Group(g))
	}
	return groupsOf(all)
}

func groupsOf(gathered *deadletter.Groups) []DeadGroup {
	list := gathered.List()
	out := make([]DeadGroup, len(list))
	for i, g := range list {
		out[i] = DeadGroup(g)
	}
	return out
}

// Retry makes the dead letters that f chooses run, those of before the call, with all their
// attempts again, perSecond of them in a second; 0: as fast as that goes. It does so in steps
// that each last: after an interruption the same call goes on with those that are left. Within
// one call none is retried twice.
func (d *DeadLetters) Retry(ctx context.Context, f DeadFilter, perSecond float64) (DeadResult, error) {
	return d.change(ctx, "retry", f, perSecond, func(ctx context.Context, p *routing.Pool, db *pgxpool.Conn, some []store.Dead) (DeadResult, error) {
		lanes, taken, err := store.RetryDead(ctx, db, some)
		if err != nil {
			return DeadResult{}, err
		}
		h := notify.Hint{Pool: p.Name}
		for _, l := range lanes {
			h.AddLane(l)
		}
		d.proc.Notifier.Notify(h)
		return DeadResult{Done: len(lanes), KeyTaken: taken, Left: len(some) - len(lanes) - taken}, nil
	})
}

// Delete deletes the dead letters that f chooses, those of before the call, with their failed
// runs, perSecond of them in a second; 0: as fast as that goes. Nothing of them is kept, other
// than of those that [Jobs.Cancel] ends. After an interruption the same call goes on.
func (d *DeadLetters) Delete(ctx context.Context, f DeadFilter, perSecond float64) (DeadResult, error) {
	return d.change(ctx, "delete", f, perSecond, func(ctx context.Context, _ *routing.Pool, db *pgxpool.Conn, some []store.Dead) (DeadResult, error) {
		n, err := store.DeleteDead(ctx, db, some)
		return DeadResult{Done: n, Left: len(some) - n}, err
	})
}

// DeleteOne is [DeadLetters.Delete] for one dead letter. StateError: it is none. ErrNotFound: no pool
// has it. If somebody has locked it, or its tenant is being moved, an error says so.
func (d *DeadLetters) DeleteOne(ctx context.Context, id job.ID) error {
	return (&Jobs{d.proc}).changeOne(ctx, id, "delete", func(ctx context.Context, _ *routing.Pool, db *pgxpool.Conn) error {
		found, _, _, _, err := store.ReadDead(ctx, db, store.DeadFilter{}, int64(id)-1, 1, 0)
		if err != nil || len(found) == 0 || found[0].ID != id {
			return cmp.Or(err, store.ErrNotFound)
		}
		return store.InNoted(ctx, db, d.proc.JobDeed(ctx, "job.delete", id, nil), func(db store.DB) error {
			n, err := store.DeleteDead(ctx, db, found)
			if err == nil && n == 0 {
				err = fmt.Errorf("it has changed, or somebody has locked it, or its tenant is being moved: %w", store.ErrLocked)
			}
			return err
		})
	})
}

// change does something to all dead letters that f chooses, in steps. A pool that fails does not
// keep it from the others.
func (d *DeadLetters) change(ctx context.Context, what string, f DeadFilter, perSecond float64, do func(context.Context, *routing.Pool, *pgxpool.Conn, []store.Dead) (DeadResult, error)) (all DeadResult, _ error) {
	if err := checkRate(what+" dead letters", perSecond); err != nil {
		return all, err
	}
	pools, err := d.proc.PoolsOf(f.Pool)
	if err != nil {
		return all, err
	}
	size := deadStep
	if perSecond > 0 {
		size = min(max(int(perSecond/stepsPerSecond), 1), deadStep)
	}
	began, tried := time.Now(), 0
	subject := "selection " + uuid.NewString()
	var errs []error
	for _, p := range pools {
		deed := d.deadDeed(ctx, p, what, f, perSecond)
		deed.Subject = subject
		if err := d.proc.Note(ctx, p, deed); err != nil {
			errs = append(errs, fmt.Errorf("%s dead letters: %w", what, routing.NamePool(p.Name, err)))
			continue
		}
		var some []store.Dead
		before := all
		try := func(one []store.Dead) error {
			return process.Operate(ctx, p, func(ctx context.Context, db *pgxpool.Conn) error {
				r, err := do(ctx, p, db, one)
				all.Done, all.KeyTaken, all.Left = all.Done+r.Done, all.KeyTaken+r.KeyTaken, all.Left+r.Left
				return err
			})
		}
		step := func(one []store.Dead) error {
			tried += len(one)
			left, err := inParts(one, store.IsOfOne, try)
			all.Left += left
			if perSecond > 0 && err == nil {
				due := began.Add(time.Duration(float64(tried) / perSecond * float64(time.Second)))
				_ = wait.For(ctx, time.Until(due)) // whose end the next step finds
			}
			return err
		}
		err := readDead(ctx, p, f, func(one store.Dead, _ string) { some = append(some, one) }, func() error {
			for chunk := range slices.Chunk(some, size) {
				if err := errors.Join(context.Cause(ctx), step(chunk)); err != nil {
					return err
				}
			}
			some = some[:0]
			return nil
		})
		err = errors.Join(err, noteEnd(ctx, d.proc, p, deed, map[string]int{"done": all.Done - before.Done, "key_taken": all.KeyTaken - before.KeyTaken, "skipped": all.Left - before.Left}))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s dead letters: %w", what, routing.NamePool(p.Name, err)))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return all, errors.Join(errs...)
}

// inParts does something to rows of a pool at once, and, where one of them keeps it from the others, to ever fewer
// of them; isOfOne tells that by the error. left counts those that it cannot be done to.
func inParts[T any](rows []T, isOfOne func(error) bool, do func([]T) error) (left int, err error) {
	err = do(rows)
	half := len(rows) / 2
	switch {
	case !isOfOne(err):
		return 0, err
	case half == 0:
		return 1, nil
	}
	for _, part := range [][]T{rows[:half], rows[half:]} {
		n, err := inParts(part, isOfOne, do)
		if left += n; err != nil {
			return left, err
		}
	}
	return left, nil
}

// deadDeed is what somebody does to the dead letters of a pool that f chooses. Of a group it says what that is, if one of
// the first page is of it: nobody finds out once they are gone.
func (d *DeadLetters) deadDeed(ctx context.Context, p *routing.Pool, what string, f DeadFilter, perSecond float64) store.Deed {
	kind, pattern := f.Kind, ""
	if f.Group != "" {
		firstPage := errors.New("that is enough")
		_ = readDead(ctx, p, f, func(one store.Dead, of string) { kind, pattern = one.Kind, of }, func() error { return firstPage }) // else the group alone is noted
	}
	detail := chosenBy(f.Tenant, "kind", kind, "error", f.Error, "group", f.Group, "group_error", pattern, "before", f.Before, "tag", f.Tag, "correlation_id", f.CorrelationID)
	maps.Copy(detail, given("per_second", perSecond))
	return d.proc.Deed(ctx, "dead_letters."+what, tenancy.ID(f.Tenant), "", detail)
}

// readDead shows see the dead letters of a pool that f chooses, page by page, in the order of
// their ids, so that it comes by none twice; those that die after the first page are left out.
// after, if it is set, is called behind each page.
func readDead(ctx context.Context, p *routing.Pool, f DeadFilter, see func(store.Dead, string), after func() error) error {
	text := 0 // of errors that nobody looks at
	if after == nil || f.Group != "" {
		text = deadletter.MaxText
	}
	chosen := f.chosen()
	for last, more := store.BeforeAllJobs, true; more; {
		var page []store.Dead
		var now time.Time
		err := process.Operate(ctx, p, func(ctx context.Context, db *pgxpool.Conn) (err error) {
			page, last, more, now, err = store.ReadDead(ctx, db, chosen, last, deadPage, text)
			return err
		})
		if err != nil {
			return err
		}
		if some := !chosen.Before.IsZero(); !chosen.Ahead && (!some || chosen.Before.After(now)) {
			chosen.Before, chosen.Ahead = now, true // what is to come was there all the same
			if some {                               // and not all of it on this page
				last, more = store.BeforeAllJobs, true
				continue
			}
		}
		for _, one := range page {
			pattern := deadletter.Pattern(one.Error)
			if f.Group == "" || f.Group == deadletter.GroupID(one.Kind, pattern) {
				see(one, pattern)
			}
		}
		if after != nil {
			if err := after(); err != nil {
				return err
			}
		}
	}
	return nil
}
