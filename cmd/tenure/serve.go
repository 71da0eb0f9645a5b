package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/cmd/tenure/internal/handlers"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
)

func newServe(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Run a node until SIGINT or SIGTERM",
		Long: "Runs the built-in handlers: http.request, and sql.exec where handlers.sql_exec.enabled\n" +
			"says so; programs with handlers of their own embed a node instead. The first signal stops it as execution.finish_within\n" +
			"says, another one a second later or more ends it at once. It exits with 0 only if\n" +
			"nothing is left claimed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadConfig()
			if errors.Is(err, fs.ErrNotExist) {
				fmt.Fprintf(a.stderr, "the shortest configuration that works:\n\n%s\n", config.Minimal)
			}
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cfg, newLogger(cfg.Node.Log, a.stderr))
		},
	}
}

// serve runs a node with the built-in handlers until ctx ends.
func serve(ctx context.Context, cfg config.Config, log *zap.Logger) error {
	builtIn := handlers.New(cfg.Handlers)
	defer builtIn.Close()
	registry := job.NewRegistry()
	builtIn.Register(registry)
	node, err := tenure.New(cfg, registry, tenure.WithLogger(log), tenure.WithVersion(buildVersion()))
	if err != nil {
		return err
	}
	return node.Run(ctx)
}
