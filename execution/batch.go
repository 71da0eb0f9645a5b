package execution

import (
	"sync"
	"time"

	"github.com/tenurehq/tenure/job"
)

// A batch handler's call is one run of several claims: the first of them stands for it, as
// what a worker and its slot have, and the others are with it. They are of one tenant of one
// owner, so that they share a transaction, a context, and the trust in one session.

// isLike tells whether two claims of a tenant may share a call: it has one handler, one timeout,
// and one turn, by which all of its jobs are finished.
func (c *ClaimedJob) isLike(other *ClaimedJob) bool {
	a, b := &c.Record, &other.Record
	return a.Kind == b.Kind && a.Timeout == b.Timeout && a.Turn == b.Turn
}

// gathering holds claims of kinds whose calls wait for more of them; see job.BatchWait. They take no
// slot meanwhile, as nothing that could run waits for them.
type gathering struct {
	workers *Workers

	mu     sync.Mutex
	groups map[groupKey]*group // guarded by mu
	closed bool                // guarded by mu
}

type groupKey struct {
	owner        Owner
	tenant, kind string
}

type group struct {
	claims []ClaimedJob
	timer  *time.Timer
}

func newGathering(w *Workers) *gathering {
	return &gathering{workers: w, groups: map[groupKey]*group{}}
}

// specOf is that of a claim's kind, if its calls wait for more of them; nil: they do not.
func (g *gathering) specOf(c *ClaimedJob) *job.Spec {
	if spec, known := g.workers.registry.Lookup(c.Record.Kind); known && spec.BatchWait > 0 {
		return spec
	}
	return nil
}

func (g *gathering) anyGathers(claims []ClaimedJob) bool {
	for i := range claims {
		if g.specOf(&claims[i]) != nil {
			return true
		}
	}
	return false
}

// take takes those of some claims that are to wait for others, and returns the rest.
func (g *gathering) take(o Owner, claims []ClaimedJob) (rest []ClaimedJob) {
	if !g.anyGathers(claims) {
		return claims
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	rest = claims[:0]
	taken := 0
	for i := range claims {
		c := &claims[i]
		spec := g.specOf(c)
		if spec == nil || g.closed || g.workers.mostTogether(c) == 1 {
			rest = append(rest, *c)
			continue
		}
		taken++
		g.add(groupKey{o, c.Record.Tenant, c.Record.Kind}, *c, spec)
	}
	g.workers.capacity.release(taken)
	return rest
}

// add adds a claim to its group, which goes on when it has become a full call; mu is held.
func (g *gathering) add(key groupKey, c ClaimedJob, spec *job.Spec) {
	in := g.groups[key]
	if in == nil {
		in = &group{}
		in.timer = time.AfterFunc(spec.BatchWait, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.groups[key] == in {
				g.passOn(key)
			}
		})
		g.groups[key] = in
	}
	if in.claims = append(in.claims, c); len(in.claims) >= spec.MaxBatch {
		g.passOn(key)
	}
}

// passOn has a group wait for a worker, or gives it back; mu is held, so that close waits for it.
func (g *gathering) passOn(key groupKey) {
	in := g.groups[key]
	delete(g.groups, key)
	in.timer.Stop()
	g.workers.TakeSlots(len(in.claims))
	g.workers.queue(key.owner, in.claims)
}

// passOnAll has what waits go on at once.
func (g *gathering) passOnAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.groups {
		g.passOn(key)
	}
}

// close gives back what waits, and has nothing wait any more.
func (g *gathering) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, in := range g.groups {
		in.timer.Stop()
		g.workers.TakeSlots(len(in.claims))
		for i := range in.claims {
			g.workers.giveBack(&in.claims[i])
		}
	}
	clear(g.groups)
}
