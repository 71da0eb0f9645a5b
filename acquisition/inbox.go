package acquisition

import (
	"sync"
	"time"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// inbox gathers what concerns a pool's acquirer until it looks: any number of
// messages, one nudge. Safe for concurrent use.
type inbox struct {
	nudge chan struct{} // one place; read by the acquirer

	mu   sync.Mutex
	mail mail // guarded by mu
}

// mail is what has come in since the last look.
type mail struct {
	ended    []endedJob
	returned bool // some of them are waiting again
	lanes    []store.Lane
	discover bool      // jobs were enqueued, it is not known where
	due      time.Time // a timer was set that is due then, by this node's monotonic clock; zero: none
	rerouted bool      // tenants may live elsewhere now
	offered  bool      // the lock was let go of in favour of this node
	idle     bool      // by a holder that dozed
	reports  []report  // of peers
	soon     string    // the holder that is about to offer the lock; "": none is
	conns    int       // that its handlers need
	ready    []string  // members that are prepared to take the lock
	refused  []string  // members that cannot
}

// report is what a peer says, and who it is.
type report struct {
	from string
	Room
}

// maxHinted bounds how many lanes wait here while nobody looks, as of a pool that is down.
const maxHinted = 10_000

// maxReports bounds what waits here while nobody holds the lock.
const maxReports = 1000

type endedJob struct {
	id   job.ID
	turn int32
}

func newInbox() *inbox { return &inbox{nudge: make(chan struct{}, 1)} }

// take empties the inbox.
func (b *inbox) take() mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.mail
	b.mail = mail{}
	return m
}

func (b *inbox) update(f func(*mail)) {
	b.mu.Lock()
	f(&b.mail)
	b.mu.Unlock()
	nudge(b.nudge)
}

// roomy: the workers have room again.
func (b *inbox) roomy() { nudge(b.nudge) }

// endings: these runs' ends are committed.
func (b *inbox) endings(batch []ending) {
	now := time.Now()
	b.update(func(m *mail) {
		for i := range batch {
			e := &batch[i]
			m.ended = append(m.ended, endedJob{e.claim.Record.ID, e.claim.Record.Turn})
			switch {
			case e.how == unstarted || e.outcome.State == job.Returned:
				m.returned = true
			case e.outcome.State == job.Retrying || e.outcome.State == job.Snoozed:
				m.dueBy(now.Add(e.outcome.Delay))
			}
		}
	})
}

// hint: jobs were enqueued.
func (b *inbox) hint(h Hint) {
	now := time.Now()
	b.update(func(m *mail) {
		switch {
		case h.DueIn > 0:
			m.dueBy(now.Add(h.DueIn))
		case len(h.Lanes) == 0:
			m.discover = true
		case len(m.lanes) >= maxHinted:
			m.lanes, m.discover = nil, true
		default:
			m.lanes = append(m.lanes, h.Lanes...)
		}
	})
}

// report: a peer says something.
func (b *inbox) report(r report) {
	b.update(func(m *mail) {
		if len(m.reports) < maxReports {
			m.reports = append(m.reports, r)
		}
	})
}

// reroute: the configuration was replaced.
func (b *inbox) reroute() { b.update(func(m *mail) { m.rerouted, m.discover = true, true }) }

// offer: the lock is free for this node, and the last holder dozed, or did not.
func (b *inbox) offer(idle bool) { b.update(func(m *mail) { m.offered, m.idle = true, idle }) }

// prepare: the holder, whose handlers need some connections, will offer the lock to this
// node once that is prepared.
func (b *inbox) prepare(holder string, conns int) {
	b.update(func(m *mail) { m.soon, m.conns = holder, conns })
}

// answer: a member says whether it can take the lock.
func (b *inbox) answer(from string, no bool) {
	b.update(func(m *mail) {
		switch {
		case len(m.ready)+len(m.refused) >= maxReports:
		case no:
			m.refused = append(m.refused, from)
		default:
			m.ready = append(m.ready, from)
		}
	})
}

func (m *mail) dueBy(at time.Time) {
	if m.due.IsZero() || at.Before(m.due) {
		m.due = at
	}
}
