package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// dbosPeer is a queue of DBOS Transact for Go.
type dbosPeer struct {
	dbos  dbos.Context
	pool  *pgxpool.Pool
	conns int
	share int // orders that a connection enqueues in a transaction
}

// dbosName is the queue's.
const dbosName = "orders"

func newDBOS(ctx context.Context, o options, pool *pgxpool.Pool, logger *slog.Logger, seen *tally) (peer, error) {
	c, err := dbos.NewContext(ctx, dbos.Config{AppName: "orders", SystemDBPool: pool, Logger: logger}) // it makes the tables
	if err != nil {
		return nil, err
	}
	// As the pool is DBOS' own, a transaction of it records the step, too.
	source, err := dbos.NewDataSource(c, pool)
	if err != nil {
		return nil, err
	}
	dbos.RegisterWorkflow(c, func(ctx dbos.Context, job order) (any, error) {
		if o.what == "tx" {
			_, err := dbos.RunAsTransaction(ctx, source, func(ctx context.Context, tx dbos.Tx) (any, error) {
				_, err := tx.Exec(ctx, insertEffect, job.Order)
				return nil, err
			})
			if err != nil {
				return nil, err
			}
		}
		seen.shipped()
		return nil, nil
	}, dbos.WithWorkflowName(order{}.Kind()))
	dbos.RegisterWorkflow(c, func(_ dbos.Context, job stamped) (any, error) {
		seen.started(job)
		return nil, nil
	}, dbos.WithWorkflowName(stamped{}.Kind()))
	if o.what != "insert" {
		// Of what was tried, no limit does best: one transaction claims whatever waits.
		_, err = dbos.RegisterQueue(c, dbosName, dbos.WithQueueBasePollingInterval(time.Millisecond))
	}
	return &dbosPeer{c, pool, o.conns, (o.batch + o.conns - 1) / o.conns}, err
}

func (*dbosPeer) module() string { return "github.com/dbos-inc/dbos-transact-golang" }

func (*dbosPeer) unended() string {
	return "dbos.workflow_status WHERE queue_name = '" + dbosName + "' AND status IN ('ENQUEUED', 'PENDING')"
}

func (*dbosPeer) completed() string { return "dbos.workflow_status WHERE status = 'SUCCESS'" }

// enqueue has each connection enqueue its share of a batch in a transaction, one by one: no call
// takes several.
func (p *dbosPeer) enqueue(ctx context.Context, jobs int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(p.conns)
	for from := 0; from < jobs; from += p.share {
		g.Go(func() error {
			return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
				for n := from; n < min(from+p.share, jobs); n++ {
					if _, err := dbos.Enqueue[any](p.dbos, dbosName, order{}.Kind(), newOrder(n), dbos.WithEnqueueTransaction(tx)); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	return g.Wait()
}

func (p *dbosPeer) insert(_ context.Context, job stamped) error {
	_, err := dbos.Enqueue[any](p.dbos, dbosName, job.Kind(), job)
	return err
}

func (p *dbosPeer) start(context.Context) error { return dbos.Launch(p.dbos) }

// stop may log the poll that it interrupts as an error.
func (p *dbosPeer) stop() error { return dbos.Shutdown(p.dbos, stopWithin) }
