package acquisition

import (
	"context"
	"errors"
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

// Sessions keeps this process' sessions, one per pool it works on. It is started
// before the workers and stopped after them, so that running jobs stay protected
// while they finish.
type Sessions struct {
	keepers []*keeper
	byPool  map[string]*keeper
	metrics *metrics
}

// NewSessions prepares a session for every pool. Nothing is opened until it is
// needed. retention is how long finished jobs are kept; 0: not at all.
func NewSessions(cfg Config, retention time.Duration, self Self, router *routing.Router, workers *execution.Workers, log *zap.Logger) (*Sessions, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Sessions{byPool: map[string]*keeper{}, metrics: newMetrics()}
	for _, p := range router.Pools() {
		k := &keeper{
			pool: p, cfg: cfg, retention: retention, self: self, workers: workers,
			log: log.Named("session").With(zap.String("pool", p.Name)), metrics: s.metrics,
			inbox: newInbox(), errands: newErrands(), nudge: make(chan struct{}, 1),
		}
		k.patience, k.giveUp = context.WithCancel(context.Background())
		s.keepers = append(s.keepers, k)
		s.byPool[p.Name] = k
	}
	return s, nil
}

// Start starts the heartbeats.
func (s *Sessions) Start(context.Context) error {
	for _, k := range s.keepers {
		k.start()
	}
	return nil
}

// Stop writes the last outcomes and ends the sessions. An error says which pool
// still has claims of this process: its database did not answer, or a handler did
// not return. They are safe there, and run again once the session expires.
func (s *Sessions) Stop(ctx context.Context) error {
	errs := make([]error, len(s.keepers))
	var group sync.WaitGroup
	for i, k := range s.keepers {
		group.Go(func() { errs[i] = k.stop(ctx) })
	}
	group.Wait()
	return errors.Join(errs...)
}
