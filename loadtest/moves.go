package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/chaos"
	"github.com/tenurehq/tenure/loadtest/internal/report"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

type movesResult struct {
	Scenario   string  `json:"scenario"`
	Seed       uint64  `json:"seed"`
	Minutes    float64 `json:"minutes"`
	Nodes      int     `json:"nodes"`
	Pools      int     `json:"pools"`
	Tenants    int     `json:"tenants"`
	Faults     int     `json:"faults"`     // of nodes, servers and connections
	Moves      int64   `json:"moves"`      // commands that completed
	Killed     int64   `json:"killed"`     // commands that were killed
	GivenUp    int64   `json:"given_up"`   // commands that said that they could not: something was broken, or a later one came
	MovedJobs  int64   `json:"moved_jobs"` // by commands that completed
	Enqueued   int     `json:"enqueued"`
	Unknown    int     `json:"unknown"` // calls of Enqueue that failed: the job may exist or not
	Starts     int     `json:"starts"`
	Finished   int     `json:"finished"`
	Dead       int     `json:"dead"`
	Lost       int     `json:"lost"`        // enqueued, and in no pool
	Unfinished int     `json:"unfinished"`  // still waiting long after all was mended
	Doubled    int     `json:"doubled"`     // a job with two effects, with two ends, or with one and not the other
	Late       int     `json:"late_starts"` // started after it was finished
}

func newMoves() *cobra.Command {
	o := chaos.Options{Nodes: 3, Servers: 2, Pools: 3, Every: 2 * time.Second, Scale: 0.2}
	c := scenario("moves", "Move tenants back and forth while their jobs run, nodes and databases break, and the move command is killed", &o, moves)
	faultFlags(c.Flags(), &o)
	c.Flags().Lookup("seed").Usage = "seed of the fault schedule and of the moves"
	return c
}

func (r movesResult) Fault() error {
	if r.Unfinished+r.Late > 0 {
		return errors.New("a promise was broken")
	}
	return report.Lost(int64(r.Lost), r.Doubled)
}

func moves(ctx context.Context, o chaos.Options) (r movesResult, err error) {
	if o.Nodes < 2 || o.Servers < 1 || o.Pools < 2 || o.Pools < o.Servers || o.Minutes <= 0 || o.Every <= 0 {
		return r, errors.New("at least two nodes, two pools and a server are needed, and times above 0")
	}
	// What a fail-over loses of a move under way has to be sorted out by anyone who promoted the standby.
	faults := slices.DeleteFunc(chaos.Plan(o, false), func(f *chaos.Fault) bool { return f.Kind == "fail over" })
	c, err := chaos.Start(ctx, o, nil)
	if err != nil {
		return r, err
	}
	defer c.Close()
	for _, pool := range c.Bed.Pools {
		for id, t := range c.Bed.Config.Tenants.Static {
			if t.Pool == pool {
				continue
			}
			if err := c.Bed.Exec(ctx, pool, bed.SchemaSQL(id)); err != nil {
				return r, err
			}
		}
	}
	c.StartLoad()
	m := &movers{chaos: c, to: map[tenancy.ID]string{}}
	m.start(ctx, o.Seed)
	err = errors.Join(c.InjectAll(ctx, faults), m.stop())
	c.Load.Stop()
	if err != nil {
		return r, err
	}
	c.Say("all faults are over; completing every move and waiting for the last jobs")
	if err := m.finish(ctx); err != nil {
		return r, err
	}
	if err := c.Bed.UntilDone(ctx); err != nil {
		c.Say("%v", err)
	}
	v, err := c.JudgeMoved(ctx)
	return movesResult{
		Scenario: "moves", Seed: o.Seed, Minutes: o.Minutes, Nodes: o.Nodes, Pools: o.Pools, Tenants: len(c.Bed.Tenants), Faults: len(faults),
		Moves: m.done.Load(), Killed: m.killed.Load(), GivenUp: m.failed.Load(), MovedJobs: m.jobs.Load(), Unknown: c.Load.Unknown,
		Enqueued: v.Enqueued, Starts: v.Starts, Finished: v.Finished, Dead: v.Dead,
		Lost: v.Lost, Unfinished: v.Unfinished, Doubled: v.Doubled, Late: v.Late,
	}, err
}

// movers move one tenant each, again and again.
type movers struct {
	chaos *chaos.Cluster

	cancel context.CancelFunc
	group  sync.WaitGroup
	errs   [moverCount]error // of the scenario itself

	done, killed, failed, jobs atomic.Int64

	mu sync.Mutex
	to map[tenancy.ID]string // guarded by mu; where the last command was to move it
}

// moverCount is how many tenants move at a time.
const moverCount = 2

func (m *movers) start(ctx context.Context, seed uint64) {
	ctx, m.cancel = context.WithCancel(ctx)
	tenants := m.chaos.Bed.Tenants
	for i := range moverCount {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		m.group.Go(func() {
			for ctx.Err() == nil && m.errs[i] == nil {
				id := tenants[i+moverCount*rng.IntN(len(tenants)/moverCount)]
				pool := m.chaos.Bed.Pools[rng.IntN(len(m.chaos.Bed.Pools))]
				killAfter := time.Duration(0)
				if rng.IntN(3) > 0 {
					killAfter = time.Duration(rng.Int64N(int64(1500 * time.Millisecond)))
				}
				m.errs[i] = m.command(ctx, rng.IntN(len(m.chaos.Fleet.Nodes)), id, pool, killAfter)
			}
		})
	}
}

func (m *movers) stop() error {
	m.cancel()
	m.group.Wait()
	return errors.Join(m.errs[:]...)
}

// moveSpec is what a process that moves a tenant is told.
type moveSpec struct {
	Config config.Config
	Tenant tenancy.ID
	To     string
}

// command moves a tenant in a process of its own, which reaches the databases as a node
// does, and kills it after a while; 0: not.
func (m *movers) command(ctx context.Context, node int, id tenancy.ID, pool string, killAfter time.Duration) error {
	cfg := m.chaos.Fleet.Nodes[node].Cfg
	cfg.Cluster = nil
	text, err := json.Marshal(moveSpec{cfg, id, pool})
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.to[id] = pool
	m.mu.Unlock()
	if killAfter > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, killAfter)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, self, "move") // killed when ctx ends
	cmd.Stdin = bytes.NewReader(text)
	said, err := cmd.Output()
	var ended *exec.ExitError
	switch {
	case err == nil:
		var n int64
		if err := json.Unmarshal(said, &n); err != nil {
			return fmt.Errorf("%s said %q: %w", cmd, said, err)
		}
		m.done.Add(1)
		m.jobs.Add(n)
	case errors.As(err, &ended) && !ended.Exited(), ctx.Err() != nil:
		m.killed.Add(1)
	case errors.As(err, &ended):
		m.failed.Add(1)
		_ = wait.For(ctx, 200*time.Millisecond)
		if m.chaos.Fleet.Keep {
			m.chaos.Say("%s to %s: %s", id, pool, ended.Stderr)
		}
	default:
		return err
	}
	return nil
}

// newMove returns the command that moves a tenant, as its standard input says.
func newMove() *cobra.Command {
	return &cobra.Command{
		Use: "move", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var spec moveSpec
			if err := json.NewDecoder(os.Stdin).Decode(&spec); err != nil {
				return err
			}
			client, err := tenure.NewClient(spec.Config)
			if err != nil {
				return err
			}
			if err := client.Start(c.Context()); err != nil {
				return err
			}
			defer client.Stop(context.WithoutCancel(c.Context()))
			moved, err := client.Operator().Tenants().Move(c.Context(), spec.Tenant, spec.To, operate.MoveOptions{Wait: 20 * time.Second})
			if err != nil {
				return err
			}
			n := 0
			for _, of := range moved.Jobs {
				n += of
			}
			return report.Print(n, true)
		},
	}
}

// finish brings every move to its end that was begun: to where the tenant was last told to
// go or, as that may have been refused, to where it is on its way.
func (m *movers) finish(ctx context.Context) error {
	for id, told := range m.to {
		var last error
		err := wait.Until(ctx, 2*time.Minute, fmt.Sprintf("tenant %s could not be moved", id), func() (bool, error) {
			last = nil
			for _, pool := range append([]string{told}, m.chaos.Bed.Pools...) {
				_, err := m.chaos.Client.Operator().Tenants().Move(ctx, id, pool, operate.MoveOptions{Wait: 20 * time.Second})
				if err == nil || tenure.Refused(err) && strings.Contains(err.Error(), "it lives there already") {
					return true, nil
				}
				last = errors.Join(last, err)
			}
			return false, nil
		})
		if err != nil {
			return errors.Join(err, last)
		}
	}
	return nil
}
