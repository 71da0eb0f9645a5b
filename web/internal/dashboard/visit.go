package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web/internal/reveal"
)

// visit is one request for a page or an action, by somebody who may look at it.
type visit struct {
	*http.Request
	op       *operate.Operator
	reveal   reveal.Revealer
	log      *zap.Logger
	quiet    *zap.Logger // for what each look finds out again
	looker   *looker
	dead     *counts[scope, []operate.DeadGroup]
	counts   *counts[operate.Selection, int64]
	traceURL string // see Settings
	grant    access.Grant
	ctx      context.Context // bounds all that the databases are asked

	made time.Time
	seen map[string]glance // of the pools, by their names; nil: the page shows none

	mu         sync.Mutex
	updated    time.Time // guarded by mu; how old the oldest is that the page shows; zero: it is from now
	unanswered []string  // guarded by mu; what the page has to do without, for people
}

// view is what a page shows.
type view struct {
	Page  string // the file of its template
	Title string
	Still bool // it is to be read, or filled in, and must not change meanwhile
	Body  any

	Elsewhere string // the path of the page that is shown instead; "": this one is
}

// statusError is an answer that is no page.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

func notFound(what string) error {
	return &statusError{http.StatusNotFound, "There is no such " + what + ", or it is not yours to see."}
}

// statusOf is what a failed call is answered with. An error that is not one of the domain's may hold
// SQL, or a database's address: it is logged, and the answer has an id to find it by.
func (v *visit) statusOf(err error) *statusError {
	var status *statusError
	var state *operate.StateError
	var taken *job.KeyTakenError
	var input *job.InputError
	var partly *operate.PartlyError
	pool, down := tenure.DownPool(err)
	switch {
	case errors.As(err, &status):
		return status
	case errors.As(err, &state):
		return &statusError{http.StatusConflict, state.Error()}
	case errors.As(err, &input):
		return &statusError{http.StatusBadRequest, input.Error()}
	case errors.As(err, &partly):
		v.log.Warn("not done in all pools", zap.String("path", v.URL.Path), zap.Error(err))
		return &statusError{http.StatusServiceUnavailable, partly.Text() + ": do it again once the others answer."}
	case errors.As(err, &taken):
		return &statusError{http.StatusConflict, taken.Error()}
	case down, errors.As(err, new(*operate.UnansweredError)):
		v.quiet.Warn("a pool's database cannot be used", zap.String("path", v.URL.Path), zap.Error(err))
		what := "A pool's database"
		if pool != "" && v.grant.SeesPool(pool) {
			what = "The database of pool " + pool
		}
		return &statusError{http.StatusServiceUnavailable, what + " cannot be used now: try again later."}
	case errors.Is(err, tenure.ErrNotFound), errors.Is(err, operate.ErrNoSchedule), errors.Is(err, tenure.ErrUnknownTenant):
		return notFound("thing").(*statusError)
	case errors.Is(err, context.DeadlineExceeded):
		v.quiet.Warn("this took too long", zap.String("path", v.URL.Path), zap.Error(err))
		return &statusError{http.StatusServiceUnavailable, "This was not done in time: look what became of it, and try again."}
	}
	id := uuid.NewString()
	v.log.Error("request not answered", zap.String("path", v.URL.Path), zap.String("id", id), zap.Error(err))
	code, text := http.StatusInternalServerError, "Something went wrong."
	if tenure.Refused(err) {
		code, text = http.StatusBadRequest, "This cannot be done as it was asked for."
	}
	return &statusError{code, text + " The node's log has the reason under id " + id + "."}
}

// reasonOf is what is said of a database that failed. What the database said may name its address and
// user, and is logged.
func (v *visit) reasonOf(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time"
	case errors.Is(err, tenure.ErrPoolDown), tenure.Refused(err):
		return "the node's log and tenure doctor say why"
	}
	v.quiet.Warn("not everything was answered", zap.Error(err))
	return "its database cannot be asked; the node's log and tenure doctor say why"
}

// quietly is a log for what is found out again with each look at a page: a message is written ten
// times a minute at most.
func quietly(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Minute, 10, 0)
	}))
}

// pools are those that the visitor may see, of which only one if it is named.
func (v *visit) pools(only string) (names []string) {
	for _, name := range v.op.Pools().Names() {
		if v.grant.SeesPool(name) && (only == "" || only == name) {
			names = append(names, name)
		}
	}
	return names
}

// offeredPools are those that a list may be narrowed to. Which there are is not told to who may see some tenants only.
func (v *visit) offeredPools() []string {
	if v.ofAll() != nil {
		return nil
	}
	return v.pools("")
}

// tenants are those whose jobs are to be asked for: "" for all.
func (v *visit) tenants(only string) []string {
	switch {
	case only != "" && !v.grant.SeesTenant(tenancy.ID(only)):
		return nil
	case only != "" || len(v.grant.Tenants) == 0:
		return []string{only}
	}
	var all []string
	for _, id := range v.grant.Tenants {
		all = append(all, string(id))
	}
	return all
}

// scope is a pool and a tenant that a question or an action is about; "": all.
type scope struct{ pool, tenant string }

// scopes are what is meant of a pool and a tenant, or of all of them, as far as the grant reaches: one for all, if it
// reaches all.
func (v *visit) scopes(pool, tenant string) (all []scope) {
	pools := v.pools(pool)
	if pool == "" && len(v.grant.Pools) == 0 {
		pools = []string{""}
	}
	for _, p := range pools {
		for _, t := range v.tenants(tenant) {
			all = append(all, scope{p, t})
		}
	}
	return all
}

// only refuses parameters that are not taken: what somebody has chosen by them is never left out in silence.
func (v *visit) only(names ...string) error {
	_ = v.ParseForm() // what cannot be read is not there, for [http.Request.FormValue] neither
	for name, values := range v.Form {
		if !slices.Contains(names, name) && strings.Join(values, "") != "" {
			return &statusError{http.StatusBadRequest, fmt.Sprintf("Nothing was done: this cannot be done to what %.80q chooses. It takes %s.", name, strings.Join(names, ", "))}
		}
	}
	return nil
}

// sees says whether the visitor may see what belongs to a tenant in a pool.
func (v *visit) sees(pool, tenant string) bool {
	return v.grant.SeesPool(pool) && v.grant.SeesTenant(tenancy.ID(tenant))
}

// ofAll refuses what belongs to no tenant to who may see some tenants only, as the API does.
func (v *visit) ofAll() error {
	if !v.grant.SeesTenant("") {
		return notFound("page")
	}
	return nil
}

// unlimited says whether the visitor may see what belongs to all tenants and pools.
func (v *visit) unlimited() bool { return len(v.grant.Tenants) == 0 && len(v.grant.Pools) == 0 }

// sawAt notes when something was seen that the page shows.
func (v *visit) sawAt(at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.updated.IsZero() || at.Before(v.updated) {
		v.updated = at
	}
}

// missing notes what did not answer. Without a pool it was a question to all.
func (v *visit) missing(pool string, err error) {
	if err == nil {
		return
	}
	line := "Pool " + pool + ": " + v.reasonOf(err) + "."
	if pool == "" {
		_ = v.reasonOf(err) // for the log
		line = "Some pools did not answer."
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !slices.Contains(v.unanswered, line) {
		v.unanswered = append(v.unanswered, line)
	}
}

// asking is how many questions a page has under way at a time, so that it leaves others a connection.
const asking = 8

// together asks several things at a time.
func together(questions ...func()) {
	var group sync.WaitGroup
	free := make(chan struct{}, asking)
	for _, ask := range questions {
		group.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			ask()
		})
	}
	group.Wait()
}

// pages leads from one page of a list to those beside it.
type pages struct {
	To          string
	First, Last int    // of the rows that are shown; 0: none is
	Total       string // how many rows there are on all pages; "": that is not known
	Prev, Next  []any  // names and values in the address of another page; nil: there is none
}

// after is the cursor that the page begins behind. An address has those of the pages before, too, so that they can be
// gone back to: lists are read from their beginning only.
func (v *visit) after() string {
	_ = v.ParseForm() // what cannot be read is not there, for [http.Request.FormValue] neither
	if all := v.Form["after"]; len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// newPages leads on from a page of so many rows, of which full pages have most, to the one behind next; chosen are the
// parameters of all pages.
func (v *visit) newPages(to string, rows, most int, total, next string, chosen ...any) pages {
	behind := v.Form["after"]
	p := pages{To: to, Total: total, First: len(behind)*most + 1, Last: len(behind)*most + rows}
	at := func(cursors []string) []any {
		pairs := slices.Clone(chosen)
		for _, c := range cursors {
			pairs = append(pairs, "after", c)
		}
		return pairs
	}
	if len(behind) > 0 {
		p.Prev = at(behind[:len(behind)-1])
	}
	if next != "" {
		p.Next = append(at(behind), "after", next)
	} else if total == "" {
		p.Total = number(int64(p.Last)) // it is the last one
	}
	return p
}

// rowsShown is how many rows there are on a page of a list that has pages.
const rowsShown = 50

// firstPage is what a page shows of rows, of which one more was asked for, and the cursor that the next page
// begins behind; "": there is none.
func firstPage[T interface{ Cursor() string }](rows []T, compare func(a, b T) int) (page []T, next string) {
	slices.SortFunc(rows, compare)
	if len(rows) <= rowsShown {
		return rows, ""
	}
	return rows[:rowsShown], rows[rowsShown-1].Cursor()
}

// gather asks for the jobs, batches or groups of each pool and tenant that the visitor may see.
func gather[T any](v *visit, pool, tenant string, ask func(pool, tenant string) ([]T, error)) (all []T) {
	var mu sync.Mutex
	var questions []func()
	for _, p := range v.pools(pool) {
		for _, t := range v.tenants(tenant) {
			questions = append(questions, func() {
				some, err := ask(p, t)
				v.missing(p, err)
				mu.Lock()
				defer mu.Unlock()
				all = append(all, some...)
			})
		}
	}
	together(questions...)
	return all
}
