package tenure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/admin"
	"github.com/tenurehq/tenure/internal/proposal"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
)

// Node acquires jobs from the configured pools and runs them.
type Node struct {
	cfg      config.Config
	reloader *reloader
	client   *Client
	router   *routing.Router
	cluster  *membership.Cluster
	manager  *acquisition.Manager
	workers  *execution.Workers
	gatherer prometheus.Gatherer
	log      *zap.Logger

	app *fx.App // of a node made by New; nil: the node belongs to somebody else's app

	stopping sync.Mutex // held during Stop
	stopped  error      // guarded by stopping; what kept an earlier Stop from its end
}

// NodeOption changes how a node or a client is made.
type NodeOption func(*nodeSettings)

type nodeSettings struct {
	log        *zap.Logger
	registerer prometheus.Registerer
	version    string
	registry   *job.Registry                                 // of a client that runs no jobs
	elector    func(acquisition.Elector) acquisition.Elector // what tests put around it; nil: nothing
}

// WithLogger makes the node log there. Default: nothing is logged.
func WithLogger(log *zap.Logger) NodeOption { return func(s *nodeSettings) { s.log = log } }

// WithMetrics registers the node's metrics there. Default: they are only in [Node.Handler].
func WithMetrics(r prometheus.Registerer) NodeOption {
	return func(s *nodeSettings) { s.registerer = r }
}

// WithVersion names the release of the program, for display. Default: the main
// module's version, if the program was built with one.
func WithVersion(v string) NodeOption { return func(s *nodeSettings) { s.version = v } }

// WithKinds lets a client that runs no jobs know the kinds and default queues of
// the nodes: it then refuses unknown kinds, as a node's own client does. The
// handlers are not called. A Node ignores it.
func WithKinds(r *job.Registry) NodeOption { return func(s *nodeSettings) { s.registry = r } }

func nodeOptions(opts []NodeOption) nodeSettings {
	s := nodeSettings{log: zap.NewNop(), version: buildVersion()}
	for _, o := range opts {
		o(&s)
	}
	return s
}

func buildVersion() string {
	if b, ok := debug.ReadBuildInfo(); ok {
		return b.Main.Version
	}
	return ""
}

// New returns a node that runs the registry's handlers. It checks the
// configuration and freezes the registry; it starts no goroutine and opens nothing.
func New(cfg config.Config, registry *job.Registry, opts ...NodeOption) (*Node, error) {
	s := nodeOptions(opts)
	var n *Node
	app := fx.New(core, fx.Supply(cfg, registry, s.log, s), fx.Populate(&n), fx.NopLogger,
		fx.StartTimeout(startTimeout), fx.StopTimeout(StopTimeout(cfg)))
	if err := app.Err(); err != nil {
		return nil, plain(err)
	}
	n.app = app
	return n, nil
}

// plain takes off what the wiring put around a constructor's error.
func plain(err error) error {
	var e *config.Error
	if errors.As(err, &e) {
		return e
	}
	return err
}

const startTimeout = 30 * time.Second

// StopTimeout is how long a node with this configuration may take to stop: half a second
// for the next holders of its locks to prepare, the time handlers have to finish
// (execution.finish_within), 5 s for those that were cancelled to return, and the rest to
// write their ends and to leave. That is 24 s by default, as Kubernetes kills after 30.
// Programs that use [Module] pass it to fx.StopTimeout, whose default of 15 s would cut
// handlers short.
func StopTimeout(cfg config.Config) time.Duration { return cfg.Execution.FinishWithin + stopOverhead }

// stopOverhead is what a stop takes at most beside the handlers' time. The parts share it
// by what the deadline leaves them: see Workers.Stop and stopPatience.
const stopOverhead = 14 * time.Second

// Start starts the node: pools, gossip, sessions, workers, acquirers. It returns once they
// run; a pool that does not answer or cannot be used is out of service, see [Client.Unfit],
// and is tried again in the background. It fails when no pool can be used. ctx bounds the
// start only.
func (n *Node) Start(ctx context.Context) error {
	if n.app == nil {
		return errors.New("this node belongs to an fx application, which starts and stops it")
	}
	return n.app.Start(ctx)
}

// Stop stops claiming, offers the held locks to other nodes, lets running handlers
// finish for the configured time, then cancels them, gives back what had not
// started, and leaves. When it returns nil nothing is claimed by this node any
// more. After an error it returns that error again: there is no second try.
func (n *Node) Stop(ctx context.Context) error {
	if n.app == nil {
		return errors.New("this node belongs to an fx application, which starts and stops it")
	}
	n.stopping.Lock()
	defer n.stopping.Unlock()
	if n.stopped == nil {
		n.stopped = n.app.Stop(ctx)
	}
	return n.stopped
}

// Client returns the node's client.
func (n *Node) Client() *Client { return n.client }

// Self is this node as the others see it.
func (n *Node) Self() membership.Member { return n.cluster.Self() }

// Members are the live members of the cluster as this node sees them.
func (n *Node) Members() []membership.Member { return n.cluster.Members() }

// Locks is what this node last saw of each pool's acquire lock.
func (n *Node) Locks() []acquisition.Held { return n.manager.Locks() }

// Handler serves /healthz (the process runs, and need not be started anew because so many
// handlers do not return; else 503), /readyz (it takes part: joined, not
// draining, and some pool can be used; else 503 with the reasons) and /metrics.
// It asks nobody who they are: serve it on loopback, or behind something that does.
func (n *Node) Handler() http.Handler {
	return admin.Handler(n.unready, n.workers.Unhealthy, n.gatherer)
}

// unready says why the node does not take part; nil when it does.
func (n *Node) unready() (reasons []string) {
	select {
	case <-n.cluster.Settled():
	default:
		reasons = append(reasons, "joining the cluster")
	}
	if n.cluster.Self().Draining {
		reasons = append(reasons, "stopping")
	}
	var down []string
	pools := n.router.Pools()
	for _, p := range pools {
		if err := p.Outage(); err != nil {
			down = append(down, fmt.Sprintf("pool %s: %v", p.Name, err))
		}
	}
	if len(down) == len(pools) {
		reasons = append(reasons, down...)
	}
	return reasons
}

// newCluster is the gossip of a configuration, or a single member without it.
func newCluster(cfg config.Config, role membership.Role, r *routing.Router, s nodeSettings) (*membership.Cluster, error) {
	self := membership.Self{Node: cfg.Node.Name, Role: role, Version: s.version, Seeds: proposal.Seeds(r)}
	if !cfg.Gossip() {
		return membership.Single(self), nil
	}
	c, err := membership.New(*cfg.Cluster, self, s.log)
	if err == nil {
		proposal.Promotions(c, r)
	}
	return c, err
}

// poolNames lists the configured pools.
func poolNames(r *routing.Router) (names []string) {
	for _, p := range r.Pools() {
		names = append(names, p.Name)
	}
	return names
}

// newWorkers, newSessions and newManager exist for their arguments' sake: the
// wiring in module.go stays a list.
func newWorkers(cfg config.Config, registry *job.Registry, s nodeSettings) (*execution.Workers, error) {
	return execution.New(cfg.Execution, registry, s.log)
}
