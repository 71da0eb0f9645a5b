package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/membership"
)

// Fleet is a number of nodes in processes of their own, which can be killed, frozen
// and started again.
type Fleet struct {
	Dir     string   // journals and logs
	Keep    bool     // the folder
	Silent  bool     // no journals
	profile string   // of the gossip
	Network *Network // nil: every process uses the machine's loopback
	Nodes   []*Node
}

// New makes nodes node-1 … of one configuration, without starting them. Their
// journals and logs are kept in dir, or, when that is empty, not kept.
func New(cfg config.Config, nodes int, profile, dir string) (*Fleet, error) {
	f := &Fleet{Dir: dir, Keep: dir != "", profile: profile}
	var err error
	if f.Keep {
		err = os.MkdirAll(dir, 0o700)
	} else {
		f.Dir, err = os.MkdirTemp("", "tenure-loadtest-")
	}
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		n := &Node{fleet: f, index: i, Name: fmt.Sprintf("node-%d", i+1), Cfg: cfg}
		n.Cfg.Node.Name = n.Name
		f.Nodes = append(f.Nodes, n)
	}
	return f, nil
}

// gossip is the cluster section of a member that listens at an address and joins
// every node of the fleet that has one.
func (f *Fleet) gossip(bind string) *membership.Config {
	c := membership.DefaultConfig()
	c.Bind, c.Label, c.Profile = bind, "tenure-loadtest", f.profile
	c.Insecure = f.Network != nil // nobody else is in it
	for _, n := range f.Nodes {
		if n.addr != "" {
			c.Join = append(c.Join, n.addr)
		}
	}
	return &c
}

// Start starts every node at the same time, as a first deployment does, and waits until all
// know one another.
func (f *Fleet) Start(ctx context.Context) error {
	if err := StartTogether(ctx, f.Nodes); err != nil {
		return err
	}
	return f.UntilJoined(ctx)
}

// StartTogether starts nodes for the first time, on addresses that were free a moment before.
func StartTogether(ctx context.Context, nodes []*Node) error {
	var taken []net.Listener // until each has its own
	for _, n := range nodes {
		if n.fleet.Network != nil {
			n.addr = nodeHost(n.index) + ":7946"
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		n.addr, taken = l.Addr().String(), append(taken, l)
	}
	for _, l := range taken {
		_ = l.Close()
	}
	return Together(nodes, func(n *Node) error { return n.Start(ctx) })
}

// Together does something with nodes at the same time.
func Together(nodes []*Node, do func(*Node) error) error {
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() { errs[i] = do(n) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// UntilJoined waits until every node sees every other one.
func (f *Fleet) UntilJoined(ctx context.Context) error { return UntilJoined(ctx, f.Nodes) }

// UntilJoined waits until each of the nodes sees as many as they are.
func UntilJoined(ctx context.Context, nodes []*Node) error {
	return wait.Until(ctx, time.Minute, "the nodes did not find one another, or did not miss the others", func() (bool, error) {
		for _, n := range nodes {
			s, err := n.stats()
			if err != nil || s.Members != len(nodes) {
				return false, err
			}
		}
		return true, nil
	})
}

// NewClient is a client in this process, as a web server would have one.
func (f *Fleet) NewClient(ctx context.Context, cfg config.Config) (*tenure.Client, error) {
	cfg.Cluster = f.gossip("127.0.0.1:0")
	if f.Network != nil {
		cfg.Cluster = f.gossip(NetworkHome + ":0")
	}
	c, err := tenure.NewClient(cfg, tenure.WithLogger(bed.Log(os.Stderr, zap.WarnLevel)))
	if err != nil {
		return nil, err
	}
	return c, c.Start(ctx)
}

// StopClient stops what NewClient made; nil is none.
func StopClient(c *tenure.Client) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = c.Stop(ctx) // its process ends anyway
}

// ByMember returns the node whose process has this name in gossip; nil: none has.
func (f *Fleet) ByMember(member string) *Node {
	for _, n := range f.Nodes {
		if strings.HasPrefix(member, n.Name+"-") {
			return n
		}
	}
	return nil
}

// Way is a direction in which two nodes, by their numbers, talk to each other.
type Way struct{ From, To int }

// CutGossip cuts ways of gossip until that is undone. A process that is started meanwhile
// begins with a network that is whole.
func (f *Fleet) CutGossip(ways []Way) (mend func()) {
	var undo []func()
	for _, way := range ways {
		net := f.Nodes[way.From].Running().net
		if f.Network.cut(net, way.To) == nil { // else the process is dead, and says nothing anyway
			undo = append(undo, func() { _ = f.Network.mend(net, way.To) })
		}
	}
	return func() {
		for _, u := range undo {
			u()
		}
	}
}

// Close ends every process at once and removes the folder.
func (f *Fleet) Close() {
	for _, n := range f.Nodes {
		n.Kill()
	}
	if f.Keep {
		return
	}
	if err := os.RemoveAll(f.Dir); err != nil {
		fmt.Fprintln(os.Stderr, "loadtest:", err)
	}
}

// Stats is what all nodes say, added up.
func (f *Fleet) Stats() (sum Stats, err error) {
	for _, n := range f.Nodes {
		s, err := n.stats()
		if err != nil {
			return sum, err
		}
		sum = Stats{sum.Members + s.Members, sum.Held + s.Held, sum.Epochs + s.Epochs}
	}
	return sum, nil
}

// Usage is that of the node with the most.
func (f *Fleet) Usage() (most Usage, err error) {
	for _, n := range f.Nodes {
		var u Usage
		if err := n.ask(askUsage, &u); err != nil {
			return most, err
		}
		most = Usage{max(most.Goroutines, u.Goroutines), max(most.Kilobytes, u.Kilobytes)}
	}
	return most, nil
}
