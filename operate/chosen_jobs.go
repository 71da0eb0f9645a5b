package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// What [Jobs.DoTo] does.
const (
	RetryJobs  = "retry"  // as [Jobs.Retry]
	RerunJobs  = "rerun"  // as [Jobs.Rerun]
	CancelJobs = "cancel" // as [Jobs.Cancel]
	DeleteJobs = "delete" // as [DeadLetters.DeleteOne]
)

// ErrUnknownAction is returned by [Jobs.DoTo].
var ErrUnknownAction = errors.New("no such action")

// DoTo retries, reruns, cancels or deletes jobs that were chosen one by one, and returns to how many it has done so. Where it
// fails for some, it goes on with the others. The audit has it as one deed with the jobs' number and ids, in each pool once
// for each tenant, before the first of them.
func (o *Jobs) DoTo(ctx context.Context, action string, jobs []JobStatus) (done int, err error) {
	do, ok := map[string]func(context.Context, job.ID) error{
		RetryJobs:  o.Retry,
		RerunJobs:  func(ctx context.Context, id job.ID) error { _, err := o.Rerun(ctx, id); return err },
		CancelJobs: func(ctx context.Context, id job.ID) error { _, err := o.Cancel(ctx, id); return err },
		DeleteJobs: (&DeadLetters{o.proc}).DeleteOne,
	}[action]
	if !ok {
		return 0, fmt.Errorf("%s jobs: %w", action, ErrUnknownAction)
	}
	type owner struct{ pool, tenant string }
	chosen := map[owner][]job.ID{}
	named := map[owner][]string{} // their ids as text, which JSON keeps exact
	for _, j := range jobs {
		of := owner{j.Pool, j.Tenant}
		chosen[of], named[of] = append(chosen[of], j.ID), append(named[of], j.ID.String())
	}
	subject := "selection " + uuid.NewString()
	var errs []error
	for of, ids := range chosen {
		p, err := o.proc.FindPool(of.pool)
		if err == nil {
			err = o.proc.Note(ctx, p, o.proc.Deed(ctx, "jobs."+action, tenancy.ID(of.tenant), subject, map[string]any{"jobs": len(ids), "ids": named[of]}))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %d jobs: %w", action, len(ids), err))
			continue
		}
		for _, id := range ids {
			if err := do(process.AsNoted(ctx), id); err != nil {
				errs = append(errs, err)
				continue
			}
			done++
		}
	}
	return done, errors.Join(errs...)
}
