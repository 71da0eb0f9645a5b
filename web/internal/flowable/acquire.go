package flowable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/external"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// duration is in ISO 8601's form, in which Flowable has it.
type duration struct{ time.Duration }

// UnmarshalText reads PT30M, P1DT12H or PT0.5S.
func (d *duration) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 || text[0] != 'P' {
		return fmt.Errorf("%.40q is no duration of ISO 8601: write PT30M or PT10S", text)
	}
	d.Duration, err = job.ParseDuration(string(text))
	return err
}

// scope is what a job is part of in Flowable. Here it is part of nothing, and is shown as what was asked for.
type scope string

const (
	bpmn scope = "bpmn" // the default
	cmmn scope = "cmmn"
)

type acquireRequest struct {
	Topic         string    `json:"topic"`
	LockDuration  *duration `json:"lockDuration"`
	NumberOfTasks *int      `json:"numberOfTasks"`
	WorkerID      string    `json:"workerId"`
	ScopeType     *scope    `json:"scopeType"`
}

// maxWorker bounds how many bytes a worker's name has.
const maxWorker = 128

// check has the errors that Flowable has, in its order.
func (r *acquireRequest) check() error {
	switch {
	case r.Topic == "":
		return badRequest("topic is required")
	case r.LockDuration == nil:
		return badRequest("lockDuration is required")
	case r.WorkerID == "":
		return badRequest("workerId is required")
	case r.ScopeType != nil && *r.ScopeType != bpmn && *r.ScopeType != cmmn:
		return badRequest(fmt.Sprintf("scopeType %.40q: bpmn and cmmn are known", *r.ScopeType))
	case r.LockDuration.Duration < external.MinLock || r.LockDuration.Duration > external.MaxLock:
		return badRequest(fmt.Sprintf("lockDuration: %v to %v are allowed", external.MinLock, external.MaxLock))
	case len(r.WorkerID) > maxWorker || strings.ContainsRune(r.WorkerID, 0):
		return badRequest(fmt.Sprintf("workerId: at most %d bytes, without NUL", maxWorker))
	case r.NumberOfTasks != nil && *r.NumberOfTasks < 1:
		return badRequest("numberOfTasks: at least 1")
	}
	return check(job.ValidateKind("topic", r.Topic))
}

// acquire answers with fewer jobs than were asked for where these are too many, as it may at any time.
func acquire(s *server, r *http.Request) (any, error) {
	req := acquireRequest{}
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	if err := req.check(); err != nil {
		return nil, err
	}
	most, shown := 1, bpmn
	if req.NumberOfTasks != nil {
		most = min(*req.NumberOfTasks, external.MaxJobs)
	}
	if req.ScopeType != nil {
		shown = *req.ScopeType
	}
	jobs, err := s.workers.Acquire(r.Context(), external.AcquireRequest{Topic: req.Topic, Worker: req.WorkerID, Max: most, LockFor: req.LockDuration.Duration})
	if err != nil {
		return nil, err
	}
	out := make([]acquiredJob, len(jobs))
	for i, j := range jobs {
		out[i] = s.acquired(r, &j, shown)
	}
	return out, nil
}

// ownLock is the lock that a worker has on the job of a request's path.
func (s *server) ownLock(r *http.Request, worker string) (external.Lock, error) {
	if worker == "" {
		return external.Lock{}, badRequest("workerId is required")
	}
	j, err := s.find(r.Context(), r.PathValue("id"))
	if err == nil && j.Worker != worker {
		err = notOwner(worker)
	}
	return j.Lock, err
}

// find is an unfinished job that the grant reaches.
func (s *server) find(ctx context.Context, id string) (external.Status, error) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return external.Status{}, notFound(id)
	}
	j, err := s.workers.Find(ctx, job.ID(n))
	if errors.Is(err, tenure.ErrNotFound) {
		err = notFound(id)
	}
	return j, err
}

type unacquireRequest struct {
	WorkerID string     `json:"workerId"`
	TenantID tenancy.ID `json:"tenantId"`
}

func unacquire(s *server, r *http.Request) (any, error) {
	req := unacquireRequest{}
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	lock, err := s.ownLock(r, req.WorkerID)
	if err != nil {
		return nil, err
	}
	return nil, lostBy(req.WorkerID, s.workers.Release(r.Context(), lock))
}

// unacquireAll gives back all that a worker has locked. With a tenant it refuses, as Flowable does, if the worker
// has locked jobs of others, too.
func unacquireAll(s *server, r *http.Request) (any, error) {
	req := unacquireRequest{}
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	if req.WorkerID == "" {
		return nil, badRequest("worker id is required")
	}
	f := external.Filter{Worker: req.WorkerID, Limit: external.MaxListed}
	jobs, _, err := s.workers.List(r.Context(), f)
	var locks []external.Lock
	for _, j := range jobs {
		if req.TenantID != "" && j.Tenant != req.TenantID {
			return nil, badRequest("the worker has also locked jobs of other tenants")
		}
		locks = append(locks, j.Lock)
	}
	if len(locks) == 0 {
		return nil, err
	}
	failed := s.workers.Release(r.Context(), locks...)
	if errors.Is(failed, external.ErrLockLost) && !external.IsBetweenPools(failed) {
		failed = nil // what has ended meanwhile need not be given back
	}
	return nil, errors.Join(err, failed)
}

// lostBy is the error of a worker who had a lock a moment ago.
func lostBy(worker string, err error) error {
	if errors.Is(err, external.ErrLockLost) {
		return notOwner(worker)
	}
	return err
}
