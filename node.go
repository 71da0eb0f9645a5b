package tenure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/internal/admin"
	"github.com/tenurehq/tenure/internal/proposal"
	"github.com/tenurehq/tenure/internal/slogcore"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/encryption"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/operate"
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
	registry *job.Registry
	gatherer prometheus.Gatherer
	guard    *access.Guard    // of what is the node's own
	refused  prometheus.Gauge // whether the configuration file is
	log      *zap.Logger

	configPaused bool       // what the configuration says; used by one reload at a time
	announcing   sync.Mutex // held while others are told of the kinds

	app      *fx.App                     // of a node made by New; nil: the node belongs to somebody else's app
	begun    atomic.Bool                 // Start was called
	started  func()                      // called by Run; nil: nothing is
	onReload []func(config.Config) error // called by Reload
	beside   func(*Node) http.Handler    // what Run serves beside the node's own; nil: nothing

	tried    chan struct{} // closed when Start has returned
	stopping sync.Once
	stopped  chan struct{} // closed when Stop has come to its end
	stopErr  error         // of that
}

// NodeOption changes how a node or a client is made; nil changes nothing.
type NodeOption func(*nodeSettings)

type nodeSettings struct {
	log        *zap.Logger
	registerer prometheus.Registerer
	version    string
	registry   *job.Registry      // of a client that runs no jobs
	ring       encryption.KeyRing // nil: the configuration's
	kinds      []string           // that ring is for
	started    func()
	onReload   []func(config.Config) error
	handler    func(*Node) http.Handler // nil: nothing more is served
	tracers    trace.TracerProvider     // nil: nothing is traced
	types      routing.Types            // nil: pgx's own
}

// WithLogger makes the node log there. Default: a node's warnings and errors go to slog.Default(),
// and a client logs nothing.
func WithLogger(log *zap.Logger) NodeOption { return func(s *nodeSettings) { s.log = log } }

// WithSlog makes the node log by log/slog, at the levels that its handler takes. The name of the part
// that speaks is the attribute logger. It replaces [WithLogger].
func WithSlog(log *slog.Logger) NodeOption {
	return WithLogger(zap.New(slogcore.New(log.Handler()), zap.AddCaller()))
}

// WithMetrics registers the node's metrics there. Default: they are only in [Node.Handler]. A client that runs no jobs
// registers its counter of the jobs it has enqueued until it is stopped, and nothing by default: two clients need two of them.
func WithMetrics(r prometheus.Registerer) NodeOption {
	return func(s *nodeSettings) { s.registerer = r }
}

// WithTracerProvider has a span begin and end with each run of a job, and with each call of the client's that enqueues. A
// run's is the root of a trace, linked to the span in which the job was enqueued, if one was recorded then: its name
// stands in the job's meta. A handler's context carries it, so what the handler does, and enqueues, belongs to it. A
// client that runs no jobs takes it, too. Default: there are none of these spans.
func WithTracerProvider(p trace.TracerProvider) NodeOption {
	return func(s *nodeSettings) { s.tracers = p }
}

// WithTypes makes tenants' transactions know more types than pgx does, such as those of pgvector or of a decimal
// package. f is called with every connection that is opened for them, before the first one, and registers types with
// conn.TypeMap(); the AfterConnect of a pgxpool fits. It runs as the pool's user in no tenant's schema: a type has to be
// the same for all tenants, as those of extensions and of a shared schema are. It has to be quick, as a transaction
// waits for it, and must not keep conn. If it fails, so does the connection.
func WithTypes(f func(ctx context.Context, conn *pgx.Conn) error) NodeOption {
	return func(s *nodeSettings) { s.types = f }
}

// WithVersion names the release of the program, for display. Default: the main
// module's version, if the program was built with one.
func WithVersion(v string) NodeOption { return func(s *nodeSettings) { s.version = v } }

// WithStarted has [Node.Run] call f once the node has started, before anything else is done,
// such as to tell a supervisor. f is called once at most; it should return soon.
func WithStarted(f func()) NodeOption { return func(s *nodeSettings) { s.started = f } }

// WithReloaded has [Node.Reload] call f with each configuration that it has put into force, before
// another one is. f should return soon, and must not call Reload. Of several each is called.
func WithReloaded(f func(config.Config)) NodeOption {
	return func(s *nodeSettings) {
		if f != nil {
			s.onReload = append(s.onReload, func(cfg config.Config) error {
				f(cfg)
				return nil
			})
		}
	}
}

// WithHandler has [Node.Run] serve what f returns on node.listen, beside health, metrics and reload: all
// other paths. f is called once, when Run begins. What it returns is told of reloads as [WithReloaded] says,
// if it has a method Reloaded(config.Config) error, whose error [Node.Reload] returns. The dashboard and the API are one such: see web.Serve.
func WithHandler(f func(*Node) http.Handler) NodeOption {
	return func(s *nodeSettings) { s.handler = f }
}

// WithKinds lets a client that runs no jobs know the kinds of the nodes, with their default
// queues and exclusive keys: it then refuses unknown kinds, as a node's own client does. Without it jobs of a kind
// with [job.ExclusiveBy] get no key, so that several of them run at a time. The
// handlers are not called. A Node ignores it.
func WithKinds(r *job.Registry) NodeOption { return func(s *nodeSettings) { s.registry = r } }

// WithKeyRing has the arguments of some kinds, or of all if none is named, encrypted with keys from ring,
// instead of as the configuration's encryption section says, such as keys that a service keeps.
func WithKeyRing(ring encryption.KeyRing, kinds ...string) NodeOption {
	return func(s *nodeSettings) { s.ring, s.kinds = ring, kinds }
}

// cipher is what encrypts in this process.
func (s nodeSettings) cipher(cfg config.Config) *encryption.Cipher {
	if s.ring != nil {
		return encryption.New(s.ring, s.kinds...)
	}
	return encryption.New(cfg.Encryption.Ring(), cfg.Encryption.Kinds...)
}

// reloaded is the cipher if the configuration has its keys, and else nil.
func (s nodeSettings) reloaded(c *encryption.Cipher) *encryption.Cipher {
	if s.ring != nil {
		return nil
	}
	return c
}

func nodeOptions(opts []NodeOption) nodeSettings {
	s := nodeSettings{log: zap.NewNop(), version: buildVersion()}
	for _, o := range opts {
		if o != nil {
			o(&s)
		}
	}
	return s
}

// logWarnings has somebody told what a node says of itself where nobody chose a logger.
func logWarnings(s *nodeSettings) {
	core := slogcore.New(slog.Default().Handler())
	if warnings, err := zapcore.NewIncreaseLevelCore(core, zap.WarnLevel); err == nil { // else it is told less already
		core = warnings
	}
	s.log = zap.New(core)
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
	if registry == nil {
		return nil, errors.New("the registry is nil: pass one made with job.NewRegistry, empty if the node has no handlers")
	}
	s := nodeOptions(append([]NodeOption{logWarnings}, opts...))
	var n *Node
	app := fx.New(core, fx.Supply(cfg, registry, s.log, s), fx.Populate(&n), fx.NopLogger,
		fx.StartTimeout(startTimeout), fx.StopTimeout(StopTimeout(cfg)))
	if err := app.Err(); err != nil {
		return nil, plain(err)
	}
	n.app, n.started, n.beside, n.tried = app, s.started, s.handler, make(chan struct{})
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

var errOfFx = errors.New("this node belongs to an fx application, which starts and stops it")

// Start starts the node: pools, gossip, sessions, workers, acquirers. It returns once they
// run; a pool that does not answer or cannot be used is out of service, see [operate.Pools.Unfit],
// and is tried again in the background. It fails when no pool can be used. ctx bounds the
// start only.
func (n *Node) Start(ctx context.Context) error {
	if n.app == nil {
		return errOfFx
	}
	if n.begun.Swap(true) {
		return errors.New("the node was started, or stopped, before: make another one with New")
	}
	defer close(n.tried)
	return n.app.Start(ctx)
}

// Stop stops claiming, offers the held locks to other nodes, lets running handlers
// finish for the configured time, then cancels them, gives back what had not
// started, and leaves. When it returns nil nothing is claimed by this node any
// more. When ctx ends before, the rest is done in the background, in some ten seconds for each part; another call
// waits for that. A node that is stopped before it was started cannot be started any more.
func (n *Node) Stop(ctx context.Context) error {
	if n.app == nil {
		return errOfFx
	}
	if !n.begun.Swap(true) {
		close(n.tried)
	}
	n.stopping.Do(func() {
		n.stopped = make(chan struct{})
		go func() {
			defer close(n.stopped)
			<-n.tried
			n.stopErr = n.app.Stop(context.WithValue(context.WithoutCancel(ctx), stopKey{}, ctx)) // fx would leave out what comes after the end of ctx
		}()
	})
	select {
	case <-n.stopped:
		return n.stopErr
	case <-ctx.Done():
		return fmt.Errorf("the node is still being stopped: %w", context.Cause(ctx))
	}
}

// stopKey is of the context of who called [Node.Stop].
type stopKey struct{}

// restOfStop is how long each part of a node has for its stop once the caller's time is up.
const restOfStop = 10 * time.Second

// startStop is what fx does with a part of a node: a stop is bounded by its caller's context, and by a time of its own once that
// has ended.
func startStop(start, stop func(context.Context) error) fx.Hook {
	return fx.StartStopHook(start, func(ctx context.Context) error {
		caller, ours := ctx.Value(stopKey{}).(context.Context)
		if ours && caller.Err() == nil {
			return stop(caller)
		}
		if ours {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, restOfStop)
			defer cancel()
		}
		return stop(ctx)
	})
}

// Client returns the node's client.
func (n *Node) Client() *Client { return n.client }

// Operator returns the node's operator.
func (n *Node) Operator() *operate.Operator { return n.client.Operator() }

// Self is this node as the others see it.
func (n *Node) Self() membership.Member { return n.cluster.Self() }

// Members are the live members of the cluster as this node sees them.
func (n *Node) Members() []membership.Member { return n.cluster.Members() }

// Locks is what this node last saw of each pool's acquire lock.
func (n *Node) Locks() []acquisition.Held { return n.manager.Locks() }

// Handler serves /healthz (the process runs, and need not be restarted because so many
// handlers do not return; else 503), /readyz (it takes part: joined, not
// draining, and some pool can be used; else 503 with the reasons) and /metrics.
// It asks nobody who they are: serve it on loopback, or behind something that does.
func (n *Node) Handler() http.Handler {
	return admin.Handler(n.explainUnready, n.workers.Unhealthy, n.gatherer)
}

// explainUnready says why the node does not take part; nil when it does.
func (n *Node) explainUnready() (reasons []string) {
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
		if p.Unusable() != nil { // what it says may name the database's address and user, which is nobody's business
			down = append(down, "pool "+p.Name+" cannot be used: the node's log and tenure doctor say why")
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
		proposal.ShareTimelines(c, r)
	}
	return c, err
}
