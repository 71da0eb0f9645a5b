package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/job"
)

// noSuchBatch says why a batch may not be found.
const noSuchBatch = "no batch has this id: it is that of its completion job, and is kept for as long as finished jobs are"

func newBatches(a *app) *cobra.Command {
	return newGroup("batches", "List, show and cancel batches", newBatchesList(a), newBatchesShow(a), newBatchesCancel(a))
}

// jsonBatch is a batch as -o json prints it.
type jsonBatch struct {
	ID         jsonID    `json:"id"`
	Tenant     string    `json:"tenant"`
	Pool       string    `json:"pool"`
	State      string    `json:"state"` // open, closed: its completion job was let start, or cancelled
	OnFailure  string    `json:"on_failure"`
	Jobs       int       `json:"jobs"`
	Unfinished int       `json:"unfinished"`
	Done       int       `json:"done"`
	Dead       int       `json:"dead"`
	Cancelled  int       `json:"cancelled"`
	Unknown    int       `json:"unknown"` // how they ended was not kept
	CreatedAt  jsonTime  `json:"created_at"`
	ClosedAt   *jsonTime `json:"closed_at,omitempty"`
	Open       []jsonID  `json:"open,omitempty"`   // of show: up to 20 of the jobs that it still waits for
	Cursor     string    `json:"cursor,omitempty"` // of lists: --after it is the next batch
}

func newJSONBatch(b tenure.BatchStatus) jsonBatch {
	out := jsonBatch{ID: jsonID(b.ID), Tenant: b.Tenant, Pool: b.Pool, State: "open", OnFailure: b.OnFailure, Jobs: b.Jobs, Unfinished: b.Unfinished(),
		Done: b.Done, Dead: b.Dead, Cancelled: b.Cancelled, Unknown: b.Unknown, CreatedAt: jsonTime{b.CreatedAt}}
	if !b.ClosedAt.IsZero() {
		out.State, out.ClosedAt = "closed", &jsonTime{b.ClosedAt}
	}
	for _, id := range b.Open {
		out.Open = append(out.Open, jsonID(id))
	}
	return out
}

func newBatchesList(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List batches over all pools, newest first, with how their jobs have ended"}
	var f tenure.BatchFilter
	flags := cmd.Flags()
	flags.StringVar((*string)(&f.Tenant), "tenant", "", "only batches of this tenant")
	flags.StringVar(&f.Pool, "pool", "", "only batches in this pool")
	pageFlags(cmd, "batches", &f.Limit, &f.After)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if err := checkLimit(f.Limit); err != nil {
			return err
		}
		if err := f.Validate(); err != nil {
			return &usageError{err}
		}
		if f.Tenant != "" {
			if err := f.Tenant.Validate(); err != nil {
				return usagef("--tenant: %w", err)
			}
		}
		return a.checkPool(f.Pool)
	}
	head := []string{"ID", "STATE", "TENANT", "POOL", "JOBS", "UNFINISHED", "DONE", "DEAD", "CANCELLED", "UNKNOWN", "ON FAILURE", "CREATED"}
	row := func(b jsonBatch) []string {
		return []string{fmt.Sprint(b.ID), b.State, b.Tenant, b.Pool, fmt.Sprint(b.Jobs), fmt.Sprint(b.Unfinished), fmt.Sprint(b.Done),
			fmt.Sprint(b.Dead), fmt.Sprint(b.Cancelled), fmt.Sprint(b.Unknown), b.OnFailure, a.now.stamp(b.CreatedAt.Time)}
	}
	return list(a, cmd, head, row, func(ctx context.Context, o *operation) (all []jsonBatch, unanswered error) {
		batches, unanswered := o.Batches().List(ctx, f)
		sayMore(a, f.Limit, batches)
		for _, b := range batches {
			row := newJSONBatch(b)
			row.Cursor = b.Cursor()
			all = append(all, row)
		}
		return all, unanswered
	})
}

func newBatchesShow(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show how the jobs of a batch have ended so far", Args: cobra.ExactArgs(1)}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := job.ParseID(args[0])
		if err != nil {
			return &usageError{err}
		}
		return a.act(cmd.Context(), operateLimit, func(ctx context.Context, o *operation) error {
			found, err := o.Batches().Get(ctx, id)
			if err != nil {
				return notFound(err, noSuchBatch)
			}
			b := newJSONBatch(found)
			if *output == asJSON {
				return printJSON(a.stdout, b)
			}
			fields := [][]string{
				{"state", b.State}, {"tenant", b.Tenant}, {"pool", b.Pool}, {"on failure", b.OnFailure}, {"jobs", fmt.Sprint(b.Jobs)},
				{"unfinished", fmt.Sprint(b.Unfinished)}, {"done", fmt.Sprint(b.Done)}, {"dead", fmt.Sprint(b.Dead)}, {"cancelled", fmt.Sprint(b.Cancelled)},
				{"unknown", fmt.Sprint(b.Unknown)},
				{"created", a.now.stamp(b.CreatedAt.Time)},
			}
			if len(b.Open) > 0 {
				fields = append(fields, []string{"waits for", strings.Trim(fmt.Sprint(b.Open), "[]")})
			}
			if b.ClosedAt != nil {
				fields = append(fields, []string{"closed", a.now.stamp(b.ClosedAt.Time)})
			}
			return printTable(a.stdout, []string{"id", fmt.Sprint(b.ID)}, fields)
		})
	}
	return cmd
}

func newBatchesCancel(a *app) *cobra.Command {
	return onEach(a, &cobra.Command{
		Use:   "cancel ID...",
		Args:  cobra.MinimumNArgs(1),
		Short: "Cancel batches: their completion jobs, and their jobs that have not ended",
		Long: "So it does with the batches whose completion jobs are among them. Jobs that wait do not start any more, and end when their turn comes; running ones end with the next\n" +
			"heartbeat of their node. Whatever interrupts the command, run it again.",
	}, "batch", job.ParseID, func(ctx context.Context, o *operation, id job.ID) (string, error) {
		n, err := o.Batches().Cancel(ctx, id)
		return "is cancelled, with " + plural.Count(n, "job", "jobs") + " that had not ended", notFound(err, noSuchBatch)
	})
}

// linkFlags are what somebody typed about the jobs that a job is linked to.
type linkFlags struct {
	after            []string
	batch, onFailure string
}

func (f *linkFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.after, "after", nil, "start it when the jobs with these `ids` have ended")
	flags.StringVar(&f.onFailure, "on-failure", string(tenure.WaitForRetry), "what becomes of it when one of those fails: wait, cancel or run")
	flags.StringVar(&f.batch, "batch", "", "add it to the open batch with this `id`")
	cmd.MarkFlagsMutuallyExclusive("in", "at", "after")
}

func (f *linkFlags) options(given func(string) bool) (options []tenure.Option, err error) {
	if len(f.after) > 0 {
		ids := make([]job.ID, len(f.after))
		for i, text := range f.after {
			if ids[i], err = job.ParseID(text); err != nil {
				return nil, usagef("--after: %w", err)
			}
		}
		options = append(options, tenure.After(ids...))
	}
	if given("on-failure") {
		if len(f.after) == 0 {
			return nil, usagef("--on-failure is for --after: say which jobs it is to start after")
		}
		options = append(options, tenure.OnFailure(tenure.FailurePolicy(f.onFailure)))
	}
	if given("batch") {
		id, err := job.ParseID(f.batch)
		if err != nil {
			return nil, usagef("--batch: %w", err)
		}
		options = append(options, tenure.InBatch(id))
	}
	return options, nil
}
