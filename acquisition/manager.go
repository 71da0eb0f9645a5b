package acquisition

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

// Manager runs one acquirer per pool.
type Manager struct {
	node     *node
	sessions *lease.Keepers
	log      *zap.Logger

	unwatch func()
	ctx     context.Context // of everything that runs; nil before Start, which writes it holding mu
	cancel  context.CancelFunc
	group   sync.WaitGroup
	stopped chan struct{}
	once    sync.Once

	mu        sync.Mutex
	acquirers map[string]*acquirer // guarded by mu; by pool; replaced, never written
	stopping  bool                 // guarded by mu
}

// NewManager returns a manager that claims jobs for the workers, in sessions that keep to the
// same cfg. registry must be frozen. It starts nothing.
func NewManager(cfg Config, sessions *lease.Keepers, router *routing.Router, workers *execution.Workers, registry *job.Registry, elector Elector, log *zap.Logger) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Manager{
		node: &node{cfg: cfg, router: router, workers: workers, elector: elector, metrics: newMetrics(),
			give: func(context.Context, *store.NewJob) (store.Given, error) { return store.Given{}, nil }},
		sessions: sessions, log: log.Named("acquisition"), stopped: make(chan struct{}), acquirers: map[string]*acquirer{},
	}
	m.node.settings.queues.Store(&cfg.Queues)
	names, mark := registry.Handled()
	m.node.settings.setKinds(names)
	elector.SetKindsMark(mark)
	m.node.settings.schedules.Store(&map[string]ScheduleConfig{})
	m.node.settings.limits.Store(&map[string][]store.Limit{})
	return m, nil
}

// GiveWith has the jobs of schedules be given what their kind gives. It is called before Start.
func (m *Manager) GiveWith(give func(context.Context, *store.NewJob) (store.Given, error)) {
	m.node.give = give
}

// ShareQueues has queues share as a valid c says from the next claim on. c is not to be changed
// any more.
func (m *Manager) ShareQueues(c QueueConfig) { m.node.settings.queues.Store(&c) }

// SetLimits has all jobs together kept to what a valid c says, shared by these pools, from the next claim on.
func (m *Manager) SetLimits(c LimitsConfig, pools []string) {
	shares := c.Shares(pools)
	m.node.settings.limits.Store(&shares)
}

// SetKinds has this node claim jobs of these kinds from now on, and tells the others of it. mark tells
// the list from another one.
func (m *Manager) SetKinds(names []string, mark uint32) {
	m.node.settings.setKinds(names)
	m.node.elector.SetKindsMark(mark)
	m.sessions.TellKinds()
	for _, a := range m.listAcquirers() {
		a.inbox.noteKinds()
	}
}

// SetSchedules has the ledgers have the schedules that a valid configuration makes, with the next
// [Manager.Apply] or within a minute. all is not to be changed any more.
func (m *Manager) SetSchedules(all map[string]ScheduleConfig) { m.node.settings.schedules.Store(&all) }

// newAcquirer is the acquirer of a pool whose keeper k passes on what it learns to events.
func (m *Manager) newAcquirer(p *routing.Pool, k *lease.Keeper, events *poolEvents) *acquirer {
	n, at := m.node, place{p, k, m.log.With(zap.String("pool", p.Name)), m.node.metrics}
	a := &acquirer{place: at, node: n, inbox: events.inbox, watch: lockWatch{heartbeats: heartbeats{}}}
	a.assistant = &assistant{place: at, cfg: n.cfg, workers: n.workers, elector: n.elector, router: n.router, allotments: &n.allotments, events: events.assigned}
	a.sight.Store(&Held{Pool: p.Name})
	p.Breaker.Watch(a.noteReach)
	a.ctx, a.cancel = context.WithCancel(m.ctx)
	return a
}

// MeterTenants has it told of so many tenants how many of their jobs wait, and of the others together; 0: of
// none. It is called before Start.
func (m *Manager) MeterTenants(most int) { m.node.metrics.waiting.tenants = most }

// Start starts an acquirer for every pool.
func (m *Manager) Start(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ctx, m.cancel = context.WithCancel(context.Background())
	changes, unwatch := m.node.elector.Watch()
	m.unwatch = unwatch
	m.group.Go(func() { m.watchMembers(m.ctx, changes) })
	m.applyPools(m.node.router.Pools())
	return nil
}

// Started tells whether there is an acquirer for every pool.
func (m *Manager) Started() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ctx != nil
}

// Apply starts acquirers for pools that have none, and stops those whose pool is not
// among them: each offers its lock, lets what it has claimed come to an end, ends its
// session, and closes the pool. It does not wait for any of that. Before Start it does
// nothing, as that does it.
func (m *Manager) Apply(pools []*routing.Pool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx != nil && !m.stopping {
		m.applyPools(pools)
	}
}

// applyPools is Apply; mu is held.
func (m *Manager) applyPools(pools []*routing.Pool) {
	next := make(map[string]*acquirer, len(pools))
	for _, p := range pools {
		a := m.acquirers[p.Name]
		if a != nil && a.pool == p {
			next[p.Name] = a
			a.inbox.noteReroute()
			continue
		}
		events := newPoolEvents()
		a = m.newAcquirer(p, m.sessions.Add(p, events), events)
		next[p.Name] = a
		a.keeper.Start()
		a.group.Go(func() { a.run(a.ctx) })
	}
	for name, a := range m.acquirers {
		if next[name] != a {
			m.retireAcquirer(a)
			m.group.Go(a.group.Wait)              // so that Stop waits for what it may still claim
			m.node.elector.SetReaches(name, true) // what was said of it may not hold for the next of its name
		}
	}
	m.acquirers = next
}

// retireAcquirer has the sessions leave the pool of an acquirer that is not needed any more.
func (m *Manager) retireAcquirer(a *acquirer) {
	m.sessions.Retire(a.keeper, lease.Retirement{
		StopClaiming: func() {
			a.assistant.stop()
			a.cancel()
		},
		AwaitClaims: a.group.Wait,
		ClosePool:   func() { m.node.router.Close(a.pool) },
		Forget: func() {
			m.node.metrics.forget(a.pool.Name)
			m.node.workers.ForgetPool(a.pool.Name)
		},
	})
}

// findAcquirer is that of a pool; nil if the pool is not configured.
func (m *Manager) findAcquirer(pool string) *acquirer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.acquirers[pool]
}

// listAcquirers is the acquirers by pool. It is not to be changed.
func (m *Manager) listAcquirers() map[string]*acquirer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.acquirers
}

// watchMembers passes changes of the view on to every acquirer, and says once if more nodes run
// than the servers have connections for.
func (m *Manager) watchMembers(ctx context.Context, changes <-chan struct{}) {
	most := 0 // nodes at a time
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
			for _, a := range m.listAcquirers() {
				nudge(a.inbox.changed)
			}
			n := len(m.node.elector.Peers()) + 1
			if n <= most {
				continue
			}
			most = n
			if err := m.node.router.Exceeds(n); err != nil {
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
		m.node.elector.Drain()
		m.mu.Lock()
		m.stopping = true
		for _, a := range m.acquirers {
			a.assistant.stop()
		}
		m.mu.Unlock()
		m.cancel()
		go func() {
			for _, a := range m.listAcquirers() {
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
	if a := m.findAcquirer(h.Pool); a != nil {
		a.takeHint(h)
	}
}

// directBytes bounds the payload and meta of a job that a term adds, for which it waits.
const directBytes = 16 << 10

// EnqueueHere has a job added and claimed in one transaction, if this node holds its pool's
// lock, nothing else waits there, and a worker is free: it starts one commit after the call.
// taken is false if the caller is to add it. When ctx ends before the reply has come, it is not
// known whether the job was added. Safe for concurrent use; callers do not wait for one another.
func (m *Manager) EnqueueHere(ctx context.Context, pool string, number int, j *store.NewJob) (out Direct, taken bool, err error) {
	if j.Later() || j.Links != nil || j.UniqueKey != "" || j.ExclusiveKey != "" || len(j.Payload)+len(j.Meta) > directBytes { // a key may have to be waited for
		return Direct{}, false, nil
	}
	a := m.findAcquirer(pool)
	if a == nil {
		return Direct{}, false, nil
	}
	d := direct{number, j, make(chan directReply, 1)}
	select {
	case a.inbox.direct <- d:
	default: // the term has other things to do, or there is none
		return Direct{}, false, nil
	}
	select {
	case r := <-d.reply:
		return r.Direct, r.taken, r.err
	case <-ctx.Done():
		return Direct{}, true, context.Cause(ctx)
	}
}

// Holds tells whether this node holds the acquire lock of a pool, as far as it knows.
func (m *Manager) Holds(pool string) bool {
	a := m.findAcquirer(pool)
	return a != nil && a.sight.Load().Holding
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
		if a := m.findAddressed(h.Pool); a != nil {
			a.takeHint(h)
		}
		return nil
	case MessageCapacity:
		r, err := DecodeCapacity(payload)
		if err != nil {
			return err
		}
		if a := m.findAddressed(r.Pool); a != nil {
			a.inbox.addReport(report{from, r})
		}
		return nil
	}
	about, err := DecodeAbout(payload)
	if err != nil {
		return err
	}
	a := m.findAddressed(about.Pool)
	if kind == MessageOffer && (a == nil || !a.canServe()) {
		if err := m.node.elector.Send(from, MessageAnswer, About{Pool: about.Pool, No: true}.Encode()); err != nil {
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
			a.inbox.noteAnnouncement(from, about.Conns)
		} else {
			a.inbox.noteOffer(about.Idle)
		}
	case MessageAnswer:
		a.inbox.addAnswer(from, about.No)
	case MessageAssigned:
		a.assistant.events.noteAssigned()
		fallthrough
	case MessageInvite:
		a.assistant.acceptInvitation(from, func() { a.group.Go(func() { a.assistant.run(a.ctx) }) })
	}
	return nil
}

// findAddressed is the acquirer that a message is for; nil: there is none, which is counted.
func (m *Manager) findAddressed(pool string) *acquirer {
	a := m.findAcquirer(pool)
	if a == nil {
		m.node.metrics.dropped.WithLabelValues(unknownPool).Inc()
	}
	return a
}

// Locks says what this node knows of every pool's lock, without asking a database.
func (m *Manager) Locks() []Held {
	all := m.listAcquirers()
	out := make([]Held, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, *all[name].sight.Load())
	}
	return out
}

// HeldBy names the pools whose locks a member held when this node last looked.
func (m *Manager) HeldBy(member string) (pools []string) {
	for _, l := range m.Locks() {
		if l.Holder == member {
			pools = append(pools, l.Pool)
		}
	}
	return pools
}

// Metrics returns the Manager's metrics, to be registered by the caller.
func (m *Manager) Metrics() prometheus.Collector { return m.node.metrics }
