package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tenurehq/tenure/acquisition"
)

// judge sees every statement that changes a lock, looks at every node once a second,
// and says what must not have been.
type judge struct {
	w *world

	mu     sync.Mutex
	pools  map[string]*record
	events []event  // the last ones
	faults []string // what was broken, and when
	totals totals
	hurt   time.Time // when gossip did not pass everywhere, the last time
}

type event struct {
	at   time.Time
	text string
}

// record is what is known of one pool's lock, whatever the ledger says.
type record struct {
	epoch   int64            // the highest ever given out
	taker   map[int64]string // member by epoch
	member  string           // of the last taker
	served  time.Time        // the last take or renewal
	free    time.Time        // when it was let go of; zero: it was not
	lost    time.Time        // when its holder died or was cut off; zero: it was not
	jumped  time.Time        // when the database's clock was last set
	slack   time.Duration    // by which the clock went back since it was last served
	reads   int
	perSec  [window]int          // reads in each of the last seconds
	lagging map[string]time.Time // members that believe in an old epoch, since when
}

const window = 10

// totals is what has happened, for the report.
type totals struct {
	takes, handovers, takeovers, thefts, renewals, claims, refused, reads int
	unheeded                                                              int // offers of a lock that its holder took back itself

	handoverGaps, takeoverGaps []time.Duration
	handoverFrom               []string // who let go, of each of the former
	worstVacancy               time.Duration
	worstReads                 float64 // per second and pool, over ten seconds
	worstBelief                time.Duration
}

// moves is how often a lock went to another process.
func (t totals) moves() int { return t.handovers + t.takeovers }

// Bounds of what is checked all the time.
const (
	// A pool is vacant no longer than this while a node that is alive reaches it. The
	// longest way: the only one that does has a rank so low that it looks every 32 to
	// 40 s. The holder died just before it looked, so it has to look again; then it waits
	// 4.5 s and its rank's delay, because gossip says that the holder lives.
	vacancyBound = time.Minute
	// Who cannot renew believes that it holds for as long as its trust stands, 14.5 s of
	// the 16 s of a dozing lock, and until its call on the connection is over.
	beliefBound = 25 * time.Second
	theftAfter  = 10 * time.Second // of good health
	maxEvents   = 400
)

func newJudge(w *world) *judge { return &judge{w: w, pools: map[string]*record{}} }

func (j *judge) add(pool string) {
	j.pools[pool] = &record{taker: map[int64]string{}, lagging: map[string]time.Time{}, served: time.Now()}
}

// fault notes that something was broken.
func (j *judge) fault(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faultLocked(format, args...)
}

func (j *judge) faultLocked(format string, args ...any) {
	text := "BROKEN: " + fmt.Sprintf(format, args...)
	if len(j.faults) < 20 {
		j.faults = append(j.faults, text)
	}
	j.noteLocked("%s", text)
}

func (j *judge) broken() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.faults) > 0
}

// note adds to the timeline.
func (j *judge) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.noteLocked(format, args...)
}

func (j *judge) noteLocked(format string, args ...any) {
	if len(j.events) >= maxEvents {
		j.events = slices.Delete(j.events, 0, maxEvents/2)
	}
	j.events = append(j.events, event{time.Now(), fmt.Sprintf(format, args...)})
}

// timeline is the end of the story.
func (j *judge) timeline() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var b strings.Builder
	for _, e := range j.events[max(0, len(j.events)-80):] {
		fmt.Fprintf(&b, "%12.3fs  %s\n", e.at.Sub(j.w.began).Seconds(), e.text)
	}
	return b.String()
}

func (j *judge) report() totals {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.totals
	t.handoverGaps, t.takeoverGaps, t.handoverFrom = slices.Clone(t.handoverGaps), slices.Clone(t.takeoverGaps), slices.Clone(t.handoverFrom)
	return t
}

// readSince is how often the lock of a pool was read, over all.
func (j *judge) readsOf(pool string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.pools[pool].reads
}

// read: the lock's row is read.
func (j *judge) read(l *ledger) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.pools[l.pool]
	r.reads++
	r.perSec[time.Now().Unix()%window]++
	j.totals.reads++
}

// taken: by has taken the lock that stood as before says. The ledger's lock is held.
func (j *judge) taken(l *ledger, by *host, before lockRow, gone bool) {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.pools[l.pool]
	k := &l.lock
	if k.epoch <= r.epoch {
		j.faultLocked("pool %s: epoch %d was given out after %d", l.pool, k.epoch, r.epoch)
	}
	if by.member != k.member {
		j.faultLocked("pool %s: %s has taken the lock in the name of %s", l.pool, by.member, k.member)
	}
	expired := !before.expires.After(k.taken)
	how := "after it was let go of"
	if before.holder != uuid.Nil {
		how = map[bool]string{true: "expired", false: "not expired"}[expired] + map[bool]string{true: ", said to be gone", false: ""}[gone] +
			fmt.Sprintf(", renewed %v ago for %v", k.taken.Sub(before.renewed).Round(time.Millisecond), before.expires.Sub(before.renewed).Round(time.Second))
	}
	j.noteLocked("pool %s: %s takes the lock from %s (%s), epoch %d", l.pool, k.member, r.member, how, k.epoch)
	j.totals.takes++
	if r.member != k.member && r.member != "" {
		switch {
		case before.holder == uuid.Nil:
			j.totals.handovers++
			if !r.free.IsZero() {
				j.totals.handoverGaps = append(j.totals.handoverGaps, now.Sub(r.free))
				j.totals.handoverFrom = append(j.totals.handoverFrom, r.member)
			}
		default:
			j.totals.takeovers++
			if !r.lost.IsZero() {
				j.totals.takeoverGaps = append(j.totals.takeoverGaps, now.Sub(r.lost))
			}
			// With gossip in pieces, a jump of the clock alone makes a holder look dead.
			excused := now.Sub(r.jumped) < time.Minute && now.Sub(j.hurt) < time.Minute
			if since := j.wellSince(r.member, l.pool); !since.IsZero() && now.Sub(since) > theftAfter && !excused {
				j.totals.thefts++
				j.faultLocked("pool %s: %s has taken the lock from %s, which was well and had not let go of it (%s)", l.pool, k.member, r.member, how)
			}
		}
	}
	if before.holder == uuid.Nil && r.member == k.member {
		j.totals.unheeded++
	}
	r.epoch, r.member, r.served, r.free, r.lost, r.slack = k.epoch, k.member, now, time.Time{}, time.Time{}, 0
	r.taker[k.epoch] = k.member
}

// renewed: the lock is about to be renewed. The ledger's lock is held.
func (j *judge) renewed(l *ledger, by *host) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.pools[l.pool]
	if by.member != r.member {
		j.faultLocked("pool %s: %s has renewed the lock of %s", l.pool, by.member, r.member)
	}
	if !l.lock.expires.After(l.clock()) {
		j.faultLocked("pool %s: %s has renewed a lock that had expired", l.pool, by.member)
	}
	r.served, r.slack, r.lost = time.Now(), 0, time.Time{}
	j.totals.renewals++
}

// released: the lock was let go of. The ledger's lock is held.
func (j *judge) released(l *ledger, by *host, before lockRow) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.pools[l.pool]
	if by.member != r.member {
		j.faultLocked("pool %s: %s has let go of the lock of %s", l.pool, by.member, r.member)
	}
	r.free = time.Now()
	j.noteLocked("pool %s: %s lets go of the lock, for %q", l.pool, by.member, l.lock.next)
}

// claimed: a fenced statement arrived; let says whether the fence let it through.
func (j *judge) claimed(l *ledger, by *host, session uuid.UUID, epoch int64, let bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.pools[l.pool]
	if !let {
		j.totals.refused++
		return
	}
	j.totals.claims++
	switch {
	case epoch != r.epoch:
		j.faultLocked("pool %s: %s has claimed under epoch %d, but epoch %d had been given to %s", l.pool, by.member, epoch, r.epoch, r.member)
	case by.member != r.member || l.lock.holder != session:
		j.faultLocked("pool %s: %s has claimed, but %s holds the lock", l.pool, by.member, r.member)
	case !l.lock.expires.After(l.clock()):
		j.faultLocked("pool %s: %s has claimed under a lock that had expired", l.pool, by.member)
	}
}

// jumped: the database's clock was set.
func (j *judge) jumped(pool string, by time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.pools[pool]
	r.jumped = time.Now()
	r.slack += max(0, -by)
}

// ran: a process has started on a node.
func (j *judge) ran(n *node, p *process) {
	j.mu.Lock()
	n.run = p
	j.noteLocked("%s runs as %s", n.name, p.host.member)
	j.mu.Unlock()
	j.look()
}

// ends: the process of a node ends, in order or not.
func (j *judge) ends(n *node, inOrder bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if inOrder {
		j.noteLocked("%s stops", n.run.host.member)
	} else {
		j.noteLocked("%s crashes", n.run.host.member)
		j.strandLocked(n)
	}
	n.run = nil
	clear(n.well)
}

// strandLocked notes which pools lose their holder with a node.
func (j *judge) strandLocked(n *node) {
	for _, r := range j.pools {
		if r.member == n.run.host.member && r.lost.IsZero() && r.free.IsZero() {
			r.lost = time.Now()
		}
	}
}

// wellSince is since when a member has been able to serve a pool; zero: it is not.
func (j *judge) wellSince(member, pool string) time.Time {
	for _, n := range j.w.nodes {
		if n.run != nil && n.run.host.member == member {
			return n.well[pool]
		}
	}
	return time.Time{}
}

// look finds out who could serve which pool, and what the nodes believe.
func (j *judge) look() {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.w.wires.whole() {
		j.hurt = now
	}
	beliefs := map[*node]map[string]acquisition.Held{}
	for _, n := range j.w.nodes {
		if n.run == nil {
			continue
		}
		beliefs[n] = map[string]acquisition.Held{}
		for _, h := range n.run.manager.Locks() {
			beliefs[n][h.Pool] = h
		}
	}
	for _, l := range j.w.ledgers {
		r := j.pools[l.pool]
		var earliest time.Time
		for _, n := range j.w.nodes {
			if n.run == nil || !j.w.wires.reaches(n.run.host, l.host) {
				delete(n.well, l.pool)
				continue
			}
			since, ok := n.well[l.pool]
			if !ok {
				since = now
				n.well[l.pool] = now
			}
			if earliest.IsZero() || since.Before(earliest) {
				earliest = since
			}
			j.believes(n, beliefs[n][l.pool], r, now)
		}
		if earliest.IsZero() {
			continue
		}
		from := r.served
		if earliest.After(from) {
			from = earliest
		}
		vacant := now.Sub(from) - r.slack
		j.totals.worstVacancy = max(j.totals.worstVacancy, vacant)
		if vacant > vacancyBound {
			j.faultLocked("pool %s: nobody has held the lock for %v, while a node that is alive reached it", l.pool, now.Sub(from))
			r.served = now
		}
	}
}

// believes compares what a node believes of a pool with what its ledger has given out.
func (j *judge) believes(n *node, h acquisition.Held, r *record, now time.Time) {
	member := n.run.host.member
	if h.Holding && r.taker[h.Epoch] != member {
		j.faultLocked("pool %s: %s believes that it holds epoch %d, which was given to %q", h.Pool, member, h.Epoch, r.taker[h.Epoch])
	}
	if !h.Holding || h.Epoch == r.epoch {
		delete(r.lagging, member)
		return
	}
	since, ok := r.lagging[member]
	if !ok {
		since = now
		r.lagging[member] = now
	}
	j.totals.worstBelief = max(j.totals.worstBelief, now.Sub(since))
	if now.Sub(since) > beliefBound {
		j.faultLocked("pool %s: %s has believed for %v that it holds epoch %d, but epoch %d has been given to %s", h.Pool, member, now.Sub(since), h.Epoch, r.epoch, r.member)
		r.lagging[member] = now
	}
}

// second closes a second of the reads that are counted; it returns the most reads per
// second over the last ten of any pool.
func (j *judge) second() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.pools {
		sum := 0
		for _, n := range r.perSec {
			sum += n
		}
		j.totals.worstReads = max(j.totals.worstReads, float64(sum)/window)
		r.perSec[(time.Now().Unix()+1)%window] = 0
		for e := range r.taker { // those that anybody may still believe in
			if len(r.taker) > 64 && e != r.epoch && e < r.epoch-int64(time.Hour/time.Microsecond) {
				delete(r.taker, e)
			}
		}
	}
}
