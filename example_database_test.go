package tenure_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// exampleConfig is what config.Load reads from a file in a real program: here one
// pool on a throwaway PostgreSQL, and in it the tenant acme with a table of its own.
func exampleConfig() (cfg config.Config, stop func()) {
	ctx := context.Background()
	server, err := devpg.Start(ctx, devpg.Options{})
	check(err)
	check(server.CreateDatabase(ctx, "app"))

	cfg = config.Default()
	cfg.Pools = map[string]routing.PoolConfig{"main": {DSN: server.DSN("app")}}
	cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "main"}}

	_, err = operate.Migrate(ctx, cfg) // the command line's "tenure migrate"
	check(err)
	conn, err := pgx.Connect(ctx, server.DSN("app"))
	check(err)
	_, err = conn.Exec(ctx, "CREATE SCHEMA acme; CREATE TABLE acme.invoice (id bigint PRIMARY KEY, sent boolean NOT NULL DEFAULT false)")
	check(err)
	check(conn.Close(ctx))
	return cfg, func() { check(server.Stop(ctx)) }
}

// exampleNode is a node that runs, with these handlers and nothing logged.
func exampleNode(cfg config.Config, register func(*job.Registry)) (node *tenure.Node, stop func()) {
	handlers := job.NewRegistry()
	register(handlers)
	node, err := tenure.New(cfg, handlers, tenure.WithLogger(zap.NewNop()))
	check(err)
	check(node.Start(context.Background()))
	return node, func() { check(node.Stop(context.Background())) }
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
