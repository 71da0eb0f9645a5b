package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
)

// nodeSpec is what a node process is told.
type nodeSpec struct {
	Config  config.Config
	Journal string // file that its handlers write down their runs in; "": they do not
	// AwaitLine makes it wait for a line before it does anything: its network is not there yet.
	AwaitLine bool
}

// nodeReady is the first line that a node process says.
type nodeReady struct {
	Member string `json:"member"` // its name in gossip
	Addr   string `json:"addr"`   // of its gossip
}

// nodeStats is its answer to each line that it reads.
type nodeStats struct {
	Members    int `json:"members"`    // nodes that it thinks alive, itself included
	Held       int `json:"held"`       // locks that it holds
	Goroutines int `json:"goroutines"` // more than before the node was made
	Kilobytes  int `json:"kilobytes"`  // of the process, more than before the node was made
}

// newNode returns the command that every node process runs. Its standard input is a
// pipe from the scenario: when that closes, the scenario is gone, and so is the node.
func newNode() *cobra.Command {
	return &cobra.Command{
		Use: "node SPEC", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			var spec nodeSpec
			if err := json.Unmarshal(text, &spec); err != nil {
				return err
			}
			return runNode(c.Context(), spec)
		},
	}
}

func runNode(ctx context.Context, spec nodeSpec) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := bufio.NewScanner(os.Stdin)
	if spec.AwaitLine && !lines.Scan() {
		return io.ErrUnexpectedEOF
	}
	before := measure()
	journal, err := openJournal(spec.Journal)
	if err != nil {
		return err
	}
	enc := zap.NewDevelopmentEncoderConfig()
	enc.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	log := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), zapcore.Lock(os.Stderr), zap.InfoLevel))
	n, err := tenure.New(spec.Config, workRegistry(journal), tenure.WithLogger(log))
	if err != nil {
		return err
	}
	if err := n.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	self := n.Self()
	journal.member.Store(&self.Name)
	if err := say(nodeReady{Member: self.Name, Addr: self.Addr}); err != nil {
		return err
	}
	go func() { // ends with the process
		defer cancel()
		for lines.Scan() {
			if say(statsOf(n, before)) != nil {
				return
			}
		}
	}()
	<-ctx.Done()
	return stop(n, spec.Config)
}

func say(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Println(string(b))
	}
	return err
}

func statsOf(n *tenure.Node, before nodeStats) nodeStats {
	s := measure()
	s.Goroutines -= before.Goroutines
	s.Kilobytes -= before.Kilobytes
	for _, m := range n.Members() {
		if m.Role == n.Self().Role && !m.Joining {
			s.Members++
		}
	}
	for _, l := range n.Locks() {
		if l.Holding {
			s.Held++
		}
	}
	return s
}

// measure looks at this process. Memory that the collector has freed goes back to the
// system first: what is asked for is what a node needs, not what its start took.
func measure() nodeStats {
	debug.FreeOSMemory()
	var pages, resident int
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		_, _ = fmt.Sscan(string(text), &pages, &resident) // 0 where there is no such file
	}
	return nodeStats{Goroutines: runtime.NumGoroutine(), Kilobytes: resident * os.Getpagesize() / 1024}
}
