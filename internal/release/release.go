// Package release is a node, a client and a migration for the test that has one release of
// Tenure work beside another: the same text is compiled with each of them, so it uses only
// what the older one has.
package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// plain has no transaction, write has one, and again fails once before it succeeds.
type (
	plain struct{}
	write struct{}
	again struct{}
)

func (plain) Kind() string { return "plain" }
func (write) Kind() string { return "write" }
func (again) Kind() string { return "again" }

// Run is one process of that test, by its role: migrate, node or client. A node and a
// client run until their standard input ends. A node writes into each tenant's effect table
// which job it ran, and name. A client prints the id of each job that it knows to be
// enqueued. file is the configuration.
func Run(role, file, name string) error {
	cfg, err := config.Load(file)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is the signal
		cancel()
	}()
	switch role {
	case "migrate":
		return migrate(context.Background(), cfg)
	case "node":
		return runNode(ctx, cfg, name)
	case "client":
		return runClient(ctx, cfg)
	}
	return errors.New("no such role")
}

// migrate does what both releases have in packages of their own names.
func migrate(ctx context.Context, cfg config.Config) error {
	for i, name := range slices.Sorted(maps.Keys(cfg.Pools)) {
		pool, err := pgx.ParseConfig(cfg.Pools[name].DSN)
		if err != nil {
			return err
		}
		store.MigrationConfig(pool)
		if _, err := store.Migrate(ctx, pool, name, i+1, nil); err != nil {
			return err
		}
	}
	return nil
}

func runNode(ctx context.Context, cfg config.Config, name string) error {
	var node *tenure.Node
	effect := func(ctx context.Context, tx pgx.Tx, id job.ID) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect (job_id, ran_on) VALUES ($1, $2)", int64(id), name)
		return err
	}
	registry := job.NewRegistry()
	job.Handle(registry, func(ctx context.Context, j *job.Job[plain]) error {
		return node.Client().InTx(ctx, func(ctx context.Context, tx pgx.Tx) error { return effect(ctx, tx, j.ID) })
	})
	tenure.HandleTx(registry, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error { return effect(ctx, tx, j.ID) })
	tenure.HandleTx(registry, func(ctx context.Context, tx pgx.Tx, j *job.Job[again]) error {
		if err := effect(ctx, tx, j.ID); err != nil || j.Attempt > 1 {
			return err
		}
		return errors.New("the first time it fails")
	}, job.Retry("R3/PT1S"))
	enc := zap.NewDevelopmentEncoderConfig()
	enc.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	log := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), zapcore.Lock(os.Stderr), zap.InfoLevel)).Named(name)
	node, err := tenure.New(cfg, registry, tenure.WithLogger(log))
	if err != nil {
		return err
	}
	if err := node.Start(context.Background()); err != nil {
		return err
	}
	fmt.Println("ready", node.Self().Addr)
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.Background(), tenure.StopTimeout(cfg))
	defer cancel()
	return node.Stop(stopping)
}

// pace is how long a client rests after it has enqueued one job of each sort for a tenant.
const pace = 20 * time.Millisecond

func runClient(ctx context.Context, cfg config.Config) error {
	client, err := tenure.NewClient(cfg)
	if err != nil {
		return err
	}
	if err := client.Start(context.Background()); err != nil {
		return err
	}
	fmt.Println("ready -")
	var tenants []tenancy.ID
	for id := range cfg.Tenants.Static {
		tenants = append(tenants, id)
	}
	slices.Sort(tenants)
	for i := 0; ctx.Err() == nil; i++ {
		if err := enqueue(client, tenants[i%len(tenants)]); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pace):
		}
	}
	stopping, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return client.Stop(stopping)
}

// enqueue adds a job of each sort in each way, and prints the ids of those that it knows to
// be added.
func enqueue(client *tenure.Client, tenant tenancy.ID) error {
	ctx, cancel := context.WithTimeout(tenancy.For(context.Background(), tenant), 30*time.Second)
	defer cancel()
	for _, how := range []struct {
		args    job.Args
		options []tenure.Option
	}{
		{plain{}, nil}, {write{}, nil}, {write{}, []tenure.Option{tenure.In(500 * time.Millisecond)}}, {again{}, nil},
		{plain{}, []tenure.Option{tenure.Unique(fmt.Sprint(time.Now().UnixNano()))}},
	} {
		added, err := client.Enqueue(ctx, how.args, how.options...)
		if err != nil {
			return err
		}
		fmt.Println("job", added.ID)
	}
	var added tenure.Enqueued
	err := client.InTx(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		added, err = client.EnqueueTx(ctx, tx, write{})
		return err
	})
	if err != nil {
		return err
	}
	fmt.Println("job", added.ID)
	_, err = client.EnqueueMany(ctx, []tenure.Entry{{Args: write{}}, {Args: plain{}, Options: []tenure.Option{tenure.In(time.Second)}}})
	return err // their ids are not told
}
