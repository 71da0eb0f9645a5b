package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tenurehq/tenure/config"
)

// Node is one of them; its process changes with every start.
type Node struct {
	fleet *Fleet
	index int
	Name  string
	Cfg   config.Config
	addr  string // of its gossip; "" before StartTogether

	mu   sync.Mutex // held while it starts
	proc *Process   // guarded by mu; nil: it was never started
}

// Process is one life of a node.
type Process struct {
	Member string // its name in gossip
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	net    *os.File // its network; nil: the machine's
	exited chan struct{}
	err    error // how it ended; written before exited is closed
}

// startPatience is for a start on a busy machine.
const startPatience = 60 * time.Second

// Start starts the node's process and waits until the node runs. It gossips where it
// did before, so that the others can find it there.
func (n *Node) Start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Cfg.Cluster = n.fleet.gossip(n.addr)
	p, err := n.launch()
	if err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	n.proc = p
	said := make(chan error, 1)
	go func() { said <- p.hear(&p.Member) }()
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("it was not ready within %v", startPatience))
	defer cancel()
	select {
	case err = <-said:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		p.Kill()
		return fmt.Errorf("start %s: %w\n%s", n.Name, err, n.logTail())
	}
	return nil
}

func (n *Node) launch() (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(n.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &Process{cmd: exec.Command(self, "node"), exited: make(chan struct{})}
	p.cmd.Stderr = log
	if n.fleet.Network != nil {
		n.fleet.Network.isolate(p.cmd)
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
	if n.fleet.Network != nil {
		p.net, err = n.fleet.Network.enter(p.cmd.Process)
	}
	go func() {
		defer close(p.exited)
		p.err = p.cmd.Wait()
		if p.net != nil {
			_ = p.net.Close() // it would outlive the process
		}
	}()
	if err == nil && p.net != nil {
		err = n.fleet.Network.connect(p.net, n.index)
	}
	if err == nil {
		spec := spec{Config: n.Cfg}
		if !n.fleet.Silent {
			spec.Journal = filepath.Join(n.fleet.Dir, n.Name+".journal")
		}
		err = json.NewEncoder(p.stdin).Encode(spec)
	}
	if err != nil {
		p.Kill()
	}
	return p, err
}

func (n *Node) LogFile() string { return filepath.Join(n.fleet.Dir, n.Name+".log") }

// logTail is the end of the node's log, for error messages.
func (n *Node) logTail() string {
	text, err := os.ReadFile(n.LogFile())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}

// Running is the node's process; nil: it was never started.
func (n *Node) Running() *Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

func (n *Node) stats() (s Stats, err error) {
	err = n.ask(askStats, &s)
	return s, err
}

func (n *Node) ask(what string, answer any) error {
	p := n.Running()
	if err := json.NewEncoder(p.stdin).Encode(what); err != nil {
		return fmt.Errorf("ask %s: %w", n.Name, err)
	}
	return p.hear(answer)
}

// hear reads the next line that the process says.
func (p *Process) hear(v any) error {
	text, err := p.stdout.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("it printed %q and ended: %w", text, err)
	}
	return json.Unmarshal(text, v)
}

// signal sends a signal.
func (p *Process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // fails only when it has ended

// Kill ends the process at once and waits until it is gone.
func (p *Process) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
	_ = p.stdin.Close()
}

func (n *Node) Kill() {
	if p := n.Running(); p != nil {
		p.Kill()
	}
}

// Stop asks the node to end in order, which must succeed.
func (n *Node) Stop(ctx context.Context) error {
	p := n.Running()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		_ = p.stdin.Close()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.err != nil {
		return fmt.Errorf("%s did not stop cleanly: %w\n%s", n.Name, p.err, n.logTail())
	}
	return nil
}
