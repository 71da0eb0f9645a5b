package main

import (
	"context"
	"errors"
	"fmt"
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
	// refused says which databases answered but cannot be used. The others can:
	// one pool that was forgotten to migrate must not stop an operator.
	refused error
}

// operate runs fn on the databases. Without gossip: its address may be taken by
// the node on this machine, and joining would take longer than most commands.
func operate(ctx context.Context, cfg config.Config, fn func(context.Context, *operation) error) error {
	cfg.Cluster = nil
	client, err := tenure.NewClient(cfg, tenure.WithVersion(buildVersion()))
	if err != nil {
		return err
	}
	startCtx, cancel := context.WithTimeout(ctx, startLimit)
	o := &operation{client: client, refused: client.Start(startCtx)}
	cancel()

	runCtx, cancel := context.WithTimeout(ctx, operateLimit)
	err = fn(runCtx, o)
	cancel()

	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit) // also after Ctrl-C
	defer cancel()
	return errors.Join(err, client.Stop(stopCtx))
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
	return operate(ctx, cfg, func(ctx context.Context, o *operation) error {
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
