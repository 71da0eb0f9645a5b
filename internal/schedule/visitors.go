package schedule

import (
	"container/heap"
	"slices"

	"github.com/tenurehq/tenure/internal/store"
)

// visitors are what waits for a gate, by tenant. Where they are of several tenants, as the limit is of the
// whole cluster, these take turns, by weight: as soon as the gate lets jobs pass it calls so many tenants, and
// no others are let in before them, neither those that have had their turn nor those that come anew. So what
// waits is not read in vain, and nobody is passed over.
type visitors struct {
	byTenant map[string]*visitor
	line     visitorLine       // those that have something parked and were not called
	called   map[*visitor]bool // of whose jobs none was claimed since
	turn     float64           // when the last turn began that somebody had
	came     int               // how many times somebody has got in line
	parked   int               // lanes and keys
	keys     int               // of those
}

// visitor is a tenant.
type visitor struct {
	turn   float64 // when its next one begins: how many jobs of it passed, for its weight
	came   int     // when it got in line, for those whose turns begin together
	weight int
	lanes  []*Lane     // that are parked
	keys   []store.Key // likewise; see exclusive.parkedBy
	read   []*Lane     // that were parked, and are read on
	woken  []store.Key // that were parked, and not looked up since
	at     int         // in the line; -1: not there
}

// find returns a tenant.
func (vs *visitors) find(tenant string) *visitor {
	v := vs.byTenant[tenant]
	if v == nil {
		v = &visitor{weight: 1, at: -1}
		if vs.byTenant == nil {
			vs.byTenant, vs.called = map[string]*visitor{}, map[*visitor]bool{}
		}
		vs.byTenant[tenant] = v
	}
	return v
}

func (vs *visitors) park(l *Lane) {
	v := vs.find(l.Tenant)
	v.weight = l.owner.parts()
	v.lanes = append(v.lanes, l)
	vs.parked++
	vs.come(v)
}

func (vs *visitors) parkKey(k store.Key) {
	v := vs.find(k.Tenant)
	v.keys = append(v.keys, k)
	vs.parked++
	vs.keys++
	vs.come(v)
}

// come has a tenant wait for its turn. What it did not use while it had nothing parked is gone.
func (vs *visitors) come(v *visitor) {
	if v.at < 0 && !vs.called[v] {
		v.turn = max(v.turn, vs.turn)
		vs.join(v)
	}
}

// join puts a tenant in line.
func (vs *visitors) join(v *visitor) {
	vs.came++
	v.came = vs.came
	heap.Push(&vs.line, v)
}

// charge notes that a job of a tenant was claimed: it has had its turn.
func (vs *visitors) charge(tenant string) {
	v := vs.byTenant[tenant]
	if v == nil {
		return
	}
	vs.turn = max(vs.turn, v.turn)
	v.turn += 1 / float64(v.weight)
	switch delete(vs.called, v); {
	case v.at >= 0:
		heap.Fix(&vs.line, v.at)
	case v.hasParked():
		vs.come(v)
	}
}

// forgetServed forgets tenants that are as good as new.
func (vs *visitors) forgetServed() {
	for tenant, v := range vs.byTenant {
		if !v.hasParked() && !vs.called[v] && (vs.parked == 0 || v.turn <= vs.turn) {
			delete(vs.byTenant, tenant)
		}
	}
}

// countLeftOver is how many of so many jobs tenants may have that were not called.
func (vs *visitors) countLeftOver(left int) int {
	if len(vs.line) > 0 {
		return 0
	}
	return left - len(vs.called)
}

// hasCalled tells whether it is a tenant's turn.
func (vs *visitors) hasCalled(tenant string) bool {
	return len(vs.called) > 0 && vs.called[vs.byTenant[tenant]]
}

// letIn calls as many tenants as the gate lets jobs pass, and has their lanes read on, and so many of their keys
// looked up, by wakeKey, which tells whether one still waits for the gate. Others take the place of those for which
// nothing was claimed.
func (vs *visitors) letIn(left int, lanes *Lanes, keys *Keys, wakeKey func(store.Key) bool) {
	for v := range vs.called {
		if !v.isBusy(keys) {
			if delete(vs.called, v); v.hasParked() {
				vs.join(v)
			}
		}
	}
	for v := range vs.called {
		vs.wake(v, left, lanes, keys, wakeKey)
	}
	for len(vs.called) < left && len(vs.line) > 0 {
		v := heap.Pop(&vs.line).(*visitor)
		vs.called[v] = true
		vs.wake(v, left, lanes, keys, wakeKey)
	}
}

// wake has a tenant's lanes read on, and keys looked up, so that no more of them are about to be than the gate
// lets pass.
func (vs *visitors) wake(v *visitor, left int, lanes *Lanes, keys *Keys, wakeKey func(store.Key) bool) {
	for _, l := range v.lanes {
		lanes.unpark(l)
	}
	vs.parked -= len(v.lanes)
	v.read = append(slices.DeleteFunc(v.read, func(l *Lane) bool { return !l.active || slices.Contains(v.lanes, l) }), v.lanes...)
	v.lanes = nil
	v.woken = slices.DeleteFunc(v.woken, func(k store.Key) bool { return !keys.isReady(k) })
	for left > len(v.woken) && len(v.keys) > 0 {
		if k := v.keys[0]; wakeKey(k) {
			v.woken = append(v.woken, k)
		}
		v.keys = v.keys[1:]
		vs.parked--
		vs.keys--
	}
}

// mayCall tells whether more tenants, or keys of those that were called, could be woken, where so many jobs pass.
func (vs *visitors) mayCall(left int, keys *Keys) bool {
	waiting, busy := len(vs.line), 0
	for v := range vs.called {
		switch {
		case !v.isBusy(keys):
			waiting++
		case len(v.keys) > 0 && left > v.countReady(keys):
			return true
		default:
			busy++
		}
	}
	return waiting > 0 && left > busy
}

func (v *visitor) hasParked() bool { return len(v.lanes)+len(v.keys) > 0 }

// isBusy tells whether jobs may be claimed for what was woken.
func (v *visitor) isBusy(keys *Keys) bool {
	return v.countReady(keys) > 0 || slices.ContainsFunc(v.read, func(l *Lane) bool { return l.active && !l.owner.full })
}

func (v *visitor) countReady(keys *Keys) (n int) {
	for _, k := range v.woken {
		if keys.isReady(k) {
			n++
		}
	}
	return n
}

// visitorLine is tenants by whose turn is next.
type visitorLine []*visitor

func (h visitorLine) Len() int { return len(h) }
func (h visitorLine) Less(i, j int) bool {
	return h[i].turn < h[j].turn || h[i].turn == h[j].turn && h[i].came < h[j].came
}
func (h visitorLine) Swap(i, j int) { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }

// Push is heap's.
func (h *visitorLine) Push(x any) {
	v := x.(*visitor)
	v.at = len(*h)
	*h = append(*h, v)
}

// Pop is heap's.
func (h *visitorLine) Pop() any {
	last := len(*h) - 1
	v := (*h)[last]
	v.at = -1
	*h = (*h)[:last]
	return v
}
