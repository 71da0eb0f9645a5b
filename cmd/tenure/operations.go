package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
)

// noSuchOperation says why an operation may not be found.
const noSuchOperation = "operations are kept for seven days after their end; see: tenure operations list"

func newOperations(a *app) *cobra.Command {
	return newGroup("operations", "List, show and cancel what nodes do to many dead letters or jobs",
		newOperationsList(a), newOperationsShow(a), newOperationsCancel(a))
}

// jsonOperation is the part of an operation in one pool as -o json prints it.
type jsonOperation struct {
	ID          string    `json:"id"`
	Pool        string    `json:"pool"`
	Action      string    `json:"action"`
	State       string    `json:"state"` // running, done or cancelled
	Tenant      string    `json:"tenant,omitempty"`
	Kind        string    `json:"kind,omitempty"`
	Error       string    `json:"error_contains,omitempty"`
	Group       string    `json:"group,omitempty"`
	Queue       string    `json:"queue,omitempty"` // this and the next three: of jobs to be cancelled
	JobState    string    `json:"job_state,omitempty"`
	Tag         string    `json:"tag,omitempty"`
	Correlation string    `json:"correlation_id,omitempty"`
	Died        *jsonTime `json:"died_before,omitempty"`
	Made        *jsonTime `json:"made_before,omitempty"` // of jobs to be cancelled
	PerSecond   float64   `json:"per_second,omitempty"`
	Done        int64     `json:"done"`
	KeyTaken    int64     `json:"key_taken"`
	Left        int64     `json:"left"`
	By          string    `json:"asked_by"`
	CreatedAt   jsonTime  `json:"created_at"`
	EndedAt     *jsonTime `json:"ended_at,omitempty"`
	Failure     string    `json:"failure,omitempty"` // of the last step, which is tried again
}

func newJSONOperation(o tenure.OperationStatus) jsonOperation {
	f := o.Filter
	out := jsonOperation{
		ID: o.ID.String(), Pool: o.Pool, Action: o.Action, State: o.State, Tenant: f.Tenant, Kind: f.Kind, Error: f.Error, Group: o.Group,
		Queue: o.Jobs.Queue, JobState: o.Jobs.State, Tag: o.Jobs.Tag, Correlation: o.Jobs.CorrelationID,
		PerSecond: o.PerSecond, Done: o.Done, KeyTaken: o.KeyTaken, Left: o.Left,
		By: o.By, CreatedAt: jsonTime{o.CreatedAt}, Failure: o.Failure,
	}
	if before := (&jsonTime{f.Before}); o.Action == "cancel" {
		out.Made = before
	} else {
		out.Died = before
	}
	if !o.EndedAt.IsZero() {
		out.EndedAt = &jsonTime{o.EndedAt}
	}
	return out
}

// chosen says in words which dead letters or jobs an operation is about.
func (o jsonOperation) chosen() string {
	var parts []string
	for _, p := range [][2]string{{"group", o.Group}, {"kind", o.Kind}, {"tenant", o.Tenant}, {"error", o.Error},
		{"queue", o.Queue}, {"state", o.JobState}, {"tag", o.Tag}, {"correlation id", o.Correlation}} {
		if p[1] != "" {
			parts = append(parts, p[0]+" "+p[1])
		}
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}

// before is what an operation's time is about, and that time.
func (o jsonOperation) before() (string, time.Time) {
	if o.Made != nil {
		return "made before", o.Made.Time
	}
	return "died before", o.Died.Time
}

func newOperationsList(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List operations pool by pool, newest first, with how far they are"}
	head := []string{"ID", "POOL", "STATE", "ACTION", "OF", "DONE", "KEY TAKEN", "LEFT", "ASKED BY", "CREATED", "FAILURE"}
	row := func(o jsonOperation) []string {
		return []string{o.ID, o.Pool, o.State, o.Action, o.chosen(), fmt.Sprint(o.Done), fmt.Sprint(o.KeyTaken), fmt.Sprint(o.Left), o.By,
			a.now.stamp(o.CreatedAt.Time), o.Failure}
	}
	return list(a, cmd, head, row, func(ctx context.Context, o *operation) (all []jsonOperation, unanswered error) {
		found, unanswered := o.Operations().List(ctx)
		for _, one := range found {
			all = append(all, newJSONOperation(one))
		}
		return all, unanswered
	})
}

func newOperationsShow(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show how far an operation is in each pool", Args: cobra.ExactArgs(1)}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := parseOperation(args[0])
		if err != nil {
			return &usageError{err}
		}
		return a.act(cmd.Context(), operateLimit, func(ctx context.Context, o *operation) error {
			found, err := o.Operations().Get(ctx, id)
			if err != nil {
				return notFound(err, noSuchOperation)
			}
			all := make([]jsonOperation, len(found))
			for i, one := range found {
				all[i] = newJSONOperation(one)
			}
			if *output == asJSON {
				return printJSON(a.stdout, all)
			}
			first := all[0]
			rate := "as fast as that goes"
			if first.PerSecond > 0 {
				rate = fmt.Sprintf("%v a second in each pool", first.PerSecond)
			}
			before, at := first.before()
			fields := [][]string{
				{"action", first.Action}, {"of", first.chosen()}, {before, a.now.stamp(at)},
				{"rate", rate}, {"asked by", first.By}, {"created", a.now.stamp(first.CreatedAt.Time)},
			}
			for _, one := range all {
				text := fmt.Sprintf("%s: %d done, %d whose unique key is taken, %d left", one.State, one.Done, one.KeyTaken, one.Left)
				if one.EndedAt != nil {
					text += ", ended " + a.now.stamp(one.EndedAt.Time)
				}
				if one.Failure != "" {
					text += "; the last step failed and is tried again: " + one.Failure
				}
				fields = append(fields, []string{"pool " + one.Pool, text})
			}
			return printTable(a.stdout, []string{"id", first.ID}, fields)
		})
	}
	return cmd
}

func newOperationsCancel(a *app) *cobra.Command {
	return onEach(a, &cobra.Command{
		Use:   "cancel ID...",
		Args:  cobra.MinimumNArgs(1),
		Short: "End operations; what they have done stays so",
	}, "operation", parseOperation, func(ctx context.Context, o *operation, id uuid.UUID) (string, error) {
		n, err := o.Operations().Cancel(ctx, id)
		if err == nil && n == 0 {
			return "had ended", nil
		}
		return "is cancelled", notFound(err, noSuchOperation)
	})
}

func parseOperation(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, fmt.Errorf("%q is no id of an operation: it looks like 0d3b2f7e-52f3-4e0e-9d0b-0d8c9f0a1b2c, as tenure operations list prints it", text)
	}
	return id, nil
}

// underWay says where to look for what has begun; "": nothing has.
func underWay(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return fmt.Sprintf("operation %s is under way; see: tenure operations show %[1]s", id)
}

// rateFlag adds --rate to a command that has something done to many jobs, at most so many in a second.
func rateFlag(cmd *cobra.Command) *float64 {
	return cmd.Flags().Float64("rate", 0, "at most so many `jobs` a second")
}

func checkRate(cmd *cobra.Command, rate float64) error {
	if cmd.Flags().Changed("rate") && !(rate > 0) {
		return usagef("--rate %v: must be more than 0", rate)
	}
	return nil
}

// whoAsks is who an operation is said to be asked for by.
func whoAsks() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return strings.ToValidUTF8(name, "?")
}
