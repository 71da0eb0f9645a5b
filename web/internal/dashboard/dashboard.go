// Package dashboard shows a cluster to people, in their browser: what is wrong, where the locks are,
// and what becomes of jobs; and has them do something about it.
//
// Who may see and do what the grant of a request's context says, see package access. Pages are made
// on the server, and work without JavaScript. What does not answer within a second is left out, and
// the page says so.
package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/web/internal/reveal"
	"github.com/tenurehq/tenure/web/internal/wire"
)

// Settings are what the dashboard has to know of where it is.
type Settings struct {
	// Prefix is the path that it is served under, such as /tenure; "": the root.
	Prefix string
	// TraceURL is where a trace can be seen, with {trace} for its id; "": nowhere.
	TraceURL string
	// Redact takes out of arguments and outputs what nobody is to see; nil: nothing.
	Redact reveal.Redactor
	// Logger gets the errors that are not told to visitors; nil: nobody does.
	Logger *zap.Logger
}

const (
	// readWithin is for how long a page waits for the databases.
	readWithin = time.Second
	// changeWithin is how long an action may take.
	changeWithin = 10 * time.Second
	// oldAfter is from when on a page says how old what it shows is.
	oldAfter = 5 * time.Second
)

// site is what all requests share.
type site struct {
	op       *operate.Operator
	reveal   reveal.Revealer
	log      *zap.Logger
	quiet    *zap.Logger
	prefix   string
	traceURL string
	pages    map[string]*template.Template
	looker   *looker
	dead     *counts[scope, []operate.DeadGroup]
	counts   *counts[operate.Selection, int64]
	tables   tables
	doctor   doctor
}

// Handler serves the dashboard of an operator's cluster. Requests come with their whole path,
// the prefix included.
func Handler(op *operate.Operator, s Settings) (http.Handler, error) {
	prefix := strings.TrimRight(s.Prefix, "/")
	if prefix != "" && !strings.HasPrefix(prefix, "/") || strings.ContainsAny(prefix, "{}?#% ") {
		return nil, fmt.Errorf("the dashboard's prefix %q: it is a path that begins with /, such as /tenure", s.Prefix)
	}
	pages, err := parsePages(prefix)
	if err != nil {
		return nil, fmt.Errorf("the dashboard's pages: %w", err)
	}
	log := s.Logger
	if log == nil {
		log = zap.NewNop()
	}
	st := &site{op: op, reveal: reveal.New(op, s.Redact), log: log, quiet: quietly(log), prefix: prefix, traceURL: s.TraceURL, pages: pages, looker: newLooker(op), dead: newDeadCounts(op), counts: newCounts(op.Jobs().CountCancellable)}
	mux := http.NewServeMux()
	mux.Handle("GET /static/", cached(http.FileServerFS(staticFiles)))
	for path, show := range map[string]func(*visit) (view, error){
		"/{$}": overviewPage, "/cluster": clusterPage, "/pools": poolsPage, "/tenants": tenantsPage, "/tenant": tenantPage,
		"/jobs": jobsPage, "/jobs/{id}": jobPage, "/dead": deadPage, "/dead/confirm": confirmPage, "/schedules": schedulesPage,
		"/batches": batchesPage, "/nodes": nodesPage, "/operations": operationsPage, "/audit": auditPage, "/queues": queuesPage, "/doctor": st.doctorPage, "/jobs/all/{action}": allPage, "/jobs/chosen/{action}": chosenPage,
		"/": func(*visit) (view, error) { return view{}, notFound("page") },
	} {
		mux.Handle("GET "+path, st.page(show))
	}
	st.routeActions(mux)
	// Browsers say where a form was sent from; one of another site is refused.
	return secured(http.NewCrossOriginProtection().Handler(http.StripPrefix(prefix, rooted(mux)))), nil
}

func (s *site) routeActions(mux *http.ServeMux) {
	act := func(path string, role access.Role, do func(*visit) (string, error)) {
		mux.Handle("POST "+path, s.action(role, do))
	}
	act("/jobs/{id}/{action}", roleOfJobs, changeJob)
	act("/jobs/all/{action}", roleOfJobs, changeAll)
	act("/jobs/chosen/{action}", roleOfJobs, changeChosen)
	act("/dead/{action}", roleOfJobs, changeDead)
	act("/schedules/{action}", roleOfJobs, changeSchedule)
	act("/batches/{id}/cancel", roleOfJobs, cancelBatch)
	act("/operations/{id}/cancel", roleOfJobs, cancelOperation)
	act("/pools/{action}", access.Admin, changePool)
	act("/queues/{action}", access.Admin, changeQueue)
	act("/tenant/{action}", access.Admin, changeTenant)
}

// rooted lets the prefix be asked for without a slash behind it.
func rooted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "" {
			r.URL.Path = "/"
		}
		next.ServeHTTP(w, r)
	})
}

// secured has browsers load and run nothing that does not come from here.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// cached lets browsers keep files: another content has another address.
func cached(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		next.ServeHTTP(w, r)
	})
}

func (s *site) newVisit(r *http.Request, within time.Duration) (*visit, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(operate.ByWhom(r.Context(), access.From(r.Context()).Who()), within)
	return &visit{Request: r, op: s.op, reveal: s.reveal, log: s.log, quiet: s.quiet, looker: s.looker, dead: s.dead, counts: s.counts, traceURL: s.traceURL, grant: access.From(r.Context()), ctx: ctx, made: time.Now()}, cancel
}

// page answers with a page. Who may see the same and asks for the same while it is being made gets what is made.
func (s *site) page(show func(*visit) (view, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, cancel := s.newVisit(r, readWithin)
		defer cancel()
		grant := v.grant
		if !grant.May(access.Read) {
			s.fail(w, v, errNotAllowed)
			return
		}
		if err := wire.CheckRequest(r); err != nil {
			s.fail(w, v, &statusError{http.StatusUnprocessableEntity, err.Error()})
			return
		}
		t := s.tables.share(fmt.Sprintf("%q %d %q %q %t", r.URL.RequestURI(), grant.Role, grant.Tenants, grant.Pools, grant.Args), func() (t table) {
			v, cancel := s.newVisit(r.WithContext(context.WithoutCancel(r.Context())), readWithin)
			defer cancel()
			t.visit = v
			if t.view, t.err = show(v); t.err != nil {
				t.err = v.statusOf(t.err) // once for all
			}
			return t
		})
		v.seen, v.unanswered, v.updated, v.made = t.visit.seen, t.visit.unanswered, t.visit.updated, t.visit.made
		switch {
		case t.err != nil:
			s.fail(w, v, t.err)
		case t.view.Elsewhere != "":
			http.Redirect(w, r, s.prefix+t.view.Elsewhere, http.StatusSeeOther)
		default:
			s.render(w, v, http.StatusOK, t.view)
		}
	})
}

// action does something, and leads on to a page that shows what became of it.
func (s *site) action(role access.Role, do func(*visit) (string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, cancel := s.newVisit(r, changeWithin)
		defer cancel()
		if !v.grant.May(role) {
			s.fail(w, v, errNotAllowed)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		if err := cmp.Or(r.ParseForm(), wire.CheckRequest(r)); err != nil {
			s.fail(w, v, &statusError{http.StatusUnprocessableEntity, err.Error()})
			return
		}
		to, err := do(v)
		s.looker.expire()
		s.dead.expire()
		s.counts.expire()
		s.tables.expire()
		if err != nil {
			s.fail(w, v, err)
			return
		}
		http.Redirect(w, r, s.prefix+to, http.StatusSeeOther)
	})
}

// fail answers with a page that says what is wrong.
func (s *site) fail(w http.ResponseWriter, v *visit, err error) {
	e := v.statusOf(err)
	still := v.Method != http.MethodGet // the page that it stands for may come back; what a form did not do does not
	s.render(w, v, e.code, view{Page: "error", Title: http.StatusText(e.code), Still: still, Body: wire.Brief(e.text)})
}

// sheet is what the layout is made of.
type sheet struct {
	view
	Path       string
	Who        access.Grant
	Operate    bool
	Admin      bool
	Whole      bool // the visitor may see all tenants
	Unlimited  bool // and all pools
	Said       string
	Unanswered []string
	Code       int
	Updated    time.Time     // when the oldest of what is shown was seen
	Age        time.Duration // 0: it is new
	InTurn     bool          // there are so many pools that they are looked at in turn
}

// render makes the whole page before it sends any of it, so that no half page is sent.
func (s *site) render(w http.ResponseWriter, v *visit, code int, out view) {
	sh := sheet{view: out, Path: v.URL.Path, Who: v.grant, Operate: v.grant.May(roleOfJobs), Admin: v.grant.May(access.Admin),
		Whole: len(v.grant.Tenants) == 0, Unlimited: v.unlimited(), Said: v.said(), Unanswered: v.unanswered, Code: code, Updated: v.updated, InTurn: len(v.seen) > looksPerSecond}
	if sh.Updated.IsZero() {
		sh.Updated = v.made
	}
	if age := time.Since(sh.Updated); age > oldAfter {
		sh.Age = age
	}
	var text bytes.Buffer
	err := errors.New("there is no such page")
	if t := s.pages[out.Page]; t != nil {
		err = t.ExecuteTemplate(&text, "layout", sh)
	}
	if err != nil {
		http.Error(w, "the page cannot be shown: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(text.Bytes()) // those who asked may have gone
}
