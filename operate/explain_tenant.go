package operate

import (
	"fmt"
	"time"

	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// TenantExplanation says why a tenant's work waits.
type TenantExplanation struct {
	Tenant  tenancy.ID `json:"tenant"`
	Pool    string     `json:"pool"` // that it lives in
	Reason  WaitReason `json:"reason"`
	Text    string     `json:"text"`             // the reason in a sentence, with who and how many
	Advice  string     `json:"advice,omitempty"` // what to do about it; "" if there is nothing to be done
	Waiting int        `json:"waiting"`          // jobs that wait for their turn, up to 10,000
	Running int        `json:"running"`          // are claimed or run, likewise
	// Frozen is who froze what it waits for, and when; nil: that is not frozen, or it is not known.
	Frozen *AuditEntry `json:"-"`
}

// Bounded is as [Explanation.Bounded].
func (e TenantExplanation) Bounded() TenantExplanation {
	e.Text, e.Advice = bounded(e.Reason, e.Text, e.Advice)
	return e
}

func (e *TenantExplanation) countWaiting() string {
	return plural.Count(e.Waiting, "job waits", "jobs wait")
}

func (e *TenantExplanation) explain(w *store.TenantWait) {
	e.Waiting, e.Running = w.Waiting, w.Running
	set := func(r WaitReason, advice, text string, args ...any) {
		e.Reason, e.Text, e.Advice = r, fmt.Sprintf(text, args...), advice
	}
	waiting := e.countWaiting()
	switch {
	case w.Paused:
		set(WaitsForPool, "tenure pools thaw "+e.Pool, "pool %s is frozen", e.Pool)
	case w.Frozen:
		set(WaitsForTenant, "tenure tenants thaw "+string(e.Tenant), "tenant %s is frozen", e.Tenant)
	case w.TenantState != store.TenantActive:
		e.Reason = WaitsForMove // explainMove says the rest
	case w.Rests != nil:
		e.Reason, e.Text, e.Advice = explainRest(w.Rests)
		e.Text = fmt.Sprintf("%s, none of which may start: %s", waiting, e.Text)
	case !w.Held:
		set(WaitsForHolder, "start a node that serves the pool, by tenure serve or your program, or look into the nodes' logs; see also: tenure nodes, tenure locks", "no node holds the acquire lock of pool %s", e.Pool)
	case w.Waiting > 0 && w.Runnable == 0:
		set(WaitsForHandler, "start a node that has one, or cancel the jobs", "no live node has a handler for what waits, such as kind %s", w.Unhandled)
	case w.Waiting > 0 && w.Most > 0 && w.Running >= w.Most:
		set(WaitsForMaxRunning, fmt.Sprintf("wait until one of them ends, or raise the limit: tenure tenants limit %s --max-running %d%s", e.Tenant, w.Most+1, whoLimits), "%s in flight of the %d that may be, and %s", plural.Count(w.Running, "job is", "jobs are"), w.Most, plural.Count(w.Waiting, "waits", "wait"))
	case w.Quota > 0:
		set(WaitsForQuota, fmt.Sprintf("wait until some have run, or raise the quota: tenure tenants limit %s --max-waiting %d%s", e.Tenant, 2*w.Quota, whoLimits), "%s and %s in flight; its quota is used up, and more are refused: %s may wait or run", waiting, plural.Count(w.Running, "is", "are"), jobs(w.Quota))
	case w.Waiting > 0 && w.Share > 0:
		set(WaitsForShare, "wait until some have ended; more nodes or workers help, or a larger execution.tenant_share", "%s and %s in flight; the nodes that can run what waits run %d of one tenant at a time, so that others find workers", waiting, plural.Count(w.Running, "is", "are"), w.Share)
	case w.Waiting > 0:
		set(WaitsForTurn, "if that does not change, more workers, or nodes, help; tenure jobs why ID tells more of one job", "%s for %s turn and %s in flight; node %s holds the lock", waiting, plural.Which(w.Waiting, "its", "their"), plural.Count(w.Running, "is", "are"), w.Holder)
	case w.External > 0:
		set(WaitsForWorker, "look into the workers' logs: do they ask for the topics of these jobs?", "%s for external workers", plural.Count(w.External, "job waits", "jobs wait"))
	case !w.Due.IsZero():
		set(WaitsUntilDue, "tenure jobs why ID tells of one job whether it was put off, and why; tenure jobs list --tenant "+string(e.Tenant)+" has the ids", "what there is waits for its time; the next job is due at %s", w.Due.UTC().Format(time.RFC3339))
	case w.Suspended > 0:
		set(WaitsForResume, "tenure jobs resume --tenant "+string(e.Tenant), "%s suspended, and no other waits", plural.Count(w.Suspended, "job is", "jobs are"))
	case w.Dead > 0:
		set(WaitsNot, "tenure jobs dead --tenant "+string(e.Tenant), "no job waits; %s dead", plural.Count(w.Dead, "is", "are"))
	default:
		set(WaitsNot, "", "no job waits; %s in flight", plural.Count(w.Running, "is", "are"))
	}
}
