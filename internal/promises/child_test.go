package promises_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
)

// childEnv makes this test binary a node: see startChild.
const childEnv = "TENURE_TEST_CHILD"

// childSpec is what a child is told.
type childSpec struct {
	Config config.Config
}

// poison is a job that kills its node, in one way or another.
type poison struct {
	By string `json:"by"` // exit, kill, goroutine, memory; never: it only goes on as long as its node
}

func (poison) Kind() string { return "poison" }

// runChild is a node in a process of its own. It runs until its standard input
// ends, which also happens when the test dies.
func runChild(text string) int {
	var spec childSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 3
	}
	r := job.NewRegistry()
	job.Handle(r, func(context.Context, *job.Job[plain]) error { return nil })
	job.Handle(r, func(ctx context.Context, j *job.Job[poison]) error {
		switch j.Args.By {
		case "exit":
			os.Exit(1)
		case "goroutine":
			go func() { panic("poison: in a goroutine of the handler's own") }()
		case "memory":
			return takeAllMemory()
		case "never":
		default:
			if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return ctx.Err()
	})
	err := func() error {
		n, err := tenure.New(spec.Config, r, tenure.WithLogger(loggerTo(zapcore.Lock(os.Stderr), spec.Config.Node.Name)))
		if err != nil {
			return err
		}
		ctx := context.Background()
		if err := n.Start(ctx); err != nil {
			return err
		}
		fmt.Printf("ready %s %s\n", n.Self().Name, n.Self().Addr)
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is the signal
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return n.Stop(ctx)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 4
	}
	return 0
}

// takeAllMemory ends the process as a machine does that has no more of it, but lets the
// machine have the most.
func takeAllMemory() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: 1, Max: 1}); err != nil {
		return err
	}
	for taken := [][]byte{}; ; {
		taken = append(taken, make([]byte, 64<<20))
	}
}

// child is a node in a process of its own, to be killed or frozen.
type child struct {
	t      *testing.T
	name   string
	member string // its name in gossip
	addr   string // of its gossip
	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan struct{}
	err    error // written before exited is closed
}

func tryChild(b *testbed, cfg config.Config) (*child, error) {
	b.requireNoSuperuser(cfg)
	spec, err := json.Marshal(childSpec{Config: cfg})
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{t: b.t, name: cfg.Node.Name, cmd: exec.Command(exe), exited: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(spec))
	c.cmd.Stderr = b.log
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	line, readErr := bufio.NewReader(stdout).ReadString('\n')
	go func() {
		defer close(c.exited)
		c.err = c.cmd.Wait()
	}()
	b.t.Cleanup(c.kill)
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "ready" {
		c.kill()
		return nil, fmt.Errorf("child %s said %q: %w", c.name, line, errors.Join(readErr, c.err))
	}
	c.member = words[1]
	if len(words) > 2 {
		c.addr = words[2]
	}
	return c, nil
}

// signal sends a signal.
func (c *child) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) } // fails only when it has exited

// kill ends it at once.
func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	<-c.exited
	_ = c.stdin.Close()
}

// stop ends it in order, which must succeed.
func (c *child) stop() {
	c.t.Helper()
	require.NoError(c.t, c.stdin.Close())
	select {
	case <-c.exited:
		require.NoError(c.t, c.err)
	case <-time.After(patience):
		require.FailNow(c.t, "the child did not stop", c.name)
	}
}
