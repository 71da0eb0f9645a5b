package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/cmd/tenure/internal/demo"
)

// topLimit bounds one look: a pool that takes longer is shown as one that does not answer.
const topLimit = 2 * time.Second

func newTop(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch what the pools have to do, the worst first",
		Long: "Looks every second (--every) at all pools, in their databases: who holds the lock, how many jobs\n" +
			"wait (up to 10000) and since when the oldest has been there, how many are running, and how many were\n" +
			"started, ended and have died in each second, by the rows that Postgres has counted, which lags by\n" +
			"a second. Pools that do not answer come first, then those whose jobs wait and whose lock nobody holds,\n" +
			"then those with the oldest jobs. Ctrl-C ends it.",
		Args: cobra.NoArgs,
	}
	every := cmd.Flags().Duration("every", time.Second, "how often to look")
	once := cmd.Flags().Bool("once", false, "look twice, so far apart, print that and end")
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case *every < 100*time.Millisecond:
			return usagef("--every %v: must be 100ms or more", *every)
		case *output == asJSON && !*once:
			return usagef("-o json goes with --once")
		}
		return a.operate(cmd.Context(), 365*24*time.Hour, nil, func(ctx context.Context, o *operation) error {
			return watchLoads(ctx, a.stdout, o, *every, *once, *output)
		})
	}
	return cmd
}

// watchLoads looks until ctx ends, or once.
func watchLoads(ctx context.Context, w io.Writer, o *operation, every time.Duration, once bool, output format) error {
	before, at := readLoads(ctx, o), time.Now()
	for {
		select {
		case <-ctx.Done(): // somebody has seen enough
			return nil
		case <-time.After(every):
		}
		now, then := readLoads(ctx, o), time.Now()
		if ctx.Err() != nil {
			return nil
		}
		pools := topPools(slices.Sorted(maps.Keys(o.cfg.Pools)), before, now, then.Sub(at))
		if once && output == asJSON {
			return printJSON(w, pools)
		}
		if err := drawLoads(w, pools); err != nil || once {
			return err
		}
		before, at = now, then
	}
}

// readLoads is what the pools say, by their names; those that do not answer are missing.
func readLoads(ctx context.Context, o *operation) map[string]tenure.PoolLoad {
	ctx, cancel := context.WithTimeout(ctx, topLimit)
	defer cancel()
	loads, _ := o.Loads(ctx) // that a pool does not answer is shown
	all := map[string]tenure.PoolLoad{}
	for _, l := range loads {
		all[l.Pool] = l
	}
	return all
}

// jsonLoad is what a pool has to do as -o json prints it.
type jsonLoad struct {
	Pool    string  `json:"pool"`
	State   string  `json:"state"`          // up, frozen, unheld: nobody holds its lock; down: it does not answer
	Node    string  `json:"node,omitempty"` // that holds the lock
	Epoch   int64   `json:"epoch"`
	Waiting int64   `json:"waiting"` // 10000 and more are not counted
	Oldest  float64 `json:"oldest_seconds"`
	Running int64   `json:"running"`
	Dead    int64   `json:"dead"` // dead letters, likewise
	Started float64 `json:"started_per_second"`
	Ended   float64 `json:"ended_per_second"` // runs, whatever their outcome
	Done    float64 `json:"done_per_second"`
	Died    float64 `json:"died_per_second"`
}

// topPools is what happened between two looks, the worst first.
func topPools(names []string, before, now map[string]tenure.PoolLoad, passed time.Duration) []jsonLoad {
	pools := make([]jsonLoad, 0, len(names))
	for _, name := range names {
		l, answers := now[name]
		p := jsonLoad{Pool: name, State: "up", Node: l.Node, Epoch: l.Epoch, Waiting: l.Waiting, Oldest: l.Oldest.Seconds(), Running: l.Running, Dead: l.Dead}
		switch {
		case !answers:
			p.State = "down"
		case l.Frozen:
			p.State = "frozen"
		case !l.Held:
			p.State = "unheld"
		}
		if was, answered := before[name]; answered && answers {
			rate := func(n int64) float64 { return float64(max(0, n)) / passed.Seconds() } // statistics may have been reset
			p.Started, p.Ended = rate(l.Ended-was.Ended+l.Running-was.Running), rate(l.Ended-was.Ended)
			p.Done, p.Died = rate(l.Finished-was.Finished), rate(l.Died-was.Died)
		}
		pools = append(pools, p)
	}
	slices.SortStableFunc(pools, func(a, b jsonLoad) int {
		return cmp.Or(cmp.Compare(a.trouble(), b.trouble()), cmp.Compare(b.Oldest, a.Oldest), cmp.Compare(b.Waiting, a.Waiting))
	})
	return pools
}

// trouble ranks pools: the lower, the worse.
func (p jsonLoad) trouble() int {
	switch {
	case p.State == "down":
		return 0
	case p.State == "unheld" && p.Waiting > 0:
		return 1
	}
	return 2
}

// drawLoads prints a table, on a terminal in the place of the last one.
func drawLoads(w io.Writer, pools []jsonLoad) error {
	var rows [][]string
	for _, p := range pools {
		if p.State == "down" {
			rows = append(rows, []string{p.Pool, p.State, "", "", "", "", "", "", "", "", ""})
			continue
		}
		rate := func(r float64) string { return strconv.FormatFloat(r, 'f', 0, 64) }
		rows = append(rows, []string{p.Pool, p.State, cmp.Or(p.Node, "nobody"), strconv.FormatInt(p.Epoch, 10), bounded(p.Waiting), roughly(time.Duration(p.Oldest * float64(time.Second))),
			strconv.FormatInt(p.Running, 10), rate(p.Started), rate(p.Ended), rate(p.Done), rate(p.Died)})
	}
	var table bytes.Buffer
	if err := printTable(&table, []string{"POOL", "STATE", "HOLDER", "EPOCH", "WAITING", "OLDEST", "RUNNING", "STARTED/S", "ENDED/S", "DONE/S", "DIED/S"}, rows); err != nil {
		return err
	}
	lines := bytes.SplitAfter(table.Bytes(), []byte("\n"))
	var page bytes.Buffer
	if demo.IsTerminal(w) {
		page.WriteString("\x1b[H\x1b[2J") // the upper left, and nothing below it
	}
	for i, line := range lines {
		switch {
		case i == 0:
			line = []byte(paint(w, bold, string(line)))
		case i <= len(pools) && pools[i-1].trouble() < 2:
			line = []byte(paint(w, red, string(line)))
		}
		page.Write(line)
	}
	_, err := fmt.Fprintln(w, page.String())
	return err
}
