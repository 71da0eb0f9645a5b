// Package flowable has workers that were written for Flowable work for Tenure: the API of Flowable's
// external workers, below /external-job-api/, with its paths, fields, types and status codes. A job's id is its
// own, so it stays the same from one attempt to the next, and its lock is found again by the worker's name.
//
// docs/external-workers.md says what becomes of what. Each route says in one table which role it
// needs, as those of package api do. Safe for concurrent use.
package flowable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/external"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/web/internal/wire"
	"github.com/tenurehq/tenure/web/internal/workers"
)

// Path is what all paths begin with.
const Path = "/external-job-api"

// server is what the routes' handlers answer requests with.
type server struct {
	workers *workers.Workers
	prefix  string // of the paths that clients use
	log     *zap.Logger
}

// route is one operation, and the role that it needs.
type route struct {
	pattern string
	role    access.Role
	handle  func(*server, *http.Request) (answer any, err error)
}

// routes are all that there are.
var routes = []route{
	{"POST " + Path + "/acquire/jobs", access.Operate, acquire},
	{"POST " + Path + "/acquire/jobs/{id}/complete", access.Operate, complete},
	{"POST " + Path + "/acquire/jobs/{id}/bpmnError", access.Operate, bpmnError},
	{"POST " + Path + "/acquire/jobs/{id}/cmmnTerminate", access.Operate, cmmnTerminate},
	{"POST " + Path + "/acquire/jobs/{id}/fail", access.Operate, fail},
	{"POST " + Path + "/unacquire/jobs", access.Operate, unacquireAll},
	{"POST " + Path + "/unacquire/jobs/{id}", access.Operate, unacquire},
	{"GET " + Path + "/jobs", access.Read, listJobs},
	{"GET " + Path + "/jobs/{id}", access.Read, getJob},
}

// Handler serves the API of a client, which has to be started. Paths come without prefix, which is
// the path that clients know it under. Something before it has to put grants into the requests'
// contexts, as [access.Guard] does; a request without one may do nothing.
func Handler(client *tenure.Client, prefix string, log *zap.Logger) http.Handler {
	return mount(&server{workers: workers.New(client), prefix: prefix, log: log})
}

func mount(s *server) http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.Handle(r.pattern, s.handler(r))
	}
	return mux
}

func (s *server) handler(r route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		answer, err := any(nil), mayUse(req, r.role) // before anything of the request is read
		if err == nil {
			err = check(wire.CheckRequest(req))
		}
		if err == nil {
			answer, err = r.handle(s, req)
		}
		switch {
		case err != nil:
			f := *s.fault(r.pattern, err)
			f.Message, f.Exception = wire.Brief(f.Message), wire.Brief(f.Exception)
			writeJSON(w, f.status, f)
		case answer == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			writeJSON(w, http.StatusOK, answer)
		}
	})
}

func mayUse(r *http.Request, role access.Role) error {
	switch g := access.From(r.Context()); {
	case g.Role == access.None:
		return &fault{http.StatusUnauthorized, "Unauthorized", "nobody is known to send this request"}
	case !g.May(role):
		return &fault{http.StatusForbidden, "Forbidden", "this needs the role " + role.String() + ", and the token has " + g.Role.String()}
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the caller has gone if this fails
}

// decode reads the body of a request. Fields that are not known are passed over, as Flowable does.
func decode(r *http.Request, into any) error {
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = wire.Unmarshal(text, into, wire.NullsLeftOut)
	}
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return &fault{http.StatusRequestEntityTooLarge, "Bad request", fmt.Sprintf("the body has more than %d bytes", large.Limit)}
	}
	return badRequest("the body cannot be read: " + err.Error())
}

// fault is an error as Flowable answers it.
type fault struct {
	status    int
	Message   string `json:"message"`
	Exception string `json:"exception"`
}

func (f *fault) Error() string { return f.Exception }

func badRequest(why string) error {
	return &fault{http.StatusBadRequest, "Bad request", why}
}

// check is a bad request that says what is wrong with it, unless nothing is.
func check(err error) error {
	if err != nil {
		return badRequest(err.Error())
	}
	return nil
}

func notFound(id string) error {
	return &fault{http.StatusNotFound, "Not found", fmt.Sprintf("Could not find external worker job with id '%s'.", id)}
}

func notOwner(worker string) error {
	return &fault{http.StatusForbidden, "Forbidden", worker + " does not hold a lock on the requested job"}
}

// fault is how an error is answered. One that is not the domain's may hold SQL or a connection string: it is
// logged, and the answer has an id to find it by.
func (s *server) fault(operation string, err error) *fault {
	var ready *fault
	_, down := tenure.DownPool(err)
	switch {
	case errors.As(err, &ready):
		return ready
	case external.IsBetweenPools(err), errors.Is(err, tenure.ErrTenantHeld):
		return &fault{http.StatusServiceUnavailable, "Service unavailable", "the tenant is being moved: try again later"}
	case down, errors.As(err, new(*operate.UnansweredError)):
		return &fault{http.StatusServiceUnavailable, "Service unavailable", "a pool's database cannot be used now"}
	case errors.Is(err, context.DeadlineExceeded):
		return &fault{http.StatusGatewayTimeout, "Gateway timeout", "this took too long"}
	case errors.Is(err, workers.ErrNoArgs):
		return &fault{http.StatusForbidden, "Forbidden", err.Error()}
	case errors.Is(err, tenure.ErrNotFound):
		return &fault{http.StatusNotFound, "Not found", "there is no such thing, or this token does not reach it"}
	}
	id := uuid.NewString()
	s.log.Error("request not answered", zap.String("operation", strings.TrimPrefix(operation, "POST ")), zap.String("id", id), zap.Error(err))
	if tenure.Refused(err) {
		return &fault{http.StatusBadRequest, "Bad request", "this cannot be done as it was asked for; the node's log has the reason under id " + id}
	}
	return &fault{http.StatusInternalServerError, "Internal server error", "the node's log has the reason under id " + id}
}
