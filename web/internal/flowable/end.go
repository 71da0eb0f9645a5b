package flowable

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/tenurehq/tenure/external"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/web/internal/wire"
)

// endRequest says how a job ended. All have a worker, and those that end well or with an error of the business variables.
type endRequest struct {
	WorkerID  string     `json:"workerId"`
	Variables []variable `json:"variables"`
	ErrorCode string     `json:"errorCode"`

	ErrorMessage wire.Report `json:"errorMessage"`
	ErrorDetails wire.Report `json:"errorDetails"`
	Retries      *int        `json:"retries"`
	RetryTimeout *duration   `json:"retryTimeout"`
}

// readEnd returns the lock of a request that ends a job, and its variables as an output.
func readEnd(s *server, r *http.Request, req *endRequest) (lock external.Lock, output []byte, err error) {
	if err = decode(r, req); err != nil {
		return lock, nil, err
	}
	if lock, err = s.ownLock(r, req.WorkerID); err == nil {
		output, err = outputOf(req.Variables)
	}
	return lock, output, err
}

func complete(s *server, r *http.Request) (any, error) {
	req := endRequest{}
	lock, output, err := readEnd(s, r, &req)
	if err != nil {
		return nil, err
	}
	return nil, lostBy(req.WorkerID, s.workers.Complete(r.Context(), external.Result{Lock: lock, Output: output}))
}

// What an error of the business is called that has no code of its own.
const (
	uncoded    = "bpmn_error"
	terminated = "terminated"
)

func bpmnError(s *server, r *http.Request) (any, error) {
	req := endRequest{}
	lock, output, err := readEnd(s, r, &req)
	if err != nil {
		return nil, err
	}
	code := cmp.Or(req.ErrorCode, uncoded)
	if err := check(job.ValidateKind("errorCode", code)); err != nil {
		return nil, err
	}
	return nil, raise(s, r, external.Raised{Lock: lock, Code: code, Message: "raised by an external worker", Output: output})
}

// cmmnTerminate ends a job as an error of the business does, as it is neither done nor to be tried again.
func cmmnTerminate(s *server, r *http.Request) (any, error) {
	lock, output, err := readEnd(s, r, &endRequest{})
	if err != nil {
		return nil, err
	}
	return nil, raise(s, r, external.Raised{Lock: lock, Code: terminated, Message: "by an external worker", Output: output})
}

func raise(s *server, r *http.Request, e external.Raised) error {
	return lostBy(e.Worker, s.workers.RaiseError(r.Context(), e))
}

func fail(s *server, r *http.Request) (any, error) {
	req := endRequest{}
	lock, _, err := readEnd(s, r, &req)
	if err != nil {
		return nil, err
	}
	failure := external.Failure{Lock: lock, Error: string(req.ErrorMessage), Stack: string(req.ErrorDetails), Retries: req.Retries}
	if req.RetryTimeout != nil {
		failure.Delay = max(req.RetryTimeout.Duration, time.Millisecond) // 0 would be as the retry policy has it
	}
	switch {
	case failure.Delay > job.MaxDelay:
		return nil, badRequest(fmt.Sprintf("retryTimeout: %v at most", job.MaxDelay))
	case req.Retries != nil && *req.Retries > job.MaxMaxAttempts:
		return nil, badRequest(fmt.Sprintf("retries: %d at most", job.MaxMaxAttempts))
	case req.Retries != nil && *req.Retries < 0: // Flowable's own default
		failure.Retries = nil
	}
	return nil, lostBy(req.WorkerID, s.workers.Fail(r.Context(), failure))
}
