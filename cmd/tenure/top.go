package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/tenurehq/tenure/cmd/tenure/internal/demo"
)

// topLimit bounds one look: a pool that takes longer is shown as one that does not answer.
const topLimit = 2 * time.Second

var topCommand = spec{
	name: "top", short: "Watch what the pools have to do, the worst first", output: true,
	long: "Looks every second (--every) at all pools: who holds the lock, how many jobs\n" +
		"wait (up to 10000) and since when the oldest has been there, how many are running, and how many were\n" +
		"started, ended and have died in each second, by the rows that Postgres has counted, which lags by\n" +
		"a second. Pools that do not answer come first, then those whose jobs wait and whose lock nobody holds,\n" +
		"then those with the oldest jobs. Ctrl-C ends it.",
	flags: []flag{flagOf("every", time.Second, "how often to look"), flagOf("once", false, "look twice, so far apart, print that and end")},
	check: func(q *question) error {
		switch every, err := q.cmd.Flags().GetDuration("every"); {
		case err != nil || every < 100*time.Millisecond:
			return usagef("--every %v: must be 100ms or more", every)
		case q.format() == asJSON && !q.given("once"):
			return usagef("-o json goes with --once")
		}
		return nil
	},
	run: watchLoads, limit: 365 * 24 * time.Hour,
}

// watchLoads looks until ctx ends, or once.
func watchLoads(ctx context.Context, q *question, s *server) error {
	every, err := q.cmd.Flags().GetDuration("every")
	before, at := readLoads(ctx, s), time.Now()
	for err == nil {
		select {
		case <-ctx.Done(): // somebody has seen enough
			return nil
		case <-time.After(every):
		}
		now, then := readLoads(ctx, s), time.Now()
		switch {
		case ctx.Err() != nil:
			return nil
		case now.err != nil:
			return now.err
		}
		pools := topPools(before.pools, now.pools, then.Sub(at))
		if q.given("once") && q.format() == asJSON {
			return printJSON(q.a.stdout, pools)
		}
		if err := drawLoads(q.a.stdout, pools); err != nil || q.given("once") {
			return err
		}
		before, at = now, then
	}
	return err
}

// loads is what the pools say.
type loads struct {
	pools []shownPool
	err   error // the API does not answer
}

func readLoads(ctx context.Context, s *server) loads {
	ctx, cancel := context.WithTimeout(ctx, topLimit)
	defer cancel()
	var all struct{ Items []shownPool }
	err := s.get(ctx, "/pools", nil, &all)
	return loads{all.Items, err}
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
func topPools(before, now []shownPool, passed time.Duration) []jsonLoad {
	pools := make([]jsonLoad, 0, len(now))
	for _, l := range now {
		p := jsonLoad{Pool: l.Pool, State: "up", Node: l.Holder, Epoch: l.Epoch, Waiting: l.Waiting, Oldest: l.Oldest, Running: l.Running, Dead: l.Dead}
		switch {
		case !l.answers():
			p.State = "down"
		case l.Frozen:
			p.State = "frozen"
		case !l.Held:
			p.State = "unheld"
		}
		if i := slices.IndexFunc(before, func(was shownPool) bool { return was.Pool == l.Pool && was.answers() }); i >= 0 && l.answers() {
			was := before[i]
			rate := func(n int64) float64 { return float64(max(0, n)) / passed.Seconds() } // statistics may have been reset
			ended := l.Totals.Ended - was.Totals.Ended
			p.Started, p.Ended = rate(ended+l.Running-was.Running), rate(ended)
			p.Done, p.Died = rate(l.Totals.Done-was.Totals.Done), rate(l.Totals.Died-was.Totals.Died)
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
