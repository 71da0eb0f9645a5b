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
	"github.com/tenurehq/tenure/routing"
)

// Keepers keeps this process' sessions, one per pool it works on, from when they are
// needed. It is stopped after the workers, so that running jobs stay protected while
// they finish.
type Keepers struct {
	cfg       Config
	retention time.Duration
	self      Self
	workers   *execution.Workers
	log       *zap.Logger
	metrics   *metrics

	group sync.WaitGroup // keepers that are being retired

	mu           sync.Mutex
	stopPresence context.CancelFunc   // guarded by mu; ends attend; nil before Start
	keepers      map[*Keeper]struct{} // guarded by mu
	stopped      bool                 // guarded by mu
}

// NewKeepers returns keepers for pools that are added to them. Nothing is opened until it is needed. retention is how long finished jobs are kept;
// 0: not at all.
func NewKeepers(cfg Config, retention time.Duration, self Self, workers *execution.Workers, log *zap.Logger) *Keepers {
	return &Keepers{cfg: cfg, retention: retention, self: self, workers: workers, log: log,
		metrics: newMetrics(), keepers: map[*Keeper]struct{}{}}
}

// Add makes a keeper for a pool, which tells events what it learns. It is to be started.
func (s *Keepers) Add(p *routing.Pool, events Events) *Keeper {
	of := &shared{pool: p, cfg: s.cfg, retention: s.retention, self: s.self, workers: s.workers, events: events,
		log: s.log.With(zap.String("pool", p.Name)), metrics: s.metrics}
	c := &connection{shared: of, state: &state{}, mu: make(callMutex, 1)}
	k := &Keeper{connection: c, nudge: make(chan struct{}, 1), ending: ending{done: make(chan struct{})}}
	c.hangUp = k.HangUp
	p.Breaker.Pace(s.cfg.Lock.TTL/2, retriesOf(s.cfg))
	k.ending.patience, k.ending.giveUp = context.WithCancel(context.Background())
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
		k.wakeUp()
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
	with.StopClaiming()
	s.group.Go(func() {
		with.AwaitClaims()
		finish := s.workers.FinishWithin()
		ctx, cancel := context.WithTimeout(context.Background(), 2*(finish+s.cfg.Session.TTL)) // half of it is for the jobs, as stopPatience has it, and for writing how they ended
		defer cancel()
		if err := k.retire(ctx, finish); err != nil {
			k.log.Warn("a pool that was taken away could not be left in order", zap.Error(err))
		}
		with.ClosePool()
		s.remove(k, with.Forget)
		k.log.Info("pool left")
	})
}

// remove forgets a keeper, and what was counted for its pool unless another one of that name
// is there.
func (s *Keepers) remove(k *Keeper, forget func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keepers, k)
	if !s.keepsPool(k.pool.Name) {
		s.metrics.forget(k.pool.Name)
		forget()
	}
}

// keepsPool tells whether there is a keeper for a pool of this name, as there is while its
// settings change; mu is held.
func (s *Keepers) keepsPool(pool string) bool {
	for k := range s.keepers {
		if k.pool.Name == pool {
			return true
		}
	}
	return false
}

// Stop writes the last outcomes and ends the sessions. An error says which pool
// still has claims of this process: its database did not answer, or a handler did
// not return. They are safe there, and run again once the session expires.
func (s *Keepers) Stop(ctx context.Context) error {
	s.mu.Lock()
	first := !s.stopped
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
func (s *Keepers) Metrics() prometheus.Collector { return s.metrics }
