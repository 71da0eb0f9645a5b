package jobtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/membership"
)

// Nodes are real nodes that run an Env's jobs: each with its own workers, and
// gossip among them on loopback. They all call the handlers of the one registry.
type Nodes struct {
	t     testing.TB
	env   *Env
	nodes []*tenure.Node
}

// findWithin is how soon nodes find jobs: the env's client is not among those who
// gossip, so nobody tells them.
const findWithin = 50 * time.Millisecond

// Nodes starts n nodes and leaves the jobs of the env to them: Run, Drain and
// Advance are over. They stop with t. The first job runs after about a second,
// when the nodes have found one another.
func (e *Env) Nodes(t testing.TB, n int) *Nodes {
	t.Helper()
	e.begin(t)
	e.nodes = true
	e.mu.Unlock()
	for _, p := range e.pools {
		if err := p.letGo(t.Context()); err != nil {
			t.Fatalf("jobtest: %v", err)
		}
	}
	ns := &Nodes{t: t, env: e}
	gossip := membership.DefaultConfig()
	gossip.Bind, gossip.Profile, gossip.Label = "127.0.0.1:0", "local", name+" "+rand.Text()
	for i := range n {
		cfg := e.cfg
		cfg.Node.Name = fmt.Sprintf("node-%d", i+1)
		cfg.Acquire.IdleWait = findWithin
		own := gossip
		cfg.Cluster = &own
		node, err := tenure.New(cfg, e.registry, tenure.WithLogger(logger(t)))
		if err != nil {
			t.Fatalf("jobtest: %v", err)
		}
		stopLater(t, node)
		if err := node.Start(t.Context()); err != nil {
			t.Fatalf("jobtest: start %s: %v", cfg.Node.Name, err)
		}
		ns.nodes = append(ns.nodes, node)
		gossip.Join = append(gossip.Join[:i:i], node.Self().Addr)
	}
	return ns
}

// Stop stops the i-th node, counted from 0, as the end of its process would: its
// handlers get a moment to finish, the others take over.
func (ns *Nodes) Stop(i int) {
	ns.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := ns.nodes[i].Stop(ctx); err != nil {
		ns.t.Fatalf("jobtest: stop node-%d: %v", i+1, err)
	}
}

// waitLimit bounds Wait: go test's own limit says less about the cause.
const (
	waitLimit = time.Minute
	waitPoll  = 20 * time.Millisecond
)

// Wait waits until no job runs, waits or is due. Delays that are not over are not
// waited for.
func (ns *Nodes) Wait() {
	ns.t.Helper()
	ctx, cancel := context.WithTimeout(ns.t.Context(), waitLimit)
	defer cancel()
	look := time.NewTicker(waitPoll)
	defer look.Stop()
	// Twice in a row, as a handler may enqueue into a pool that was just looked at.
	for quiet := 0; quiet < 2; {
		var busy int
		for _, p := range ns.env.pools {
			n, err := p.busy(ctx)
			if err != nil {
				ns.t.Fatalf("jobtest: wait: %v", err)
			}
			busy += n
		}
		if busy == 0 {
			quiet++
			continue
		}
		quiet = 0
		select {
		case <-look.C:
		case <-ctx.Done():
			ns.t.Fatalf("jobtest: after %v there are still %d jobs to be run now", waitLimit, busy)
		}
	}
}
