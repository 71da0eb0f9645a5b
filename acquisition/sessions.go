package acquisition

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/routing"
)

// Self is this process as its sessions describe it.
type Self struct {
	Node       string        // configured name
	Member     string        // name in gossip, unique to this process
	GossipAddr func() string // known once gossip has started
	Version    string
	Kinds      []string // it has handlers for
}

// Sessions keeps this process' sessions, one per pool it works on, from when they are
// needed. It is stopped after the workers, so that running jobs stay protected while
// they finish.
type Sessions struct {
	cfg       Config
	retention time.Duration
	self      Self
	workers   *execution.Workers
	log       *zap.Logger
	metrics   *metrics

	group sync.WaitGroup // keepers that are being retired

	mu      sync.Mutex
	absent  context.CancelFunc   // guarded by mu; ends attend; nil before Start
	keepers map[*keeper]struct{} // guarded by mu
	stopped bool                 // guarded by mu
}

// NewSessions returns sessions for the pools that a [Manager] will acquire from.
// Nothing is opened until it is needed. retention is how long finished jobs are kept;
// 0: not at all.
func NewSessions(cfg Config, retention time.Duration, self Self, workers *execution.Workers, log *zap.Logger) (*Sessions, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Sessions{cfg: cfg, retention: retention, self: self, workers: workers, log: log.Named("session"),
		metrics: newMetrics(), keepers: map[*keeper]struct{}{}}, nil
}

// add makes a keeper for a pool; whoever adds it starts it.
func (s *Sessions) add(p *routing.Pool) *keeper {
	k := &keeper{
		pool: p, cfg: s.cfg, retention: s.retention, self: s.self, workers: s.workers,
		log: s.log.With(zap.String("pool", p.Name)), metrics: s.metrics,
		inbox: newInbox(), errands: newErrands(), nudge: make(chan struct{}, 1), connMu: make(slot, 1), ended: make(chan struct{}),
	}
	k.reach.longest = longestRetry(s.cfg.Lock.TTL, s.cfg.Session.TTL)
	k.patience, k.giveUp = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepers[k] = struct{}{}
	return k
}

// retire stops the acquirer of a pool that was taken out of the configuration, lets
// what it has claimed come to an end, ends its session and closes the pool.
func (s *Sessions) retire(a *acquirer, closePool func(*routing.Pool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	a.assistant.stop()
	a.cancel()
	s.group.Go(func() {
		a.group.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 2*(a.workers.FinishWithin()+retireGrace)) // half of it is for the jobs: see stopPatience
		defer cancel()
		if err := a.keeper.retire(ctx, a.workers.FinishWithin()); err != nil {
			a.log.Warn("a pool that was taken away could not be left in order", zap.Error(err))
		}
		closePool(a.pool)
		a.log.Info("pool left")
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.keepers, a.keeper)
		if !s.keeps(a.pool.Name) {
			s.metrics.forget(a.pool.Name)
		}
	})
}

// keeps tells whether there is a keeper for a pool of this name, as there is while its
// settings change; mu is held.
func (s *Sessions) keeps(pool string) bool {
	for k := range s.keepers {
		if k.pool.Name == pool {
			return true
		}
	}
	return false
}

// retireGrace is what a pool that is left has after its jobs, to write how they ended.
const retireGrace = 15 * time.Second

// Stop writes the last outcomes and ends the sessions. An error says which pool
// still has claims of this process: its database did not answer, or a handler did
// not return. They are safe there, and run again once the session expires.
func (s *Sessions) Stop(ctx context.Context) error {
	s.mu.Lock()
	first := !s.stopped
	s.stopped = true
	keepers := slices.Collect(maps.Keys(s.keepers))
	absent := s.absent
	s.mu.Unlock()
	if absent != nil {
		absent()
	}
	errs := make([]error, len(keepers))
	var group sync.WaitGroup
	if first && absent != nil {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, presenceWithin)
			defer cancel()
			s.present(ctx, false)
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
