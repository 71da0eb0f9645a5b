package acquisition

import (
	"context"
	"math"

	"github.com/tenurehq/tenure/internal/store"
)

// limits are the tenants of a pool that may only have so many jobs in flight at a time, on
// all nodes together (max_running in tenure.tenant), with those they have. It belongs to
// one term and is used by its goroutine only.
type limits struct {
	byTenant map[string]*limit
	has      func(endedJob) bool // whether that is in flight
	known    bool                // they were read in this term, and since it last dozed
}

type limit struct {
	most   int
	flying map[endedJob]struct{} // some may have ended since
}

func newLimits(f *flight) *limits {
	return &limits{byTenant: map[string]*limit{}, has: func(e endedJob) bool { return f.has(e.id, e.turn) }}
}

// set takes in what the ledger says: the limits, and what each of these tenants had in
// flight just then. What was claimed since is known here.
func (ls *limits) set(rows []store.TenantLimit) {
	now := make(map[string]*limit, len(rows))
	for _, r := range rows {
		l := ls.byTenant[r.Tenant]
		if l == nil {
			l = &limit{flying: map[endedJob]struct{}{}}
		}
		l.most = r.Most
		for i, id := range r.Claimed {
			l.flying[endedJob{id, r.Turns[i]}] = struct{}{}
		}
		now[r.Tenant] = l
	}
	ls.byTenant, ls.known = now, true
}

// left is how many more jobs of a tenant may be claimed.
func (ls *limits) left(tenant string) int {
	l := ls.byTenant[tenant]
	if l == nil {
		return math.MaxInt
	}
	for e := range l.flying {
		if !ls.has(e) {
			delete(l.flying, e)
		}
	}
	return max(l.most-len(l.flying), 0)
}

// claimed notes jobs that were.
func (ls *limits) claimed(jobs ...store.Waiting) {
	if len(ls.byTenant) == 0 {
		return
	}
	for i := range jobs {
		r := &jobs[i].Record
		if l := ls.byTenant[r.Tenant]; l != nil {
			l.flying[endedJob{r.ID, r.Turn}] = struct{}{}
		}
	}
}

// learnLimits reads the limits before anything is claimed that they might forbid; from then
// on whoever looks for lanes reads them as well.
func (t *term) learnLimits(ctx context.Context) error {
	if t.limits.known || !t.lanes.hasWork() && t.lanes.missed == [2]bool{} && t.suspects.none() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, err := store.TenantLimits(ctx, t.pool.Jobs())
	if err == nil {
		t.limits.set(rows)
	}
	return err
}

// allowance is how many jobs of a lane may be claimed now, for this node and for all: as
// many as its tenant's limit leaves, and as there is use for here and with peers.
func (t *term) allowance(l *lane, ready []*peer) (here, all int) {
	all = t.limits.left(l.Tenant)
	if all == 0 {
		return 0, 0
	}
	here = min(all, t.workers.RoomFor(t.session, l.Tenant))
	if l.owner.onlyHere {
		return here, here
	}
	room := here
	for _, p := range ready {
		if !p.full[l.Tenant] {
			room += p.credit
		}
	}
	return here, min(all, room)
}

// reopen brings tenants back to the round that had as many jobs in flight as they may.
func (t *term) reopen() {
	if len(t.lanes.full) == 0 {
		return
	}
	ready, _ := t.peers.ready()
	t.lanes.reopen(func(l *lane) bool {
		_, all := t.allowance(l, ready)
		return all > 0
	})
}

// crowded tells whether some tenant has more to do than its share of this node's workers
// allows, and peers might help: its limit does not forbid it.
func (t *term) crowded() bool {
	for _, owner := range t.lanes.full {
		if l := owner.first(); l != nil && t.limits.left(l.Tenant) > 0 {
			return true
		}
	}
	return false
}
