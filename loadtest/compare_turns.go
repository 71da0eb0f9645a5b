package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

// arena is where sides take turns: one server, with a database for each turn.
type arena struct {
	server       *devpg.Server
	dir          string            // of the peers' program
	postgres     string            // the server's version
	peerVersions map[string]string // by -peer: those of the ones that have been measured
	jobs         int               // of a turn
	window       time.Duration
	warmUp       time.Duration // before the window
}

// compareTenants share the jobs of ours. The peers know no tenants: their jobs are in one queue.
const compareTenants = 100

// compareEvery is how often a job is enqueued whose delay is measured.
const compareEvery = 10 * time.Millisecond

func newArena(ctx context.Context, o compareOptions) (_ *arena, err error) {
	a := &arena{peerVersions: map[string]string{}, window: o.window, warmUp: min(warmUp, o.window)}
	if a.dir, err = os.MkdirTemp("", "tenure-compare-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if err := a.buildPeers(ctx); err != nil {
		return nil, err
	}
	if a.server, err = devpg.Start(ctx, devpg.Options{Durable: true, InMemory: o.memory}); err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, a.server.DSN("postgres"))
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&a.postgres)
	return a, err
}

// buildPeers builds loadtest/peers, which this module knows nothing of.
func (a *arena) buildPeers(ctx context.Context) error {
	root, err := output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tenurehq/tenure"))
	if err != nil {
		return fmt.Errorf("find this module, which is to be where compare is run: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", a.peers(), ".")
	cmd.Dir = filepath.Join(string(bytes.TrimSpace(root)), "loadtest", "peers")
	_, err = output(cmd)
	return err
}

func (a *arena) peers() string { return filepath.Join(a.dir, "peers") }

func (a *arena) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := os.RemoveAll(a.dir)
	if a.server != nil {
		err = errors.Join(err, a.server.Stop(ctx))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "loadtest:", err)
	}
}

// output is what a command prints; what it complains of is passed on.
func output(cmd *exec.Cmd) ([]byte, error) {
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err)
	}
	return out, err
}

// on is a turn of Tenure's, or of a limit on its tables.
func on(do func(ctx context.Context, a *arena, b *bed.Bed) (figure, error)) side {
	return func(ctx context.Context, a *arena) (f figure, err error) {
		if err := a.settle(ctx); err != nil {
			return f, err
		}
		b, err := bed.NewOn(ctx, []*devpg.Server{a.server}, "", 1, compareTenants)
		if err != nil {
			return f, err
		}
		f, err = do(ctx, a, b)
		return f, errors.Join(err, a.server.DropDatabase(ctx, b.Pools[0]))
	}
}

// settle has the server write what a former turn has left.
func (a *arena) settle(ctx context.Context) error {
	return bed.ExecOn(ctx, a.server.DSN("postgres"), "CHECKPOINT")
}

// river is a turn of River's, tuned, with a share of the jobs.
func river(what string, share int, args ...string) side { return peer("river", what, share, args) }

// riverByDefault is one with River's defaults: as these bound how often it fetches, the rate
// of a share of the jobs is that of all.
func riverByDefault(what string, share int, args ...string) side {
	return river(what, share, append(args, "-defaults")...)
}

// dbos is a turn of DBOS' queues, tuned, with a share of the jobs: they take longer for each.
func dbos(what string, share int, args ...string) side { return peer("dbos", what, share, args) }

func peer(name, what string, share int, args []string) side {
	return func(ctx context.Context, a *arena) (f figure, err error) {
		const database = "peer"
		if err := errors.Join(a.settle(ctx), a.server.CreateDatabase(ctx, database)); err != nil {
			return f, err
		}
		args := append([]string{"-peer", name, "-what", what, "-dsn", a.server.DSN(database), "-jobs", strconv.Itoa(max(a.jobs/share, 1)), "-batch", strconv.Itoa(bed.EnqueueChunk),
			"-every", compareEvery.String(), "-warm-up", a.warmUp.String(), "-window", a.window.String()}, args...)
		out, err := output(exec.CommandContext(ctx, a.peers(), args...))
		if err = errors.Join(err, a.server.DropDatabase(ctx, database)); err != nil {
			return f, err
		}
		var measured struct {
			Version   string
			PerSecond float64 `json:"per_second"`
			P50       float64 `json:"p50_ms"`
			P99       float64 `json:"p99_ms"`
		}
		err = json.Unmarshal(out, &measured)
		a.peerVersions[name] = measured.Version
		return figure{measured.PerSecond + measured.P50, measured.P99}, err // one of the two
	}
}

var oursDrain = on(func(ctx context.Context, a *arena, b *bed.Bed) (figure, error) {
	r, err := drainOn(ctx, b, drainOptions{jobs: a.jobs, tenants: compareTenants})
	return figure{typical: float64(a.jobs) / r.Seconds}, errors.Join(err, r.Fault())
})

var oursEnqueue = on(func(ctx context.Context, a *arena, b *bed.Bed) (f figure, err error) {
	c, err := tenure.NewClient(b.Config)
	if err != nil {
		return f, err
	}
	if err := c.Start(ctx); err != nil {
		return f, err
	}
	defer c.Stop(ctx)
	began := time.Now()
	err = bed.EnqueueBy(ctx, c, b.Tenants, a.jobs, func(n int) job.Args { return newOrder(n) })
	return a.rate(a.jobs, began), err
})

func (a *arena) rate(jobs int, began time.Time) figure {
	return figure{typical: float64(jobs) / time.Since(began).Seconds()}
}

// oursTx has handlers of so many jobs at once work off so many times as many jobs as the others, as
// their rate is the higher for it.
func oursTx(batch, times int) side {
	return on(func(ctx context.Context, a *arena, b *bed.Bed) (f figure, err error) {
		postgres, err := postmaster(ctx, b)
		if err != nil {
			return f, err
		}
		jobs := times * a.jobs
		s, _, err := nodeTx(ctx, b, postgres, txOptions{jobs: jobs, batch: batch})
		if err != nil {
			return f, err
		}
		return figure{typical: float64(jobs) / s.took.Seconds()}, checkEnded(ctx, b, jobs, jobs)
	})
}

// checkEnded is an error unless so many jobs were finished, and handlers have inserted so many rows.
func checkEnded(ctx context.Context, b *bed.Bed, jobs, rows int) error {
	kept, effects, err := countEnded(ctx, b)
	if err == nil && (kept != int64(jobs) || effects != int64(rows)) {
		err = fmt.Errorf("of %d jobs %d were finished, and of %d rows %d inserted", jobs, kept, rows, effects)
	}
	return err
}

var oursFromHolder = on(func(ctx context.Context, a *arena, b *bed.Bed) (f figure, err error) {
	var seen report.Delays
	registry := job.NewRegistry()
	job.Handle(registry, func(_ context.Context, j *job.Job[stamped]) error {
		seen.Add(time.Since(j.Args.At))
		return nil
	})
	n, end, err := b.RunNode(ctx, registry)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := untilHeld(ctx, n); err != nil {
		return f, err
	}
	l := bed.StartLoad(b, n.Client(), compareEvery, func(int) job.Args { return stamped{time.Now()} })
	defer l.Stop()
	if err := wait.For(ctx, a.warmUp); err != nil {
		return f, err
	}
	seen.Forget()
	if err := wait.For(ctx, a.window); err != nil {
		return f, err
	}
	l.Stop()
	if err := errors.Join(l.Last, b.UntilDone(ctx)); err != nil {
		return f, err
	}
	return delaysOf(seen.Take())
})

func delaysOf(all []time.Duration) (figure, error) {
	if len(all) == 0 {
		return figure{}, errors.New("no job was started in the window")
	}
	return figure{report.Percentile(all, 0.5), report.Percentile(all, 0.99)}, nil
}

// oursFromAfar has a node in a process of its own, and the client here.
var oursFromAfar = on(func(ctx context.Context, a *arena, b *bed.Bed) (f figure, err error) {
	nodes, err := fleet.New(b.Config, 1, "lan", "")
	if err != nil {
		return f, err
	}
	defer nodes.Close()
	if err := nodes.Start(ctx); err != nil {
		return f, err
	}
	client, err := nodes.NewClient(ctx, b.Config)
	if err != nil {
		return f, err
	}
	defer fleet.StopClient(client)
	l := bed.StartLoad(b, client, compareEvery, func(int) job.Args { return fleet.PlainWork{} })
	defer l.Stop()
	from := time.Now().Add(a.warmUp)
	if err := wait.For(ctx, a.warmUp+a.window); err != nil {
		return f, err
	}
	l.Stop()
	if err := errors.Join(l.Last, b.UntilDone(ctx)); err != nil {
		return f, err
	}
	started, err := firstStarts(nodes.Dir)
	if err != nil {
		return f, err
	}
	var all []time.Duration
	for id, asked := range l.Asked {
		if !asked.Before(from) {
			all = append(all, started[id].Sub(asked))
		}
	}
	return delaysOf(all)
})

// bareCommit is an INSERT that commits, as often as a job is enqueued.
var bareCommit = on(func(ctx context.Context, a *arena, b *bed.Bed) (f figure, err error) {
	conn, err := b.Connect(ctx, b.Pools[0])
	if err != nil {
		return f, err
	}
	defer conn.Close(ctx)
	var all []time.Duration
	insert := "INSERT INTO " + string(b.Tenants[0]) + ".effect (job_id) VALUES ($1)"
	tick := time.Tick(compareEvery)
	for end := time.Now().Add(a.window); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return f, context.Cause(ctx)
		case <-tick:
		}
		began := time.Now()
		if _, err := conn.Exec(ctx, insert, len(all)); err != nil {
			return f, err
		}
		all = append(all, time.Since(began))
	}
	return delaysOf(all)
})

// bareCopy is a COPY of the rows that enqueuing makes, as they are, into a table without
// indexes and defaults, in as large batches.
var bareCopy = on(func(ctx context.Context, a *arena, b *bed.Bed) (f figure, err error) {
	if err := b.Enqueue(ctx, b.Tenants, a.jobs, func(n int) job.Args { return newOrder(n) }); err != nil {
		return f, err
	}
	conn, err := b.Connect(ctx, b.Pools[0])
	if err != nil {
		return f, err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE TABLE plain (LIKE tenure.job)"); err != nil {
		return f, err
	}
	var batches []*bytes.Buffer
	for from := 0; from < a.jobs; from += bed.EnqueueChunk {
		var batch bytes.Buffer
		rows := fmt.Sprintf("COPY (SELECT * FROM tenure.job ORDER BY id LIMIT %d OFFSET %d) TO STDOUT BINARY", bed.EnqueueChunk, from)
		if _, err := conn.PgConn().CopyTo(ctx, &batch, rows); err != nil {
			return f, err
		}
		batches = append(batches, &batch)
	}
	if _, err := conn.Exec(ctx, "CHECKPOINT"); err != nil {
		return f, err
	}
	began := time.Now()
	for _, batch := range batches {
		if _, err := conn.PgConn().CopyFrom(ctx, batch, "COPY plain FROM STDIN BINARY"); err != nil {
			return f, err
		}
	}
	return a.rate(a.jobs, began), nil
})

var limitDrain = limit(0, func(jobs int, b *bed.Bed) prototype { return prototypeDrain(jobs, b.Config.Acquire.Batch) })

var limitTx = limit(1, func(jobs int, b *bed.Bed) prototype { return prototypeTx(jobs, 1, len(b.Tenants)) })

// limit is a turn of a prototype whose jobs insert so many rows each.
func limit(rows int, of func(jobs int, b *bed.Bed) prototype) side {
	return on(func(ctx context.Context, a *arena, b *bed.Bed) (f figure, err error) {
		if err := prepareTx(ctx, b, a.jobs); err != nil {
			return f, err
		}
		began := time.Now()
		if err := of(a.jobs, b).run(ctx, b); err != nil {
			return f, err
		}
		return a.rate(a.jobs, began), checkEnded(ctx, b, a.jobs, rows*a.jobs)
	})
}
