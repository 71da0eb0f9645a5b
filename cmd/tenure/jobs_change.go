package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)

func newJobsRetry(a *app) *cobra.Command {
	return a.onEach(&cobra.Command{
		Use:   "retry ID...",
		Short: "Make dead, retrying and scheduled jobs run now",
		Long:  "A dead job gets all its attempts again.",
	}, func(ctx context.Context, client *tenure.Client, id job.ID) (string, error) {
		err := client.Retry(ctx, id)
		if taken := (*tenure.KeyTakenError)(nil); errors.As(err, &taken) {
			return "", &advised{err, "retry it again when that one has ended, or cancel that one first"}
		}
		if state := (*tenure.StateError)(nil); errors.As(err, &state) {
			if state.State == "waiting" {
				return "waits already", nil
			}
			return "", err
		}
		return "runs now", notFound(err, "only dead, retrying and scheduled jobs can be retried; see: tenure jobs show "+id.String())
	})
}

func newJobsCancel(a *app) *cobra.Command {
	return a.onEach(&cobra.Command{
		Use:   "cancel ID...",
		Short: "End unfinished jobs",
		Long:  "A running job's handler is asked to end by its context; its node does so with its next heartbeat.",
	}, func(ctx context.Context, client *tenure.Client, id job.ID) (string, error) {
		running, err := client.Cancel(ctx, id)
		if running {
			return "is running and was asked to end", err
		}
		return "is cancelled", notFound(err, "only unfinished jobs can be cancelled; see: tenure jobs show "+id.String())
	})
}

// notFound adds to the error that there is no such job what the reason may be.
func notFound(err error, advice string) error {
	if err == nil {
		return nil
	}
	parts := joined(err)
	for i, e := range parts {
		if errors.Is(e, tenure.ErrNotFound) {
			parts[i] = &advised{e, advice}
		}
	}
	return errors.Join(parts...)
}

// onEach makes cmd do something to each of the jobs it is given; one that fails
// does not keep the others from being done.
func (a *app) onEach(cmd *cobra.Command, do func(context.Context, *tenure.Client, job.ID) (string, error)) *cobra.Command {
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args)
		if err != nil {
			return err
		}
		cfg, err := a.loadConfig()
		if err != nil {
			return err
		}
		return a.act(cmd.Context(), cfg, func(ctx context.Context, client *tenure.Client) error {
			var errs []error
			for _, id := range ids {
				what, err := do(ctx, client, id)
				if err == nil {
					_, err = fmt.Fprintf(a.stdout, "job %d %s\n", id, what)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		})
	}
	return cmd
}
