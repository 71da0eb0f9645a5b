package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

// options are the demo's flags.
type options struct {
	jobs, pools, tenants, nodes int
	stay, json                  bool
	dsn, traffic                string
	over                        time.Duration
}

// result is the demo's last line with --json.
type result struct {
	Pools           int     `json:"pools"`
	Tenants         int     `json:"tenants"`
	Nodes           int     `json:"nodes"`
	Enqueued        int     `json:"enqueued"`
	Finished        int     `json:"finished"`
	Lost            int     `json:"lost"`    // enqueued without an effect
	Doubled         int     `json:"doubled"` // effects beyond the first of each job
	TakeoverSeconds float64 `json:"takeover_seconds"`
	Killed          string  `json:"killed"`
}

// Command returns `demo`.
func Command() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run a cluster on this machine, kill a node, and prove that nothing was lost",
		Long: "Starts a throwaway Postgres with several databases and several nodes as processes of their own,\n" +
			"replays traffic, kills a node that holds an acquire lock half-way through, and counts what was done.",
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return o.validate() }, // what fails before RunE is wrong usage
		RunE: func(c *cobra.Command, _ []string) error {
			if o.json { // and nothing else on standard output
				return run(c.Context(), o, c.ErrOrStderr(), c.OutOrStdout())
			}
			return run(c.Context(), o, c.OutOrStdout(), nil)
		},
	}
	f := c.Flags()
	f.IntVar(&o.jobs, "jobs", 4000, "how many jobs to run")
	f.IntVar(&o.pools, "pools", 3, "databases")
	f.IntVar(&o.tenants, "tenants", 12, "tenants, each with a schema of its own")
	f.IntVar(&o.nodes, "nodes", 3, "node processes")
	f.DurationVar(&o.over, "over", 20*time.Second, "how long the jobs take to arrive")
	f.BoolVar(&o.stay, "stay", false, "serve a dashboard, and keep the cluster running afterwards, for a look around")
	f.BoolVar(&o.json, "json", false, "print one JSON object to standard output, and everything else to standard error")
	f.StringVar(&o.dsn, "dsn", "", "use this server instead of a throwaway one; databases are created there and dropped again")
	f.StringVar(&o.traffic, "traffic", "", "`folder` with recorded traffic, as *.csv (default: it is generated)")
	return c
}

func (o options) validate() error {
	var errs []error
	for _, f := range []struct {
		name          string
		value, lo, hi int
	}{{"jobs", o.jobs, 1, 1_000_000}, {"pools", o.pools, 1, 50}, {"tenants", o.tenants, 1, 1000}, {"nodes", o.nodes, 1, 20}} {
		if f.value < f.lo || f.value > f.hi {
			errs = append(errs, fmt.Errorf("--%s %d: %d to %d are allowed", f.name, f.value, f.lo, f.hi))
		}
	}
	if o.tenants < o.pools {
		errs = append(errs, fmt.Errorf("--tenants %d: at least one per pool is needed, and there are %d pools", o.tenants, o.pools))
	}
	if o.over < time.Second || o.over > time.Hour {
		errs = append(errs, fmt.Errorf("--over %v: 1s to 1h are allowed", o.over))
	}
	if _, err := pgx.ParseConfig(o.dsn); o.dsn != "" && err != nil { // its text may quote the password
		errs = append(errs, errors.New("--dsn cannot be read as a Postgres connection string: write postgres://user@host:5432/database"))
	}
	return errors.Join(errs...)
}

// errBroken is returned when the proof fails: the demo then exits with 1.
var errBroken = errors.New("the proof failed: jobs were lost or effects doubled")

// errInterrupted is returned when somebody ends the demo before its end, which says
// nothing about the nodes.
var errInterrupted = errors.New("interrupted, so nothing was proved; everything was cleaned up")

// run plays the demo. It tells people on out how it goes, and, unless it is nil, writes the
// result to report.
func run(ctx context.Context, o options, out, report io.Writer) (err error) {
	calls, source, err := loadTraffic(o)
	if err != nil {
		return err
	}
	screen := newScreen(out)
	say := screen.say
	var dashboard *board
	if o.stay {
		if dashboard, err = openBoard(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, dashboard.close()) }()
		say("dashboard: %s shows the locks, and how they move when a node dies", dashboard.Address)
	}
	say("Tenure demo: %d pools, %d tenants, %d nodes, %d jobs", o.pools, o.tenants, o.nodes, o.jobs)
	say("traffic: %s", source)

	s, err := newStage(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	say("Postgres is up with %d databases in %.1f s", o.pools, s.took.Seconds())

	if err := s.startClient(ctx, o.nodes); err != nil {
		return err
	}
	if dashboard != nil {
		if err := dashboard.show(s.client); err != nil {
			return err
		}
	}
	if err := s.startNodes(ctx); err != nil {
		return err
	}
	holders, err := s.untilHeld(ctx)
	if err != nil {
		return errors.Join(err, s.logTails())
	}
	say("%d nodes gossip, and every pool's lock is held: %s", o.nodes, holders)

	p := newPlay(s, calls, say)
	stopScreen := screen.start(ctx, s, p)
	err = p.perform(ctx)
	stopScreen()
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return errors.Join(err, s.logTails())
	}

	r := result{Pools: o.pools, Tenants: o.tenants, Nodes: o.nodes, TakeoverSeconds: math.Round(p.takeover.Seconds()*1000) / 1000, Killed: p.killed}
	if err := s.prove(ctx, p.ids, &r); err != nil {
		return err
	}
	if p.killed != "" {
		say("%s was killed with SIGKILL while it held %d of %d locks; they were taken over within %.2f s, and the %d jobs that it had claimed ran again elsewhere.",
			p.killed, p.killedHeld, o.pools, r.TakeoverSeconds, p.orphans)
	}
	say("proof, counted in the tenants' effect tables: %d enqueued, %d finished, %d lost, %d effects doubled", r.Enqueued, r.Finished, r.Lost, r.Doubled)
	if report != nil {
		if err := json.NewEncoder(report).Encode(r); err != nil {
			return err
		}
	}
	if r.Lost != 0 || r.Doubled != 0 {
		return errBroken
	}
	if o.stay {
		return s.stay(ctx, p, say, os.Stdin)
	}
	return nil
}

// IsTerminal tells whether out is a terminal that can be drawn on.
func IsTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb" && os.Getenv("CI") == ""
}
