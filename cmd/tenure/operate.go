package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
)

// startLimit and operateLimit bound what the operating commands wait for; each
// pool has less than that for its answer.
const (
	startLimit   = 10 * time.Second
	operateLimit = 30 * time.Second
	stopLimit    = 5 * time.Second
)

// operation is the databases of a configuration, opened for one command.
type operation struct {
	*tenure.Operator
	client *tenure.Client
	cfg    config.Config
	// unfit says why databases that answer are out of service: not migrated, or a standby
	// after a failover, when an operator needs the others all the more.
	unfit []error
}

// operate runs fn on the databases that can be used; pools must be in the configuration.
// Without gossip: its address may be taken by the node on this machine, and joining would
// take longer than most commands.
func (a *app) operate(ctx context.Context, limit time.Duration, pools []string, fn func(context.Context, *operation) error) error {
	cfg, err := a.loadConfig(pools...)
	if err != nil {
		return err
	}
	cfg.Cluster = nil
	client, err := tenure.NewClient(cfg, tenure.WithVersion(buildVersion()))
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err = client.Start(starting); err == nil {
		o := &operation{Operator: client.Operator(), client: client, cfg: cfg}
		all := o.Unfit()
		for _, pool := range slices.Sorted(maps.Keys(all)) {
			o.unfit = append(o.unfit, all[pool])
		}
		running, cancel := context.WithTimeout(tenure.ByWhom(ctx, whoAsks()), limit)
		defer cancel()
		err = fn(running, o)
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit) // also after Ctrl-C
	defer cancel()
	return errors.Join(err, client.Stop(stopping))
}

// loadConfig reads the configuration, or says what is wrong with it. The pools must be
// in it.
func (a *app) loadConfig(pools ...string) (config.Config, error) {
	if a.remote.address(a.config) != "" { // the shell that completes a command comes here, too
		return config.Config{}, needsDatabases("this")
	}
	cfg, err := loadConfig(configPath(a.config, os.Getenv(configEnv)))
	if err == nil {
		err = checkPools(cfg, pools...)
	}
	return cfg, err
}

// knownPool returns the name of a pool that is in the configuration.
func (a *app) knownPool(name string) (string, error) {
	_, err := a.loadConfig(name)
	return name, err
}

// checkPool refuses a pool that is not in the configuration; "": none is named.
func (a *app) checkPool(name string) error {
	if name == "" {
		return nil
	}
	_, err := a.knownPool(name)
	return err
}

// list makes cmd print what all pools say, and what is to be said of it below a table. What
// came is printed even if some did not answer, and the command fails.
func list[T any](a *app, cmd *cobra.Command, head []string, row func(T) []string, read func(context.Context, *operation) ([]T, error), foot ...func([]T) string) *cobra.Command {
	cmd.Args = cobra.NoArgs
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.operate(cmd.Context(), operateLimit, nil, func(ctx context.Context, o *operation) (err error) {
			all, unanswered := read(ctx, o)
			if *output == asJSON {
				err = printJSON(a.stdout, append([]T{}, all...)) // not null
			} else {
				var rows [][]string
				for _, one := range all {
					rows = append(rows, row(one))
				}
				err = printTable(a.stdout, head, rows)
				for _, say := range foot {
					_, failed := fmt.Fprint(a.stdout, say(all))
					err = errors.Join(err, failed)
				}
			}
			if unanswered = errors.Join(o.unsaid(unanswered), unanswered); unanswered != nil {
				unanswered = errors.Join(unanswered, errIncomplete)
			}
			return errors.Join(err, unanswered)
		})
	}
	return cmd
}

var errIncomplete = errors.New("the output is incomplete; run this again once these pools answer")

// act is operate for commands that change something. A pool that had nothing to
// do with it is no reason to report a failure: repeated, the command would do it twice.
func (a *app) act(ctx context.Context, limit time.Duration, fn func(context.Context, *operation) error, pools ...string) error {
	return a.operate(ctx, limit, pools, func(ctx context.Context, o *operation) error {
		if err := fn(ctx, o); err != nil {
			return errors.Join(o.unsaid(err), err)
		}
		for _, unfit := range o.unfit {
			a.complain(fmt.Errorf("note: %w", unfit))
		}
		return nil
	})
}

// onEach makes cmd do something to each of its arguments, and say what; one that fails does
// not keep the others from being done. parse tells whether one can be meant.
func onEach[T any](a *app, cmd *cobra.Command, noun string, parse func(string) (T, error), do func(context.Context, *operation, T) (string, error)) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var all []T // before anything is done to one of them
		for _, arg := range args {
			one, err := parse(arg)
			if err != nil {
				return &usageError{err}
			}
			all = append(all, one)
		}
		return a.act(cmd.Context(), operateLimit, func(ctx context.Context, o *operation) error {
			var errs []error
			for _, one := range all {
				what, err := do(ctx, o, one)
				if err == nil {
					_, err = fmt.Fprintf(a.stdout, "%s %v %s\n", noun, one, what)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		})
	}
	return cmd
}

// unsaid is why pools are out of service, without those that err is about.
func (o *operation) unsaid(err error) error {
	var rest []error
	for _, unfit := range o.unfit {
		if err == nil || !strings.Contains(err.Error(), unfit.Error()) {
			rest = append(rest, unfit)
		}
	}
	return errors.Join(rest...)
}
