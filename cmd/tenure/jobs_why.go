package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/job"
)

func newJobsWhy(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why ID",
		Short: "Say why a job does not run, and what to do about it",
		Long: "The first reason that is true, as the ledger of the job's pool has it. What only the node\n" +
			"knows that holds the pool's lock is told as waiting for its turn.",
		Args: cobra.ExactArgs(1),
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := job.ParseID(args[0])
		if err != nil {
			return &usageError{err}
		}
		return a.act(cmd.Context(), operateLimit, func(ctx context.Context, o *operation) error {
			e, err := o.ExplainJob(ctx, id)
			if err != nil {
				return notFound(err, noSuchJob)
			}
			if *output == asJSON {
				return printJSON(a.stdout, jsonWhy{jsonID(id), e.Job.Pool, e.Job.State, string(e.Reason), e.Text, e.Advice})
			}
			fmt.Fprintln(a.stdout, clean(e.Text))
			if e.Advice != "" {
				fmt.Fprintln(a.stdout, clean(e.Advice))
			}
			return nil
		})
	}
	return cmd
}

// jsonWhy is why a job does not run, as -o json prints it.
type jsonWhy struct {
	ID     jsonID `json:"id"`
	Pool   string `json:"pool"`
	State  string `json:"state"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
	Advice string `json:"advice,omitempty"`
}
