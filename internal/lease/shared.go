package lease

import (
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
	Kinds      func() (handled []string, mark uint32) // it has handlers for; see job.Registry.Handled
}

// shared is what the keeper of a pool, its connection and its sessions go by.
type shared struct {
	pool      *routing.Pool
	cfg       Config
	retention time.Duration
	self      Self
	workers   *execution.Workers
	events    Events
	log       *zap.Logger
	metrics   *metrics
}

// Member is this process' name in gossip.
func (s *shared) Member() string { return s.self.Member }

// Retention is how long finished jobs are kept; 0: not at all.
func (s *shared) Retention() time.Duration { return s.retention }

// KeepsFinished tells whether finished jobs are kept.
func (s *shared) KeepsFinished() bool { return s.retention > 0 }

// NodeName is what this node is called.
func (s *shared) NodeName() string { return s.self.Node }
