package devpg

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// identity is a user that the server can run as.
type identity struct {
	name     string
	uid, gid int // of its files, as seen from outside a namespace
	attr     func() *syscall.SysProcAttr
}

// process is a running initdb or postgres.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed by run
	err    error         // written by run before exited is closed
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func runProcess(cmd *exec.Cmd) error {
	p, err := startProcess(cmd)
	if err != nil {
		return err
	}
	<-p.exited
	return p.err
}

// run owns the thread that starts the process and keeps it until that ends: the
// parent-death signal is sent when the starting thread dies, not the process.
func (p *process) run(started chan<- error) {
	defer close(p.exited)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// end sends sig and waits; when ctx ends first it presses harder, so that the
// process is gone in any case.
func (p *process) end(ctx context.Context, sig os.Signal) {
	// Above the five seconds after which postgres itself kills children that ignore an immediate shutdown.
	const immediate = 7 * time.Second

	_ = p.cmd.Process.Signal(sig) // fails only when it has exited already
	select {
	case <-p.exited:
		return
	case <-ctx.Done():
	}
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.exited:
		return
	case <-time.After(immediate):
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// environment is ours without what would steer PostgreSQL. With a locale that
// does not exist, postgres refuses to start on macOS.
func environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, "LC_") || strings.HasPrefix(kv, "LANG")
	})
	return append(env, "LC_ALL=C")
}
