package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/cmd/tenure/internal/handlers"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// enqueueFlags are what somebody typed about a job.
type enqueueFlags struct {
	tenant, in, at, queue, unique, exclusive, meta string
	timeout, uniqueFor, correlation                string
	tags                                           []string
	priority, maxAttempts                          int
	external, skipRetrying                         bool
	links                                          linkFlags
}

func newEnqueue(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enqueue KIND JSON --tenant TENANT",
		Short: "Enqueue a job and print its id",
		Long: "JSON is the job's arguments; - reads them from standard input. The kind is not checked,\n" +
			"as only nodes know their handlers: tenure jobs show says whether a node has one.\n\n" + handlers.Usage,
		Example: "  tenure enqueue http.request '{\"url\": \"https://example.com/hook\"}' --tenant acme --in 5m\n" +
			"  tenure enqueue sql.exec '{\"sql\": \"DELETE FROM session WHERE id = $1\", \"args\": [42]}' --tenant acme",
		Args: cobra.ExactArgs(2),
	}
	output := outputFlag(cmd)
	var f enqueueFlags
	flags := cmd.Flags()
	flags.StringVar(&f.tenant, "tenant", "", "the tenant the job is for")
	flags.StringVar(&f.in, "in", "", "run it after this `duration`, such as 5m or PT5M")
	flags.StringVar(&f.at, "at", "", "run it at this `time`, such as 2027-01-31T09:00:00Z")
	flags.StringVar(&f.queue, "queue", job.DefaultQueue, "the queue to put it on")
	flags.IntVar(&f.priority, "priority", 0, fmt.Sprintf("%d to %d; jobs of the same tenant and queue with a higher one run first", tenure.MinPriority, tenure.MaxPriority))
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "most attempts (default: as its kind says)")
	flags.StringVar(&f.unique, "unique", "", "add it only if the tenant has no unfinished job with this `key`")
	flags.StringVar(&f.uniqueFor, "unique-for", "", "with --unique: keep the key taken for this `duration`, such as 1h or P1D, whatever becomes of the job")
	flags.StringVar(&f.timeout, "timeout", "", "cancel each run after this `duration`, such as 30s or PT30S (default: as its kind says)")
	flags.StringSliceVar(&f.tags, "tag", nil, "mark it with a `tag` to find it by; may be said more than once")
	flags.StringVar(&f.correlation, "correlation", "", "an `ID` to find it by")
	flags.StringVar(&f.exclusive, "exclusive", "", "run at most one of the tenant's jobs with this `key` at a time, in order")
	flags.BoolVar(&f.skipRetrying, "skip-retrying", false, "with --exclusive: let others with its key start while it waits to be tried again")
	flags.BoolVar(&f.external, "external", false, "for workers outside the cluster, which ask for KIND as their topic")
	flags.StringVar(&f.meta, "meta", "", "a `JSON` object to store beside the arguments")
	_ = cmd.MarkFlagRequired("tenant") // fails for a flag that does not exist
	f.links.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		raw, err := rawArgs(a, args[0], args[1])
		if err != nil {
			return err
		}
		options, err := f.options(cmd)
		if err != nil {
			return err
		}
		return a.act(cmd.Context(), operateLimit, func(ctx context.Context, o *operation) error {
			added, err := o.client.Enqueue(tenancy.For(ctx, tenancy.ID(f.tenant)), raw, options...)
			if err != nil {
				return err
			}
			return printEnqueued(a, *output, added)
		})
	}
	return cmd
}

func printEnqueued(a *app, f format, added tenure.Enqueued) error {
	if f == asJSON {
		return printJSON(a.stdout, struct {
			ID        jsonID `json:"id"`
			Duplicate bool   `json:"duplicate"`
		}{jsonID(added.ID), added.Duplicate})
	}
	if added.Duplicate {
		fmt.Fprintf(a.stderr, "tenure: nothing was added: job %d has this unique key, and is not finished or has it for a period\n", added.ID)
	}
	_, err := fmt.Fprintln(a.stdout, added.ID)
	return err
}

// rawArgs checks what no database is needed for.
func rawArgs(a *app, kind, text string) (tenure.RawArgs, error) {
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
		t, err := parseTime("at", f.at)
		if err != nil {
			return nil, err
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
	more, err := f.moreOptions(cmd)
	if err != nil {
		return nil, err
	}
	options = append(options, more...)
	if given("exclusive") {
		if f.exclusive == "" {
			return nil, usagef("--exclusive: the key is empty")
		}
		var passable []tenure.ExclusiveOption
		if f.skipRetrying {
			passable = append(passable, tenure.SkipRetrying)
		}
		options = append(options, tenure.Exclusive(f.exclusive, passable...))
	}
	if f.skipRetrying && !given("exclusive") {
		return nil, usagef("--skip-retrying: it is about an exclusive key, which is missing: give it with --exclusive, or leave this out")
	}
	if f.external {
		options = append(options, tenure.External())
	}
	if given("meta") {
		meta, err := metaObject(f.meta)
		if err != nil {
			return nil, err
		}
		options = append(options, tenure.Meta(meta))
	}
	links, err := f.links.options(given)
	return append(options, links...), err
}

// moreOptions are those of a job's timeout, its key's period, and what it is found by.
func (f *enqueueFlags) moreOptions(cmd *cobra.Command) (options []tenure.Option, err error) {
	given := cmd.Flags().Changed
	if given("unique-for") {
		period, err := job.ParseDuration(f.uniqueFor)
		if err == nil && !given("unique") {
			err = errors.New("--unique is needed, the key that it is for")
		}
		if err != nil {
			return nil, usagef("--unique-for: %w", err)
		}
		options = append(options, tenure.UniqueFor(f.unique, period))
	}
	if given("timeout") {
		d, err := job.ParseDuration(f.timeout)
		if err != nil {
			return nil, usagef("--timeout: %w", err)
		}
		options = append(options, tenure.Timeout(d))
	}
	if len(f.tags) > 0 {
		options = append(options, tenure.Tags(f.tags...))
	}
	if given("correlation") {
		options = append(options, tenure.Correlation(f.correlation))
	}
	return options, nil
}

// metaObject reads what --meta says.
func metaObject(text string) (meta map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber() // or a large number would lose digits
	if err := d.Decode(&meta); err != nil || meta == nil || d.More() {
		return nil, usagef("--meta: %q is not a JSON object", cut(text, 64))
	}
	return meta, nil
}

// parseTime reads the time that a flag gives.
func parseTime(flag, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usagef("--%s: %q is not a time: write one such as 2027-01-31T09:00:00Z or 2027-01-31T09:00:00+01:00", flag, text)
	}
	return t, nil
}
