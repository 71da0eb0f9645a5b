package lease

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

// Self is this process as its sessions describe it.
type Self struct {
	Node       string        // configured name
	Member     string        // name in gossip, unique to this process
	GossipAddr func() string // known once gossip has started
	Version    string
	Kinds      func() (handled []string, mark uint32) // it has handlers for; see job.Registry.Handled
	Queues     func(kinds []string) []string          // of these, in their order
}

// Kept is for how long a ledger keeps jobs that have ended; 0: not at all.
type Kept struct {
	Finished time.Duration
	Dead     time.Duration // dead letters; 0: until somebody deletes them
}

// node is what the keepers of all pools share.
type node struct {
	cfg     Config
	kept    Kept
	self    Self
	workers *execution.Workers
	metrics *metrics
}

// Keepers keeps this process' sessions, one per pool it works on, from when they are
// needed. It is stopped after the workers, so that running jobs stay protected while
// they finish.
type Keepers struct {
	node  *node
	log   *zap.Logger
	group sync.WaitGroup // keepers that are being retired

	stopping     chan struct{} // closed by Stop
	mu           sync.Mutex
	stopPresence context.CancelFunc   // guarded by mu; ends attend; nil before Start
	keepers      map[*Keeper]struct{} // guarded by mu
	stopped      bool                 // guarded by mu
}

// NewKeepers returns keepers for pools that are added to them. Nothing is opened until it is needed.
func NewKeepers(cfg Config, kept Kept, self Self, workers *execution.Workers, log *zap.Logger) *Keepers {
	return &Keepers{node: &node{cfg, kept, self, workers, newMetrics()}, log: log, stopping: make(chan struct{}), keepers: map[*Keeper]struct{}{}}
}

// Add makes a keeper for a pool, which tells events what it learns. It is to be started.
func (s *Keepers) Add(p *routing.Pool, events Events) *Keeper {
	p.Breaker.Pace(s.node.cfg.Lock.TTL/2, retriesOf(s.node.cfg))
	k := newKeeper(s.node, p, events, s.log.With(zap.String("pool", p.Name)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepers[k] = struct{}{}
	return k
}

// TellKinds has the ledgers told which kinds this node handles by now.
func (s *Keepers) TellKinds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.keepers {
		k.conn.interrupt()
	}
}

// Retirement is what others do while a keeper whose pool was taken out of the configuration
// is retired, in this order.
type Retirement struct {
	StopClaiming func() // called at once; must not block
	AwaitClaims  func() // returns when nothing is claimed any more
	ClosePool    func() // called when the session has ended, or could not be
	Forget       func() // called if there is no other keeper for a pool of this name
}

// Retire lets what a keeper's session has claimed come to an end, ends the session and has
// the pool closed. It does not wait for that; Stop does. Once Stop was called it does nothing.
func (s *Keepers) Retire(k *Keeper, with Retirement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	k.retired = true
	with.StopClaiming()
	s.group.Go(func() {
		with.AwaitClaims()
		s.awaitEnds(k)
		ctx, cancel := context.WithTimeout(context.Background(), 2*s.node.cfg.Session.TTL)
		defer cancel()
		if err := k.stop(ctx); err != nil {
			k.log.Warn("a pool that was taken away could not be left in order", zap.Error(err))
		}
		with.ClosePool()
		s.remove(k, with.Forget)
		k.log.Info("pool left")
	})
}

// awaitEnds lets handlers finish, cancels them after that, and waits until the session of a keeper that is retired has
// written how they ended, however long that takes: its heartbeats keep others from running those jobs. It ends, too, when the
// session is lost, the process stops, or the database has been silent for so long that others may run them anyway.
func (s *Keepers) awaitEnds(k *Keeper) {
	session := k.Current()
	if session == nil {
		return
	}
	finish := s.node.workers.FinishWithin()
	late := time.AfterFunc(finish, func() { session.cancel(job.ErrStopping) })
	defer late.Stop()
	ticks := time.NewTicker(s.node.cfg.Session.TTL / 4)
	defer ticks.Stop()
	for heard := time.Now(); time.Since(heard) < finish+s.node.cfg.Session.TTL; {
		select {
		case <-session.completer.whenIdle():
			return
		case <-s.stopping:
			return
		case <-ticks.C:
		}
		if k.Current() != session { // it was declared dead
			return
		}
		if session.trust.holds() || s.waitsWith(k) {
			heard = time.Now()
		}
	}
}

// waitsWith tells whether a keeper that is not retired has the same pool, under other settings, and waits for its database, too.
func (s *Keepers) waitsWith(k *Keeper) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.keepers {
		if other.retired || other.pool.Name != k.pool.Name {
			continue
		}
		if _, unready := other.pool.Number(); unready != nil || other.pool.Outage() != nil {
			return true
		}
	}
	return false
}

// remove forgets a keeper, and what was counted for its pool unless another one of that name
// is there.
func (s *Keepers) remove(k *Keeper, forget func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keepers, k)
	for other := range s.keepers {
		if other.pool.Name == k.pool.Name { // as while its settings change
			return
		}
	}
	s.node.metrics.forget(k.pool.Name)
	forget()
}

// Stop writes the last outcomes and ends the sessions. An error says which pool
// still has claims of this process: its database did not answer, or a handler did
// not return. They are safe there, and run again once the session expires.
func (s *Keepers) Stop(ctx context.Context) error {
	s.mu.Lock()
	first := !s.stopped
	if first {
		close(s.stopping)
	}
	s.stopped = true
	keepers := slices.Collect(maps.Keys(s.keepers))
	absent := s.stopPresence
	s.mu.Unlock()
	if absent != nil {
		absent()
	}
	errs := make([]error, len(keepers))
	var group sync.WaitGroup
	if first && absent != nil {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, CallTimeout/2)
			defer cancel()
			s.tellPresence(ctx, false)
		})
	}
	for i, k := range keepers {
		group.Go(func() { errs[i] = k.stop(ctx) })
	}
	group.Wait()
	retired := make(chan struct{})
	go func() {
		s.group.Wait()
		close(retired)
	}()
	select {
	case <-retired:
	case <-ctx.Done():
		errs = append(errs, context.Cause(ctx))
	}
	return errors.Join(errs...)
}

// Metrics returns the Keepers' metrics, to be registered by the caller.
func (s *Keepers) Metrics() prometheus.Collector { return s.node.metrics }
