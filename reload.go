package tenure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/encryption"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Reloaded says what [Node.Reload] or [Client.Reload] did.
type Reloaded struct {
	Added   []string `json:"pools_added,omitempty"`   // pools that came into service, or will when their database answers
	Removed []string `json:"pools_removed,omitempty"` // pools that are being left; one whose settings changed is in both lists
	Applied []string `json:"applied,omitempty"`       // sections and settings that differ from what was in force, and are in force now
	Later   []string `json:"after_restart,omitempty"` // sections that differ and take effect when the node is started again
	// Unknown are tenants with schedules under schedules that no routing rule knows: these schedules add no jobs until one does. A
	// client tells none, nor those that the lookup table has not answered for in a few seconds.
	Unknown []tenancy.ID `json:"unknown_tenants,omitempty"`
}

// reloader puts configurations into force, one at a time.
type reloader struct {
	started config.Config // what the process was started with
	node    bool          // it is a node; else a client, which takes over less
	router  *routing.Router
	cluster *membership.Cluster
	cipher  *encryption.Cipher // whose keys are the configuration's; nil: there is none
	log     *zap.Logger

	lock    reloadLock     // held during a reload
	current *config.Config // guarded by lock; what is in force; nil: started
}

// reloadLock is a mutex that is waited for no longer than a context lasts.
type reloadLock chan struct{}

func newReloadLock() reloadLock { return make(reloadLock, 1) }

func (l reloadLock) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l reloadLock) unlock() { <-l }

// applyConfig calls then with the change that it has made, before another one is made.
func (r *reloader) applyConfig(ctx context.Context, cfg config.Config, then func(routing.Change)) (Reloaded, error) {
	if err := cfg.Validate(); err != nil {
		return Reloaded{}, err
	}
	if err := r.lock.lock(ctx); err != nil {
		return Reloaded{}, err
	}
	defer r.lock.unlock()
	change, err := r.router.Apply(ctx, cfg.Routing())
	if err != nil {
		return Reloaded{}, fmt.Errorf("reload: %w", err)
	}
	if r.cipher != nil {
		r.cipher.Replace(cfg.Encryption.Ring(), cfg.Encryption.Kinds...)
	}
	done := Reloaded{Added: process.PoolNames(change.Added), Removed: process.PoolNames(change.Removed), Applied: r.sectionsApplied(cfg), Later: r.sectionsForLater(cfg)}
	r.current = &cfg
	if cfg.Cluster != nil && r.cluster.SetKeys(cfg.Cluster.Keys) {
		done.Applied = append(done.Applied, "cluster.keys")
		r.log.Info("the keys of gossip changed", zap.Int("keys", len(cfg.Cluster.Keys)))
	}
	r.cluster.SetPools(process.PoolNames(r.router.Pools()))
	then(change)
	if len(done.Added)+len(done.Removed) > 0 {
		r.log.Info("pools changed", zap.Strings("added", done.Added), zap.Strings("removed", done.Removed))
	}
	if len(done.Applied) > 0 {
		r.log.Info("the configuration changed", zap.Strings("in", done.Applied))
	}
	if len(done.Later) > 0 {
		r.log.Warn("some changes of the configuration take effect when the node is started again", zap.Strings("sections", done.Later))
	}
	return done, nil
}

// sectionsApplied are those that differ from what is in force in what changes at once, but for whole pools and the keys
// of gossip.
func (r *reloader) sectionsApplied(cfg config.Config) (applied []string) {
	old := cmp.Or(r.current, &r.started)
	pools := maps.Clone(cfg.Pools) // without those that came or went
	maps.DeleteFunc(pools, func(name string, _ routing.PoolConfig) bool { _, ok := old.Pools[name]; return !ok })
	before := maps.Clone(old.Pools)
	maps.DeleteFunc(before, func(name string, _ routing.PoolConfig) bool { _, ok := cfg.Pools[name]; return !ok })
	for _, section := range []struct {
		name     string
		old, new any
		here     bool
	}{
		{"pools", before, pools, true}, {"tenants", old.Tenants, cfg.Tenants, true}, {"encryption", old.Encryption, cfg.Encryption, r.cipher != nil},
		{"schedules", old.Schedules, cfg.Schedules, r.node}, {"limits", old.Limits, cfg.Limits, r.node},
		{"acquire.queues", old.Acquire.Queues, cfg.Acquire.Queues, r.node}, {"execution.paused", old.Execution.Paused, cfg.Execution.Paused, r.node},
		{"node.tokens", old.Node.Tokens, cfg.Node.Tokens, r.node}, {"node.trusted_proxies", old.Node.TrustedProxies, cfg.Node.TrustedProxies, r.node},
		{"node.oidc", old.Node.OIDC, cfg.Node.OIDC, r.node},
	} {
		if section.here && !reflect.DeepEqual(section.old, section.new) {
			applied = append(applied, section.name)
		}
	}
	return applied
}

// sectionsForLater are those that differ from what the process was started with in what does not
// change at once.
func (r *reloader) sectionsForLater(cfg config.Config) (later []string) {
	old := r.started
	node := cfg.Node
	node.Tokens, node.TrustedProxies, node.OIDC = old.Node.Tokens, old.Node.TrustedProxies, old.Node.OIDC
	cluster := cfg.Cluster
	if cluster != nil && old.Cluster != nil && (len(cluster.Keys) == 0) == (len(old.Cluster.Keys) == 0) {
		same := *cluster
		same.Keys = old.Cluster.Keys // gossip that is encrypted changes its keys at once
		cluster = &same
	}
	acquire := cfg.Acquire
	acquire.Queues = old.Acquire.Queues
	execution := cfg.Execution
	execution.Paused = old.Execution.Paused
	for _, section := range []struct {
		name     string
		old, new any
	}{
		{"node", old.Node, node}, {"cluster", old.Cluster, cluster}, {"connections", old.Connections, cfg.Connections},
		{"acquire", old.Acquire, acquire}, {"execution", old.Execution, execution}, {"handlers", old.Handlers, cfg.Handlers},
	} {
		if !reflect.DeepEqual(section.old, section.new) {
			later = append(later, section.name)
		}
	}
	return later
}

// errNotStarted refuses a reload that would come between the parts of a start.
var errNotStarted = errors.New("the node is not started yet: reload it once it is")

// errPartly is that what is served beside the node refuses its part of a configuration, such as a file that cannot be read.
var errPartly = errors.New("the configuration is in force but for this; mend it and reload")

// Reload puts another configuration's pools, tenants, schedules, limits, keys of encryption and of gossip, who may
// call (node.tokens, node.trusted_proxies, node.oidc), queues' shares and execution.paused into force
// while the node runs: all of it or, with an error, nothing, but for what a handler of [WithHandler] alone refuses, and
// for users and passwords of pools, each of which is in force once its server takes it. Requests go on meanwhile. Where a pool is left, its lock goes to
// another node, its jobs finish as on a stop, and its connections are closed, while the
// others go on. It is refused when cfg is not valid, when a database that is to be
// added answers and cannot be used, when a pool would lead to another database than
// before, with [routing.ErrInUse] when a tenant would lose its pool, and with
// [routing.ErrHasJobs] when one would leave its jobs behind. Other sections are compared
// and left alone; with connections as they are, what is added must fit into its server.
// It is refused, too, until the node is started. Safe for concurrent use.
func (n *Node) Reload(ctx context.Context, cfg config.Config) (Reloaded, error) {
	if !n.manager.Started() {
		return Reloaded{}, errNotStarted
	}
	rules, err := access.RulesOf(cfg.Node)
	if err != nil {
		return Reloaded{}, cmp.Or(cfg.Validate(), err)
	}
	var refused []error
	done, err := n.reloader.applyConfig(ctx, cfg, func(change routing.Change) {
		n.client.proc.Cfg.Store(&cfg)
		for _, p := range change.Removed {
			n.client.enqueued.Forget(p.Name)
		}
		n.guard.Set(rules)
		n.manager.ShareQueues(cfg.Acquire.Queues)
		n.manager.SetSchedules(cfg.Schedules)
		n.manager.SetLimits(cfg.Limits, slices.Collect(maps.Keys(cfg.Pools)))
		if n.configPaused != cfg.Execution.Paused { // else Pause and Resume may have changed it since
			n.configPaused = cfg.Execution.Paused
			n.setPaused(n.configPaused)
		}
		n.manager.Apply(n.router.Pools())
		for _, reloaded := range n.onReload {
			refused = append(refused, reloaded(cfg))
		}
	})
	if err != nil {
		return done, err
	}
	done.Unknown = n.findUnknown(ctx, cfg)
	if err := errors.Join(refused...); err != nil {
		return done, fmt.Errorf("%w: %w", errPartly, err)
	}
	return done, nil
}

// findUnknown are the tenants with schedules of the configuration that no routing rule knows.
func (n *Node) findUnknown(ctx context.Context, cfg config.Config) (unknown []tenancy.ID) {
	const within = 3 * time.Second // the rest is in the log of the lock's holder soon
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	asked := map[tenancy.ID]bool{}
	for _, s := range cfg.Schedules {
		for _, id := range s.Tenants {
			if ctx.Err() != nil || asked[id] {
				continue
			}
			asked[id] = true
			if _, _, err := n.router.Resolve(ctx, id); errors.Is(err, tenancy.ErrUnknownTenant) {
				unknown = append(unknown, id)
			}
		}
	}
	slices.Sort(unknown)
	return unknown
}

// Register adds the handlers that add registers, while the node runs: all of them or, with
// [job.ErrKindExists], none. The node's middleware is around them, too. A kind that was
// withdrawn may be registered again, also with another handler. What waits for one of them begins
// within about a second, also in pools whose locks other nodes hold. add gets an empty registry,
// and panics on what [job.Registry.Add] panics on. Before [Node.Start] it does the same as to
// register before [New]. Safe for concurrent use.
func (n *Node) Register(add func(*job.Registry)) error {
	more := job.NewRegistry()
	add(more)
	if err := n.registry.Join(more); err != nil {
		return fmt.Errorf("register handlers: %w", err)
	}
	n.announceKinds()
	n.log.Info("kinds registered", zap.Strings("kinds", more.Kinds()))
	return nil
}

// Withdraw has no more jobs of these kinds start on this node: none of the kinds, with
// [job.ErrKindUnknown], if one of them is not registered. It returns once none of them runs here.
// When ctx ends before, what still runs is cancelled with [job.ErrStopping] and given back; an
// error says which handlers ignore that. What was claimed and has not started is given back. No
// attempt is charged for either. Others learn of it within a round of gossip and run the jobs, or
// these wait until some node handles them. The node's client goes on enqueuing them.
// A handler must not wait for the withdrawal of its own kind. Safe for concurrent use.
func (n *Node) Withdraw(ctx context.Context, kinds ...string) error {
	if err := n.registry.Withdraw(kinds...); err != nil {
		return fmt.Errorf("withdraw handlers: %w", err)
	}
	n.announceKinds()
	n.log.Info("kinds withdrawn", zap.Strings("kinds", slices.Sorted(slices.Values(kinds))))
	return n.workers.FinishWithdrawn(ctx)
}

// Pause has the node run no jobs until [Node.Resume], as if all kinds were withdrawn: see
// [Node.Withdraw] for what ctx does. It enqueues, and as long as it holds a pool's lock it fires timers and
// schedules there, and hands all jobs to other nodes. Configured by execution.paused, also by
// a reload, which does not wait. On a paused node it only waits. Safe for concurrent use.
func (n *Node) Pause(ctx context.Context) error {
	n.setPaused(true)
	return n.workers.FinishWithdrawn(ctx)
}

// Resume has a paused node run jobs again; on another one it does nothing. Safe for concurrent use.
func (n *Node) Resume() { n.setPaused(false) }

func (n *Node) setPaused(paused bool) {
	if !n.registry.SetPaused(paused) {
		return
	}
	n.announceKinds()
	n.log.Info(map[bool]string{true: "paused: no jobs run here", false: "resumed: jobs run here again"}[paused])
}

// announceKinds has everybody know which kinds the node handles by now.
func (n *Node) announceKinds() {
	n.announcing.Lock() // so that the last one tells what is so
	defer n.announcing.Unlock()
	n.manager.SetKinds(n.registry.Handled())
}
