package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// peer is a job queue on Postgres. Its jobs report to a tally.
type peer interface {
	module() string                                // of which the version is told
	enqueue(ctx context.Context, jobs int) error   // so many orders, the fastest way that it has
	insert(ctx context.Context, job stamped) error // one job
	start(ctx context.Context) error               // working off what is inserted
	stop() error                                   // in order; the pool may be closed then
	unended() string                               // jobs, as what follows FROM
	completed() string                             // the same
}

// bench measures a peer.
type bench struct {
	options
	pool *pgxpool.Pool
	seen *tally
	on   peer
}

func newBench(ctx context.Context, o options) (*bench, error) {
	cfg, err := pgxpool.ParseConfig(o.dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(o.conns)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, pool: pool, seen: newTally(o.jobs)}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})) // the peers' own print to stdout
	switch o.peer {
	case "river":
		b.on, err = newRiver(ctx, o, pool, logger, b.seen)
	case "dbos":
		b.on, err = newDBOS(ctx, o, pool, logger, b.seen)
	default:
		err = fmt.Errorf("-peer %q: river or dbos is wanted", o.peer)
	}
	if err == nil && o.what != "insert" {
		_, err = pool.Exec(ctx, "CREATE TABLE effect (job_id bigint NOT NULL, turn integer, member text, at timestamptz NOT NULL DEFAULT clock_timestamp())")
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return b, nil
}

// order is the job that Tenure is measured with.
type order struct {
	Order    int64   `json:"order"`
	Customer string  `json:"customer"`
	Lines    []int32 `json:"lines"`
	Note     string  `json:"note"`
}

// Kind is its name with every peer.
func (order) Kind() string { return "order.ship" }

func newOrder(n int) order {
	return order{Order: int64(n), Customer: fmt.Sprintf("customer-%08d", n%10_000), Lines: []int32{1, 2, 3, 5, 8, 13},
		Note: "leave at the door of the neighbours if nobody is at home today"}
}

// insertEffect is what a transactional order does.
const insertEffect = "INSERT INTO effect (job_id) VALUES ($1)"

// stopWithin is how long a peer has to stop in order.
const stopWithin = 30 * time.Second

// stamped is a job that knows when it was inserted.
type stamped struct {
	At time.Time `json:"at"`
}

// Kind is its name with every peer.
func (stamped) Kind() string { return "load.stamped" }

// tally is told by jobs what has become of them.
type tally struct {
	left   atomic.Int64  // orders
	allEnd chan struct{} // closed once none is left

	from time.Time // stamped jobs of before do not count
	mu   sync.Mutex
	took []time.Duration // guarded by mu: each to its start
}

func newTally(jobs int) *tally {
	t := &tally{allEnd: make(chan struct{})}
	t.left.Store(int64(jobs))
	return t
}

// shipped is called at the end of each order.
func (t *tally) shipped() {
	if t.left.Add(-1) == 0 {
		close(t.allEnd)
	}
}

// started is called at the start of each stamped job.
func (t *tally) started(job stamped) {
	took := time.Since(job.At)
	if job.At.Before(t.from) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = append(t.took, took)
}

// enqueue inserts all orders.
func (b *bench) enqueue(ctx context.Context) (perSecond float64, err error) {
	began := time.Now()
	err = b.on.enqueue(ctx, b.jobs)
	return float64(b.jobs) / time.Since(began).Seconds(), err
}

// backlog inserts all orders, and has Postgres know how many there are.
func (b *bench) backlog(ctx context.Context) error {
	if err := b.on.enqueue(ctx, b.jobs); err != nil {
		return err
	}
	_, err := b.pool.Exec(ctx, "ANALYZE; CHECKPOINT", pgx.QueryExecModeSimpleProtocol)
	return err
}

// workOff works a backlog off, and times it until the last job is finished in the database. Its
// jobs do nothing (drain), or insert a row exactly once (tx).
func (b *bench) workOff(ctx context.Context) (perSecond float64, err error) {
	if err := b.backlog(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := b.on.start(ctx); err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-b.seen.allEnd:
	}
	err = b.untilEnded(ctx)
	took := time.Since(began)
	if err == nil {
		err = b.checkEnded(ctx)
	}
	return float64(b.jobs) / took.Seconds(), errors.Join(err, b.on.stop())
}

// checkEnded is an error unless all orders are completed, and had their effects.
func (b *bench) checkEnded(ctx context.Context) error {
	var completed, effects int
	err := b.pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM "+b.on.completed()+"), (SELECT count(*) FROM effect)").Scan(&completed, &effects)
	if err == nil && (completed != b.jobs || b.what == "tx" && effects != b.jobs) {
		err = fmt.Errorf("of %d jobs %d are completed, with %d effects", b.jobs, completed, effects)
	}
	return err
}

// untilEnded waits until no job is yet to end by the database's word, which it asks seldom enough
// not to be what is measured.
func (b *bench) untilEnded(ctx context.Context) error {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	// Postgres would think that the first row it reads is one, as all were when it counted them.
	if _, err := conn.Exec(ctx, "SET enable_seqscan = off"); err != nil {
		return err
	}
	for {
		var left bool
		err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+b.on.unended()+")").Scan(&left)
		if err != nil || !left {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// latency is how long jobs take from the call that inserts them to their start.
func (b *bench) latency(ctx context.Context) (p50, p99 float64, err error) {
	b.seen.from = time.Now().Add(b.warmUp)
	if err := b.on.start(ctx); err != nil {
		return 0, 0, err
	}
	if b.apart {
		err = b.insertApart(ctx)
	} else {
		err = b.insert(ctx)
	}
	if err == nil {
		err = b.untilEnded(ctx)
	}
	if err := errors.Join(err, b.on.stop()); err != nil {
		return 0, 0, err
	}
	b.seen.mu.Lock()
	defer b.seen.mu.Unlock()
	all := b.seen.took
	if len(all) == 0 {
		return 0, 0, errors.New("no job was started in the window")
	}
	slices.Sort(all)
	at := func(share float64) float64 {
		return all[min(len(all)-1, int(share*float64(len(all))))].Seconds() * 1000
	}
	return at(0.5), at(0.99), nil
}

// insertApart has another process insert.
func (b *bench) insertApart(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "-peer", b.peer, "-what", "insert", "-dsn", b.dsn, "-conns", strconv.Itoa(b.conns),
		"-every", b.every.String(), "-warm-up", b.warmUp.String(), "-window", b.window.String(), "-defaults="+strconv.FormatBool(b.defaults))
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// insert inserts one job after the other until the window is over.
func (b *bench) insert(ctx context.Context) error {
	end := time.After(b.warmUp + b.window)
	for tick := time.Tick(b.every); ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end:
			return nil
		case <-tick:
			if err := b.on.insert(ctx, stamped{time.Now()}); err != nil {
				return err
			}
		}
	}
}
