package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// Network gives every node process a network namespace of its own, joined by a bridge,
// so that the gossip between two of them can be cut, in one direction if need be. It
// needs root, and is itself in a namespace of its own: what happens there touches
// nothing else on the machine, and is gone with the last process in it.
type Network struct {
	links atomic.Int32 // made so far; names must differ from those that are still being taken down
}

const (
	networkEnv  = "TENURE_LOADTEST_NETWORK"
	NetworkHome = "10.77.0.254" // of the scenario
)

// nodeHost is the address of the i-th node.
func nodeHost(i int) string { return "10.77.0." + strconv.Itoa(i+1) }

// RunInNetwork runs this command again in a network namespace of its own, and tells
// whether it did. Without the rights or the tools for it, it does not.
func RunInNetwork() (ran bool, err error) {
	if os.Getenv(networkEnv) != "" || os.Geteuid() != 0 {
		return false, nil
	}
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return false, nil
		}
	}
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Env = append(os.Environ(), networkEnv+"=1")
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setpgid: true, Pdeathsig: syscall.SIGTERM}
	// What ends this process ends that one, which then tidies up; this one waits for it.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := again.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) {
			return false, nil
		}
		return false, err
	}
	go func() {
		for s := range signals {
			_ = again.Process.Signal(s) // fails only when it has ended
		}
	}()
	var exit *exec.ExitError
	if err := again.Wait(); errors.As(err, &exit) {
		os.Exit(max(exit.ExitCode(), 1)) // it has said why
	} else if err != nil {
		return true, err
	}
	return true, nil
}

// NewNetwork makes the bridge; nil: this process has no network of its own.
func NewNetwork() (*Network, error) {
	if os.Getenv(networkEnv) == "" {
		return nil, nil
	}
	return &Network{}, run("ip link set lo up", "ip link add nodes type bridge",
		"ip addr add "+NetworkHome+"/24 dev nodes", "ip link set nodes up")
}

// isolate makes a process begin in a network without anything in it. Should this one
// die, a frozen process could not notice that its standard input ends: it dies too.
func (w *Network) isolate(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
}

// enter opens the network of a process. It is named by this file and not by the
// process, whose number may soon be another's.
func (w *Network) enter(p *os.Process) (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/%d/ns/net", p.Pid))
}

func path(net *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), net.Fd()) }

func inside(net *os.File) string { return "nsenter --net=" + path(net) + " ip " }

// connect joins the network of the i-th node to the bridge. The hardware address stays
// with the node, so that the others need not forget an old one first.
func (w *Network) connect(net *os.File, i int) error {
	link := fmt.Sprintf("node%d", w.links.Add(1))
	in := inside(net)
	return run(fmt.Sprintf("ip link add %s type veth peer name eth0 address 02:00:0a:4d:00:%02x netns %s", link, i+1, path(net)),
		"ip link set "+link+" master nodes up",
		in+"link set lo up", in+"addr add "+nodeHost(i)+"/24 dev eth0", in+"link set eth0 up")
}

// cut makes all that is sent from a network to the i-th node vanish, and mend undoes it.
func (w *Network) cut(net *os.File, i int) error {
	return run(inside(net) + "route add blackhole " + nodeHost(i) + "/32")
}

func (w *Network) mend(net *os.File, i int) error {
	return run(inside(net) + "route del blackhole " + nodeHost(i) + "/32")
}

func run(commands ...string) error {
	for _, c := range commands {
		words := strings.Fields(c)
		if out, err := exec.CommandContext(context.Background(), words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, out)
		}
	}
	return nil
}
