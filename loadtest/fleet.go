package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/membership"
)

// fleet is a number of nodes in processes of their own, which can be killed, frozen
// and started again.
type fleet struct {
	dir     string   // journals and logs
	keep    bool     // the folder
	silent  bool     // no journals
	profile string   // of the gossip
	network *network // nil: every process uses the machine's loopback
	nodes   []*node
}

// node is one of them; its process changes with every start.
type node struct {
	fleet *fleet
	index int
	name  string
	cfg   config.Config
	addr  string // of its gossip; "" before the first start

	mu   sync.Mutex // held while it starts
	proc *process   // guarded by mu; nil: it was never started
}

// process is one life of a node.
type process struct {
	member string // its name in gossip
	addr   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	net    *os.File // its network; nil: the machine's
	exited chan struct{}
	err    error // how it ended; written before exited is closed
}

// newFleet makes nodes node-1 … of one configuration, without starting them. Their
// journals and logs are kept in dir, or, when that is empty, not kept.
func newFleet(cfg config.Config, nodes int, profile, dir string) (*fleet, error) {
	f := &fleet{dir: dir, keep: dir != "", profile: profile}
	var err error
	if f.keep {
		err = os.MkdirAll(dir, 0o700)
	} else {
		f.dir, err = os.MkdirTemp("", "tenure-loadtest-")
	}
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		n := &node{fleet: f, index: i, name: fmt.Sprintf("node-%d", i+1), cfg: cfg}
		n.cfg.Node.Name = n.name
		f.nodes = append(f.nodes, n)
	}
	return f, nil
}

// gossip is the cluster section of a member that listens at an address and joins
// whoever of the fleet has one.
func (f *fleet) gossip(bind string) *membership.Config {
	c := membership.DefaultConfig()
	c.Bind, c.Label, c.Profile = bind, "tenure-loadtest", f.profile
	c.Insecure = f.network != nil // nobody else is in it
	for _, n := range f.nodes {
		if n.addr != "" {
			c.Join = append(c.Join, n.addr)
		}
	}
	return &c
}

// start starts every node, and waits until all know one another.
func (f *fleet) start(ctx context.Context) error {
	for _, n := range f.nodes {
		if err := n.start(ctx); err != nil {
			return err
		}
	}
	return untilJoined(ctx, f.nodes)
}

// startTogether starts nodes at the same time, as a first deployment does, on addresses
// that were free a moment before.
func startTogether(ctx context.Context, nodes []*node) error {
	var taken []net.Listener
	for _, n := range nodes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		n.addr, taken = l.Addr().String(), append(taken, l)
	}
	for _, l := range taken {
		_ = l.Close()
	}
	return together(nodes, func(n *node) error { return n.start(ctx) })
}

// together does something with nodes at the same time.
func together(nodes []*node, do func(*node) error) error {
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() { errs[i] = do(n) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// untilJoined waits until each of the nodes sees as many as they are.
func untilJoined(ctx context.Context, nodes []*node) error {
	return until(ctx, time.Minute, "the nodes did not find one another, or did not miss the others", func() (bool, error) {
		for _, n := range nodes {
			s, err := n.stats()
			if err != nil || s.Members != len(nodes) {
				return false, err
			}
		}
		return true, nil
	})
}

// client is a client in this process, as a web server would have one.
func (f *fleet) client(ctx context.Context, cfg config.Config) (*tenure.Client, error) {
	cfg.Cluster = f.gossip("127.0.0.1:0")
	if f.network != nil {
		cfg.Cluster = f.gossip(networkHome + ":0")
	}
	c, err := tenure.NewClient(cfg, tenure.WithLogger(stderrLog()))
	if err != nil {
		return nil, err
	}
	return c, c.Start(ctx)
}

// of returns the node whose process has this name in gossip; nil: none has.
func (f *fleet) of(member string) *node {
	for _, n := range f.nodes {
		if strings.HasPrefix(member, n.name+"-") {
			return n
		}
	}
	return nil
}

// way is one in which nodes, by their numbers, say something to one another.
type way struct{ from, to int }

// cut cuts ways of gossip until that is undone. A process that is started meanwhile
// begins with a network that is whole.
func (f *fleet) cut(ways []way) (mend func()) {
	var undo []func()
	for _, way := range ways {
		net := f.nodes[way.from].running().net
		if f.network.cut(net, way.to) == nil { // else the process is dead, and says nothing anyway
			undo = append(undo, func() { _ = f.network.mend(net, way.to) })
		}
	}
	return func() {
		for _, u := range undo {
			u()
		}
	}
}

// close ends every process at once and removes the folder.
func (f *fleet) close() {
	for _, n := range f.nodes {
		n.kill()
	}
	if f.keep {
		return
	}
	if err := os.RemoveAll(f.dir); err != nil {
		fmt.Fprintln(os.Stderr, "loadtest:", err)
	}
}

// startPatience is for a start on a busy machine.
const startPatience = 60 * time.Second

// start starts the node's process and waits until the node runs. It gossips where it
// did before, so that the others can find it there.
func (n *node) start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	bind := "127.0.0.1:0"
	switch {
	case n.addr != "":
		bind = n.addr
	case n.fleet.network != nil:
		bind = nodeHost(n.index) + ":7946"
	}
	n.cfg.Cluster = n.fleet.gossip(bind)
	spec := nodeSpec{Config: n.cfg, AwaitLine: n.fleet.network != nil}
	if !n.fleet.silent {
		spec.Journal = filepath.Join(n.fleet.dir, n.name+".journal")
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	path := filepath.Join(n.fleet.dir, n.name+".json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	p, err := n.launch(path)
	if err != nil {
		return fmt.Errorf("start %s: %w", n.name, err)
	}
	n.proc = p
	said := make(chan error, 1)
	go func() {
		var r nodeReady
		err := p.hear(&r)
		p.member, p.addr = r.Member, r.Addr
		said <- err
	}()
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	select {
	case err = <-said:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-patience.C:
		err = fmt.Errorf("it was not ready within %v", startPatience)
	}
	if err != nil {
		p.kill()
		return fmt.Errorf("start %s: %w\n%s", n.name, err, n.logTail())
	}
	if n.addr == "" { // else those that start beside it may be reading it
		n.addr = p.addr
	}
	return nil
}

func (n *node) launch(spec string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{cmd: exec.Command(self, "node", spec), exited: make(chan struct{})}
	p.cmd.Stderr = log
	if n.fleet.network != nil {
		n.fleet.network.isolate(p.cmd)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdout = bufio.NewReader(stdout)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if n.fleet.network != nil {
		p.net, err = n.fleet.network.enter(p.cmd.Process)
	}
	go func() {
		defer close(p.exited)
		p.err = p.cmd.Wait()
		if p.net != nil {
			_ = p.net.Close() // it would outlive the process
		}
	}()
	if err == nil && p.net != nil {
		err = n.fleet.network.connect(p.net, n.index)
	}
	if err == nil && p.net != nil {
		_, err = io.WriteString(p.stdin, "connected\n")
	}
	if err != nil {
		p.kill()
	}
	return p, err
}

func (n *node) logFile() string { return filepath.Join(n.fleet.dir, n.name+".log") }

// logTail is the end of the node's log, for error messages.
func (n *node) logTail() string {
	text, err := os.ReadFile(n.logFile())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}

// running is the node's process; nil: it was never started.
func (n *node) running() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

// stats asks the node how it is.
func (n *node) stats() (s nodeStats, err error) {
	err = n.ask(askStats, &s)
	return s, err
}

func (n *node) usage() (u nodeUsage, err error) {
	err = n.ask(askUsage, &u)
	return u, err
}

func (n *node) ask(what string, answer any) error {
	p := n.running()
	if _, err := io.WriteString(p.stdin, what+"\n"); err != nil {
		return fmt.Errorf("ask %s: %w", n.name, err)
	}
	return p.hear(answer)
}

// hear reads the next line that the process says.
func (p *process) hear(v any) error {
	text, err := p.stdout.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("it said %q and ended: %w", text, err)
	}
	return json.Unmarshal(text, v)
}

// signal sends a signal.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // fails only when it has ended

// kill ends the process at once and waits until it is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
	_ = p.stdin.Close()
}

func (n *node) kill() {
	if p := n.running(); p != nil {
		p.kill()
	}
}

// stop asks the node to end in order, which must succeed.
func (n *node) stop(ctx context.Context) error {
	p := n.running()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		_ = p.stdin.Close()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.err != nil {
		return fmt.Errorf("%s did not stop in order: %w\n%s", n.name, p.err, n.logTail())
	}
	return nil
}

// until asks again and again until the answer is yes.
func until(ctx context.Context, patience time.Duration, otherwise string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New(otherwise+" within "+patience.String()))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
