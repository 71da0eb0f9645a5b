package tenure

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/proposal"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/encryption"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
)

// Module provides a *Node, its *Client and its *Operator to an Fx application and ties
// them to its life. It needs a config.Config, and takes any number of registrars (see
// [AsRegistrar]) and of NodeOptions in the group "tenure.options", of which [WithStarted] and [WithHandler] are for
// Run and do nothing here. A *zap.Logger, a
// prometheus.Registerer and a trace.TracerProvider are used if there are any.
// Pass fx.StopTimeout(tenure.StopTimeout(cfg)) to the application. Unlike [Node.Run] it
// serves nothing on node.listen, does not watch the configuration file, and leaves SIGHUP
// to end the process: an application that wants these serves [Node.Handler], calls
// [Node.Reload] and catches the signal by itself.
var Module = fx.Module("tenure", core, fx.Provide(registryOf, settingsOf), fx.Invoke(func(*Node) {}))

// Registrar is a part of an application that has handlers.
type Registrar interface{ Register(*job.Registry) }

// AsRegistrar makes what a constructor returns, which must be a [Registrar],
// register its handlers with the node.
func AsRegistrar(constructor any) any {
	return fx.Annotate(constructor, fx.As(new(Registrar)), fx.ResultTags(`group:"tenure.registrars"`))
}

type registrars struct {
	fx.In
	All []Registrar `group:"tenure.registrars"`
}

func registryOf(r registrars) *job.Registry {
	registry := job.NewRegistry()
	for _, one := range r.All {
		one.Register(registry)
	}
	return registry
}

type settingsIn struct {
	fx.In
	Log        *zap.Logger           `optional:"true"`
	Registerer prometheus.Registerer `optional:"true"`
	Tracers    trace.TracerProvider  `optional:"true"`
	Options    []NodeOption          `group:"tenure.options"`
}

func settingsOf(in settingsIn) nodeSettings {
	given := []NodeOption{logWarnings, WithMetrics(in.Registerer), WithTracerProvider(in.Tracers)}
	if in.Log != nil {
		given = append(given, WithLogger(in.Log))
	}
	return nodeOptions(append(given, in.Options...))
}

// core is the wiring, the same behind New and Module. Hooks are appended in the
// order in which the parts are to be started; they are stopped in the reverse
// order, which is the order that keeps claims protected to the last:
//
//	start: pools, gossip, sessions, workers, acquirers
//	stop:  acquirers (no more claims, locks offered), workers (handlers finish),
//	       sessions (last outcomes written), gossip, pools
var core = fx.Options(
	fx.Provide(fx.Private, provideRouter),
	fx.Provide(fx.Private, provideCluster),
	fx.Provide(provideElector), // not private: fx.Decorate puts something around it
	fx.Provide(fx.Private, provideCipher),
	fx.Provide(fx.Private, provideWorkers),
	fx.Provide(fx.Private, provideSessions),
	fx.Provide(fx.Private, provideManager),
	fx.Provide(provideClient),
	fx.Provide((*Client).Operator),
	fx.Provide(provideNode),
)

func provideRouter(lc fx.Lifecycle, cfg config.Config, s nodeSettings) (*routing.Router, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r, err := routing.New(cfg.Routing(), s.log, routing.WithTypes(s.types))
	if err != nil {
		return nil, err
	}
	lc.Append(startStop(r.Start, r.Stop))
	return r, nil
}

// provideCluster takes the router so that pools are opened first.
func provideCluster(lc fx.Lifecycle, cfg config.Config, r *routing.Router, s nodeSettings) (*membership.Cluster, error) {
	c, err := newCluster(cfg, membership.RoleNode, r, s)
	if err != nil {
		return nil, err
	}
	c.SetPools(process.PoolNames(r.Pools()))
	lc.Append(startStop(c.Start, c.Stop))
	return c, nil
}

func provideWorkers(cfg config.Config, registry *job.Registry, cipher *encryption.Cipher, s nodeSettings) (*execution.Workers, error) {
	w, err := execution.New(cfg.Execution, registry, s.log)
	if err != nil {
		return nil, err
	}
	w.OpenWith(cipher.OpenRecord)
	w.MeterTenants(cfg.Node.MeteredTenants())
	w.TraceWith(s.tracer())
	return w, nil
}

func provideElector(c *membership.Cluster) acquisition.Elector { return proposal.Elector{Cluster: c} }

// provideSessions appends the workers' hook too, behind its own: the sessions know
// the workers, but must outlive them.
func provideSessions(lc fx.Lifecycle, cfg config.Config, c *membership.Cluster, w *execution.Workers, registry *job.Registry, s nodeSettings) *lease.Keepers {
	registry.Freeze()
	registry.SetPaused(cfg.Execution.Paused)
	me := c.Self()
	self := lease.Self{Node: me.Node, Member: me.Name, GossipAddr: func() string { return c.Self().Addr }, Version: s.version, Kinds: registry.Handled, Queues: registry.Queues}
	ss := lease.NewKeepers(cfg.Acquire.Lease(), lease.Kept{Finished: cfg.Execution.Retention, Dead: cfg.Execution.DeadRetention}, self, w, s.log.Named("session"))
	lc.Append(startStop(ss.Start, ss.Stop))
	lc.Append(startStop(w.Start, w.Stop))
	return ss
}

func provideManager(lc fx.Lifecycle, cfg config.Config, ss *lease.Keepers, r *routing.Router, w *execution.Workers, registry *job.Registry, c *membership.Cluster, elector acquisition.Elector, s nodeSettings) (*acquisition.Manager, error) {
	if b := cfg.Acquire.Batch; b != acquisition.DefaultConfig().Batch && b > 4*cfg.Execution.Workers {
		s.log.Warn("acquire.batch is more than four times execution.workers, so that claims will never be as large: lower the one or raise the other",
			zap.Int("batch", b), zap.Int("workers", cfg.Execution.Workers))
	}
	m, err := acquisition.NewManager(cfg.Acquire, ss, r, w, registry, elector, s.log)
	if err != nil {
		return nil, err
	}
	m.SetSchedules(cfg.Schedules)
	m.SetLimits(cfg.Limits, slices.Collect(maps.Keys(cfg.Pools)))
	m.MeterTenants(cfg.Node.MeteredTenants())
	c.LogLocks(m.HeldBy)
	for kind := acquisition.MessageHint; kind <= acquisition.MessageAnswer; kind++ {
		c.Handle(kind, func(from string, payload []byte) error { return m.Receive(kind, from, payload) })
	}
	lc.Append(startStop(m.Start, m.Stop))
	return m, nil
}

// provideClient makes the node's client before the registry is filled, because what
// has handlers may want to enqueue. provideNode completes it.
func provideClient(cfg config.Config, r *routing.Router, c *membership.Cluster, cipher *encryption.Cipher) *Client {
	return newClient(process.New(cfg, r, c, cipher))
}

func provideCipher(cfg config.Config, s nodeSettings) *encryption.Cipher { return s.cipher(cfg) }

func provideNode(cfg config.Config, cipher *encryption.Cipher, r *routing.Router, c *membership.Cluster, w *execution.Workers, ss *lease.Keepers, m *acquisition.Manager, registry *job.Registry, client *Client, s nodeSettings) (*Node, error) {
	client.proc.Registry, client.acquirer, client.handling, client.tracer = registry, m, w.Interrupted(), s.tracer()
	client.proc.Notifier.SetAcquirer(m)
	w.HandWith(client)
	m.GiveWith(client.proc.Give)
	refused := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tenure_config_refused", Help: "1 while the configuration file says what this node has refused to put into force, 0 else."})
	own := prometheus.NewRegistry()
	all := []prometheus.Collector{w.Metrics(), ss.Metrics(), m.Metrics(), r, c.Metrics(), client.enqueued, buildInfo(s.version), refused}
	for _, m := range all {
		if err := own.Register(m); err != nil {
			return nil, err
		}
		if s.registerer == nil {
			continue
		}
		if err := s.registerer.Register(m); err != nil {
			return nil, err
		}
	}
	own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	rules, err := access.RulesOf(cfg.Node)
	if err != nil {
		return nil, err
	}
	guard := access.NewGuard(rules)
	guard.Log = s.log
	return &Node{cfg: cfg, guard: guard, reloader: &reloader{started: cfg, node: true, router: r, cluster: c, cipher: s.reloaded(cipher), log: s.log, lock: newReloadLock()}, router: r, cluster: c, manager: m, workers: w, registry: registry, gatherer: own, client: client, configPaused: cfg.Execution.Paused, onReload: s.onReload, refused: refused, log: s.log}, nil
}

func buildInfo(version string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tenure_build_info", Help: "1, with the program's version.", ConstLabels: prometheus.Labels{"version": version}})
	g.Set(1)
	return g
}
