package execution

import (
	"slices"
	"time"
)

// load is what one tenant has with the workers. It is guarded by the backlog's mu.
//
// A tenant has a share of the workers, so that its jobs, however many and long, leave some
// to others at once. What waits beyond it is set aside and takes no place from others; more
// of it is not claimed, see Workers.RoomFor.
type load struct {
	running int      // workers that run its jobs
	waiting int      // claims in the queues
	aside   []*Claim // claims whose turn has come while it had its share; the oldest first

	finished, counted int64 // runs; and those up to since
	since             time.Time
	rate              float64 // jobs per second
	ahead             int     // claims that may wait, beyond those that may run
	wanting           Owner   // is told when there is room for more; nil: nobody
}

// share says how much one tenant may have of the workers.
type share struct {
	workers int
	percent int // of them that a tenant which is alone may have, 1 to 100
}

// most is how many jobs of one tenant may run at a time.
func (s share) most() int {
	n := s.workers * s.percent / 100
	if s.percent < 100 {
		n = min(n, s.workers-1)
	}
	return max(n, 1)
}

// admits tells whether a tenant with so many jobs running may have one more of the free
// workers: as long as it keeps to its share of what it and the free ones come to. So each
// of several that have much to do gets less, and some workers stay free for others; with
// one share of four parts of five, say, a tenant may have four times as many as it leaves.
func (s share) admits(running, free int) bool {
	return running == 0 || (running+1)*(100-s.percent) <= s.percent*(free-1)
}

// room is how many more claims of the tenant can be of use here.
func (l *load) room(s share) int {
	return s.most() + l.ahead - l.running - l.waiting - len(l.aside)
}

// measure brings the rate up to date, as room.measure does for all tenants together.
func (l *load) measure(now time.Time) {
	passed := now.Sub(l.since)
	if passed < rateWindow {
		return
	}
	rate := float64(l.finished-l.counted) / passed.Seconds()
	l.since, l.counted = now, l.finished
	l.rate = max(rate, 0.7*l.rate+0.3*rate)
	l.ahead = int(min(maxAhead, l.rate*lookahead.Seconds()))
}

// idle tells whether nothing of the tenant has been here for a while.
func (l *load) idle(now time.Time) bool {
	return l.running+l.waiting+len(l.aside) == 0 && l.wanting == nil && now.Sub(l.since) > forgetLoad
}

// forgetLoad is how long it is remembered how fast a tenant's jobs went.
const forgetLoad = 10 * time.Second

// RoomFor is how many more claims of a tenant are of use here: those that may run at a
// time, and as many more as the workers lately got through in the time of the lookahead. If
// there is none, o.Roomy is called once there is.
func (w *Workers) RoomFor(o Owner, tenant string) int { return w.backlog.roomFor(o, tenant) }

// Full lists tenants of o that there is no room for, at most so many; o.Roomy is called
// once there is for one of them.
func (w *Workers) Full(o Owner, most int) []string { return w.backlog.full(o, most) }

func (b *backlog) roomFor(o Owner, tenant string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.load(tenant)
	l.measure(time.Now())
	n := max(l.room(b.share), 0)
	if n == 0 {
		l.wanting = o
	}
	return n
}

func (b *backlog) full(o Owner, most int) (tenants []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for tenant, l := range b.loads {
		if len(l.aside) == 0 || l.aside[0].Owner != o {
			continue
		}
		if l.measure(now); l.room(b.share) <= 0 && len(tenants) < most {
			l.wanting = o
			tenants = append(tenants, tenant)
		}
	}
	return tenants
}

// load is a tenant's; mu is held.
func (b *backlog) load(tenant string) *load {
	l := b.loads[tenant]
	if l == nil {
		now := time.Now()
		if now.Sub(b.tidied) > forgetLoad {
			b.tidied = now
			for t, l := range b.loads {
				if l.idle(now) {
					delete(b.loads, t)
				}
			}
		}
		l = &load{since: now}
		b.loads[tenant] = l
	}
	return l
}

// begin counts a run of the tenant's; mu is held.
func (b *backlog) begin(l *load) {
	l.running++
	b.running++
}

// ended counts the end of a run, or that another worker stands in for it.
func (b *backlog) ended(tenant string, done bool) {
	b.mu.Lock()
	l := b.loads[tenant]
	l.running--
	b.running--
	if done {
		l.finished++
	}
	var tell Owner
	if l.wanting != nil {
		if l.measure(time.Now()); l.room(b.share) >= max(1, l.ahead/2) {
			tell, l.wanting = l.wanting, nil
		}
	}
	b.mu.Unlock()
	if tell != nil {
		tell.Roomy()
	}
}

// next chooses what a free worker runs: first what was set aside and may run now. It
// returns nil when nothing may; mu is held.
func (b *backlog) next() *Claim {
	free := b.share.workers - b.running
	for i, l := range b.crowded {
		if !b.share.admits(l.running, free) {
			continue
		}
		c := l.aside[0]
		l.aside[0] = nil
		l.aside = l.aside[1:]
		b.crowded = slices.Delete(b.crowded, i, i+1)
		if len(l.aside) > 0 {
			b.crowded = append(b.crowded, l) // behind the others
		}
		b.aside--
		b.room.used.Add(1)
		b.begin(l)
		return c
	}
	for b.size > 0 {
		c := b.take()
		l := b.loads[c.Record.Tenant]
		l.waiting--
		if len(l.aside) == 0 && b.share.admits(l.running, free) {
			b.begin(l)
			return c
		}
		b.setAside(l, c)
	}
	return nil
}

// setAside keeps a claim until its tenant may run more; mu is held. Its place is given up
// when mu is not.
func (b *backlog) setAside(l *load, c *Claim) {
	if len(l.aside) == 0 {
		b.crowded = append(b.crowded, l)
	}
	l.aside = append(l.aside, c)
	b.aside++
	b.vacated++
}
