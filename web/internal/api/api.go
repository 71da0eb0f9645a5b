// Package api is what programs operate Tenure by over HTTP: JSON below /api/v1/, described by
// /api/openapi.json.
//
// Each route says in one table which role it needs. What a grant does not reach is not there: a
// job of another tenant is answered with 404. Safe for concurrent use.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/internal/tracing"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/web/internal/reveal"
	"github.com/tenurehq/tenure/web/internal/workers"
)

// server is what the routes' handlers answer requests with.
type server struct {
	operator *operate.Operator
	client   *tenure.Client
	external *workers.Workers
	reveal   reveal.Revealer
	log      *zap.Logger
	limits   limits
	failed   func(error) // gets errors in full, if callers may see all that this process does; nil: they may not

	waiting, acquiring waiting
	locks              lockReader
}

// Handler serves the API. Something before it has to put grants into the requests' contexts, as
// [access.Guard] does; a request without one may do nothing. What redact takes out of arguments and
// outputs nobody sees but the workers outside the cluster; nil: nothing.
func Handler(client *tenure.Client, redact reveal.Redactor, log *zap.Logger) http.Handler {
	return newServer(client, reveal.New(client.Operator(), redact), log).handler()
}

// Local is how a process asks the API of its own client.
type Local struct {
	Who    string                                                  // does what is done, in the audit
	Look   time.Duration                                           // for how long a pool is waited for by who looks; what changes something lasts as long as its request
	Redact func(kind string, text json.RawMessage) json.RawMessage // takes out of arguments and outputs what is not shown
	Open   bool                                                    // encrypted arguments are shown decrypted, else not at all
	Failed func(error)                                             // gets the errors as they are, also those of pools that an answer does not have
}

// InProcess serves the API to the process itself, which has the databases' credentials: it may do everything.
func InProcess(client *tenure.Client, l Local) http.Handler {
	r := reveal.New(client.Operator(), l.Redact)
	r.Sealed = !l.Open
	s := newServer(client, r, zap.NewNop())
	s.limits, s.failed = limits{l.Look, l.Look, never}, l.Failed
	h := s.handler()
	grant := access.Grant{Name: l.Who, Role: access.Admin, Args: true}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(access.With(r.Context(), grant)))
	})
}

// never is longer than any request lasts.
const never = 100 * 365 * 24 * time.Hour

func newServer(client *tenure.Client, r reveal.Revealer, log *zap.Logger) *server {
	return &server{operator: client.Operator(), client: client, external: workers.New(client), reveal: r, log: log, limits: public,
		waiting: waiting{most: maxWaiting, mostOf: maxWaitingOf}, acquiring: waiting{most: maxAcquiring, mostOf: maxAcquiringOf}}
}

// note tells who sees all that this process does why something was not done, or not wholly. What is wrong with the
// request they are answered.
func (s *server) note(err error) {
	if err != nil && s.failed != nil && !errors.As(err, new(huma.StatusError)) {
		s.failed(err)
	}
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	api := describe(mux, s)
	return inTrace(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" && !isTaken(r) {
			mux.ServeHTTP(w, r)
			return
		}
		refuse(api, w, r, methodsOf(mux, r))
	}))
}

// isTaken says whether another method has the path of a request to itself, so that none of its parts is an id: /jobs/many
// is no job.
func isTaken(r *http.Request) bool {
	methods, method := literal[strings.TrimPrefix(r.URL.Path, "/api/v1")], r.Method
	if method == http.MethodHead {
		method = get
	}
	return methods != nil && !slices.Contains(methods, method)
}

// literal are the methods of paths that name nothing.
var literal = func() map[string][]string {
	all := map[string][]string{}
	for _, r := range routes {
		if !strings.Contains(r.path, "{") {
			all[r.path] = append(all[r.path], r.method)
		}
	}
	return all
}()

// methodsOf are those that there are for a path.
func methodsOf(mux *http.ServeMux, r *http.Request) (allowed []string) {
	for _, method := range []string{get, put, post, patch, del} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "" && !isTaken(other) {
			allowed = append(allowed, method)
		}
	}
	return allowed
}

// refuse answers what no route is for.
func refuse(api huma.API, w http.ResponseWriter, r *http.Request, allowed []string) {
	ctx := humago.NewContext(&huma.Operation{}, r, w)
	switch {
	case access.From(r.Context()).Role == access.None:
		_ = huma.WriteErr(api, ctx, http.StatusUnauthorized, "nobody is known to send this request") // the caller has gone if this fails
	case len(allowed) > 0:
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		_ = huma.WriteErr(api, ctx, http.StatusMethodNotAllowed, "this path has no "+r.Method+": "+strings.Join(allowed, " and ")+" are allowed")
	default:
		_ = huma.WriteErr(api, ctx, http.StatusNotFound, "there is no such path: /api/openapi.json has all that there are")
	}
}

// inTrace has what a request enqueues belong to the trace that its header names.
func inTrace(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx := tracing.NewContext(r.Context(), r.Header.Get("Traceparent")); ctx != r.Context() {
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// describe mounts all routes of s.
func describe(mux *http.ServeMux, s *server) huma.API {
	config := huma.DefaultConfig("Tenure", "1")
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "/api/openapi", "", ""
	config.CreateHooks = nil // bodies have no $schema
	config.RejectUnknownQueryParameters = true
	config.Transformers = append(config.Transformers, brief)
	readExactly(&config)
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer": {Type: "http", Scheme: "bearer"}, "basic": {Type: "http", Scheme: "basic"},
	}
	api := humago.New(mux, config)
	for _, r := range routes {
		r.mount(s, api, r.operation(api))
	}
	declare(api.OpenAPI())
	return api
}

// roleKey is where the document says which role an operation needs.
const roleKey = "x-tenure-role"

func (r route) operation(api huma.API) huma.Operation {
	return huma.Operation{
		OperationID: r.id, Method: r.method, Path: "/api/v1" + r.path, Summary: r.summary,
		Security:    []map[string][]string{{"bearer": {}}, {"basic": {}}},
		Extensions:  map[string]any{roleKey: r.role.String()},
		Middlewares: huma.Middlewares{requireRole(api, r.role), requireExact(api)},
	}
}

// requireRole answers before anything of the request is read, so that nobody learns from a
// refusal what a route would have accepted.
func requireRole(api huma.API, role access.Role) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		switch g := access.From(ctx.Context()); {
		case g.Role == access.None:
			_ = huma.WriteErr(api, ctx, http.StatusUnauthorized, "nobody is known to send this request") // the caller has gone if this fails
		case !g.May(role):
			_ = huma.WriteErr(api, ctx, http.StatusForbidden, "this needs the role "+role.String()+", and the token has "+g.Role.String())
		default:
			next(huma.WithContext(ctx, operate.ByWhom(ctx.Context(), g.Who())))
		}
	}
}

// bind makes a handler what a route mounts. Its errors become problems here.
func bind[I, O any](handle func(context.Context, *server, *I) (*O, error)) func(*server, huma.API, huma.Operation) {
	return func(s *server, api huma.API, op huma.Operation) {
		huma.Register(api, op, func(ctx context.Context, in *I) (*O, error) {
			out, err := handle(ctx, s, in)
			if err != nil {
				s.note(err)
				return nil, problemOf(ctx, s.log, op.OperationID, err)
			}
			if p, is := any(out).(partial); is {
				p.complete(ctx, s)
			}
			return out, nil
		})
	}
}

// bindStream makes a handler of events of this name, whose data are a D, what a route mounts.
func bindStream[D, I any](name string, handle func(context.Context, *server, *I) (*huma.StreamResponse, error)) func(*server, huma.API, huma.Operation) {
	return func(s *server, api huma.API, op huma.Operation) {
		op.Responses = map[string]*huma.Response{
			"200":     {Description: "Events, until there will be no other", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: streamSchema(api, name, reflect.TypeFor[D]())}}},
			"204":     {Description: "There will be no other event than the one that is known"},
			"default": problemResponse(api),
		}
		bind(handle)(s, api, op)
	}
}
