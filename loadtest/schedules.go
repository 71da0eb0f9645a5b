package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

type schedulesOptions struct {
	schedules, tenants int
	disk               bool
}

type schedulesResult struct {
	Scenario       string  `json:"scenario"`
	Schedules      int     `json:"schedules"`     // all due at the same minute
	FirstLate      float64 `json:"first_late_ms"` // from when they were due to the first one's job being added
	FiredSeconds   float64 `json:"fired_seconds"` // to the last one's
	DrainedSeconds float64 `json:"drained_seconds"`
	report.Outcome
}

func newSchedules() *cobra.Command {
	var o schedulesOptions
	c := scenario("schedules", "Have very many cron schedules come due in the same minute, and measure how long it takes to fire them", &o, schedules)
	c.Flags().IntVar(&o.schedules, "schedules", 10_000, "cron schedules")
	c.Flags().IntVar(&o.tenants, "tenants", 100, "tenants that have them")
	c.Flags().BoolVar(&o.disk, "disk", false, "keep the database on disk")
	return c
}

// schedules runs one node with the default settings.
func schedules(ctx context.Context, o schedulesOptions) (r schedulesResult, err error) {
	if o.schedules < 1 || o.tenants < 1 {
		return r, errors.New("schedules and tenants must be more than 0")
	}
	b, err := bed.Start(ctx, devpg.Options{Durable: true, InMemory: !o.disk}, 1, o.tenants)
	if err != nil {
		return r, err
	}
	defer b.Close()
	pool := b.Pools[0]
	registry := job.NewRegistry()
	job.Handle(registry, func(context.Context, *job.Job[stamped]) error { return nil })
	_, end, err := b.RunNode(ctx, registry)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, end()) }()

	due := time.Now().Add(15 * time.Second).Truncate(time.Minute).Add(time.Minute)
	for i, id := range b.Tenants {
		err := b.Exec(ctx, pool, fmt.Sprintf(`INSERT INTO tenure.schedule (tenant_id, name, kind, queue, payload, spec, time_zone, next_at)
			SELECT '%s', 's' || n, '%s', 'default', '{"at": "2000-01-01T00:00:00Z"}', '* * * * *', 'Europe/Amsterdam', '%s' FROM generate_series(%d, %d, %d) n`,
			id, stamped{}.Kind(), due.Format(time.RFC3339), i+1, o.schedules, o.tenants))
		if err != nil {
			return r, err
		}
	}
	if err := b.Exec(ctx, pool, "ANALYZE tenure.schedule; CHECKPOINT"); err != nil {
		return r, err
	}
	if err := wait.For(ctx, time.Until(due)); err != nil {
		return r, err
	}
	err = wait.Until(ctx, time.Minute, "some schedules have not fired", func() (yes bool, err error) {
		time.Sleep(50 * time.Millisecond) // asking must not be what is measured
		err = b.Ask(ctx, pool, "SELECT NOT EXISTS (SELECT FROM tenure.schedule WHERE next_at <= now()) AND NOT EXISTS (SELECT FROM tenure.job)", &yes)
		return yes, err
	})
	if err != nil {
		return r, err
	}
	r.Scenario, r.Schedules, r.Enqueued = "schedules", o.schedules, o.schedules
	r.DrainedSeconds = report.Round(time.Since(due).Seconds(), 3)
	ask := func(what string, answer any) {
		err = errors.Join(err, b.Ask(ctx, pool, fmt.Sprintf("SELECT %s FROM tenure.completed_job WHERE (meta->>'scheduled_at')::timestamptz = '%s'", what, due.Format(time.RFC3339)), answer))
	}
	ask("count(*)", &r.Finished)
	ask("count(*) - count(DISTINCT (tenant_id, meta->>'schedule'))", &r.Doubled)
	ask(fmt.Sprintf("coalesce(extract(epoch FROM min(created_at) - '%s'::timestamptz) * 1000, 0)::float8", due.Format(time.RFC3339)), &r.FirstLate)
	ask(fmt.Sprintf("coalesce(extract(epoch FROM max(created_at) - '%s'::timestamptz), 0)::float8", due.Format(time.RFC3339)), &r.FiredSeconds)
	r.Lost = o.schedules - (r.Finished - r.Doubled)
	r.FirstLate, r.FiredSeconds = report.Round(r.FirstLate, 1), report.Round(r.FiredSeconds, 3)
	return r, err
}
