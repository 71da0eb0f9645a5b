package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
)

type soakOptions struct {
	nodes, pools int
	minutes      float64
	every        time.Duration
	sampleEvery  time.Duration
	scale        float64
	disk         bool
	profile      string
	keep         string
}

type soakResult struct {
	Scenario    string     `json:"scenario"`
	Nodes       int        `json:"nodes"`
	Pools       int        `json:"pools"`
	Minutes     float64    `json:"minutes"`
	Scale       float64    `json:"scale"`
	Samples     int        `json:"samples"`
	Goroutines  soakSeries `json:"goroutines"`     // of the node with the most
	Megabytes   soakSeries `json:"megabytes"`      // resident, of the node with the most
	Connections soakSeries `json:"connections"`    // of all nodes together
	LedgerMB    soakSeries `json:"ledger_mb"`      // the tables that jobs pass through, of all pools
	Moved       int        `json:"moved"`          // locks that changed hands
	EnqueueP99  [2]float64 `json:"enqueue_p99_ms"` // in the first half and in the second
	Enqueued    int        `json:"enqueued"`
	Finished    int        `json:"finished"`
	Lost        int        `json:"lost"`
	Doubled     int        `json:"doubled"`
}

// soakSeries is what was seen of one number in the second half of the time, when whatever
// fills once is full.
type soakSeries struct {
	Least   float64 `json:"least"`
	Most    float64 `json:"most"`
	PerHour float64 `json:"per_hour"` // slope of the line through all of it

	at, seen []float64 // hours, and the number
}

func newSoak() *cobra.Command {
	var o soakOptions
	c := &cobra.Command{
		Use: "soak", Short: "Leave a cluster under a steady load, and see whether anything grows",
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&o.nodes, "nodes", 3, "node processes")
	c.Flags().IntVar(&o.pools, "pools", 3, "databases")
	c.Flags().Float64Var(&o.minutes, "minutes", 0.7, "how long; a slope is worth something after an hour or more")
	c.Flags().DurationVar(&o.every, "every", 50*time.Millisecond, "how often a job is enqueued in each pool")
	c.Flags().DurationVar(&o.sampleEvery, "sample", 0, "how often to measure (0: sixty times)")
	c.Flags().Float64Var(&o.scale, "scale", 1, "shortens the times to live of locks and sessions, and their renewals with them; 1: the defaults")
	c.Flags().BoolVar(&o.disk, "disk", false, "keep the databases on disk")
	c.Flags().StringVar(&o.profile, "profile", "lan", "timing of the gossip: local, lan or wan")
	c.Flags().StringVar(&o.keep, "keep", "", "keep the nodes' logs in this folder")
	return scenario(c, func(ctx context.Context, _ []string) (soakResult, error) { return soak(ctx, o) })
}

func (r soakResult) fault() error { return lost(int64(r.Lost), r.Doubled) }

// soakTook is how long each job takes: some are always running.
const soakTook = 20 * time.Millisecond

func soak(ctx context.Context, o soakOptions) (r soakResult, err error) {
	span := time.Duration(o.minutes * float64(time.Minute))
	if o.nodes < 1 || o.pools < 1 || span <= 0 || o.every <= 0 || o.scale < 0.1 || o.scale > 1 {
		return r, errors.New("nodes, pools, minutes and every must be more than 0; --scale is 0.1 to 1")
	}
	if o.sampleEvery == 0 {
		o.sampleEvery = span / 60
	}
	b, err := startBed(ctx, devpg.Options{Durable: true, InMemory: !o.disk}, o.pools, 3*o.pools)
	if err != nil {
		return r, err
	}
	defer b.close()
	b.hurry(o.scale)
	f, err := newFleet(b.cfg, o.nodes, o.profile, o.keep)
	if err != nil {
		return r, err
	}
	defer f.close()
	f.silent = true
	if err := f.start(ctx); err != nil {
		return r, err
	}
	client, err := f.client(ctx, b.cfg)
	if err != nil {
		return r, err
	}
	defer client.Stop(context.WithoutCancel(ctx))
	conn, err := b.connect(ctx, b.pools[0])
	if err != nil {
		return r, err
	}
	defer conn.Close(context.WithoutCancel(ctx))

	l := b.load(client, o.every, func(n int) job.Args {
		if n%2 == 0 {
			return plainWork{Took: soakTook}
		}
		return txWork{Took: soakTook}
	})
	l.start()
	r = soakResult{Scenario: "soak", Nodes: o.nodes, Pools: o.pools, Minutes: o.minutes, Scale: o.scale}
	err = r.watch(ctx, b, f, conn, span, o.sampleEvery)
	l.stop()
	if err == nil {
		err = l.untilDone(ctx)
	}
	if err != nil {
		return r, errors.Join(err, l.last)
	}
	half := len(l.took) / 2
	r.EnqueueP99 = [2]float64{milliseconds(l.took[:half], 0.99), milliseconds(l.took[half:], 0.99)}
	p, err := l.prove(ctx)
	r.Enqueued, r.Finished, r.Lost, r.Doubled = l.enqueued(), p.finished, p.lost, p.doubled
	return r, err
}

// watch measures again and again, and keeps what it sees in the second half.
func (r *soakResult) watch(ctx context.Context, b *bed, f *fleet, conn *pgx.Conn, span, every time.Duration) error {
	began := time.Now()
	epochs := int64(0)
	for n := 0; time.Since(began) < span; n++ {
		if err := wait(ctx, every); err != nil {
			return err
		}
		now, sum, err := look(ctx, b, f, conn)
		if err != nil {
			return err
		}
		if n > 0 && sum != epochs {
			r.Moved++
		}
		epochs = sum
		fmt.Fprintf(os.Stderr, "%v: %v goroutines, %v MB, %v connections, %v MB of ledger\n",
			time.Since(began).Round(time.Second), now[0], now[1], now[2], now[3])
		if time.Since(began) < span/2 {
			continue
		}
		r.Samples++
		for i, s := range []*soakSeries{&r.Goroutines, &r.Megabytes, &r.Connections, &r.LedgerMB} {
			s.add(time.Since(began).Hours(), now[i])
		}
	}
	return nil
}

// look measures once: goroutines, resident megabytes, connections, megabytes of the ledger;
// and the sum of the locks' epochs.
func look(ctx context.Context, b *bed, f *fleet, conn *pgx.Conn) (now [4]float64, epochs int64, err error) {
	for _, n := range f.nodes {
		u, err := n.usage()
		if err != nil {
			return now, 0, err
		}
		s, err := n.stats()
		if err != nil {
			return now, 0, err
		}
		now[0], now[1] = max(now[0], float64(u.Goroutines)), max(now[1], math.Round(float64(u.Kilobytes)/102.4)/10)
		epochs += s.Epochs
	}
	if err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tenure %'").Scan(&now[2]); err != nil {
		return now, 0, err
	}
	for _, pool := range b.pools {
		var mb float64
		err := b.ask(ctx, pool, "SELECT round(sum(pg_total_relation_size(oid)) / 1e6, 1)::float8 FROM pg_class WHERE relnamespace = 'tenure'::regnamespace AND relname IN ('job', 'claim', 'timer_job')", &mb)
		if err != nil {
			return now, 0, err
		}
		now[3] += mb
	}
	now[3] = math.Round(10*now[3]) / 10
	return now, epochs, nil
}

// ask reads one value from a pool's database, on a connection of its own.
func (b *bed) ask(ctx context.Context, pool, sql string, answer any) error {
	conn, err := b.connect(ctx, pool)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, sql).Scan(answer)
}

func (s *soakSeries) add(at, seen float64) {
	if len(s.seen) == 0 {
		s.Least = seen
	}
	s.Least, s.Most = min(s.Least, seen), max(s.Most, seen)
	s.at, s.seen = append(s.at, at), append(s.seen, seen)
	s.PerHour = math.Round(100*slope(s.at, s.seen)) / 100
}

// slope is that of the line with the least squares through the points; 0 of fewer than two.
func slope(x, y []float64) float64 {
	n := float64(len(x))
	var sx, sy, sxx, sxy float64
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	if d := n*sxx - sx*sx; d != 0 {
		return (n*sxy - sx*sy) / d
	}
	return 0
}
