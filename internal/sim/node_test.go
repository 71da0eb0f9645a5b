package sim

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/proposal"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
)

const gossipPort = 7946

// node is a machine on which one process after the other runs.
type node struct {
	w    *world
	name string
	addr string
	run  *process             // nil: none runs
	well map[string]time.Time // by pool, guarded by judge.mu; since when it could serve it; absent: it cannot
}

// process is a node of Tenure as module.go wires it, without fx and the HTTP handler.
type process struct {
	host     *host
	router   *routing.Router
	cluster  *membership.Cluster
	workers  *execution.Workers
	sessions *lease.Keepers
	manager  *acquisition.Manager
}

func (n *node) start() {
	w := n.w
	must := func(err error) {
		if err != nil {
			w.judge.fault("start %s: %v", n.name, err)
			panic(err)
		}
	}
	p := &process{host: w.wires.plug(n.addr, nil)}
	var err error
	p.router, err = routing.New(w.routing, zap.NewNop(), routing.OnNetwork(p.host))
	must(err)
	cfg := membership.Config{Bind: fmt.Sprintf("%s:%d", n.addr, gossipPort), Insecure: true, Label: "sim", Profile: w.setup.profile, Join: w.setup.join}
	self := membership.Self{Node: n.name, Role: membership.RoleNode, Version: "v1.0.0", Seeds: proposal.Seeds(p.router)}
	if w.setup.variant.forgetful {
		started := time.Now()
		cfg.Join, self.Seeds = nil, func(context.Context) []string {
			if time.Since(started) > 5*time.Second {
				return nil
			}
			var all []string
			for _, addr := range w.nodeAddrs(w.nodes) {
				all = append(all, fmt.Sprintf("%s:%d", addr, gossipPort))
			}
			return all
		}
	}
	p.cluster, err = membership.New(cfg, self, zap.NewNop(), membership.OnNetwork(p.host))
	must(err)
	p.host.member = p.cluster.Self().Name
	p.cluster.SetPools(w.poolNames())
	registry := job.NewRegistry()
	registry.Freeze()
	exec := execution.DefaultConfig()
	exec.Workers, exec.Retention = 1, 0
	p.workers, err = execution.New(exec, registry, zap.NewNop())
	must(err)
	me := lease.Self{Node: n.name, Member: p.host.member, GossipAddr: func() string { return p.cluster.Self().Addr }, Version: self.Version, Kinds: registry.Handled, Queues: registry.Queues}
	p.sessions = lease.NewKeepers(w.setup.acquire.Lease(), lease.Kept{}, me, p.workers, zap.NewNop())
	var elector acquisition.Elector = proposal.Elector{Cluster: p.cluster}
	if w.setup.variant.elector != nil {
		elector = w.setup.variant.elector(elector)
	}
	p.manager, err = acquisition.NewManager(w.setup.acquire, p.sessions, p.router, p.workers, registry, elector, zap.NewNop())
	must(err)
	for kind := acquisition.MessageHint; kind <= acquisition.MessageAnswer; kind++ {
		p.cluster.Handle(kind, func(from string, payload []byte) error { return p.manager.Receive(kind, from, payload) })
	}
	proposal.ShareTimelines(p.cluster, p.router)
	ctx := context.Background()
	must(p.router.Start(ctx))
	must(p.cluster.Start(ctx))
	must(p.workers.Start(ctx))
	must(p.manager.Start(ctx))
	w.judge.ran(n, p)
}

// stop ends the process in order.
func (n *node) stop() {
	p := n.run
	n.w.judge.ends(n, true)
	p.stop()
	n.w.wires.unplug(p.host)
}

// crash ends the process as kill -9 does: from one moment to the next nothing of it
// reaches anybody. What it is made of winds down where nobody sees it.
func (n *node) crash() {
	p := n.run
	n.w.judge.ends(n, false)
	n.w.wires.unplug(p.host)
	n.w.ghosts.Go(p.stop)
}

func (p *process) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	_ = p.manager.Stop(ctx)
	_ = p.workers.Stop(ctx)
	_ = p.sessions.Stop(ctx)
	_ = p.cluster.Stop(ctx)
	_ = p.router.Stop(ctx)
}
