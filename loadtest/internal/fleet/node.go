package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

// spec is what a node process is told first; it does nothing before, as its network may not
// be there yet.
type spec struct {
	Config  config.Config
	Journal string // file that its handlers write down their runs in; "": they do not
}

// askStats and askUsage are what it can be asked once it runs.
const askStats, askUsage = "stats", "usage"

// Stats is its answer to askStats.
type Stats struct {
	Members int   `json:"members"` // nodes that it thinks alive, itself included
	Held    int   `json:"held"`    // locks that it holds
	Epochs  int64 `json:"epochs"`  // the sum of theirs: another one tells that some changed hands
}

// Usage is its answer to askUsage: more than before the node was made.
type Usage struct {
	Goroutines int `json:"goroutines"`
	Kilobytes  int `json:"kilobytes"` // of the process
}

// RunNode runs a node, and says its name in gossip once it runs. Its standard input is a pipe from the scenario: when that closes, the
// scenario is gone, and so is the node.
func RunNode(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var spec spec
	if err := in.Decode(&spec); err != nil {
		return err
	}
	before := measure()
	journal, err := report.OpenJournal(spec.Journal)
	if err != nil {
		return err
	}
	n, err := tenure.New(spec.Config, workRegistry(journal), tenure.WithLogger(bed.Log(os.Stderr, zap.InfoLevel)))
	if err != nil {
		return err
	}
	if err := n.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	journal.SetMember(n.Self().Name)
	if err := out.Encode(n.Self().Name); err != nil {
		return err
	}
	go func() { // ends with the process
		defer cancel()
		for what := ""; in.Decode(&what) == nil; {
			var answer any = statsOf(n)
			if what == askUsage {
				now := measure()
				answer = Usage{now.Goroutines - before.Goroutines, now.Kilobytes - before.Kilobytes}
			}
			if out.Encode(answer) != nil {
				return
			}
		}
	}()
	<-ctx.Done()
	return bed.StopNode(n, spec.Config)
}

func statsOf(n *tenure.Node) (s Stats) {
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
func measure() Usage {
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
	var pages, resident int
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		_, _ = fmt.Sscan(string(text), &pages, &resident) // 0 where there is no such file
	}
	return Usage{Goroutines: runtime.NumGoroutine(), Kilobytes: resident * os.Getpagesize() / 1024}
}
