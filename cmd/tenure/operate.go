package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	// unfit says why databases that answer are out of service: not migrated, or a standby
	// after a failover, when an operator needs the others all the more.
	unfit []error
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
	if err != nil {
		return err
	}
	o := &operation{client: client}
	all := client.Unfit()
	for _, pool := range slices.Sorted(maps.Keys(all)) {
		o.unfit = append(o.unfit, all[pool])
	}
	runCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return errors.Join(fn(runCtx, o), stopClient(ctx, client))
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

// read is operate for commands that print what all pools say. What came is printed
// even if some did not answer, and the command fails.
func (a *app) read(ctx context.Context, cfg config.Config, fn func(context.Context, *tenure.Client) (unanswered, err error)) error {
	return operate(ctx, cfg, func(ctx context.Context, o *operation) error {
		unanswered, err := fn(ctx, o.client)
		if unanswered = errors.Join(o.unsaid(unanswered), unanswered); unanswered != nil {
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
			return errors.Join(o.unsaid(err), err)
		}
		for _, unfit := range o.unfit {
			a.complain(fmt.Errorf("note: %w", unfit))
		}
		return nil
	})
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
