package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverPeer is River.
type riverPeer struct {
	client *river.Client[pgx.Tx]
	batch  int
}

func newRiver(ctx context.Context, o options, pool *pgxpool.Pool, logger *slog.Logger, seen *tally) (peer, error) {
	driver := riverpgxv5.New(pool)
	if o.what != "insert" { // else the process that started this one has made the tables
		m, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: logger})
		if err != nil {
			return nil, err
		}
		if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return nil, err
		}
	}
	s := riverSettings(o)
	s.Logger, s.Workers = logger, river.NewWorkers()
	ship := &riverShip{seen: seen}
	if o.what == "tx" {
		ship.inTx = pool
	}
	river.AddWorker(s.Workers, ship)
	river.AddWorker(s.Workers, &riverStopwatch{seen: seen})
	client, err := river.NewClient(driver, s)
	return &riverPeer{client, o.batch}, err
}

// riverSettings leaves retention and all other maintenance as they are by default.
func riverSettings(o options) *river.Config {
	workers := 2_000 // as `river bench`; transactional jobs, too, are faster then than with as many as have a connection
	c := &river.Config{}
	switch {
	case o.defaults:
		workers = 100 // River has no default for it: its documentation begins with this
	case o.what == "latency" || o.what == "insert":
		// It is also how often an inserting client notifies those that work.
		c.FetchCooldown, c.FetchPollInterval = river.FetchCooldownMin, 20*time.Millisecond
	default:
		// What `river bench` works with, by whose words these do best of what was tried.
		c.FetchCooldown, c.FetchPollInterval = 2*time.Millisecond, 20*time.Millisecond
	}
	c.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}
	return c
}

func (*riverPeer) module() string    { return "github.com/riverqueue/river" }
func (*riverPeer) unended() string   { return "river_job WHERE state IN ('available', 'running')" }
func (*riverPeer) completed() string { return "river_job WHERE state = 'completed'" }

// enqueue inserts as many at once as Tenure does.
func (p *riverPeer) enqueue(ctx context.Context, jobs int) error {
	for from := 0; from < jobs; from += p.batch {
		params := make([]river.InsertManyParams, 0, p.batch)
		for n := from; n < min(from+p.batch, jobs); n++ {
			params = append(params, river.InsertManyParams{Args: newOrder(n)})
		}
		if _, err := p.client.InsertManyFast(ctx, params); err != nil {
			return err
		}
	}
	return nil
}

func (p *riverPeer) insert(ctx context.Context, job stamped) error {
	_, err := p.client.Insert(ctx, job, nil)
	return err
}

func (p *riverPeer) start(ctx context.Context) error { return p.client.Start(ctx) }

func (p *riverPeer) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	return p.client.Stop(ctx)
}

// riverShip works an order off.
type riverShip struct {
	river.WorkerDefaults[order]
	inTx *pgxpool.Pool // nil: there is nothing to do
	seen *tally
}

// Work implements river.Worker.
func (s *riverShip) Work(ctx context.Context, j *river.Job[order]) error {
	if s.inTx != nil {
		err := pgx.BeginFunc(ctx, s.inTx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insertEffect, j.ID); err != nil {
				return err
			}
			_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, j)
			return err
		})
		if err != nil {
			return err
		}
	}
	s.seen.shipped()
	return nil
}

// riverStopwatch takes the time of a stamped job.
type riverStopwatch struct {
	river.WorkerDefaults[stamped]
	seen *tally
}

// Work implements river.Worker.
func (s *riverStopwatch) Work(_ context.Context, j *river.Job[stamped]) error {
	s.seen.started(j.Args)
	return nil
}
