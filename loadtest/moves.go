package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

type movesOptions struct {
	minutes               float64
	seed                  uint64
	nodes, servers, pools int
	every                 time.Duration
	keep                  string
}

type movesResult struct {
	Scenario   string  `json:"scenario"`
	Seed       uint64  `json:"seed"`
	Minutes    float64 `json:"minutes"`
	Nodes      int     `json:"nodes"`
	Pools      int     `json:"pools"`
	Tenants    int     `json:"tenants"`
	Faults     int     `json:"faults"`     // of nodes, servers and connections
	Moves      int64   `json:"moves"`      // commands that came to their end
	Killed     int64   `json:"killed"`     // commands that were killed
	GivenUp    int64   `json:"given_up"`   // commands that said that they could not: something was broken, or a later one came
	MovedJobs  int64   `json:"moved_jobs"` // by commands that came to their end
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
	var o movesOptions
	c := &cobra.Command{
		Use:   "moves",
		Short: "Move tenants to and fro while their jobs run, nodes and databases break, and the command is killed",
		Args:  cobra.NoArgs,
	}
	c.Flags().Float64Var(&o.minutes, "minutes", 0.4, "how long things go wrong")
	c.Flags().Uint64Var(&o.seed, "seed", 1, "of the schedule and the moves")
	c.Flags().IntVar(&o.nodes, "nodes", 3, "node processes")
	c.Flags().IntVar(&o.servers, "servers", 2, "Postgres servers")
	c.Flags().IntVar(&o.pools, "pools", 3, "databases, spread over the servers")
	c.Flags().DurationVar(&o.every, "every", 2*time.Second, "a fault begins so often, on average")
	c.Flags().StringVar(&o.keep, "keep", "", "keep the nodes' logs and journals in this folder")
	return scenario(c, func(ctx context.Context, _ []string) (movesResult, error) { return moves(ctx, o) })
}

func (r movesResult) fault() error {
	if r.Unfinished+r.Late > 0 {
		return errors.New("a promise was broken")
	}
	return lost(int64(r.Lost), r.Doubled)
}

func moves(ctx context.Context, o movesOptions) (r movesResult, err error) {
	if o.nodes < 2 || o.servers < 1 || o.pools < 2 || o.pools < o.servers || o.minutes <= 0 || o.every <= 0 {
		return r, errors.New("two nodes, two pools, a server, and times above 0 are needed at least")
	}
	co := chaosOptions{minutes: o.minutes, seed: o.seed, nodes: o.nodes, servers: o.servers, pools: o.pools, every: o.every, scale: 0.2, keep: o.keep}
	// What a fail-over loses of a move that is under way is for whoever promoted the standby.
	faults := slices.DeleteFunc(plan(co, false), func(f *fault) bool { return f.Kind == "fail over" })
	c := &chaos{began: time.Now(), out: os.Stderr, serving: make([]sync.Mutex, o.servers)}
	defer c.close()
	if err := c.build(ctx, co, nil); err != nil {
		return r, err
	}
	for _, pool := range c.bed.pools {
		for id, t := range c.bed.cfg.Tenants.Static {
			if t.Pool == pool {
				continue
			}
			if err := c.bed.exec(ctx, pool, schemaSQL(id)); err != nil {
				return r, err
			}
		}
	}
	client, err := c.fleet.client(ctx, c.bed.cfg)
	if err != nil {
		return r, err
	}
	defer client.Stop(context.WithoutCancel(ctx))
	c.load = c.bed.load(client, 30*time.Millisecond, func(n int) job.Args { return chaosJob(n, 6*time.Second) })
	c.load.start()
	m := &movers{chaos: c, client: client, to: map[tenancy.ID]string{}}
	m.start(ctx, o.seed)
	err = c.perform(ctx, faults)
	m.stop()
	c.load.stop()
	if err == nil {
		err = m.err
	}
	if err != nil {
		return r, err
	}
	c.say("all is mended; bringing every move to its end, and waiting for the last jobs")
	if err := m.finish(ctx); err != nil {
		return r, err
	}
	if err := c.load.untilDone(ctx); err != nil {
		c.say("%v", err)
	}
	r = movesResult{
		Scenario: "moves", Seed: o.seed, Minutes: o.minutes, Nodes: o.nodes, Pools: o.pools, Tenants: len(c.bed.tenants), Faults: len(faults),
		Moves: m.done.Load(), Killed: m.killed.Load(), GivenUp: m.failed.Load(), MovedJobs: m.jobs.Load(), Unknown: c.load.unknown,
	}
	return r, r.check(ctx, c)
}

// movers move one tenant each, again and again.
type movers struct {
	chaos  *chaos
	client *tenure.Client

	cancel context.CancelFunc
	group  sync.WaitGroup

	done, killed, failed, jobs atomic.Int64

	mu  sync.Mutex
	to  map[tenancy.ID]string // guarded by mu; where the last command was to move it
	err error                 // guarded by mu; of the scenario itself
}

// moverCount is how many tenants move at a time.
const moverCount = 2

func (m *movers) start(ctx context.Context, seed uint64) {
	ctx, m.cancel = context.WithCancel(ctx)
	tenants := m.chaos.bed.tenants
	for i := range moverCount {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		m.group.Go(func() {
			for ctx.Err() == nil {
				id := tenants[i+moverCount*rng.IntN(len(tenants)/moverCount)]
				pool := m.chaos.bed.pools[rng.IntN(len(m.chaos.bed.pools))]
				killAfter := time.Duration(0)
				if rng.IntN(3) > 0 {
					killAfter = time.Duration(rng.Int64N(int64(1500 * time.Millisecond)))
				}
				if err := m.command(ctx, rng.IntN(len(m.chaos.fleet.nodes)), id, pool, killAfter); err != nil {
					m.mu.Lock()
					m.err = err
					m.mu.Unlock()
					return
				}
			}
		})
	}
}

func (m *movers) stop() {
	m.cancel()
	m.group.Wait()
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
	cfg := m.chaos.fleet.nodes[node].cfg
	cfg.Cluster = nil
	text, err := json.Marshal(moveSpec{cfg, id, pool})
	if err != nil {
		return err
	}
	path := filepath.Join(m.chaos.fleet.dir, fmt.Sprintf("move-%s.json", id))
	if err := os.WriteFile(path, text, 0o600); err != nil {
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
	cmd := exec.CommandContext(ctx, self, "move", path) // killed when ctx ends
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
		_ = wait(ctx, 200*time.Millisecond)
		if m.chaos.fleet.keep {
			m.chaos.say("%s to %s: %s", id, pool, ended.Stderr)
		}
	default:
		return err
	}
	return nil
}

// newMove returns the command that moves a tenant.
func newMove() *cobra.Command {
	return &cobra.Command{
		Use: "move SPEC", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			var spec moveSpec
			if err := json.Unmarshal(text, &spec); err != nil {
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
			moved, err := client.MoveTenant(c.Context(), spec.Tenant, spec.To, tenure.MoveOptions{Wait: 20 * time.Second})
			if err != nil {
				return err
			}
			n := 0
			for _, of := range moved.Jobs {
				n += of
			}
			return say(n)
		},
	}
}

// finish brings every move to its end that was begun: to where the tenant was last told to
// go or, as that may have been refused, to where it is on its way.
func (m *movers) finish(ctx context.Context) error {
	for id, told := range m.to {
		var last error
		err := until(ctx, 2*time.Minute, fmt.Sprintf("tenant %s could not be moved", id), func() (bool, error) {
			last = nil
			for _, pool := range append([]string{told}, m.chaos.bed.pools...) {
				_, err := m.client.MoveTenant(ctx, id, pool, tenure.MoveOptions{Wait: 20 * time.Second})
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

// check looks for every job, its end and its effect in all pools.
func (r *movesResult) check(ctx context.Context, c *chaos) error {
	acked := map[job.ID]bool{}
	for _, ids := range c.load.acked {
		for id := range ids {
			acked[id] = true
		}
	}
	ends, effects, stands := map[job.ID][]ending{}, map[job.ID][]ending{}, map[job.ID][]ending{}
	for _, pool := range c.bed.pools {
		k := &checker{chaos: c, pool: pool}
		if err := k.read(ctx); err != nil {
			return fmt.Errorf("check %s: %w", pool, err)
		}
		for id, e := range k.ends {
			ends[id] = append(ends[id], e...)
		}
		for id, e := range k.effects {
			effects[id] = append(effects[id], e...)
		}
		for id, where := range k.stands {
			stands[id] = append(stands[id], ending{what: where + " in " + pool})
		}
	}
	broken := func(id job.ID, what string) int {
		c.say("job %v %s: enqueued %v, ends %v, effects %v, stands %v", id, what, acked[id], ends[id], effects[id], stands[id])
		return 1
	}
	for id := range acked {
		if len(ends[id])+len(stands[id]) == 0 {
			r.Lost += broken(id, "is nowhere")
		}
	}
	for id := range stands {
		r.Unfinished += broken(id, "has not ended")
	}
	r.Enqueued = len(acked)
	for id, e := range ends {
		switch {
		case len(e) > 1:
			r.Doubled += broken(id, "ended twice")
		case strings.HasPrefix(e[0].what, "dead"):
			r.Dead++
			c.say("job %v is a dead letter: %s", id, e[0].what)
		default:
			r.Finished++
			if e[0].kind == (txWork{}).Kind() && len(effects[id]) == 0 {
				r.Doubled += broken(id, "finished without its effect")
			}
		}
	}
	for id, e := range effects {
		if len(e) > 1 || len(ends[id]) == 0 {
			r.Doubled += broken(id, "took effect twice, or did not end")
		}
	}
	lines, err := readJournals(c.fleet.dir)
	if err != nil {
		return err
	}
	for _, l := range lines {
		if l.What != "start" {
			continue
		}
		r.Starts++
		if e := ends[l.Job]; len(e) > 0 && l.At.After(e[0].at) {
			r.Late += broken(l.Job, fmt.Sprintf("was started at %v by %s", l.At, l.Member))
		}
	}
	return nil
}
