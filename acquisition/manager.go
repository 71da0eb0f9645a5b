package acquisition

import (
	"context"
	"maps"
	"slices"
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
	// Elected names the member that should hold the lock; "" when nobody is eligible who
	// says that it reaches the database.
	Elected(pool string) (member string)
	// Share is how many locks a node should hold at most, as the election spreads them.
	Share() int
	// Peers lists the other members that may run jobs.
	Peers() []string
	// Alive tells whether a member is thought to live.
	Alive(member string) bool
	// Lacks tells whether a member is thought to live and says that it does not reach a
	// pool's database.
	Lacks(member, pool string) bool
	// StableFor is how long the view of the members has stood still.
	StableFor() time.Duration
	// Watch returns a one-place channel that is nudged when the view changes.
	Watch() (changes <-chan struct{}, cancel func())
	// Heir names the member, none of those ruled out, that should have the lock when this
	// node lets go of it; "" when there is none.
	Heir(pool string, out func(member string) bool) (member string)
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
	cfg      Config
	sessions *Sessions
	router   *routing.Router
	workers  *execution.Workers
	kinds    store.Kinds
	elector  Elector
	log      *zap.Logger

	balance balance
	trials  trials
	unwatch func()
	ctx     context.Context // of everything that runs; nil before Start
	cancel  context.CancelFunc
	group   sync.WaitGroup
	stopped chan struct{}
	once    sync.Once

	mu        sync.Mutex
	acquirers map[string]*acquirer // guarded by mu; by pool; replaced, never written
	stopping  bool                 // guarded by mu
}

// NewManager returns a manager that claims jobs for the workers. registry must be
// frozen. It starts nothing.
func NewManager(cfg Config, sessions *Sessions, router *routing.Router, workers *execution.Workers, registry *job.Registry, elector Elector, log *zap.Logger) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Manager{
		cfg: cfg, sessions: sessions, router: router, workers: workers, kinds: store.KindsOf(registry.Kinds()), elector: elector,
		log: log.Named("acquisition"), stopped: make(chan struct{}), acquirers: map[string]*acquirer{},
	}, nil
}

// newAcquirer is the acquirer of a pool whose sessions k keeps.
func (m *Manager) newAcquirer(p *routing.Pool, k *keeper) *acquirer {
	a := &acquirer{
		pool: p, cfg: m.cfg, keeper: k, router: m.router, workers: m.workers, elector: m.elector,
		kinds: m.kinds, metrics: m.sessions.metrics, balance: &m.balance, trials: &m.trials,
		log: m.log.With(zap.String("pool", p.Name)), changed: make(chan struct{}, 1), watch: watchlist{},
	}
	a.assistant = &assistant{acquirer: a, box: k.errands}
	k.reach.changed = a.reaches
	a.ctx, a.cancel = context.WithCancel(m.ctx)
	return a
}

// Start starts an acquirer for every pool.
func (m *Manager) Start(context.Context) error {
	m.ctx, m.cancel = context.WithCancel(context.Background())
	changes, unwatch := m.elector.Watch()
	m.unwatch = unwatch
	m.group.Go(func() { m.watch(m.ctx, changes) })
	m.Apply(m.router.Pools())
	return nil
}

// Apply starts acquirers for pools that have none, and stops those whose pool is not
// among them: each offers its lock, lets what it has claimed come to an end, ends its
// session, and closes the pool. It does not wait for any of that.
func (m *Manager) Apply(pools []*routing.Pool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopping {
		return
	}
	next := make(map[string]*acquirer, len(pools))
	for _, p := range pools {
		a := m.acquirers[p.Name]
		if a != nil && a.pool == p {
			next[p.Name] = a
			a.keeper.inbox.reroute()
			continue
		}
		a = m.newAcquirer(p, m.sessions.add(p))
		next[p.Name] = a
		a.keeper.start()
		a.group.Go(func() { a.run(a.ctx) })
	}
	for name, a := range m.acquirers {
		if next[name] != a {
			m.sessions.retire(a, m.router.Close)
			m.group.Go(a.group.Wait)         // so that Stop waits for what it may still claim
			m.elector.SetReaches(name, true) // what was said of it may not hold for the next of its name
		}
	}
	m.acquirers = next
}

// acquirer is that of a pool; nil if the pool is not configured.
func (m *Manager) acquirer(pool string) *acquirer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.acquirers[pool]
}

// all is the acquirers by pool. It is not to be changed.
func (m *Manager) all() map[string]*acquirer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.acquirers
}

// watch passes changes of the view on to every acquirer, and says once if more nodes run
// than the servers have connections for.
func (m *Manager) watch(ctx context.Context, changes <-chan struct{}) {
	most := 0 // nodes at a time
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
			for _, a := range m.all() {
				nudge(a.changed)
			}
			n := len(m.elector.Peers()) + 1
			if n <= most {
				continue
			}
			most = n
			if err := m.router.Exceeds(n); err != nil {
				m.log.Warn("more nodes run than connections.nodes says, and together they may open more connections than there are", zap.Int("nodes", n), zap.Error(err))
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
		m.mu.Lock()
		m.stopping = true
		for _, a := range m.acquirers {
			a.assistant.stop()
		}
		m.mu.Unlock()
		m.cancel()
		go func() {
			for _, a := range m.all() {
				a.group.Wait()
			}
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
	if a := m.acquirer(h.Pool); a != nil {
		a.hint(h)
	}
}

// Holds tells whether this node holds the acquire lock of a pool, as far as it knows.
func (m *Manager) Holds(pool string) bool {
	a := m.acquirer(pool)
	return a != nil && a.seenLock().Holding
}

// Receive takes a message from another node. One about a pool that does not run here is
// dropped, and counted; an error says that it cannot be read.
func (m *Manager) Receive(kind byte, from string, payload []byte) error {
	switch kind {
	case MessageHint:
		h, err := DecodeHint(payload)
		if err != nil {
			return err
		}
		if a := m.addressed(h.Pool); a != nil {
			a.hint(h)
		}
		return nil
	case MessageRoom:
		r, err := DecodeRoom(payload)
		if err != nil {
			return err
		}
		if a := m.addressed(r.Pool); a != nil {
			a.keeper.inbox.report(report{from, r})
		}
		return nil
	}
	about, err := DecodeAbout(payload)
	if err != nil {
		return err
	}
	a := m.addressed(about.Pool)
	if kind == MessageOffer && (a == nil || !a.serves()) {
		if err := m.elector.Send(from, MessageAnswer, About{Pool: about.Pool, No: true}.Encode()); err != nil {
			m.log.Debug("an offer could not be refused; its sender waits in vain", zap.String("to", from), zap.Error(err))
		}
		return nil
	}
	if a == nil {
		return nil
	}
	switch kind {
	case MessageOffer:
		if about.Soon {
			a.keeper.inbox.prepare(from, about.Conns)
		} else {
			a.keeper.inbox.offer(about.Idle)
		}
	case MessageAnswer:
		a.keeper.inbox.answer(from, about.No)
	case MessageGiven:
		a.keeper.errands.come()
		fallthrough
	case MessageInvite:
		a.assistant.invited(from, func() { a.group.Go(func() { a.assistant.run(a.ctx) }) })
	}
	return nil
}

// addressed is the acquirer that a message is for; nil: there is none, which is counted.
func (m *Manager) addressed(pool string) *acquirer {
	a := m.acquirer(pool)
	if a == nil {
		m.sessions.metrics.dropped.WithLabelValues(unknownPool).Inc()
	}
	return a
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
	all := m.all()
	out := make([]Held, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name].seenLock())
	}
	return out
}
