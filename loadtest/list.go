package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/report"
	"github.com/tenurehq/tenure/operate"
)

type listOptions struct {
	rows, days, times int
	where             string
	disk              bool
}

type listResult struct {
	Scenario    string       `json:"scenario"`
	Where       string       `json:"where"`
	Rows        int          `json:"rows"`
	Days        int          `json:"days"` // over which they finished, or were made
	FillSeconds float64      `json:"fill_seconds"`
	Bytes       int64        `json:"bytes"`       // of the jobs
	IndexBytes  int64        `json:"index_bytes"` // of their indexes
	Filters     []listedPage `json:"filters"`
	Slowest     float64      `json:"slowest_ms"` // median of a filter
}

// listedPage is how long the first page of a filter took.
type listedPage struct {
	Filter string  `json:"filter"`
	Jobs   int     `json:"jobs"`
	Median float64 `json:"median_ms"`
	Worst  float64 `json:"worst_ms"`
}

// Fault implements report.Result: a page with a job that its filter does not choose ends the scenario before.
func (r listResult) Fault() error { return nil }

func newList() *cobra.Command {
	var o listOptions
	c := scenario("list", "Fill a ledger with jobs, and time the first page of each filter of jobs list", &o, list)
	c.Flags().StringVar(&o.where, "where", "finished", "where the jobs are: finished, waiting or dead")
	c.Flags().IntVar(&o.rows, "rows", 1_000_000, "jobs; a million takes half a gigabyte")
	c.Flags().IntVar(&o.days, "days", 7, "days over which they finished, or were made")
	c.Flags().IntVar(&o.times, "times", 5, "how often each page is asked for")
	c.Flags().BoolVar(&o.disk, "disk", true, "keep the database on disk")
	return c
}

// fills are the statements, by listOptions.where, that add the $1-th to $2-th of $3 jobs, over $4 days up to now. One in 10,
// 1000, 10000, 100000 and 1000000 is told apart by its tenant, its kind and its queue, and so are the twenty oldest (0); the
// rare ones have tags likewise. Ids of finished jobs are not in the order in which they ended.
var fills = map[string]string{
	"finished": `INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, payload, meta, correlation_id, started_at, node, outcome)
	SELECT (1::bigint << 47) + n + (hashint8(n) %% 1000), at - interval '1 s', at, 1, 0, 1, 0, ` + filled + `, CASE WHEN n %% 10 = 0 THEN 'order-' || n END, at - interval '10 ms', 'node-1',
		CASE WHEN n %% 100000 = 7 THEN 'business_error' WHEN n %% 1000 = 7 THEN 'cancelled' ELSE 'done' END` + filling,
	"waiting": `INSERT INTO tenure.job (id, created_at, tenant_id, queue, kind, payload, meta, correlation_id) SELECT (1::bigint << 47) + n, at, ` + filled + `, CASE WHEN n %% 10 = 0 THEN 'order-' || n END` + filling,
	"dead":    `INSERT INTO tenure.dead_letter_job (id, created_at, tenant_id, queue, kind, payload, meta, correlation_id, origin, error) SELECT (1::bigint << 47) + n, at, ` + filled + `, CASE WHEN n %% 10 = 0 THEN 'order-' || n END, 'job', 'it failed'` + filling,
}

const (
	filled = `'tenant_' || rarity(n, 3), 'queue_' || rarity(n, 5), 'kind.' || rarity(n, 9),
		jsonb_build_object('order', n, 'customer', 'customer-' || n %% 10000, 'lines', '[1, 2, 3, 5, 8, 13]'::jsonb, 'note', 'leave at the door of the neighbours if nobody is at home today'),
		CASE WHEN n <= 20 OR n %% 1000 = 11 THEN jsonb_build_object('tenure:tags', jsonb_build_array('tag_' || rarity(n, 11))) END`
	filling = ` FROM (SELECT n, now() - (%[3]d - n) * (%[4]d * interval '1 day' / %[3]d) AS at FROM generate_series(%[1]d, %[2]d) n) of`
	rarity  = `CREATE FUNCTION rarity(n bigint, r integer) RETURNS integer LANGUAGE sql IMMUTABLE AS
	'SELECT CASE WHEN n <= 20 THEN 0 WHEN n % 1000000 = r THEN 1000000 WHEN n % 100000 = r THEN 100000 WHEN n % 10000 = r THEN 10000 WHEN n % 1000 = r THEN 1000 WHEN n % 10 = r THEN 10 ELSE 1 END'`
)

// filledTables are where they add them.
var filledTables = map[string]string{"finished": "completed_job", "waiting": "job", "dead": "dead_letter_job"}

// list fills the ledger by SQL, as jobs would have, and asks as tenure jobs list does.
func list(ctx context.Context, o listOptions) (r listResult, err error) {
	if o.rows < 1 || o.days < 1 || o.times < 1 {
		return r, errors.New("rows, days and times must be more than 0")
	}
	table, known := filledTables[o.where]
	if !known {
		return r, fmt.Errorf("jobs can be finished, waiting or dead, not %q", o.where)
	}
	b, err := bed.Start(ctx, devpg.Options{Durable: true, InMemory: !o.disk}, 1, 1)
	if err != nil {
		return r, err
	}
	defer b.Close()
	r = listResult{Scenario: "list", Where: o.where, Rows: o.rows, Days: o.days}
	pool := b.Pools[0]
	began := time.Now()
	err = b.Exec(ctx, pool, rarity+fmt.Sprintf("; SELECT tenure.make_day((now() AT TIME ZONE 'UTC')::date - n) FROM generate_series(0, %d) n", o.days))
	const chunk = 250_000
	for from := 1; from <= o.rows && err == nil; from += chunk {
		err = b.Exec(ctx, pool, fmt.Sprintf(fills[o.where], from, min(from+chunk-1, o.rows), o.rows, o.days))
		fmt.Fprintf(os.Stderr, "%d of %d jobs\r", min(from+chunk-1, o.rows), o.rows)
	}
	if err == nil {
		err = b.Exec(ctx, pool, fmt.Sprintf(`INSERT INTO tenure.job_tag SELECT tenant_id, meta #>> '{tenure:tags,0}', id FROM tenure.%s WHERE meta IS NOT NULL ON CONFLICT DO NOTHING`, table))
	}
	for _, sql := range []string{"VACUUM (ANALYZE) tenure." + table, "VACUUM (ANALYZE) tenure.job_tag", "CHECKPOINT"} {
		if err == nil {
			err = b.Exec(ctx, pool, sql)
		}
	}
	if err != nil {
		return r, err
	}
	r.FillSeconds = report.Seconds(time.Since(began))
	const size = "SELECT sum(%s(c.oid))::bigint FROM pg_class c WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^%s(_[0-9]+|_rest)?$'"
	if err := errors.Join(b.Ask(ctx, pool, fmt.Sprintf(size, "pg_table_size", table), &r.Bytes), b.Ask(ctx, pool, fmt.Sprintf(size, "pg_indexes_size", table), &r.IndexBytes)); err != nil {
		return r, err
	}
	return r, r.timeFilters(ctx, b, o)
}

// timeFilters asks for the first page of each filter.
func (r *listResult) timeFilters(ctx context.Context, b *bed.Bed, o listOptions) error {
	c, err := tenure.NewClient(b.Config)
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	defer c.Stop(ctx)
	filters := map[string]operate.JobFilter{
		"none": {}, "state done": {State: "done"}, "state cancelled": {State: "cancelled"}, "state business_error": {State: "business_error"}, "state dead": {State: "dead"},
		"tag_none": {Tags: []string{"none"}}, "tag_1000, state dead": {Tags: []string{"tag_1000"}, State: "dead"},
		"correlation": {CorrelationID: fmt.Sprintf("order-%d", o.rows/20*10)}, "correlation, none": {CorrelationID: "none"},
	}
	for _, rarity := range []string{"1000", "10000", "100000", "1000000", "0"} {
		filters["tag_"+rarity] = operate.JobFilter{Tags: []string{"tag_" + rarity}}
	}
	for _, rarity := range []string{"1", "10", "1000", "10000", "100000", "1000000", "0", "none"} {
		filters["tenant_"+rarity] = operate.JobFilter{Tenant: "tenant_" + rarity}
		filters["kind."+rarity] = operate.JobFilter{Kind: "kind." + rarity}
		filters["queue_"+rarity] = operate.JobFilter{Queue: "queue_" + rarity}
		filters["tenant_1, kind."+rarity] = operate.JobFilter{Tenant: "tenant_1", Kind: "kind." + rarity}
	}
	names := make([]string, 0, len(filters))
	for name := range filters {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		p, err := timePage(ctx, c.Operator(), name, filters[name], o.times)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%-28s %4d jobs  median %9.1f ms  worst %9.1f ms\n", p.Filter, p.Jobs, p.Median, p.Worst)
		r.Filters, r.Slowest = append(r.Filters, p), max(r.Slowest, p.Median)
	}
	return r.checkOne(ctx, c.Operator(), b)
}

// checkOne sees that a job is found by its id, too.
func (r *listResult) checkOne(ctx context.Context, op *operate.Operator, b *bed.Bed) error {
	var id int64
	if err := b.Ask(ctx, b.Pools[0], "SELECT min(id) FROM tenure."+filledTables[r.Where], &id); err != nil {
		return err
	}
	began := time.Now()
	if _, _, err := op.Jobs().Get(ctx, job.ID(id)); err != nil {
		return err
	}
	took := milliseconds(time.Since(began))
	r.Filters = append(r.Filters, listedPage{Filter: "id", Jobs: 1, Median: took, Worst: took})
	return nil
}

func milliseconds(d time.Duration) float64 { return report.Round(1000*d.Seconds(), 1) }

// timePage asks for the first page of a filter a few times.
func timePage(ctx context.Context, op *operate.Operator, name string, f operate.JobFilter, times int) (p listedPage, err error) {
	took := make([]float64, times)
	for i := range took {
		began := time.Now()
		jobs, err := op.Jobs().List(ctx, f)
		if err != nil {
			return p, fmt.Errorf("%s: %w", name, err)
		}
		took[i], p.Jobs = milliseconds(time.Since(began)), len(jobs)
		for _, j := range jobs {
			if f.State != "" && j.State != f.State || f.Tenant != "" && j.Tenant != f.Tenant || f.Kind != "" && j.Kind != f.Kind || f.Queue != "" && j.Queue != f.Queue ||
				f.CorrelationID != "" && j.CorrelationID != f.CorrelationID {
				return p, fmt.Errorf("%s: job %d is none of these", name, j.ID)
			}
		}
	}
	slices.Sort(took)
	p.Filter, p.Median, p.Worst = name, took[times/2], took[times-1]
	return p, nil
}
