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
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// peer is River on a database of its own.
type peer struct {
	options
	pool   *pgxpool.Pool
	logger *slog.Logger
}

func newPeer(ctx context.Context, o options) (*peer, error) {
	cfg, err := pgxpool.ParseConfig(o.dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(o.conns)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	p := &peer{o, pool, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))} // its default logger prints to stdout
	if err := p.prepare(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return p, nil
}

// prepare makes the tables, unless the process that started this one has.
func (p *peer) prepare(ctx context.Context) error {
	if p.what == "insert" {
		return nil
	}
	m, err := rivermigrate.New(riverpgxv5.New(p.pool), &rivermigrate.Config{Logger: p.logger})
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	_, err = p.pool.Exec(ctx, "CREATE TABLE effect (job_id bigint NOT NULL, turn integer, member text, at timestamptz NOT NULL DEFAULT clock_timestamp())")
	return err
}

// settings of a client. Retention and all other maintenance are as they are by default.
func (p *peer) settings() *river.Config {
	c := &river.Config{Logger: p.logger}
	switch {
	case p.defaults:
	case p.what == "latency" || p.what == "insert":
		// It is also how often an inserting client notifies those that work.
		c.FetchCooldown, c.FetchPollInterval = river.FetchCooldownMin, 20*time.Millisecond
	default:
		// What `river bench` works with, by whose words these do best of what was tried.
		c.FetchCooldown, c.FetchPollInterval = 2*time.Millisecond, 20*time.Millisecond
	}
	return c
}

// workers is how many jobs run at a time.
func (p *peer) workers() int {
	if p.defaults {
		return 100 // River has no default for it: its documentation begins with this
	}
	return 2_000 // as `river bench`; transactional jobs, too, are faster then than with as many as have a connection
}

// work starts a client with a worker.
func work[T river.JobArgs](ctx context.Context, p *peer, w river.Worker[T]) (*river.Client[pgx.Tx], error) {
	s := p.settings()
	s.Workers = river.NewWorkers()
	river.AddWorker(s.Workers, w)
	s.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: p.workers()}}
	c, err := river.NewClient(riverpgxv5.New(p.pool), s)
	if err != nil {
		return nil, err
	}
	return c, c.Start(ctx)
}

// inserter is a client that runs nothing.
func (p *peer) inserter() (*river.Client[pgx.Tx], error) {
	return river.NewClient(riverpgxv5.New(p.pool), p.settings())
}

// stop ends a client in order.
func stop(c *river.Client[pgx.Tx]) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return c.Stop(ctx)
}

// order is the job that Tenure is measured with.
type order struct {
	Order    int64   `json:"order"`
	Customer string  `json:"customer"`
	Lines    []int32 `json:"lines"`
	Note     string  `json:"note"`
}

func (order) Kind() string { return "order.ship" }

func newOrder(n int) order {
	return order{Order: int64(n), Customer: fmt.Sprintf("customer-%08d", n%10_000), Lines: []int32{1, 2, 3, 5, 8, 13},
		Note: "leave at the door of the neighbours if nobody is at home today"}
}

// enqueue inserts all jobs, as many at once as Tenure does.
func (p *peer) enqueue(ctx context.Context) (perSecond float64, err error) {
	c, err := p.inserter()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	for from := 0; from < p.jobs; from += p.batch {
		params := make([]river.InsertManyParams, 0, p.batch)
		for n := from; n < min(from+p.batch, p.jobs); n++ {
			params = append(params, river.InsertManyParams{Args: newOrder(n)})
		}
		if _, err := c.InsertManyFast(ctx, params); err != nil {
			return 0, err
		}
	}
	return float64(p.jobs) / time.Since(began).Seconds(), nil
}

// backlog inserts all jobs, and has Postgres know how many there are.
func (p *peer) backlog(ctx context.Context) error {
	if _, err := p.enqueue(ctx); err != nil {
		return err
	}
	_, err := p.pool.Exec(ctx, "ANALYZE; CHECKPOINT", pgx.QueryExecModeSimpleProtocol)
	return err
}

// ship works an order off, and counts it.
type ship struct {
	river.WorkerDefaults[order]
	inTx   *pgxpool.Pool // nil: there is nothing to do
	left   atomic.Int64
	allEnd chan struct{}
}

func newShip(jobs int, inTx *pgxpool.Pool) *ship {
	s := &ship{inTx: inTx, allEnd: make(chan struct{})}
	s.left.Store(int64(jobs))
	return s
}

// Work implements river.Worker.
func (s *ship) Work(ctx context.Context, j *river.Job[order]) error {
	if s.inTx != nil {
		err := pgx.BeginFunc(ctx, s.inTx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", j.ID); err != nil {
				return err
			}
			_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, j)
			return err
		})
		if err != nil {
			return err
		}
	}
	if s.left.Add(-1) == 0 {
		close(s.allEnd)
	}
	return nil
}

// drain works a backlog off that does nothing, and times it until the last job is finished in
// the database.
func (p *peer) drain(ctx context.Context) (perSecond float64, err error) { return p.workOff(ctx, nil) }

// tx works a backlog off whose jobs insert a row, and end, in one transaction.
func (p *peer) tx(ctx context.Context) (perSecond float64, err error) { return p.workOff(ctx, p.pool) }

func (p *peer) workOff(ctx context.Context, inTx *pgxpool.Pool) (perSecond float64, err error) {
	if err := p.backlog(ctx); err != nil {
		return 0, err
	}
	s := newShip(p.jobs, inTx)
	began := time.Now()
	c, err := work(ctx, p, s)
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-s.allEnd:
	}
	err = p.untilCompleted(ctx)
	took := time.Since(began)
	if err := errors.Join(err, stop(c)); err != nil {
		return 0, err
	}
	var completed, effects int
	err = p.pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM river_job WHERE state = 'completed'), (SELECT count(*) FROM effect)").Scan(&completed, &effects)
	if err == nil && (completed != p.jobs || inTx != nil && effects != p.jobs) {
		err = fmt.Errorf("of %d jobs %d are completed, with %d effects", p.jobs, completed, effects)
	}
	return float64(p.jobs) / took.Seconds(), err
}

// untilCompleted waits until no job is available or running by the database's word, which it
// asks seldom enough not to be what is measured.
func (p *peer) untilCompleted(ctx context.Context) error {
	conn, err := p.pool.Acquire(ctx)
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
		err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM river_job WHERE state IN ('available', 'running'))").Scan(&left)
		if err != nil || !left {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// stamped is a job that knows when it was inserted.
type stamped struct {
	At time.Time `json:"at"`
}

func (stamped) Kind() string { return "load.stamped" }

// stopwatch notes how long jobs took to start that were inserted from a time on.
type stopwatch struct {
	river.WorkerDefaults[stamped]
	from time.Time
	mu   sync.Mutex
	all  []time.Duration // guarded by mu
}

// Work implements river.Worker.
func (s *stopwatch) Work(_ context.Context, j *river.Job[stamped]) error {
	took := time.Since(j.Args.At)
	if j.Args.At.Before(s.from) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, took)
	return nil
}

// latency is how long jobs take from the call that inserts them to their start.
func (p *peer) latency(ctx context.Context) (p50, p99 float64, err error) {
	w := &stopwatch{from: time.Now().Add(p.warmUp)}
	c, err := work(ctx, p, w)
	if err != nil {
		return 0, 0, err
	}
	if p.apart {
		err = p.insertApart(ctx)
	} else {
		err = p.insertBy(ctx, c)
	}
	if err == nil {
		err = p.untilCompleted(ctx)
	}
	if err := errors.Join(err, stop(c)); err != nil {
		return 0, 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) == 0 {
		return 0, 0, errors.New("no job was started in the window")
	}
	slices.Sort(w.all)
	at := func(share float64) float64 {
		return w.all[min(len(w.all)-1, int(share*float64(len(w.all))))].Seconds() * 1000
	}
	return at(0.5), at(0.99), nil
}

// insertApart has another process insert.
func (p *peer) insertApart(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "-what", "insert", "-dsn", p.dsn, "-conns", strconv.Itoa(p.conns),
		"-every", p.every.String(), "-warm-up", p.warmUp.String(), "-window", p.window.String(), "-defaults="+strconv.FormatBool(p.defaults))
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

func (p *peer) insert(ctx context.Context) error {
	c, err := p.inserter()
	if err != nil {
		return err
	}
	return p.insertBy(ctx, c)
}

// insertBy inserts one job after the other until the window is over.
func (p *peer) insertBy(ctx context.Context, c *river.Client[pgx.Tx]) error {
	end := time.After(p.warmUp + p.window)
	for tick := time.Tick(p.every); ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end:
			return nil
		case <-tick:
			if _, err := c.Insert(ctx, stamped{time.Now()}, nil); err != nil {
				return err
			}
		}
	}
}
