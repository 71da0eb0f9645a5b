package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/cmd/tenure/internal/handlers"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/admin"
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
			return serve(cmd.Context(), cfg, a.loadConfig, newLogger(cfg.Node.Log, a.stderr))
		},
	}
}

// startLimitNode bounds the start of a node; a pool that does not answer does not
// hold it up so long.
const startLimitNode = 30 * time.Second

// serve runs a node until ctx ends; load reads its configuration again. The address is taken first, so that a second
// node by mistake fails before it does anything, and served to the last, so that
// probes see the node stop.
func serve(ctx context.Context, cfg config.Config, load func() (config.Config, error), log *zap.Logger) error {
	web, err := listen(cfg.Node.Address())
	if err != nil {
		return err
	}
	defer web.stop()
	builtIn := handlers.New(cfg.Handlers)
	defer builtIn.Close()
	registry := job.NewRegistry()
	builtIn.Register(registry)
	node, err := tenure.New(cfg, registry, tenure.WithLogger(log), tenure.WithVersion(buildVersion()))
	if err != nil {
		return err
	}
	again := &reloader{load: load, node: node, log: log, known: cfg}
	handler := again.handler(node.Handler())
	if !cfg.Node.AnyHost() {
		handler = admin.ForHosts(handler, cfg.Node.AllowedHosts)
	}
	web.serve(handler, log)
	log.Info("starting", zap.String("version", buildVersion()), zap.String("node", cfg.Node.Name),
		zap.Strings("pools", slices.Sorted(maps.Keys(cfg.Pools))), zap.Strings("kinds", registry.Kinds()), zap.String("address", web.address()))
	if err := runNode(ctx, cfg, node, again, web.failed, log); err != nil {
		return err
	}
	log.Info("stopped, nothing is claimed")
	return nil
}

// runNode is Node.Run but for two things: a signal during the start lets it finish
// and then stops what was started, and a failed listener stops the node.
func runNode(ctx context.Context, cfg config.Config, node *tenure.Node, again *reloader, failed <-chan error, log *zap.Logger) error {
	own := context.WithoutCancel(ctx) // starting and stopping have limits of their own
	startCtx, cancel := context.WithTimeout(own, startLimitNode)
	err := node.Start(startCtx)
	cancel()
	if err != nil {
		err = fmt.Errorf("start: %w", err)
	} else {
		log.Info("started")
		runCtx, ended := context.WithCancel(ctx)
		var reloading sync.WaitGroup
		reloading.Go(func() { again.run(runCtx) })
		select {
		case <-ctx.Done():
			log.Info("stopping", zap.Duration("finish_within", cfg.Execution.FinishWithin))
		case err = <-failed:
		}
		ended()
		reloading.Wait()
	}
	stopCtx, cancel := context.WithTimeout(own, tenure.StopTimeout(cfg))
	defer cancel()
	if stopErr := node.Stop(stopCtx); stopErr != nil {
		err = errors.Join(err, fmt.Errorf("stop: %w", stopErr))
	}
	return err
}
