package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// enqueueFlags are what somebody typed about a job.
type enqueueFlags struct {
	tenant, in, at, queue, unique, meta string
	priority, maxAttempts               int
}

func newEnqueue(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enqueue KIND JSON --tenant TENANT",
		Short: "Add a job and print its id",
		Long: "JSON is the job's arguments; - reads them from standard input. The kind is not\n" +
			"checked, as its handler is on some node: tenure jobs show says whether one has it.",
		Example: "  tenure enqueue http.request '{\"url\": \"https://example.com/hook\"}' --tenant acme --in 5m",
		Args:    cobra.ExactArgs(2),
	}
	output := outputFlag(cmd)
	var f enqueueFlags
	flags := cmd.Flags()
	flags.StringVar(&f.tenant, "tenant", "", "the tenant the job is for")
	flags.StringVar(&f.in, "in", "", "run it after a `duration` such as 5m or PT5M")
	flags.StringVar(&f.at, "at", "", "run it at a `time` such as 2027-01-31T09:00:00Z")
	flags.StringVar(&f.queue, "queue", job.DefaultQueue, "put it on this queue")
	flags.IntVar(&f.priority, "priority", 0, fmt.Sprintf("before those of its tenant and queue with a lower one: %d to %d", tenure.MinPriority, tenure.MaxPriority))
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "try it so often at most (default: by its kind)")
	flags.StringVar(&f.unique, "unique", "", "add it only if the tenant has no unfinished job with this `key`")
	flags.StringVar(&f.meta, "meta", "", "a `JSON` object to store beside the arguments")
	_ = cmd.MarkFlagRequired("tenant") // fails for a flag that does not exist
	cmd.MarkFlagsMutuallyExclusive("in", "at")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		raw, err := a.rawArgs(args[0], args[1])
		if err != nil {
			return err
		}
		options, err := f.options(cmd)
		if err != nil {
			return err
		}
		cfg, err := a.loadConfig()
		if err != nil {
			return err
		}
		return a.act(cmd.Context(), cfg, func(ctx context.Context, client *tenure.Client) error {
			id := tenancy.ID(f.tenant)
			added, err := client.Enqueue(tenancy.For(ctx, id), raw, options...)
			if err != nil {
				return err
			}
			return a.printEnqueued(*output, added)
		})
	}
	return cmd
}

func (a *app) printEnqueued(f format, added tenure.Enqueued) error {
	if f == asJSON {
		return printJSON(a.stdout, struct {
			ID        jsonID `json:"id"`
			Duplicate bool   `json:"duplicate"`
		}{jsonID(added.ID), added.Duplicate})
	}
	if added.Duplicate {
		fmt.Fprintf(a.stderr, "tenure: nothing was added: job %d has this unique key and is not finished\n", added.ID)
	}
	_, err := fmt.Fprintln(a.stdout, added.ID)
	return err
}

// rawArgs checks what no database is needed for.
func (a *app) rawArgs(kind, text string) (tenure.RawArgs, error) {
	payload := []byte(text)
	if text == "-" {
		var err error
		if payload, err = io.ReadAll(io.LimitReader(a.stdin, job.MaxPayload+1)); err != nil {
			return tenure.RawArgs{}, fmt.Errorf("read the arguments from standard input: %w", err)
		}
	}
	if err := job.ValidateKind("kind", kind); err != nil {
		return tenure.RawArgs{}, &usageError{err}
	}
	if err := job.CheckPayload(payload); err != nil {
		return tenure.RawArgs{}, usagef("the arguments: %w", err)
	}
	return tenure.RawArgs{Name: kind, Payload: payload}, nil
}

func (f *enqueueFlags) options(cmd *cobra.Command) ([]tenure.Option, error) {
	given := cmd.Flags().Changed
	if err := tenancy.ID(f.tenant).Validate(); err != nil {
		return nil, usagef("--tenant: %w", err)
	}
	if err := job.ValidateKind("queue", f.queue); err != nil {
		return nil, &usageError{err}
	}
	options := []tenure.Option{tenure.OnQueue(f.queue)}
	if given("in") {
		d, err := job.ParseDuration(f.in)
		if err == nil && d < 0 {
			err = fmt.Errorf("%s is in the past", f.in)
		}
		if err != nil {
			return nil, usagef("--in: %w", err)
		}
		options = append(options, tenure.In(d))
	}
	if given("at") {
		t, err := time.Parse(time.RFC3339, f.at)
		if err != nil {
			return nil, usagef("--at: %q is not a time: write one such as 2027-01-31T09:00:00Z or 2027-01-31T09:00:00+01:00", f.at)
		}
		options = append(options, tenure.At(t))
	}
	if given("priority") {
		if f.priority < tenure.MinPriority || f.priority > tenure.MaxPriority {
			return nil, usagef("--priority %d: %d to %d are allowed", f.priority, tenure.MinPriority, tenure.MaxPriority)
		}
		options = append(options, tenure.Priority(f.priority))
	}
	if given("max-attempts") {
		if f.maxAttempts < 1 || f.maxAttempts > job.MaxMaxAttempts {
			return nil, usagef("--max-attempts %d: 1 to %d are allowed", f.maxAttempts, job.MaxMaxAttempts)
		}
		options = append(options, tenure.MaxAttempts(f.maxAttempts))
	}
	if given("unique") {
		if f.unique == "" {
			return nil, usagef("--unique: the key is empty")
		}
		options = append(options, tenure.Unique(f.unique))
	}
	if given("meta") {
		var meta map[string]any
		d := json.NewDecoder(bytes.NewReader([]byte(f.meta)))
		d.UseNumber() // or a large number would lose digits
		if err := d.Decode(&meta); err != nil || meta == nil || d.More() {
			return nil, usagef("--meta: %q is not a JSON object", cut(f.meta, 64))
		}
		options = append(options, tenure.Meta(meta))
	}
	return options, nil
}
