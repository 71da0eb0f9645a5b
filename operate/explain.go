package operate

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenurehq/tenure/internal/doctor"
	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// WaitReason is why a job does not run, in a word.
type WaitReason string

// Why a job does not run; of several that are true, the first in this order.
const (
	WaitsNot           WaitReason = "not waiting"     // it runs, has ended, or was set aside: see its state
	WaitsUntilDue      WaitReason = "due later"       // its time has not come
	WaitsForOthers     WaitReason = "other jobs"      // it starts when others have ended
	WaitsForPool       WaitReason = "pool frozen"     // an operator froze its pool
	WaitsForTenant     WaitReason = "tenant frozen"   // an operator froze its tenant
	WaitsForRoute      WaitReason = "tenant unknown"  // no routing rule knows its tenant, or one leads elsewhere
	WaitsForMove       WaitReason = "tenant moves"    // its tenant moves to another pool
	WaitsForQueue      WaitReason = "queue frozen"    // an operator froze its queue
	WaitsForKind       WaitReason = "kind frozen"     // an operator froze its kind
	WaitsForHolder     WaitReason = "no holder"       // no node holds its pool's acquire lock
	WaitsForHandler    WaitReason = "no handler"      // no live node has a handler for its kind
	WaitsForWorker     WaitReason = "no worker"       // no external worker has acquired it
	WaitsForKey        WaitReason = "exclusive key"   // another job with its exclusive key goes first
	WaitsForMaxRunning WaitReason = "tenant's limit"  // its tenant may have no more in flight
	WaitsForQueueLimit WaitReason = "queue's limit"   // nor may its queue
	WaitsForKindLimit  WaitReason = "kind's limit"    // nor may its kind
	WaitsForCluster    WaitReason = "cluster's limit" // nor may its kind or queue, of all tenants together
	WaitsForRate       WaitReason = "rate"            // a rate lets the next one start later
	WaitsForShare      WaitReason = "share"           // its tenant has its share of the workers already
	WaitsForQuota      WaitReason = "quota"           // as many of a tenant's jobs wait as may: more are refused
	WaitsForDatabase   WaitReason = "pool down"       // the pool's database does not answer, or cannot be used
	WaitsForResume     WaitReason = "suspended"       // what there is of a tenant was suspended
	WaitsForWorkers    WaitReason = "node's workers"  // each node that could run it is busy with others
	WaitsForTurn       WaitReason = "its turn"        // nothing holds it up but others before it, and room with the workers
)

// Explanation says why a job does not run.
type Explanation struct {
	Job    JobStatus
	Reason WaitReason
	Text   string // the reason in a sentence, with who and how many
	Advice string // what to do about it; "" if there is nothing to be done
	// Frozen is who froze what it waits for, and when; nil: that is not frozen, or it is not known.
	Frozen *AuditEntry
}

// Bounded is the explanation without what it says of others' jobs, tenants, pools and nodes, and without what a database said, which may
// name its address and user.
func (e Explanation) Bounded() Explanation {
	e.Text, e.Advice = bounded(e.Reason, e.Text, e.Advice)
	return e
}

func bounded(why WaitReason, text, advice string) (string, string) {
	switch why {
	case WaitsForDatabase:
		return "its pool's database does not answer, or cannot be used", advice
	case WaitsForWorkers:
		return "no worker is free for it", ""
	case WaitsForRoute:
		return "its tenant's route does not lead to this pool, or cannot be used", ""
	case WaitsForMove:
		return "its tenant is moved to another pool", ""
	}
	return text, advice
}

// explainState is about a job that does not wait; why it was cancelled, if that is known; for how long nothing was heard of
// the node that has it, if that is lost.
func (e *Explanation) explainState(why string, lost time.Duration) {
	e.Reason = WaitsNot
	if lost > 0 {
		e.Text = fmt.Sprintf("it was given to node %s, of which nothing was heard for %v: it runs again once another node has declared that one dead", e.Job.Node, lost.Round(time.Second))
		e.Advice = "if no node runs, start one; tenure nodes shows them"
		return
	}
	switch e.Job.State {
	case "claimed":
		e.Text = "node " + e.Job.Node + " has been given it, and has not begun with it"
	case "running":
		e.Text = "it is running"
		if e.Job.Node != "" {
			e.Text += " on node " + e.Job.Node
			if e.Job.StartedAt.IsZero() { // it has reported nothing
				e.Text += ", or is next there"
			}
		}
	case "locked":
		e.Text = "external worker " + e.Job.Node + " has locked it until " + e.Job.At.UTC().Format(time.RFC3339)
	case "dead":
		e.Text, e.Advice = "it is dead: "+e.Job.Error, fmt.Sprintf("tenure jobs retry %d runs it again", e.Job.ID)
		if e.Job.Losses >= store.MaxLosses {
			e.Advice = "find out what ended those processes, which the job may do again: a panic in one of its goroutines, os.Exit, or too much memory; then " + e.Advice
		}
	case "waiting", "scheduled", "retrying", "awaiting":
		e.Text = "it has changed its state just now: ask again"
	default:
		if e.Text = "it is " + e.Job.State; why != "" {
			e.Text += ": " + why
		}
	}
	if at := e.Job.CancelAsked; !at.IsZero() {
		e.Text += "; its cancellation was asked for at " + at.UTC().Format(time.RFC3339) + ", and waits for its node and its handler"
	}
}

// adviseWorkers is about what keeps the workers that a job waits for.
func (e *Explanation) adviseWorkers(b *store.Busy) {
	if stuck := b.Stuck(); len(stuck) > 0 {
		e.Text += fmt.Sprintf("; handlers of kind %s ignore the end of their context", stuck[0].Kind)
		e.Advice = "restart the node, and mend the handler; tenure doctor says more"
		return
	}
	if long := b.Long(); len(long) > 0 {
		e.Advice = fmt.Sprintf("wait until one of those ends; tenure jobs list --state running --kind %s shows them, and tenure jobs cancel ID asks one to end", long[0].Kind)
	}
}

// explainRoute is about a job of whose tenant no rule knows that it lives where the job is; unrouted: why.
func (e *Explanation) explainRoute(unrouted error) {
	e.Reason, e.Text = WaitsForRoute, unrouted.Error()
	e.Advice = fmt.Sprintf("correct its route; or tenure jobs cancel %d ends the job", e.Job.ID)
	if stray := (*strayError)(nil); errors.As(unrouted, &stray) {
		e.Advice = fmt.Sprintf("%s; or tenure jobs cancel %d ends this one", stray.mend(), e.Job.ID)
	}
	if errors.Is(unrouted, tenancy.ErrUnknownTenant) {
		e.Advice = fmt.Sprintf("add the tenant, or correct its route; or tenure tenants reassign %q --to TENANT gives its jobs to another one; or tenure tenants clear %q ends them", e.Job.Tenant, e.Job.Tenant)
	}
}

// explainFull is about a job that waits while no node with a handler for it has a worker left.
func (e *Explanation) explainFull(nodes []store.BusyNode) {
	e.Reason = WaitsForWorkers
	e.Text = "no worker is free for it"
	for i, n := range nodes[:min(len(nodes), 3)] {
		if i > 0 {
			e.Text += ";"
		}
		e.Text += fmt.Sprintf(" on node %s, which has %d%s: %s", n.Node, n.Busy.Workers, n.Busy.ForWhom(), doctor.LongRuns(&n.Busy))
	}
	if more := len(nodes) - 3; more > 0 {
		e.Text += fmt.Sprintf("; nor on %d more", more)
	}
	e.adviseWorkers(&nodes[0].Busy)
}

// explainWait is about a job that waits; full: the nodes that could run it, if none has a worker left.
func (e *Explanation) explainWait(w *store.Wait, full []store.BusyNode) {
	j := &e.Job
	set := func(r WaitReason, advice, text string, args ...any) {
		e.Reason, e.Text, e.Advice = r, fmt.Sprintf(text, args...), advice
	}
	limit := w.FirstRefusing()
	switch {
	case w.Later && w.Pending > 0:
		e.explainAwaited(w)
	case w.Later && j.Attempt > 0:
		set(WaitsUntilDue, fmt.Sprintf("tenure jobs retry %d runs it now", j.ID), "it has failed %s, and is tried again at %s%s", plural.Count(j.Attempt, "time", "times"), w.Due.UTC().Format(time.RFC3339), loggedLast(j))
	case w.Later:
		set(WaitsUntilDue, fmt.Sprintf("tenure jobs retry %d runs it now", j.ID), "it is due at %s%s", w.Due.UTC().Format(time.RFC3339), loggedLast(j))
	case w.Paused:
		set(WaitsForPool, "tenure pools thaw "+j.Pool, "pool %s is frozen", j.Pool)
	case w.Frozen:
		set(WaitsForTenant, "tenure tenants thaw "+j.Tenant, "tenant %s is frozen", j.Tenant)
	case w.TenantState == store.TenantMoved:
		set(WaitsForMove, fmt.Sprintf("tenure tenants move %s --to %s fetches it", j.Tenant, w.Other), "tenant %s has moved to pool %s, and the job was left behind", j.Tenant, w.Other)
	case w.TenantState != store.TenantActive:
		e.Reason = WaitsForMove // explainMove says the rest
	case w.Rests != nil:
		e.Reason, e.Text, e.Advice = explainRest(w.Rests)
	case w.External && w.Rival != 0:
		e.explainKey(w)
	case w.External:
		set(WaitsForWorker, "look into the workers' logs: do they ask for this topic?", "no external worker has acquired it; its topic is %s", j.Kind)
	case !w.Held:
		set(WaitsForHolder, "start a node that serves the pool, by tenure serve or your program, or look into the nodes' logs; see also: tenure nodes, tenure locks", "no node holds the acquire lock of pool %s", j.Pool)
	case !w.Handled:
		set(WaitsForHandler, fmt.Sprintf("start a node that has one: tenure nodes -o json lists whose node has which; or type tenure jobs cancel %d, and, if workers outside the cluster are to do it, enqueue it with --external (external: true, tenure.enqueue_external)", j.ID), "no live node has a handler for kind %s", j.Kind)
	case w.Rival != 0:
		e.explainKey(w)
	case limit != nil:
		e.explainLimit(limit)
	case !w.Due.IsZero():
		set(WaitsForTurn, "", "its time has come, and node %s, which holds the lock, is about to have it wait for its turn", w.Holder)
	case w.Share > 0:
		set(WaitsForShare, "wait until one of those ends; more nodes or workers help, or a larger execution.tenant_share", "tenant %s has %s in flight with the nodes that can run it, which run %d of one tenant at a time, so that others find workers", j.Tenant, jobs(w.Flying), w.Share)
	case len(full) > 0:
		e.explainFull(full)
	case w.Ahead == store.MaxAhead:
		set(WaitsForTurn, "more workers, or nodes, help", "it waits for its turn: %d jobs or more are before it in its lane, besides other priorities, queues and tenants; node %s holds the lock", w.Ahead, w.Holder)
	default:
		set(WaitsForTurn, "if that does not change, more workers, or nodes, help", "it waits for its turn: %s before it in its lane, besides other priorities, queues and tenants; node %s holds the lock", plural.Count(w.Ahead, "job is", "jobs are"), w.Holder)
	}
}

// loggedLast is the last line that a job's last run logged, such as why it was put off.
func loggedLast(j *JobStatus) string {
	if n := len(j.Reports); n > 0 && len(j.Reports[n-1].Lines) > 0 {
		lines := j.Reports[n-1].Lines
		return "; its last run logged: " + lines[len(lines)-1].Text
	}
	return ""
}

// explainRest is about jobs of which a queue or kind is frozen.
func explainRest(f *store.Frozen) (r WaitReason, text, advice string) {
	r = WaitsForQueue
	if f.Scope == store.ScopeKind {
		r = WaitsForKind
	}
	return r, fmt.Sprintf("%s %s is frozen, since %s", f.Scope, f.Name, f.Since.UTC().Format(time.RFC3339)), fmt.Sprintf("tenure %ss thaw %s", f.Scope, f.Name)
}

// explainAwaited is about a job that starts when others have ended.
func (e *Explanation) explainAwaited(w *store.Wait) {
	e.Reason, e.Text = WaitsForOthers, "it starts when others have ended, and awaits job"
	for i, id := range w.Awaited {
		if i > 0 {
			e.Text += ","
		}
		e.Text += " " + id.String()
	}
	if more := w.Pending - len(w.Awaited); more > 0 {
		e.Text += fmt.Sprintf(" and %d more", more)
	}
	if w.Pending == store.MaxAhead {
		e.Text += " at least"
	}
	e.Advice = fmt.Sprintf("tenure jobs show %d shows what state that one is in; tenure jobs retry %d starts this one all the same", w.Awaited[0], e.Job.ID)
	if w.AwaitedDead != 0 {
		e.Text += fmt.Sprintf("; job %d is dead", w.AwaitedDead)
		e.Advice = fmt.Sprintf("tenure jobs retry %d runs that one again; tenure jobs retry %d starts this one all the same", w.AwaitedDead, e.Job.ID)
	}
}

// explainLimit is about a job that a limit refuses.
func (e *Explanation) explainLimit(l *store.LimitRow) {
	if l.Scope == store.ScopeClusterKind || l.Scope == store.ScopeClusterQueue {
		e.explainShare(l)
		return
	}
	whose, flag := "tenant "+l.Tenant, ""
	e.Reason = WaitsForMaxRunning
	switch l.Scope {
	case store.ScopeQueue:
		whose, flag, e.Reason = fmt.Sprintf("queue %s of tenant %s", l.Name, l.Tenant), " --queue "+l.Name, WaitsForQueueLimit
	case store.ScopeKind:
		whose, flag, e.Reason = fmt.Sprintf("kind %s of tenant %s", l.Name, l.Tenant), " --kind "+l.Name, WaitsForKindLimit
	case store.ScopeKey:
		whose, flag = fmt.Sprintf("exclusive key %q of tenant %s", l.Name, l.Tenant), fmt.Sprintf(" --key %q", l.Name)
	}
	set := func(most, rate int) string { // it says all that the limit is to be
		out := "tenure limits set --tenant " + l.Tenant + flag
		if most > 0 {
			out += fmt.Sprintf(" --max-running %d", most)
		}
		if rate > 0 {
			out += fmt.Sprintf(" --rate %d --per %v --burst %d", rate, l.Per, l.Burst)
		}
		return out
	}
	if l.IsFull() {
		e.Text = fmt.Sprintf("%s has %s in flight of the %d that it may have", whose, jobs(l.Flying), l.Most)
		e.Advice = "wait until one of them ends, or raise the limit: " + set(l.Most+1, l.Rate) + whoLimits
		return
	}
	e.Reason = WaitsForRate
	e.Text = fmt.Sprintf("%s may start %s in %v, and the next one at %s", whose, jobs(l.Rate), l.Per, time.Now().Add(l.NextIn()).UTC().Format(time.RFC3339))
	e.Advice = "wait for its turn, or raise the rate: " + set(l.Most, 2*l.Rate) + whoLimits
}

// whoLimits says where to look up who has set a limit: one may have been set for every tenant.
const whoLimits = "; tenure audit --action limit says who has set it"

// jobs is how many jobs there are.
func jobs(n int) string { return plural.Count(n, "job", "jobs") }

// explainShare is about a job that the pool's share of a limit of the whole cluster refuses.
func (e *Explanation) explainShare(l *store.LimitRow) {
	what := "kind"
	if l.Scope == store.ScopeClusterQueue {
		what = "queue"
	}
	key := fmt.Sprintf("limits.%ss.%s", what, l.Name)
	e.Reason = WaitsForCluster
	switch {
	case l.Most == store.NoneAtAll:
		e.Text = fmt.Sprintf("pool %s has no share of what the cluster may have of %s %s", e.Job.Pool, what, l.Name)
		e.Advice = fmt.Sprintf("give it one, by %s.pools in the nodes' configuration", key)
	case l.IsFull():
		e.Text = fmt.Sprintf("pool %s has %s of %s %s in flight, of all tenants, and %s its share of what the cluster may have", e.Job.Pool, jobs(l.Flying), what, l.Name, plural.Count(l.Most, "is", "are"))
		e.Advice = fmt.Sprintf("wait until one of them ends, or raise %s in the nodes' configuration", key)
	default:
		e.Reason = WaitsForRate
		e.Text = fmt.Sprintf("pool %s may start %s of %s %s in %v, of all tenants, as its share of what the cluster may, and the next one at %s", e.Job.Pool, jobs(l.Rate), what, l.Name, l.Per, time.Now().Add(l.NextIn()).UTC().Format(time.RFC3339))
		e.Advice = fmt.Sprintf("wait for its turn, or raise %s in the nodes' configuration", key)
	}
}

// explainKey is about a job whose exclusive key is another's.
func (e *Explanation) explainKey(w *store.Wait) {
	e.Reason = WaitsForKey
	key, rival := e.Job.ExclusiveKey, w.Rival
	switch w.RivalState {
	case "running":
		e.Text = fmt.Sprintf("its exclusive key %q is held by job %d, which is running", key, rival)
		e.Advice = fmt.Sprintf("wait until that has ended, or cancel it: tenure jobs cancel %d", rival)
	case "locked":
		e.Text = fmt.Sprintf("its exclusive key %q is held by job %d, which an external worker has locked", key, rival)
		e.Advice = fmt.Sprintf("wait until that worker has ended it, or its lock expires, or cancel it: tenure jobs cancel %d", rival)
	case "retrying":
		e.Text = fmt.Sprintf("its exclusive key %q is held by job %d, which is tried again at %s", key, rival, w.RivalDue.UTC().Format(time.RFC3339))
		e.Advice = fmt.Sprintf("tenure jobs retry %d tries it now, tenure jobs cancel %d gives it up", rival, rival)
	default:
		e.Text = fmt.Sprintf("job %d goes before it under their exclusive key %q, and waits, too", rival, key)
		e.Advice = fmt.Sprintf("tenure jobs why %d says what for", rival)
	}
}
