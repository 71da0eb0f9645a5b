package acquisition

import (
	"sync"
	"time"

	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// inbox gathers what concerns a pool's acquirer until it looks: any number of
// messages, one nudge. Safe for concurrent use.
type inbox struct {
	nudge   chan struct{} // of size one; read by the acquirer
	changed chan struct{} // of size one: the view of the members changed
	direct  chan direct   // taken by a term that waits for work

	mu   sync.Mutex
	mail mail // guarded by mu
}

// mail is what has come in since the last look.
type mail struct {
	ended    []schedule.Run
	returned bool // some of them are waiting again
	lanes    []store.Lane
	discover bool      // jobs were enqueued, it is not known where
	due      time.Time // a timer was set that is due then, by this node's monotonic clock; zero: none
	kinds    bool      // this node's have changed
	rerouted bool      // tenants may live elsewhere now
	setBack  bool      // the database's clock was
	offered  bool      // the lock was released in favour of this node
	idle     bool      // by a holder that dozed
	reports  []report  // of peers
	soon     string    // the holder that is about to offer the lock; "": none is
	conns    int       // that its handlers need
	ready    []string  // members that are prepared to take the lock
	refused  []string  // members that cannot
}

// Direct is a job that was added by the term that holds its pool's lock.
type Direct struct {
	ID      job.ID
	Started bool // it was claimed as it was added; else it waits, and the term is to be told
}

// direct is a job on its way from an enqueuer in this process to the term.
type direct struct {
	pool  int // its number
	job   *store.NewJob
	reply chan directReply // of size one
}

type directReply struct {
	Direct
	taken bool // else the enqueuer is to add the job by itself
	err   error
}

// report is what a peer says, and who it is.
type report struct {
	from string
	Capacity
}

// maxHinted bounds how many lanes wait here while nobody looks, as of a pool that is down.
const maxHinted = 10_000

// maxReports bounds what waits here while nobody holds the lock.
const maxReports = 1000

func newInbox() *inbox {
	return &inbox{nudge: make(chan struct{}, 1), changed: make(chan struct{}, 1), direct: make(chan direct)}
}

// wake has the acquirer look into the inbox.
func (b *inbox) wake() { nudge(b.nudge) }

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

// hasHints tells whether jobs were enqueued of which the acquirer has not taken notice.
func (b *inbox) hasHints() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mail.discover || b.mail.returned || len(b.mail.lanes) > 0
}

// addEnded takes in runs whose ends are committed.
func (b *inbox) addEnded(batch []lease.Ended) {
	now := time.Now()
	b.update(func(m *mail) {
		for i := range batch {
			e := &batch[i]
			m.ended = append(m.ended, schedule.Run{ID: e.Claim.Record.ID, Turn: e.Claim.Record.Turn})
			m.returned = m.returned || e.WaitsAgain()
			if d, ok := e.DueIn(); ok {
				m.dueBy(now.Add(d))
			}
		}
	})
}

// addHint takes in that jobs were enqueued.
func (b *inbox) addHint(h Hint) {
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

// addReport takes in what a peer says.
func (b *inbox) addReport(r report) {
	b.update(func(m *mail) {
		if len(m.reports) < maxReports {
			m.reports = append(m.reports, r)
		}
	})
}

// noteReroute takes in that the configuration was replaced.
func (b *inbox) noteReroute() { b.update(func(m *mail) { m.rerouted, m.discover = true, true }) }

// noteSetBack takes in that the database's clock was set back.
func (b *inbox) noteSetBack() { b.update(func(m *mail) { m.setBack = true }) }

// noteKinds takes in that the kinds have changed that this node handles.
func (b *inbox) noteKinds() { b.update(func(m *mail) { m.kinds = true }) }

// noteOffer takes in that the lock is free for this node; idle: the last holder dozed.
func (b *inbox) noteOffer(idle bool) { b.update(func(m *mail) { m.offered, m.idle = true, idle }) }

// noteAnnouncement takes in that the holder, whose handlers need some connections, will offer
// the lock to this node once that is prepared.
func (b *inbox) noteAnnouncement(holder string, conns int) {
	b.update(func(m *mail) { m.soon, m.conns = holder, conns })
}

// addAnswer takes in whether a member can take the lock.
func (b *inbox) addAnswer(from string, no bool) {
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

// nudge makes the reader of a channel of size one look again.
func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
