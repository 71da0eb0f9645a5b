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

// askStats and askUsage are lines that it answers.
const askStats, askUsage = "stats", "usage"

// nodeStats is its answer to askStats.
type nodeStats struct {
	Members int   `json:"members"` // nodes that it thinks alive, itself included
	Held    int   `json:"held"`    // locks that it holds
	Epochs  int64 `json:"epochs"`  // the sum of theirs: another one tells that some changed hands
}

// nodeUsage is its answer to askUsage: more than before the node was made.
type nodeUsage struct {
	Goroutines int `json:"goroutines"`
	Kilobytes  int `json:"kilobytes"` // of the process
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
	n, err := tenure.New(spec.Config, workRegistry(journal), tenure.WithLogger(nodeLog(zapcore.Lock(os.Stderr))))
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
			var answer any = statsOf(n)
			if lines.Text() == askUsage {
				now := measure()
				answer = nodeUsage{now.Goroutines - before.Goroutines, now.Kilobytes - before.Kilobytes}
			}
			if say(answer) != nil {
				return
			}
		}
	}()
	<-ctx.Done()
	return stop(n, spec.Config)
}

// logTime is how a node's log tells the time.
const logTime = "2006-01-02T15:04:05.000Z07:00"

func nodeLog(w zapcore.WriteSyncer) *zap.Logger {
	enc := zap.NewDevelopmentEncoderConfig()
	enc.EncodeTime = zapcore.TimeEncoderOfLayout(logTime)
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), w, zap.InfoLevel))
}

func say(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Println(string(b))
	}
	return err
}

func statsOf(n *tenure.Node) (s nodeStats) {
	for _, m := range n.Members() {
		if m.Role == n.Self().Role && !m.Joining {
			s.Members++
		}
	}
	for _, l := range n.Locks() {
		if l.Holding {
			s.Held++
			s.Epochs += l.Epoch
		}
	}
	return s
}

// measure looks at this process as it is once it has idled for some minutes: what was
// freed is back with the system, and stacks have shrunk, which takes a collection for
// each halving. Idle or not, Go collects every two minutes.
func measure() nodeUsage {
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
	var pages, resident int
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		_, _ = fmt.Sscan(string(text), &pages, &resident) // 0 where there is no such file
	}
	return nodeUsage{Goroutines: runtime.NumGoroutine(), Kilobytes: resident * os.Getpagesize() / 1024}
}
