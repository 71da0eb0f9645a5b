package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

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
	client *tenure.Client
	// refused says which databases answered but cannot be used: not migrated, or a
	// standby after a failover, when an operator needs the others all the more.
	refused error
}

// operate runs fn on the databases that can be used. Without gossip: its address
// may be taken by the node on this machine, and joining would take longer than most
// commands.
func operate(ctx context.Context, cfg config.Config, fn func(context.Context, *operation) error) error {
	return operateFor(ctx, operateLimit, cfg, fn)
}

func operateFor(ctx context.Context, limit time.Duration, cfg config.Config, fn func(context.Context, *operation) error) error {
	cfg.Cluster = nil
	client, err := open(ctx, cfg)
	var refused error
	if err != nil {
		if cfg, refused = without(ctx, cfg); refused == nil || len(cfg.Pools) == 0 {
			return err
		}
		if client, err = open(ctx, cfg); err != nil {
			return errors.Join(refused, err)
		}
	}
	runCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return errors.Join(fn(runCtx, &operation{client, refused}), stopClient(ctx, client))
}

func open(ctx context.Context, cfg config.Config) (*tenure.Client, error) {
	client, err := tenure.NewClient(cfg, tenure.WithVersion(buildVersion()))
	if err != nil {
		return nil, err
	}
	startCtx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := client.Start(startCtx); err != nil {
		return nil, errors.Join(err, stopClient(ctx, client))
	}
	return client, nil
}

func stopClient(ctx context.Context, client *tenure.Client) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit) // also after Ctrl-C
	defer cancel()
	return client.Stop(ctx)
}

// without opens each pool alone to find those that cannot be used, and returns the
// configuration without them and their tenants.
func without(ctx context.Context, cfg config.Config) (rest config.Config, refused error) {
	names := slices.Sorted(maps.Keys(cfg.Pools))
	errs := make([]error, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() {
			alone := cfg
			alone.Pools = maps.Clone(cfg.Pools)
			for other := range cfg.Pools {
				if other != name {
					delete(alone.Pools, other)
				}
			}
			alone.Tenants.Static, alone.Tenants.Table = nil, nil
			client, err := open(ctx, alone)
			if err == nil {
				err = stopClient(ctx, client)
			}
			errs[i] = err
		})
	}
	group.Wait()
	rest = cfg
	rest.Pools, rest.Tenants.Static = maps.Clone(cfg.Pools), maps.Clone(cfg.Tenants.Static)
	for i, name := range names {
		if errs[i] == nil {
			continue
		}
		delete(rest.Pools, name)
		for id, t := range cfg.Tenants.Static {
			if t.Pool == name {
				delete(rest.Tenants.Static, id)
			}
		}
		if rest.Tenants.Table != nil && rest.Tenants.Table.Pool == name {
			rest.Tenants.Table = nil
		}
	}
	return rest, errors.Join(errs...)
}

// read is operate for commands that print what all pools say. What came is printed
// even if some did not answer, and the command fails.
func (a *app) read(ctx context.Context, cfg config.Config, fn func(context.Context, *tenure.Client) (unanswered, err error)) error {
	return operate(ctx, cfg, func(ctx context.Context, o *operation) error {
		unanswered, err := fn(ctx, o.client)
		if unanswered = errors.Join(o.refused, unanswered); unanswered != nil {
			unanswered = errors.Join(unanswered, errIncomplete)
		}
		return errors.Join(err, unanswered)
	})
}

var errIncomplete = errors.New("what is shown is incomplete: run this again once these pools answer")

// act is operate for commands that change something. A pool that had nothing to
// do with it is no reason to report a failure: whoever repeats the command then
// would do it twice.
func (a *app) act(ctx context.Context, cfg config.Config, fn func(context.Context, *tenure.Client) error) error {
	return a.actFor(ctx, operateLimit, cfg, fn)
}

func (a *app) actFor(ctx context.Context, limit time.Duration, cfg config.Config, fn func(context.Context, *tenure.Client) error) error {
	return operateFor(ctx, limit, cfg, func(ctx context.Context, o *operation) error {
		err := fn(ctx, o.client)
		if err != nil {
			return errors.Join(o.refused, err)
		}
		if o.refused != nil {
			a.complain(fmt.Errorf("note: %w", o.refused))
		}
		return nil
	})
}
