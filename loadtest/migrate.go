package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/report"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
)

type migrateOptions struct {
	pools, perServer int
	disk             bool
}

type migrateResult struct {
	Scenario      string  `json:"scenario"`
	Pools         int     `json:"pools"`
	PerServer     int     `json:"per_server"`
	CreateSeconds float64 `json:"create_seconds"` // CREATE DATABASE, one after the other
	FirstSeconds  float64 `json:"first_seconds"`  // of empty databases
	AgainSeconds  float64 `json:"again_seconds"`  // when there is nothing left to do
	Failed        int     `json:"failed"`
}

func (r migrateResult) Fault() error {
	if r.Failed != 0 {
		return fmt.Errorf("%d pools were not migrated", r.Failed)
	}
	return nil
}

func newMigrate() *cobra.Command {
	var o migrateOptions
	c := scenario("migrate", "Migrate many empty databases on one server, and time it", &o, migrate)
	c.Flags().IntVar(&o.pools, "pools", 200, "empty databases; each takes 8 MB of memory")
	c.Flags().IntVar(&o.perServer, "per-server", 8, "databases migrated at a time")
	c.Flags().BoolVar(&o.disk, "disk", false, "keep the databases on disk, with Postgres' default durability")
	return c
}

func migrate(ctx context.Context, o migrateOptions) (r migrateResult, err error) {
	if o.pools < 1 || o.perServer < 1 {
		return r, errors.New("pools and per-server must be more than 0")
	}
	server, err := devpg.Start(ctx, devpg.Options{Durable: o.disk})
	if err != nil {
		return r, err
	}
	b := bed.NewEmpty(server)
	defer b.Close()
	r = migrateResult{Scenario: "migrate", Pools: o.pools, PerServer: o.perServer}
	began := time.Now()
	for i := range o.pools {
		name := fmt.Sprintf("pool-%d", i+1)
		if err := server.CreateDatabase(ctx, name); err != nil {
			return r, err
		}
		b.Config.Pools[name] = routing.PoolConfig{DSN: server.DSN(name)}
	}
	r.CreateSeconds = report.Seconds(time.Since(began))
	fmt.Fprintf(os.Stderr, "created %d databases in %v s\n", o.pools, r.CreateSeconds)
	options := operate.MigrateOptions{PerServer: o.perServer, Done: func(p operate.MigratedPool) {
		if p.Err != nil {
			r.Failed++
		}
	}}
	for _, took := range []*float64{&r.FirstSeconds, &r.AgainSeconds} {
		began := time.Now()
		if _, err := operate.MigrateAll(ctx, b.Config, options); err != nil {
			return r, err
		}
		*took = report.Seconds(time.Since(began))
	}
	return r, nil
}
