package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/loadtest/internal/report"
)

type compareOptions struct {
	rounds, jobs int
	window       time.Duration
	memory       bool
	write        string
	json         bool
}

// comparison is what is measured under one name.
type comparison struct {
	name     string
	jobs     int // of a turn, unless the options say otherwise; 0: it takes a time, not jobs
	contests []contest
}

// contest is one line of the table: sides that take turns at the same work.
type contest struct {
	what                                string
	ours, theirs, defaults, dbos, limit side   // theirs: River's. defaults: the same; nil where they change nothing. limit: the prototype
	late                                bool   // figures are ms, and less is better; else jobs/s
	toReach, toReachOfLimit             string // the ratios of ours to theirs and to the limit; "": nothing was asked for
}

// side is who is measured: one turn on a database of its own.
type side func(ctx context.Context, a *arena) (figure, error)

// figure is jobs/s, or the median and the 99th percentile of delays in ms.
type figure struct{ typical, p99 float64 }

var comparisons = []comparison{
	{name: "drain", jobs: 300_000, contests: []contest{
		{what: "no-op jobs/s", ours: oursDrain, theirs: river("drain", 1), defaults: riverByDefault("drain", 30), dbos: dbos("drain", 6), limit: limitDrain, toReach: "≥ 5", toReachOfLimit: "≥ 0.85"},
	}},
	{name: "enqueue", jobs: 300_000, contests: []contest{
		{what: "jobs/s enqueued in batches", ours: oursEnqueue, theirs: river("enqueue", 1), dbos: dbos("enqueue", 2), limit: bareCopy, toReach: "≥ 2.5", toReachOfLimit: "≥ 0.9"},
	}},
	{name: "tx", jobs: 12_000, contests: []contest{
		{what: "jobs/s with one `INSERT`", ours: oursTx(1, 1), theirs: river("tx", 1), defaults: riverByDefault("tx", 4), dbos: dbos("tx", 1), limit: limitTx, toReach: "≥ 2.3", toReachOfLimit: "≥ 0.9"},
		{what: "the same, up to 100 jobs in a transaction of ours", ours: oursTx(100, 5), theirs: river("tx", 1), defaults: riverByDefault("tx", 4), dbos: dbos("tx", 1), limit: limitTx, toReach: "≥ 15"},
	}},
	{name: "latency", contests: []contest{
		{what: "ms to the start, 100 jobs/s from the node that runs them", late: true, ours: oursFromHolder, theirs: river("latency", 1), defaults: riverByDefault("latency", 1), dbos: dbos("latency", 1), limit: bareCommit, toReachOfLimit: "≤ 1.5"},
		{what: "the same from another process", late: true, ours: oursFromAfar, theirs: river("latency", 1, "-apart"), defaults: riverByDefault("latency", 1, "-apart"), dbos: dbos("latency", 1, "-apart"), limit: bareCommit, toReachOfLimit: "≤ 2.5"},
	}},
}

// latestStart is what the 99th percentile of delays is to reach.
const latestStart = "≤ 10"

func newCompare() *cobra.Command {
	var o compareOptions
	var names []string
	for _, c := range comparisons {
		names = append(names, c.name)
	}
	c := &cobra.Command{
		Use:   "compare " + strings.Join(names, "|") + "...",
		Short: "Measure Tenure, River, DBOS and prototypes in turns, on one server",
		Args:  cobra.MatchAll(cobra.MinimumNArgs(1), cobra.OnlyValidArgs), ValidArgs: names,
	}
	c.Flags().IntVar(&o.rounds, "rounds", 3, "turns of each side; their medians count")
	c.Flags().IntVar(&o.jobs, "jobs", 0, "jobs of a turn (0: as many as each comparison takes by itself)")
	c.Flags().DurationVar(&o.window, "window", 8*time.Second, "how long delays are measured in a turn")
	c.Flags().BoolVar(&o.memory, "memory", false, "keep the databases in memory, so that no figure depends on a disk")
	c.Flags().StringVar(&o.write, "write", "", "write all of them into the table of this file, such as docs/benchmarks.md")
	c.Flags().BoolVar(&o.json, "json", false, "print one JSON object for each as the last lines")
	c.RunE = func(c *cobra.Command, args []string) error {
		wanted := slices.DeleteFunc(slices.Clone(comparisons), func(c comparison) bool { return !slices.Contains(args, c.name) })
		if o.write != "" && len(wanted) < len(comparisons) {
			return fmt.Errorf("--write %s: the table is written as a whole, from one run: name %s", o.write, strings.Join(names, ", "))
		}
		return compare(c.Context(), o, wanted)
	}
	return c
}

// compare runs comparisons one after the other, then prints them.
func compare(ctx context.Context, o compareOptions, wanted []comparison) error {
	if o.rounds < 1 || o.jobs < 0 || o.window <= 0 {
		return errors.New("rounds and window must be more than 0, and jobs not less")
	}
	a, err := newArena(ctx, o)
	if err != nil {
		return err
	}
	defer a.close()
	var results []compared
	for _, c := range wanted {
		a.jobs = c.jobs
		if o.jobs > 0 && c.jobs > 0 {
			a.jobs = o.jobs
		}
		r := compared{name: c.name, jobs: a.jobs, rounds: o.rounds}
		for _, contest := range c.contests {
			s, err := contest.run(ctx, a, o.rounds)
			if err != nil {
				return fmt.Errorf("compare %s: %w", c.name, err)
			}
			r.standings = append(r.standings, s)
		}
		r.versions = a.versions()
		results = append(results, r)
	}
	if o.write != "" {
		if err := writeTable(o.write, table(results)); err != nil {
			return err
		}
	}
	for _, r := range results {
		if err := report.Print(r, o.json); err != nil {
			return err
		}
	}
	return nil
}

// standing is what became of a contest: medians of all rounds.
type standing struct {
	contest                             contest
	ours, theirs, defaults, dbos, limit figure
	toTheirs, toLimit                   float64 // ours as a multiple of River's, tuned, and of the limit
}

// run has the sides take turns.
func (c contest) run(ctx context.Context, a *arena, rounds int) (s standing, err error) {
	sides := []struct {
		name string
		run  side
		to   *figure
		got  []figure
	}{
		{name: "Tenure", run: c.ours, to: &s.ours}, {name: "River", run: c.theirs, to: &s.theirs},
		{name: "River by default", run: c.defaults, to: &s.defaults}, {name: "DBOS", run: c.dbos, to: &s.dbos},
		{name: "prototype", run: c.limit, to: &s.limit},
	}
	s.contest = c
	for n := range rounds {
		for i := range sides {
			if sides[i].run == nil {
				continue
			}
			f, err := sides[i].run(ctx, a)
			if err != nil {
				return s, fmt.Errorf("%s: %w", sides[i].name, err)
			}
			sides[i].got = append(sides[i].got, f)
			fmt.Fprintf(os.Stderr, "%s, %s, %d of %d: %s\n", c.what, sides[i].name, n+1, rounds, c.format(f))
		}
	}
	typical := func(f figure) float64 { return f.typical }
	for _, side := range sides {
		if len(side.got) > 0 {
			*side.to = figure{median(side.got, typical), median(side.got, func(f figure) float64 { return f.p99 })}
		}
	}
	s.toTheirs, s.toLimit = medianRatio(sides[0].got, sides[1].got), medianRatio(sides[0].got, sides[4].got)
	return s, nil
}

func median[T any](of []T, value func(T) float64) float64 {
	var all []float64
	for _, one := range of {
		all = append(all, value(one))
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// medianRatio is of the ratios of each round, in which the machine was most like itself.
func medianRatio(of, to []figure) float64 {
	var all []float64
	for i := range of {
		all = append(all, of[i].typical/to[i].typical)
	}
	return report.Round(median(all, func(x float64) float64 { return x }), 2)
}

// versions are of what was measured.
type versions struct {
	Postgres string `json:"postgres"`
	River    string `json:"river"`
	DBOS     string `json:"dbos"`
	Go       string `json:"go"`
}

// compared is a comparison's result.
type compared struct {
	name         string
	jobs, rounds int
	standings    []standing
	versions
}

// throughput is how jobs/s are printed.
type throughput struct {
	Comparison string  `json:"comparison"`
	Rounds     int     `json:"rounds"`
	Jobs       int     `json:"jobs"` // of a turn
	Ours       float64 `json:"ours"` // jobs/s
	Theirs     float64 `json:"theirs"`
	Defaults   float64 `json:"theirs_by_default,omitempty"`
	DBOS       float64 `json:"dbos_per_second"`
	Limit      float64 `json:"limit"`
	Ratio      float64 `json:"ratio"`
	ToLimit    float64 `json:"ratio_to_limit"`
	Batches    float64 `json:"ours_in_batches,omitempty"`
	ByBatches  float64 `json:"ratio_in_batches,omitempty"`
	versions
}

// delays is how ms are printed.
type delays struct {
	Ours        float64 `json:"ours_p50_ms"`
	OursP99     float64 `json:"ours_p99_ms"`
	Theirs      float64 `json:"theirs_p50_ms"`
	TheirsP99   float64 `json:"theirs_p99_ms"`
	Defaults    float64 `json:"theirs_by_default_p50_ms"`
	DefaultsP99 float64 `json:"theirs_by_default_p99_ms"`
	DBOS        float64 `json:"dbos_p50_ms"`
	DBOSP99     float64 `json:"dbos_p99_ms"`
	Commit      float64 `json:"commit_ms"`
	Ratio       float64 `json:"ratio"`
	Commits     float64 `json:"commits"` // that ours takes
}

// latency is how a comparison of delays is printed.
type latency struct {
	Comparison string `json:"comparison"`
	Rounds     int    `json:"rounds"`
	delays
	OtherProcess delays `json:"other_process"` // enqueues
	versions
}

// MarshalJSON implements json.Marshaler.
func (r compared) MarshalJSON() ([]byte, error) {
	s := r.standings[0]
	if s.contest.late {
		return json.Marshal(latency{r.name, r.rounds, s.delays(), r.standings[1].delays(), r.versions})
	}
	t := throughput{Comparison: r.name, Rounds: r.rounds, Jobs: r.jobs, Ours: report.Round(s.ours.typical, 0), Theirs: report.Round(s.theirs.typical, 0),
		Defaults: report.Round(s.defaults.typical, 0), DBOS: report.Round(s.dbos.typical, 0), Limit: report.Round(s.limit.typical, 0), Ratio: s.toTheirs, ToLimit: s.toLimit, versions: r.versions}
	if len(r.standings) > 1 {
		t.Batches, t.ByBatches = report.Round(r.standings[1].ours.typical, 0), r.standings[1].toTheirs
	}
	return json.Marshal(t)
}

func (s standing) delays() delays {
	ms := func(x float64) float64 { return report.Round(x, 2) }
	return delays{ms(s.ours.typical), ms(s.ours.p99), ms(s.theirs.typical), ms(s.theirs.p99), ms(s.defaults.typical), ms(s.defaults.p99),
		ms(s.dbos.typical), ms(s.dbos.p99), ms(s.limit.typical), s.toTheirs, s.toLimit}
}

// versions of what was measured; a peer's is known once it has run.
func (a *arena) versions() versions {
	return versions{a.postgres, a.peerVersions["river"], a.peerVersions["dbos"], strings.TrimPrefix(runtime.Version(), "go")}
}
