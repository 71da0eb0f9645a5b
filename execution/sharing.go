package execution

import (
	"time"

	"github.com/tenurehq/tenure/tenancy"
)

// tenantLoad is what one tenant has with the workers. It is guarded by the backlog's mu.
//
// A tenant has a share of the workers, so that its jobs, however many and long, leave some
// to others at once. What waits beyond it is parked and takes no slot from others; more
// of it is not claimed, see Workers.FreeSlotsFor.
type tenantLoad struct {
	weight  int // as its last claim says, 1 or more
	running int // workers that run its jobs
	waiting int // claims in its queues, of those that share a call the first

	bytes int64 // of the payloads of its claims, of those that are not small

	batches map[string]int // claims in its queues of each kind that comes in batches

	runs    estimate
	seen    time.Time // when it last had something to do
	owner   Owner     // of its last claims
	wanting Owner     // is told when more would be of use; nil: nobody
	refused bool      // wanting waits for the end of any run; see backlog.refused
}

// tenantShare says how much one tenant may have of the workers, and of what comes with them.
type tenantShare struct{ tenancy.Share }

// countAhead is how many claims of the tenant may wait, beyond those that may run.
func (l *tenantLoad) countAhead(s tenantShare) int { return l.runs.countAhead(s.Most()) }

// mostBytes is how much of [maxBytes] the payloads of one tenant may come to before no more of them are claimed.
func (s tenantShare) mostBytes() int64 { return maxBytes / 100 * int64(s.Percent) }

// smallPayload is the size below which payloads are not counted by tenant: there are not slots enough for so many.
const smallPayload = 4 << 10

// freeSlots is how many more claims of the tenant can be of use here, where so many workers are free: those that may run
// now, and those whose turn comes in the time of the lookahead.
func (l *tenantLoad) freeSlots(s tenantShare, free int) int {
	if l.bytes >= s.mostBytes() {
		return 0
	}
	return s.CountAdmitted(l.running, l.weight, free) + l.countAhead(s) - l.waiting
}

// join counts a claim of a kind of which most may share a call, and tells whether it shares that of
// one that waits already.
func (l *tenantLoad) join(kind string, most int) (shares bool) {
	if most == 1 {
		return false
	}
	if l.batches == nil {
		l.batches = map[string]int{}
	}
	n := l.batches[kind]
	l.batches[kind]++
	return n%most > 0
}

// isIdle tells whether nothing of the tenant has been here for a while.
func (l *tenantLoad) isIdle(now time.Time) bool {
	for _, n := range l.batches { // those that share a call are not counted as waiting
		if n > 0 {
			return false
		}
	}
	return l.running+l.waiting == 0 && l.bytes == 0 && l.wanting == nil && now.Sub(l.seen) > forgetLoad
}

// forgetLoad is how long it is remembered how long a tenant's jobs took.
const forgetLoad = 10 * asksFor

// asksFor is how long an owner counts as one of those that the free slots are for: one
// to two of these.
const asksFor = 10 * lookahead

// mostSharers bounds the sharing: with many owners who ask for little now and then, the
// one that has much to do would get next to nothing.
const mostSharers = 4

// recentOwners are those that have lately asked for slots.
type recentOwners struct {
	now, before map[Owner]struct{} // since turned, and in the time before
	turned      time.Time
}

func newRecentOwners(now time.Time) recentOwners {
	return recentOwners{now: map[Owner]struct{}{}, turned: now}
}

// countSharers is how many owners the free slots are for, o being one of them.
func (r *recentOwners) countSharers(o Owner) int {
	switch passed := time.Since(r.turned); {
	case passed >= 2*asksFor:
		r.now, r.before, r.turned = map[Owner]struct{}{}, nil, time.Now()
	case passed >= asksFor:
		r.now, r.before, r.turned = map[Owner]struct{}{}, r.now, r.turned.Add(asksFor)
	}
	r.now[o] = struct{}{}
	return min(max(len(r.now), len(r.before)), mostSharers)
}

func (r *recentOwners) forget(o Owner) {
	delete(r.now, o)
	delete(r.before, o)
}
