package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/report"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

type scaleOptions struct {
	pools                []int
	jobs, perNode, nodes int
	profile              string
}

// scaleRow is what became of the same jobs in a number of pools.
type scaleRow struct {
	Pools         int     `json:"pools"`
	EnqueueSecond int     `json:"enqueued_per_second"`
	FirstJob      float64 `json:"first_job_seconds"`  // after Start was called
	AllBegun      float64 `json:"all_pools_seconds"`  // until each pool has begun a job
	JobsPerSecond int     `json:"jobs_per_second"`    // from Start until the last is finished in the database
	Kilobytes     float64 `json:"kilobytes_per_pool"` // of the node's heap while it works, beside that of one without jobs
	Connections   int     `json:"connections"`        // of the server, at most
	Lost          int64   `json:"lost"`
	Ratio         float64 `json:"of_the_first,omitempty"` // its jobs a second
}

type scaleResult struct {
	Scenario string     `json:"scenario"`
	Jobs     int        `json:"jobs"`
	Rows     []scaleRow `json:"rows"`
}

func newScale() *cobra.Command {
	var o scaleOptions
	c := scenario("scale", "Work off the same jobs, spread over ever more pools of one server", &o, scale)
	c.Flags().IntSliceVar(&o.pools, "pools", []int{1, 10, 100, 1000}, "numbers of pools, one after the other; a database takes 8 MB")
	c.Flags().IntVar(&o.jobs, "jobs", 300_000, "jobs waiting when the node starts, over all pools")
	c.Flags().IntVar(&o.perNode, "per-node", 60, "connections.per_node of the client and the node")
	c.Flags().IntVar(&o.nodes, "nodes", 1, "nodes, all in this process")
	c.Flags().StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of each drain to this file, with the number of pools behind it")
	return c
}

func (r scaleResult) Fault() error {
	for _, row := range r.Rows {
		if err := report.Lost(row.Lost, 0); err != nil {
			return fmt.Errorf("%d pools: %w", row.Pools, err)
		}
	}
	return nil
}

func scale(ctx context.Context, o scaleOptions) (r scaleResult, err error) {
	r = scaleResult{Scenario: "scale", Jobs: o.jobs}
	for _, pools := range o.pools {
		if pools < 1 || o.jobs < pools {
			return r, errors.New("each number of pools must be more than 0, and at most that of the jobs")
		}
		row, err := scaleTo(ctx, o, pools)
		if err != nil {
			return r, fmt.Errorf("%d pools: %w", pools, err)
		}
		if len(r.Rows) > 0 {
			row.Ratio = report.Round(float64(row.JobsPerSecond)/float64(r.Rows[0].JobsPerSecond), 2)
		}
		fmt.Fprintf(os.Stderr, "%+v\n", row)
		r.Rows = append(r.Rows, row)
	}
	return r, nil
}

func scaleTo(ctx context.Context, o scaleOptions, pools int) (r scaleRow, err error) {
	// Beside the bounded connections each pool has the lock's, those that are being opened, and that of connectAll.
	server, err := devpg.Start(ctx, devpg.Options{Durable: true, MaxConnections: (1+o.nodes)*o.perNode + (1+o.nodes)*pools + pools + 50})
	if err != nil {
		return r, err
	}
	b := bed.NewEmpty(server)
	defer b.Close()
	if err := b.ClonePools(ctx, pools); err != nil {
		return r, err
	}
	b.Config.Connections = routing.ConnectionsConfig{PerNode: o.perNode, Nodes: o.nodes}
	b.Config.Tenants.Static = map[tenancy.ID]routing.TenantConfig{}
	for i := range max(100, pools) {
		id := tenancy.ID(fmt.Sprintf("tenant_%04d", i+1))
		b.Tenants = append(b.Tenants, id)
		b.Config.Tenants.Static[id] = routing.TenantConfig{Pool: b.Pools[i%pools]}
	}

	began := time.Now()
	if err := enqueuePoolByPool(ctx, b, o.jobs); err != nil {
		return r, err
	}
	r = scaleRow{Pools: pools, EnqueueSecond: int(float64(o.jobs) / time.Since(began).Seconds())}
	if err := b.ExecAll(ctx, "ANALYZE"); err != nil {
		return r, err
	}
	if err := b.Exec(ctx, b.Pools[0], "CHECKPOINT"); err != nil {
		return r, err
	}

	var started, first, all, left atomic.Int64
	left.Store(int64(pools))
	begun := make(map[string]*atomic.Bool, pools)
	for _, p := range b.Pools {
		begun[p] = new(atomic.Bool)
	}
	homes := map[string]string{}
	for id, t := range b.Config.Tenants.Static {
		homes[string(id)] = t.Pool
	}
	allStarted := make(chan struct{})
	registry := job.NewRegistry()
	before := heap()
	job.Handle(registry, func(_ context.Context, j *job.Job[order]) error {
		if !begun[homes[j.Tenant]].Swap(true) {
			first.CompareAndSwap(0, int64(time.Since(began)))
			if left.Add(-1) == 0 {
				all.Store(int64(time.Since(began)))
			}
		}
		if started.Add(1) == int64(o.jobs) {
			close(allStarted)
		}
		return nil
	})
	conns, err := connectAll(ctx, b)
	defer func() {
		for _, c := range conns {
			_ = c.Close(ctx)
		}
	}()
	if err != nil {
		return r, err
	}
	end, err := profileTo(o.profile, pools)
	if err != nil {
		return r, err
	}
	defer end()
	began = time.Now()
	stop, err := runNodes(ctx, b, o.nodes, registry)
	if err != nil {
		return r, errors.Join(err, stop())
	}
	err = inTurn(ctx,
		func(ctx context.Context) error { return r.untilHalf(ctx, &started, o.jobs, before, b) },
		func(ctx context.Context) error { return untilAllEmpty(ctx, conns, allStarted) })
	took := time.Since(began)
	if err != nil {
		return r, errors.Join(err, stop())
	}
	if err := stop(); err != nil {
		return r, err
	}
	r.Lost = int64(o.jobs)
	for _, conn := range conns { // an operator would wait for connections as the node does
		var finished int64
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM tenure.completed_job").Scan(&finished); err != nil {
			return r, err
		}
		r.Lost -= finished
	}
	r.FirstJob, r.AllBegun = report.Seconds(time.Duration(first.Load())), report.Seconds(time.Duration(all.Load()))
	r.JobsPerSecond = int(float64(o.jobs) / took.Seconds())
	return r, nil
}

// runNodes starts nodes of one cluster, one after the other, that run a registry's handlers.
func runNodes(ctx context.Context, b *bed.Bed, nodes int, registry *job.Registry) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		faults := make([]error, len(stops))
		var all sync.WaitGroup
		for i, end := range stops {
			all.Go(func() { faults[i] = end() })
		}
		all.Wait()
		return errors.Join(faults...)
	}
	var first []string
	for i := range nodes {
		one := *b
		if nodes > 1 {
			one.Config.Node.Name = fmt.Sprintf("node-%d", i+1)
			one.Config.Cluster = &membership.Config{Bind: "127.0.0.1:0", Label: "scale", Profile: "local", Join: first}
		}
		n, end, err := one.RunNode(ctx, registry)
		if err != nil {
			return stop, err
		}
		stops = append(stops, end)
		first = []string{n.Self().Addr}
	}
	return stop, nil
}

// enqueuePoolByPool makes a backlog that the pools have in equal shares. Eight callers add jobs to one pool each, until
// it has all of its own: a client that has fewer connections than there are pools opens one to each pool once.
func enqueuePoolByPool(ctx context.Context, b *bed.Bed, jobs int) error {
	c, err := tenure.NewClient(b.Config)
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	defer c.Stop(ctx)
	pools := make(chan int)
	faults := make(chan error, 8)
	for range cap(faults) {
		go func() {
			var err error
			for p := range pools {
				var tenants []tenancy.ID
				for i := p; i < len(b.Tenants); i += len(b.Pools) {
					tenants = append(tenants, b.Tenants[i])
				}
				share := jobs/len(b.Pools) + min(1, max(0, jobs%len(b.Pools)-p))
				if err == nil {
					err = bed.EnqueueBy(ctx, c, tenants, share, func(n int) job.Args { return newOrder(n) })
				}
			}
			faults <- err
		}()
	}
	for p := range b.Pools {
		pools <- p
	}
	close(pools)
	for range cap(faults) {
		err = errors.Join(err, <-faults)
	}
	return err
}

// untilHalf waits until half of the jobs have begun, and looks then at what the node and the server have open.
func (r *scaleRow) untilHalf(ctx context.Context, started *atomic.Int64, jobs int, before uint64, b *bed.Bed) error {
	err := wait.Until(ctx, 10*time.Minute, "half of the jobs did not begin", func() (bool, error) {
		return started.Load() >= int64(jobs)/2, nil
	})
	if err != nil {
		return err
	}
	if now := heap(); now > before {
		r.Kilobytes = report.Round(float64(now-before)/1024/float64(r.Pools), 1)
	}
	return b.Ask(ctx, b.Pools[0], "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tenure %'", &r.Connections)
}

// heap is what the process has in use, in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// untilAllEmpty waits until the handlers have all been started, and then until each pool has finished its jobs, by its
// database's word.
func untilAllEmpty(ctx context.Context, conns []*pgx.Conn, allStarted <-chan struct{}) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Minute, errors.New("not drained after 20 minutes"))
	defer cancel()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-allStarted:
	}
	for _, conn := range conns {
		for left := true; left; {
			if err := conn.QueryRow(ctx, anyLeft).Scan(&left); err != nil {
				return err
			}
		}
	}
	return nil
}

// connectAll opens a connection to each pool that is ready to ask it for [anyLeft].
func connectAll(ctx context.Context, b *bed.Bed) (conns []*pgx.Conn, err error) {
	for _, p := range b.Pools {
		conn, err := b.Connect(ctx, p)
		if err != nil {
			return conns, err
		}
		conns = append(conns, conn)
		if _, err := conn.Exec(ctx, anyLeft); err != nil {
			return conns, err
		}
	}
	return conns, nil
}

// profileTo writes a CPU profile until what it returns is called.
func profileTo(path string, pools int) (end func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(fmt.Sprintf("%s.%d", path, pools))
	if err == nil {
		err = pprof.StartCPUProfile(f)
	}
	return func() { pprof.StopCPUProfile(); _ = f.Close() }, err
}
