package acquisition

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

// Elector proposes who should hold the acquire lock of a pool. It may be wrong,
// also on two nodes at once.
type Elector interface {
	// Rank is this node's place in the order of preference for a pool, 0 being the
	// elected one; ok is false while this node should not try at all.
	Rank(pool string) (rank int, ok bool)
	// Elected names the member that should hold the lock; "" when nobody is eligible.
	Elected(pool string) (member string)
	// Peers lists the other members that may run jobs.
	Peers() []string
	// Alive tells whether a member is thought to live.
	Alive(member string) bool
	// StableFor is how long the view of the members has stood still.
	StableFor() time.Duration
	// Watch returns a one-place channel that is nudged when the view changes.
	Watch() (changes <-chan struct{}, cancel func())
	// Heir names the member that should have the lock when this node lets go of it; ""
	// when there is none.
	Heir(pool string) (member string)
	// Drain takes this node out of every election.
	Drain()
	// SetReaches tells whether this node reaches a pool's database; while it does not,
	// others are elected there.
	SetReaches(pool string, reaches bool)
	// Send sends a message to a member, without a promise that it arrives.
	Send(member string, kind byte, payload []byte) error
}

// Manager runs one acquirer per pool.
type Manager struct {
	acquirers []*acquirer
	byPool    map[string]*acquirer
	elector   Elector
	log       *zap.Logger

	unwatch func()
	ctx     context.Context // of everything that runs
	cancel  context.CancelFunc
	group   sync.WaitGroup
	stopped chan struct{}
	once    sync.Once
}

// NewManager returns a manager that claims jobs for the workers. registry must be
// frozen. It starts nothing.
func NewManager(cfg Config, sessions *Sessions, router *routing.Router, workers *execution.Workers, registry *job.Registry, elector Elector, log *zap.Logger) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Manager{byPool: map[string]*acquirer{}, elector: elector, log: log.Named("acquisition"), stopped: make(chan struct{})}
	kinds := store.KindsOf(registry.Kinds())
	for _, p := range router.Pools() {
		k := sessions.byPool[p.Name]
		if k == nil {
			return nil, errors.New("acquisition: sessions were made for another router")
		}
		a := &acquirer{
			pool: p, cfg: cfg, keeper: k, router: router, workers: workers, elector: elector,
			kinds: kinds, metrics: sessions.metrics,
			log: m.log.With(zap.String("pool", p.Name)), changed: make(chan struct{}, 1), watch: watchlist{},
		}
		a.assistant = &assistant{acquirer: a, box: k.errands}
		k.reach.changed = a.reaches
		m.acquirers = append(m.acquirers, a)
		m.byPool[p.Name] = a
	}
	return m, nil
}

// Start starts the acquirers.
func (m *Manager) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	m.ctx, m.cancel = ctx, cancel
	changes, unwatch := m.elector.Watch()
	m.unwatch = unwatch
	m.group.Go(func() { m.watch(ctx, changes) })
	for _, a := range m.acquirers {
		m.group.Go(func() { a.run(ctx) })
	}
	return nil
}

// watch passes changes of the view on to every acquirer.
func (m *Manager) watch(ctx context.Context, changes <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
			for _, a := range m.acquirers {
				nudge(a.changed)
			}
		}
	}
}

// Stop stops claiming on every pool and offers the held locks to the nodes that
// are elected without this one. Jobs that were claimed go on.
func (m *Manager) Stop(ctx context.Context) error {
	if m.cancel == nil {
		return nil
	}
	m.once.Do(func() {
		m.elector.Drain()
		for _, a := range m.acquirers {
			a.assistant.stop()
		}
		m.cancel()
		go func() {
			m.group.Wait()
			m.unwatch()
			close(m.stopped)
		}()
	})
	select {
	case <-m.stopped:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Hint tells the acquirer of a pool, if it runs here, that jobs were enqueued.
func (m *Manager) Hint(h Hint) {
	if a := m.byPool[h.Pool]; a != nil {
		a.hint(h)
	}
}

// Holds tells whether this node holds the acquire lock of a pool, as far as it knows.
func (m *Manager) Holds(pool string) bool {
	a := m.byPool[pool]
	return a != nil && a.seenLock().Holding
}

// Receive takes a message from another node. What cannot be read, or is about a pool
// that does not run here, is dropped.
func (m *Manager) Receive(kind byte, from string, payload []byte) error {
	switch kind {
	case MessageHint:
		h, err := DecodeHint(payload)
		if err != nil {
			return err
		}
		m.Hint(h)
		return nil
	case MessageRoom:
		r, err := DecodeRoom(payload)
		if err != nil {
			return err
		}
		if a := m.byPool[r.Pool]; a != nil {
			a.keeper.inbox.report(report{from, r})
		}
		return nil
	}
	about, err := DecodeAbout(payload)
	if err != nil {
		return err
	}
	a := m.byPool[about.Pool]
	if a == nil {
		return nil
	}
	switch kind {
	case MessageOffer:
		a.keeper.inbox.offer()
	case MessageGiven:
		a.keeper.errands.come()
		fallthrough
	case MessageInvite:
		a.assistant.invited(from, func() { m.group.Go(func() { a.assistant.run(m.ctx) }) })
	}
	return nil
}

// Held is a lock as this node last saw it.
type Held struct {
	Pool    string
	Holding bool   // by this node
	Holder  string // member; "" unknown or nobody
	Epoch   int64
}

// Locks says what this node knows of every pool's lock, without asking a database.
func (m *Manager) Locks() []Held {
	out := make([]Held, 0, len(m.acquirers))
	for _, a := range m.acquirers {
		out = append(out, a.seenLock())
	}
	return out
}
