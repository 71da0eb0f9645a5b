package tenure_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Hello says whom it is for.
type Hello struct{}

// Kind implements job.Args.
func (Hello) Kind() string { return "hello" }

// Two databases, each with a tenant. The tenant of the context says which one a job is in; the code is the same.
func Example_twoPools() {
	ctx := context.Background()
	server, err := devpg.Start(ctx, devpg.Options{}) // a throwaway PostgreSQL; two servers in a real program
	check(err)
	defer func() { check(server.Stop(ctx)) }()
	cfg := config.Default()
	cfg.Pools = map[string]routing.PoolConfig{"eu": {DSN: server.DSN("eu")}, "us": {DSN: server.DSN("us")}}
	cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "eu"}, "globex": {Pool: "us"}}
	for pool, tenant := range map[string]string{"eu": "acme", "us": "globex"} {
		check(server.CreateDatabase(ctx, pool))
		conn, err := pgx.Connect(ctx, server.DSN(pool))
		check(err)
		_, err = conn.Exec(ctx, "CREATE SCHEMA "+tenant)
		check(err)
		check(conn.Close(ctx))
	}
	_, err = operate.Migrate(ctx, cfg)
	check(err)

	node, stop := exampleNode(cfg, func(r *job.Registry) {
		tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, _ *job.Job[Hello]) error {
			var database, schema string
			err := tx.QueryRow(ctx, "SELECT current_database(), current_schema()").Scan(&database, &schema)
			fmt.Printf("in database %s, schema %s\n", database, schema)
			return err
		})
	})
	defer stop()
	for _, tenant := range []tenancy.ID{"acme", "globex"} {
		added, err := node.Client().Enqueue(tenancy.For(ctx, tenant), Hello{})
		check(err)
		_, _, err = node.Operator().Jobs().Await(ctx, added.ID)
		check(err)
	}
	// Output:
	// in database eu, schema acme
	// in database us, schema globex
}
