package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
)

func newLimits(a *app) *cobra.Command {
	return newGroup("limits", "List, set and delete limits on how many jobs run at a time, and how often", newLimitsList(a), newLimitsSet(a), newLimitsDelete(a))
}

// jsonLimit is a limit as -o json prints it.
type jsonLimit struct {
	Tenant      string    `json:"tenant,omitempty"`
	EveryTenant bool      `json:"every_tenant,omitempty"`
	AllTenants  bool      `json:"all_tenants,omitempty"`
	Kind        string    `json:"kind,omitempty"`
	Queue       string    `json:"queue,omitempty"`
	Key         string    `json:"key,omitempty"`
	EachKey     bool      `json:"each_key,omitempty"`
	MaxRunning  int       `json:"max_running,omitempty"`
	Rate        int       `json:"rate,omitempty"`
	PerMS       int64     `json:"per_ms,omitempty"`
	Burst       int       `json:"burst,omitempty"`
	Running     int       `json:"running"`
	NextStart   *jsonTime `json:"next_start,omitempty"`
	Pool        string    `json:"pool"`
	OfRunning   int       `json:"of_max_running,omitempty"` // what all pools have together
	OfRate      int       `json:"of_rate,omitempty"`
	OfPerMS     int64     `json:"of_per_ms,omitempty"`
}

func newJSONLimit(l tenure.LimitStatus) jsonLimit {
	out := jsonLimit{Tenant: string(l.Tenant), Kind: l.Kind, Queue: l.Queue, Key: l.Key, EachKey: l.EachKey, MaxRunning: l.MaxRunning, Rate: l.Rate, PerMS: l.Per.Milliseconds(), Burst: l.Burst,
		Running: l.Running, Pool: l.Pool}
	if l.Tenant == tenure.EveryTenant {
		out.Tenant, out.EveryTenant = "", true
	}
	if w := l.Whole; w != nil {
		out.Tenant, out.AllTenants, out.OfRunning, out.OfRate, out.OfPerMS = "", true, w.MaxRunning, w.Rate, w.Per.Milliseconds()
	}
	if !l.NextStart.IsZero() {
		out.NextStart = &jsonTime{l.NextStart}
	}
	return out
}

// limitOf is which limit is meant, as flags of a command say.
type limitOf struct {
	scheduleOf
	kind, queue, key string
	eachKey          bool
}

func (f *limitOf) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "the tenant that has the limit")
	cmd.Flags().BoolVar(&f.every, "every-tenant", false, "each tenant has such a limit, unless one is set for itself")
	cmd.Flags().StringVar(&f.kind, "kind", "", "only for its jobs of this `kind`")
	cmd.Flags().StringVar(&f.queue, "queue", "", "only for its jobs on this `queue`")
	cmd.MarkFlagsMutuallyExclusive("tenant", "every-tenant")
	cmd.Flags().StringVar(&f.key, "key", "", "only for its jobs with this exclusive `key`")
	cmd.Flags().BoolVar(&f.eachKey, "each-key", false, "each of its exclusive keys has such a limit, unless one is set for that key")
	cmd.MarkFlagsMutuallyExclusive("kind", "queue", "key", "each-key")
}

func (f *limitOf) limit() (l tenure.Limit, err error) {
	l = tenure.Limit{Kind: f.kind, Queue: f.queue, Key: f.key, EachKey: f.eachKey}
	l.Tenant, err = f.id()
	return l, err
}

// describe says in a few words what a limit is about.
func (l jsonLimit) describe() string {
	out := "the limit of " + cmp.Or(l.Tenant, "every tenant")
	switch {
	case l.Kind != "":
		out += " for kind " + l.Kind
	case l.Queue != "":
		out += " for queue " + l.Queue
	case l.Key != "":
		out += fmt.Sprintf(" for exclusive key %q", l.Key)
	case l.EachKey:
		out += " for each exclusive key"
	}
	return out
}

func newLimitsList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the limits of every pool",
		Long: "Those that all tenants have together come first, by pool with its share of the whole, as the configuration has\nthem; then those for every tenant, and each tenant's own. RUNNING counts what is in flight:\nclaimed jobs that wait for a worker, too. NEXT: when the rate lets the next job start.",
	}
	head := []string{"TENANT", "QUEUE", "KIND", "KEY", "MAX RUNNING", "RUNNING", "RATE", "BURST", "NEXT", "POOL"}
	text := func(n int) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	row := func(l jsonLimit) []string {
		running, rate, most := "", "", text(l.MaxRunning)
		if !l.EveryTenant && l.Key == "" && !l.EachKey {
			running = fmt.Sprint(l.Running)
		}
		key := l.Key
		if l.EachKey {
			key = "(each)"
		}
		if l.Rate > 0 {
			rate = fmt.Sprintf("%d per %v", l.Rate, time.Duration(l.PerMS)*time.Millisecond)
		}
		tenant := cmp.Or(l.Tenant, "(every tenant)")
		if l.AllTenants {
			tenant = "(all together)"
		}
		switch {
		case l.MaxRunning < 0:
			most = "none here"
		case l.OfRunning > 0:
			most += fmt.Sprintf(" of %d", l.OfRunning)
		}
		return []string{tenant, l.Queue, l.Kind, key, most, running, rate, text(l.Burst), relatively(a, l.NextStart), l.Pool}
	}
	return list(a, cmd, head, row, func(ctx context.Context, o *operation) (all []jsonLimit, unanswered error) {
		limits, unanswered := o.Limits().List(ctx)
		for _, l := range limits {
			all = append(all, newJSONLimit(l))
		}
		return all, unanswered
	})
}

func newLimitsSet(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set --tenant TENANT [--kind KIND | --queue QUEUE | --key KEY] [--max-running N] [--rate N --per PERIOD]",
		Short: "Set a limit in the place of the one there was",
		Long: "On all nodes together. Without --kind, --queue and --key it is for all of the tenant's jobs. In force\n" +
			"from the next claim on, for what waits already, too; what is running beyond it goes on. A limit is kept\n" +
			"with its tenant, and moves with it. A job must pass all limits that apply to it. Of an exclusive key\n" +
			"there is a rate only: of its jobs one runs at a time in any case.",
		Example: "  tenure limits set --tenant acme --kind invoice.send --max-running 4\n" +
			"  tenure limits set --every-tenant --queue mail --rate 100 --per 1m --burst 10\n" +
			"  tenure limits set --tenant acme --each-key --rate 1 --per 5s",
		Args: cobra.NoArgs,
	}
	var of limitOf
	of.add(cmd)
	flags := cmd.Flags()
	most := flags.Int("max-running", 0, "so many jobs at a time (default any number)")
	rate := flags.Int("rate", 0, "so many starts in each period (default any number)")
	per := flags.Duration("per", 0, "the period of --rate (default 1s)")
	burst := flags.Int("burst", 0, "so many starts at once after a pause (default 1)")
	cmd.MarkFlagsOneRequired("max-running", "rate")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l, err := of.limit()
		if err != nil {
			return err
		}
		l.MaxRunning, l.Rate, l.Per, l.Burst = *most, *rate, *per, *burst
		return a.act(cmd.Context(), operateLimit, func(ctx context.Context, o *operation) error {
			if err := o.Limits().Set(ctx, l); err != nil {
				return err
			}
			_, err := fmt.Fprintf(a.stdout, "%s is set\n", newJSONLimit(tenure.LimitStatus{Limit: l}).describe())
			return err
		})
	}
	return cmd
}

func newLimitsDelete(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete --tenant TENANT [--kind KIND | --queue QUEUE | --key KEY]", Short: "Lift a limit",
		Long: "Of a tenant's own limit, one for every tenant takes the place, if there is one.",
		Args: cobra.NoArgs,
	}
	var of limitOf
	of.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l, err := of.limit()
		if err != nil {
			return err
		}
		return a.act(cmd.Context(), operateLimit, func(ctx context.Context, o *operation) error {
			if err := o.Limits().Delete(ctx, l); errors.Is(err, tenure.ErrNoLimit) {
				return &advised{err, "see: tenure limits list"}
			} else if err != nil {
				return err
			}
			_, err := fmt.Fprintf(a.stdout, "%s is lifted\n", newJSONLimit(tenure.LimitStatus{Limit: l}).describe())
			return err
		})
	}
	return cmd
}
