package schedule

import (
	"cmp"
	"container/heap"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// Gates keep jobs to the limits of a pool, on all nodes together: before a job is claimed it passes
// the gates of its tenant, its queue, its kind and its exclusive key, and those of the whole cluster, as far as there are limits for those. A gate
// counts what of its jobs is in flight, or holds the tokens of a rate, or both. What a gate refuses
// is left where it is until the gate says that it is open: lanes, which keep their cursors, and
// exclusive keys. They belong to one term and are used by its goroutine only.
type Gates struct {
	limits map[store.LimitKey]store.Limit
	kinds  map[string]bool // that limits name, of whatever tenant
	queues map[string]bool // likewise
	keyed  bool            // some limit is for exclusive keys
	byKey  map[store.LimitKey]*gate
	byRun  map[Run][]*gate // that count it
	has    func(Run) bool  // whether that is in flight

	changes  int64 // of limits, when they were read
	known    bool  // they were read in this term, and since it last dozed
	page     int   // what is reserved was so for this one
	refusing refusing
	opened   []*gate // to be looked at: by an end, as their limit has changed, or as they let more keys pass
	parked   int     // lanes and keys that wait
}

// gate is a limit of one tenant, the pool's share of one of the whole cluster, or a queue or kind that is frozen.
type gate struct {
	store.Limit
	flying   int
	full     time.Time // when the bucket of tokens is full again
	reserved int       // for the page
	page     int
	visitors visitors // that wait for it
	forgot   bool     // so many keys waited that some of them were forgotten
	opened   bool     // it is in Gates.opened
	seen     bool     // it was there already when that was looked at last
	at       int      // in refusing; -1: not there
}

// NewGates returns gates that let everything pass, for jobs in flight that f knows.
func NewGates(f *InFlight) *Gates {
	gs := &Gates{byKey: map[store.LimitKey]*gate{}, byRun: map[Run][]*gate{}, has: func(r Run) bool { return f.Has(r.ID, r.Turn) }}
	f.onEnd = append(f.onEnd, gs.noteEnd)
	return gs
}

// Set takes in what the ledger says: the limits, and what is in flight and left of the rates. Nothing
// may have been claimed since. Of a rate, what has less left counts, the ledger or this memory: the tenant may have come
// back from another pool, where more was taken.
func (gs *Gates) Set(s store.LimitState, now time.Time) {
	gs.known, gs.changes = true, s.Changes
	gs.limits, gs.kinds, gs.queues, gs.keyed = mergeLimits(s.Limits), map[string]bool{}, map[string]bool{}, false
	for k := range gs.limits {
		switch k.Scope {
		case store.ScopeKind, store.ScopeClusterKind, store.ScopeFrozenKind:
			gs.kinds[k.Name] = true
		case store.ScopeQueue, store.ScopeClusterQueue, store.ScopeFrozenQueue:
			gs.queues[k.Name] = true
		case store.ScopeKey:
			gs.keyed = true
		}
	}
	before := gs.byKey
	gs.byKey = map[store.LimitKey]*gate{}
	clear(gs.byRun) // of a run in a claim that goes on for others nobody may have told that it has ended
	for k, g := range before {
		g.flying = 0
		if l, ok := gs.limitOf(k); ok {
			g.Limit = l
			gs.byKey[k] = g
			if most := now.Add(g.Tokens(g.Burst)); g.full.After(most) {
				g.full = most
			}
		}
		gs.noteOpen(g) // what waits there asks again
	}
	heap.Init(&gs.refusing)
	if len(gs.limits) == 0 {
		return
	}
	for _, b := range s.Buckets {
		if g := gs.gateOf(b.LimitKey); g != nil && g.Rate > 0 {
			gs.setFull(g, later(g.full, now.Add(min(b.FullIn, g.Tokens(g.Burst)))))
		}
	}
	for _, f := range s.Flying {
		for i, id := range f.IDs {
			if run := (Run{id, f.Turns[i]}); gs.has(run) {
				gs.countRun(run, gs.listPassed(Passer{Tenant: f.Tenant, Queue: f.Queue, Kind: f.Kind}))
			}
		}
	}
}

// setFull says when a gate's bucket is full again.
func (gs *Gates) setFull(g *gate, full time.Time) {
	g.full = full
	if g.at >= 0 { // its next token comes at another time
		heap.Fix(&gs.refusing, g.at)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Differ tells whether other limits than these were set.
func (gs *Gates) Differ(limits []store.Limit) bool {
	return !maps.Equal(gs.limits, mergeLimits(limits))
}

// mergeLimits are limits by what they are about: a tenant's number and its rate may come apart.
func mergeLimits(limits []store.Limit) map[store.LimitKey]store.Limit {
	out := make(map[store.LimitKey]store.Limit, len(limits))
	for _, l := range limits {
		out[l.LimitKey] = orElse(l, out[l.LimitKey])
	}
	return out
}

// orElse is a limit with what it does not say of another one.
func orElse(l, other store.Limit) store.Limit {
	if l.Most == 0 {
		l.Most = other.Most
	}
	if l.Rate == 0 {
		l.Rate, l.Per, l.Burst = other.Rate, other.Per, other.Burst
	}
	return l
}

// Known tells whether the limits were read, and not forgotten since.
func (gs *Gates) Known() bool { return gs.known }

// Forget has the limits read again: they may be others by now.
func (gs *Gates) Forget() { gs.known = false }

// Changes is how often limits had been changed when they were read.
func (gs *Gates) Changes() int64 { return gs.changes }

// limitOf is what a tenant's limit comes to: its own, and what it has not of that for every tenant. Of an
// exclusive key that of each key comes behind its own.
func (gs *Gates) limitOf(k store.LimitKey) (l store.Limit, ok bool) {
	for _, tenant := range []string{k.Tenant, store.EveryTenant} {
		l = orElse(l, gs.limits[store.LimitKey{Tenant: tenant, Scope: k.Scope, Name: k.Name}])
		if k.Scope == store.ScopeKey {
			l = orElse(l, gs.limits[store.LimitKey{Tenant: tenant, Scope: k.Scope}])
		}
	}
	l.LimitKey = k
	return l, l.Most != 0 || l.Rate > 0
}

// gateOf is the gate for a limit; nil: there is none.
func (gs *Gates) gateOf(k store.LimitKey) *gate {
	g := gs.byKey[k]
	if g == nil {
		if l, ok := gs.limitOf(k); ok {
			g = &gate{Limit: l, at: -1}
			gs.byKey[k] = g
		}
	}
	return g
}

// Passer is a job that passes gates, or jobs that are alike. Without a queue, a kind or an exclusive key it
// is what the others say.
type Passer struct{ Tenant, Queue, Kind, Key string }

// PasserOf is what of a job gates ask for.
func PasserOf(r *job.Record) Passer { return Passer{r.Tenant, r.Queue, r.Kind, r.ExclusiveKey} }

// passage is the gates that a job passes, in order; nil where there is none.
type passage [8]*gate

// listPassed is the gates that a job passes.
func (gs *Gates) listPassed(of Passer) (p passage) {
	if len(gs.limits) == 0 {
		return p
	}
	if gs.queues[of.Queue] {
		p[0] = gs.gateOf(store.LimitKey{Scope: store.ScopeFrozenQueue, Name: of.Queue}) // what no token opens goes first
		p[3] = gs.gateOf(store.LimitKey{Tenant: of.Tenant, Scope: store.ScopeQueue, Name: of.Queue})
		p[6] = gs.gateOf(store.LimitKey{Scope: store.ScopeClusterQueue, Name: of.Queue})
	}
	if gs.kinds[of.Kind] {
		p[1] = gs.gateOf(store.LimitKey{Scope: store.ScopeFrozenKind, Name: of.Kind})
		p[4] = gs.gateOf(store.LimitKey{Tenant: of.Tenant, Scope: store.ScopeKind, Name: of.Kind})
		p[7] = gs.gateOf(store.LimitKey{Scope: store.ScopeClusterKind, Name: of.Kind})
	}
	p[2] = gs.gateOf(store.LimitKey{Tenant: of.Tenant, Scope: store.ScopeTenant})
	if gs.keyed && of.Key != "" {
		p[5] = gs.gateOf(store.LimitKey{Tenant: of.Tenant, Scope: store.ScopeKey, Name: of.Key})
	}
	return p
}

// BeginPage forgets what was reserved for the page before.
func (gs *Gates) BeginPage() { gs.page++ }

// Any is more jobs than are ever read at a time: there is no limit.
const Any = int(^uint(0) >> 1)

// CountLeft is how many more such jobs may be claimed. If none, by is the first gate that refuses them,
// which says when it is open. A gate of the whole cluster refuses a tenant, too, while it is others' turn.
func (gs *Gates) CountLeft(of Passer, now time.Time) (left int, by *Refusal) {
	left = Any
	passed := gs.listPassed(of)
	called := slices.ContainsFunc(passed[:], func(g *gate) bool { return g != nil && g.visitors.hasCalled(of.Tenant) })
	for _, g := range passed {
		if g == nil {
			continue
		}
		n := g.countLeft(now)
		if g.page == gs.page {
			n -= g.reserved
		}
		if g.isShared() && !called {
			n = g.visitors.countLeftOver(n)
		}
		if n <= 0 {
			if gs.awaitToken(g, now); g.countLeft(now) > 0 { // what is reserved may not come to be claimed
				gs.open(g)
			}
			return 0, &Refusal{gs, g}
		}
		left = min(left, n)
	}
	return left, nil
}

// MayPass tells whether one more such job may be claimed, whosever turn it is.
func (gs *Gates) MayPass(of Passer, now time.Time) bool {
	for _, g := range gs.listPassed(of) {
		if g != nil && g.countLeft(now) == 0 {
			gs.awaitToken(g, now)
			return false
		}
	}
	return true
}

// Reserve counts jobs that may be claimed from the page.
func (gs *Gates) Reserve(of Passer, n int) {
	for _, g := range gs.listPassed(of) {
		if g == nil {
			continue
		}
		if g.page != gs.page {
			g.page, g.reserved = gs.page, 0
		}
		g.reserved += n
	}
}

func (g *gate) countLeft(now time.Time) int {
	left := Any
	if g.Most != 0 {
		left = g.Most - g.flying
	}
	if g.Rate > 0 {
		left = min(left, int((g.Tokens(g.Burst)-max(g.full.Sub(now), 0))/g.Tokens(1)))
	}
	return max(left, 0)
}

// spendTokens takes tokens, and says when the bucket is full again.
func (g *gate) spendTokens(n int, now time.Time) (full time.Time) {
	if g.full.Before(now) {
		return now.Add(g.Tokens(n))
	}
	return g.full.Add(g.Tokens(n))
}

// Spend is what there will be left of rates once these jobs are claimed, for the claim to say.
func (gs *Gates) Spend(now time.Time, jobs iter.Seq[*job.Record]) (out []store.Bucket) {
	if len(gs.limits) == 0 {
		return nil
	}
	taken := map[*gate]int{}
	for r := range jobs {
		for _, g := range gs.listPassed(PasserOf(r)) {
			if g != nil && g.Rate > 0 {
				taken[g]++
			}
		}
	}
	for g, n := range taken {
		out = append(out, store.Bucket{LimitKey: g.LimitKey, FullIn: g.spendTokens(n, now).Sub(now)})
	}
	slices.SortFunc(out, func(a, b store.Bucket) int { // all lock them in one order
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(string(a.Scope), string(b.Scope)), strings.Compare(a.Name, b.Name))
	})
	return out
}

// NoteClaimed notes jobs that were.
func (gs *Gates) NoteClaimed(now time.Time, jobs ...store.Waiting) {
	if len(gs.limits) == 0 {
		return
	}
	for i := range jobs {
		r := &jobs[i].Record
		p := gs.listPassed(PasserOf(r))
		gs.countRun(Run{r.ID, r.Turn}, p)
		for _, g := range p {
			if g != nil && g.Rate > 0 {
				gs.setFull(g, g.spendTokens(1, now)) // the token may have come just now
			}
			if g != nil && g.isShared() {
				g.visitors.charge(r.Tenant)
			}
		}
	}
}

// countRun counts a run at the gates that bound what is in flight.
func (gs *Gates) countRun(run Run, p passage) {
	for _, g := range p {
		if g != nil && g.Most > 0 && !slices.Contains(gs.byRun[run], g) {
			gs.byRun[run] = append(gs.byRun[run], g)
			g.flying++
		}
	}
}

// noteEnd notes that a run is not in flight any more.
func (gs *Gates) noteEnd(run Run) {
	if len(gs.byRun) == 0 || gs.has(run) {
		return
	}
	for _, g := range gs.byRun[run] {
		g.flying--
		gs.noteOpen(g)
	}
	delete(gs.byRun, run)
}

// Counts tells whether a job is counted while it is in flight, so that others wait for its end.
func (gs *Gates) Counts(r *job.Record) bool {
	for _, g := range gs.listPassed(PasserOf(r)) {
		if g != nil && g.Most > 0 {
			return true
		}
	}
	return false
}

// LimitKind tells whether a tenant's jobs of a kind pass a gate of their own.
func (gs *Gates) LimitKind(tenant, kind string) bool {
	if !gs.kinds[kind] {
		return false
	}
	p := gs.listPassed(Passer{Tenant: tenant, Kind: kind}) // without a queue
	return p[1] != nil || p[4] != nil || p[7] != nil
}

// MayAdd tells whether a job that is just being added may be claimed at once: nothing waits that
// would go before it, and no rate is to be noted.
func (gs *Gates) MayAdd(of Passer, now time.Time) bool {
	for _, g := range gs.listPassed(of) {
		if g != nil && (g.Rate > 0 || g.isAwaited() || g.countLeft(now) == 0) {
			return false
		}
	}
	return true
}

// ListCounted lists the runs that are counted.
func (gs *Gates) ListCounted() iter.Seq[Run] { return maps.Keys(gs.byRun) }

// ForgetIdle forgets gates of which nothing is known that the ledger does not say.
func (gs *Gates) ForgetIdle(now time.Time) {
	for run := range gs.byRun {
		gs.noteEnd(run)
	}
	for k, g := range gs.byKey {
		g.visitors.forgetServed()
		if g.flying == 0 && !g.full.After(now) && !g.isAwaited() && g.at < 0 && !g.opened {
			delete(gs.byKey, k)
		}
	}
}

// Refusal is that a gate has nothing left.
type Refusal struct {
	gates *Gates
	gate  *gate
}

// Park leaves a lane alone until the gate is open.
func (r *Refusal) Park(l *Lane) {
	l.Deactivate()
	l.parked = true
	r.gate.visitors.park(l)
	r.gates.parked++
}

// ParkKey has a key that was taken rest until the gate is open. There is a bound to those; others are
// forgotten, and a sweep finds their jobs, for which the gate asks once it has let these pass.
func (r *Refusal) ParkKey(ks *Keys, k store.Key) {
	g := r.gate
	switch e := ks.byKey[k]; {
	case !ks.leave(k, keyResting):
		if !g.forgot {
			g.forgot = true
			r.gates.parked++
		}
	case e.parkedBy != g:
		e.parkedBy = g
		g.visitors.parkKey(k)
		r.gates.parked++
	}
}

// AnyParked tells whether anything waits for gates.
func (gs *Gates) AnyParked() bool { return gs.parked > 0 }

// LimitName is limits of tenants that are about the same, or one of the whole cluster.
type LimitName struct {
	Scope store.Scope
	Name  string // of the queue or kind
}

// CountWaitedFor counts the limits that something waits for.
func (gs *Gates) CountWaitedFor() map[LimitName]int {
	out := map[LimitName]int{}
	for k, g := range gs.byKey {
		if g.isAwaited() {
			out[LimitName{k.Scope, k.Name}]++
		}
	}
	return out
}

// ShareUse is how many jobs are in flight that the pool's share of a limit of the whole cluster counts, and how many
// may be.
type ShareUse struct{ Running, Most int }

// ListShares lists the pool's shares of limits of the whole cluster on jobs in flight.
func (gs *Gates) ListShares() map[LimitName]ShareUse {
	out := map[LimitName]ShareUse{}
	for k, l := range gs.limits {
		if k.Tenant == store.EveryTenant && (k.Scope == store.ScopeClusterKind || k.Scope == store.ScopeClusterQueue) && l.Most != 0 {
			use := ShareUse{Most: max(l.Most, 0)}
			if g := gs.byKey[k]; g != nil {
				use.Running = g.flying
			}
			out[LimitName{k.Scope, k.Name}] = use
		}
	}
	return out
}

// noteOpen has it looked whether a gate is open, if something waits for it.
func (gs *Gates) noteOpen(g *gate) {
	if g.isAwaited() {
		gs.open(g)
	}
}

// open has a gate be looked at.
func (gs *Gates) open(g *gate) {
	g.seen = false
	if !g.opened {
		g.opened = true
		gs.opened = append(gs.opened, g)
	}
}

// isAwaited tells whether something waits for the gate.
func (g *gate) isAwaited() bool { return g.forgot || g.visitors.parked > 0 }

// isShared tells whether jobs of all tenants pass the gate. It is a gate of no tenant then, and not, as in a store.LimitKey, of each.
func (g *gate) isShared() bool { return g.Tenant == "" }

// Reopen has the lanes read again that wait for gates which are open now, of no more tenants than there
// may be jobs, and as many of their keys
// looked up as there may be: others once it has turned out that nothing is claimed for those. It tells
// whether some were forgotten, which a sweep is to find.
func (gs *Gates) Reopen(now time.Time, lanes *Lanes, keys *Keys) (forgot bool) {
	for len(gs.refusing) > 0 && !gs.refusing[0].nextToken().After(now) {
		gs.open(heap.Pop(&gs.refusing).(*gate))
	}
	kept := gs.opened[:0]
	for _, g := range gs.opened {
		left := gs.leftAt(g, now)
		if left == 0 {
			g.opened = false
			gs.awaitToken(g, now)
			continue
		}
		before := g.visitors.parked
		wakeKey := func(k store.Key) bool { return keys.wakeParked(k, g) }
		g.visitors.letIn(left, lanes, keys, wakeKey)
		gs.parked -= before - g.visitors.parked
		if g.forgot && g.visitors.keys == 0 {
			g.forgot, forgot = false, true
			gs.parked--
		}
		if g.seen, g.opened = true, g.visitors.parked > 0 || g.isShared() && len(g.visitors.called) > 0; g.opened {
			kept = append(kept, g)
		}
	}
	clear(gs.opened[len(kept):])
	gs.opened = kept
	return forgot
}

// leftAt is how many jobs a gate lets pass, of what is not in flight; as many as there are if its limit
// was lifted.
func (gs *Gates) leftAt(g *gate, now time.Time) int {
	if gs.byKey[g.LimitKey] != g {
		return Any
	}
	return g.countLeft(now)
}

// MayWake tells whether tenants or keys wait for a gate that lets more pass, as nothing was claimed for those
// that were woken. Then Reopen wakes others. Where it was only refused what is reserved for others, these are
// waited for.
func (gs *Gates) MayWake(now time.Time, keys *Keys) bool {
	return slices.ContainsFunc(gs.opened, func(g *gate) bool {
		return g.seen && g.visitors.parked > 0 && g.visitors.mayCall(gs.leftAt(g, now), keys)
	})
}

// NextToken is when the next token comes that something waits for; zero: none does.
func (gs *Gates) NextToken() time.Time {
	if len(gs.refusing) == 0 {
		return time.Time{}
	}
	return gs.refusing[0].nextToken()
}

// nextToken is when there is one.
func (g *gate) nextToken() time.Time { return g.full.Add(-g.Tokens(g.Burst - 1)) }

// awaitToken has a gate be found by time that has refused for want of a token.
func (gs *Gates) awaitToken(g *gate, now time.Time) {
	if g.Rate > 0 && g.at < 0 && g.nextToken().After(now) {
		heap.Push(&gs.refusing, g)
	}
}

// refusing is gates without a token, by when the next one comes. That does not change while they
// wait, but for a limit that is set anew.
type refusing []*gate

func (h refusing) Len() int           { return len(h) }
func (h refusing) Less(i, j int) bool { return h[i].nextToken().Before(h[j].nextToken()) }
func (h refusing) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }

// Push is heap's.
func (h *refusing) Push(x any) {
	g := x.(*gate)
	g.at = len(*h)
	*h = append(*h, g)
}

// Pop is heap's.
func (h *refusing) Pop() any {
	last := len(*h) - 1
	g := (*h)[last]
	g.at = -1
	*h = (*h)[:last]
	return g
}
