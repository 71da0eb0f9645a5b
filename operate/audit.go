package operate

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// ByWhom returns a context with which an [Operator] does what it does for somebody: the audit names
// them. Without it, it names this process' node.
func ByWhom(ctx context.Context, who string) context.Context {
	return process.DoneBy(ctx, who)
}

// given are the values of a detail that are not empty.
func given(pairs ...any) map[string]any {
	out := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		switch v := pairs[i+1].(type) {
		case string:
			if v == "" {
				continue
			}
		case time.Time:
			if v.IsZero() {
				continue
			}
		case float64:
			if v == 0 {
				continue
			}
		}
		out[pairs[i].(string)] = pairs[i+1]
	}
	return out
}

// chosenBy is what jobs were chosen by, for a detail that says so if all were.
func chosenBy(tenant string, pairs ...any) map[string]any {
	out := given(pairs...)
	if tenant == "" && len(out) == 0 {
		out["all"] = true
	}
	return out
}

// stageEnded is the stage of what became of what was done to many jobs, which is noted behind it.
const stageEnded = "ended"

// noteEnd notes what became of what was done to many jobs of a pool, also if ctx has ended.
func noteEnd(ctx context.Context, proc *process.Process, p *routing.Pool, d store.Deed, counts map[string]int) error {
	d.Detail = map[string]any{"stage": stageEnded}
	for what, n := range counts {
		d.Detail[what] = n
	}
	return proc.Note(context.WithoutCancel(ctx), p, d)
}

// AuditEntry is something that somebody did by an [Operator]. That jobs are enqueued, and what external
// workers and handlers do, is not noted, nor is what tenants' roles do by SQL.
type AuditEntry struct {
	Pool    string
	ID      int64 // its place in the pool's audit
	At      time.Time
	Who     string
	Action  string         // such as job.cancel
	Tenant  string         // whose it is; "": of all or nobody, or the job's
	Job     job.ID         // 0: it is not done to one job
	Subject string         // the name of what it is done to, if that is no job
	Detail  map[string]any // what is asked for, beside that; where "stage" is ended, what became of it
	// Chosen says, in a list of what was done to one job, that this was done to all jobs that a filter chose, which fits this
	// one: whether it was among them is not noted.
	Chosen bool
}

// AuditActions are all that the audit can have as an entry's action: what something is done to, and what. Those of jobs are
// done to many at once.
var AuditActions = []string{
	"batch.cancel", "dead_letters.delete", "dead_letters.retry",
	"job.cancel", "job.change", "job.delete", "job.rerun", "job.resume", "job.retry", "job.suspend",
	"jobs.cancel", "jobs.delete", "jobs.rerun", "jobs.resume", "jobs.retry", "jobs.suspend",
	"kind.freeze", "kind.thaw", "limit.delete", "limit.set", "operation.cancel", "pool.freeze", "pool.thaw", "queue.freeze", "queue.thaw",
	"schedule.delete", "schedule.pause", "schedule.resume", "schedule.run", "schedule.set",
	"tenant.freeze", "tenant.limit", "tenant.move", "tenant.reassign", "tenant.thaw", "tenant.weight",
}

// AuditFilter chooses entries of the audit; empty fields choose all.
type AuditFilter struct {
	Pool   string
	Tenant tenancy.ID
	Who    string
	Action string // one of AuditActions, or a word of them: job for all that was done to single jobs, freeze for all that was frozen
	Job    job.ID // also what was done to many jobs, if this one may have been among them; see AuditEntry.Chosen
	After  string // the cursor of the last entry of the page before
	Limit  int    // 0: 100
}

// Validate says what of the filter cannot be, other than its pool, which [Operator.Audit] knows.
func (f AuditFilter) Validate() error {
	_, err := parseAuditCursor(f.After)
	known := func(action string) bool {
		return action == f.Action || slices.Contains(strings.Split(action, "."), f.Action)
	}
	if f.Action != "" && !slices.ContainsFunc(AuditActions, known) {
		err = errors.Join(err, fmt.Errorf("action: %.40q is none: give one, or a word of one, such as job or freeze: %s", f.Action, strings.Join(AuditActions, ", ")))
	}
	if err != nil {
		return &job.InputError{Err: err}
	}
	return nil
}

// CompareAudit is negative if a comes before b in a list of [Operator.Audit].
func CompareAudit(a, b AuditEntry) int {
	return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Pool, a.Pool), cmp.Compare(b.ID, a.ID))
}

// Text says in a few words what was done to what.
func (e AuditEntry) Text() string {
	what := e.Subject
	if e.Job != 0 {
		what = e.Job.String()
	}
	if len(e.Detail) > 0 {
		detail, _ := json.Marshal(e.Detail) // it was read as JSON
		what += " " + string(detail)
	}
	if e.Chosen {
		what += " (may have been among them)"
	}
	return strings.TrimSpace(what)
}

func newAuditEntry(pool string, r store.AuditRow) AuditEntry {
	return AuditEntry{pool, r.ID, r.At, r.Who, r.Action, r.Tenant, r.Job, r.Subject, r.Detail, r.Chosen}
}

// auditCursor is a place in a list of entries.
type auditCursor struct {
	At   time.Time `json:"at"`
	Pool string    `json:"pool"`
	ID   int64     `json:"id"`
}

// Cursor is the entry's place in lists, for [AuditFilter].After. It means nothing to others.
func (e AuditEntry) Cursor() string {
	text, _ := json.Marshal(auditCursor{e.At.UTC(), e.Pool, e.ID}) // of plain values
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseAuditCursor(text string) (c auditCursor, err error) {
	if text == "" {
		return c, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil || c.At.Year() < 1970 || c.At.Year() > 9999 || c.Pool == "" {
		return c, fmt.Errorf("after: %.40q is no place in the audit: pass what the page before has given, unchanged", text)
	}
	return c, nil
}

// Audit lists what was done by operators, on all nodes and from the command line, over all pools, the last of it
// first. Each pool notes what was done in it, in the same transaction where there is one, else before the first, and
// keeps that for ninety days. A move of a tenant, tenant.move, is noted with each stage, in the detail: begun, resumed
// and given_up in the pool that the tenant leaves, held and ended in the one that it goes to. When some pools do not answer, the others' entries are returned together with an error.
func (o *Operator) Audit(ctx context.Context, f AuditFilter) ([]AuditEntry, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	after, _ := parseAuditCursor(f.After)
	pools, err := o.proc.PoolsOf(f.Pool)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(f.Limit, 100)
	out, err := process.InspectEach(ctx, pools, func(ctx context.Context, p *routing.Pool, db store.DB) ([]AuditEntry, error) {
		of := store.AuditFilter{Tenant: string(f.Tenant), Who: f.Who, Action: f.Action, Job: f.Job, Limit: limit}
		if f.After != "" {
			of.Before, of.BeforeID = after.At, after.ID
			switch strings.Compare(p.Name, after.Pool) { // of the same time those of later pools come first
			case -1:
				of.BeforeID = math.MaxInt64
			case 1:
				of.BeforeID = math.MinInt64
			}
		}
		rows, err := store.Audit(ctx, db, of)
		out := make([]AuditEntry, len(rows))
		for i, r := range rows {
			out[i] = newAuditEntry(p.Name, r)
		}
		return out, err
	})
	slices.SortStableFunc(out, CompareAudit)
	return out[:min(limit, len(out))], err
}

// explainMove says of a tenant whose move holds up its jobs in a pool where it goes, since when the last command for that
// runs, as far as the pools tell, and how to go on.
func explainMove(ctx context.Context, proc *process.Process, id, pool, state, other string) (text, advice string) {
	from, to := pool, other
	if state == store.TenantArriving {
		from, to = other, pool
	}
	type found struct {
		held  bool
		begun []store.AuditRow
	}
	var last []found
	if p, err := proc.FindPool(from); err == nil {
		last, _ = process.InspectEach(ctx, []*routing.Pool{p}, func(ctx context.Context, _ *routing.Pool, db store.DB) ([]found, error) {
			row, err := store.ReadTenant(ctx, db, id)
			if err != nil {
				return nil, err
			}
			begun, err := store.Audit(ctx, db, store.AuditFilter{Tenant: id, Action: "tenant.move", Limit: 1})
			return []found{{row.Held, begun}}, err
		})
	}
	text = fmt.Sprintf("tenant %s is %s to pool %s from pool %s", id, state, to, cmp.Or(from, "others"))
	goOn := fmt.Sprintf("tenure tenants move %s --to %s", id, to)
	advice = "wait for the move; if its command was interrupted, go on with: " + goOn
	if len(last) > 0 && last[0].held {
		text += ", and held so that its data can be copied"
		advice = "when its data is copied, end the move with: " + goOn
	}
	if len(last) > 0 && len(last[0].begun) > 0 {
		text += fmt.Sprintf("; the last command for that was run at %s by %s", last[0].begun[0].At.UTC().Format(time.RFC3339), last[0].begun[0].Who)
	}
	if state == store.TenantMoving {
		advice += fmt.Sprintf("; or give it up with: tenure tenants move %s --to %s", id, from)
	}
	return text, advice
}

// frozenBy is the deed by which what jobs in a pool wait for was frozen last: the pool, or the tenant, queue or kind of this
// name. nil: that is not frozen, or the pool does not tell.
func frozenBy(ctx context.Context, proc *process.Process, pool string, reason WaitReason, name string) *AuditEntry {
	noun, f := "", store.AuditFilter{Subject: name, Limit: 1}
	switch reason {
	case WaitsForPool:
		noun, f.Subject = "pool", pool
	case WaitsForTenant:
		noun, f.Subject, f.Tenant = "tenant", "", name
	case WaitsForQueue:
		noun = "queue"
	case WaitsForKind:
		noun = "kind"
	default:
		return nil
	}
	p, err := proc.FindPool(pool)
	if err != nil {
		return nil
	}
	last := func(action string) ([]store.AuditRow, error) {
		f.Action = noun + "." + action
		return process.InspectEach(ctx, []*routing.Pool{p}, func(ctx context.Context, _ *routing.Pool, db store.DB) ([]store.AuditRow, error) {
			return store.Audit(ctx, db, f)
		})
	}
	frozen, err := last("freeze")
	thawed, failed := last("thaw")
	if err != nil || failed != nil || len(frozen) == 0 || len(thawed) > 0 && thawed[0].At.After(frozen[0].At) { // it was frozen elsewhere, or by SQL
		return nil
	}
	e := newAuditEntry(pool, frozen[0])
	return &e
}
