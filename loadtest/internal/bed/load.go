package bed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/report"
	"github.com/tenurehq/tenure/tenancy"
)

// Load enqueues jobs for every pool of a bed until it is stopped, and remembers them.
type Load struct {
	bed    *Bed
	client *tenure.Client
	args   func(n int) job.Args          // of the n-th job of a pool
	with   []func(n int) []tenure.Option // likewise
	every  time.Duration                 // per pool

	cancel context.CancelFunc
	group  sync.WaitGroup

	// To be read by others once Stop has returned.
	mu      sync.Mutex
	Acked   map[string]map[job.ID]time.Time // guarded by mu; by pool: enqueued, and when that was known
	Asked   map[job.ID]time.Time            // guarded by mu; when the calls that enqueued them began
	Took    []time.Duration                 // guarded by mu; the calls that succeeded
	Unknown int                             // guarded by mu; calls that failed: the job may exist or not
	Last    error                           // guarded by mu; of those calls
}

// StartLoad begins to enqueue a job in each pool of a bed every so often, with options if some are given.
func StartLoad(b *Bed, client *tenure.Client, every time.Duration, args func(n int) job.Args, with ...func(n int) []tenure.Option) *Load {
	l := &Load{bed: b, client: client, args: args, with: with, every: every, Acked: map[string]map[job.ID]time.Time{}, Asked: map[job.ID]time.Time{}}
	for _, pool := range b.Pools {
		l.Acked[pool] = map[job.ID]time.Time{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	for i, pool := range b.Pools {
		var tenants []tenancy.ID
		for t := i; t < len(b.Tenants); t += len(b.Pools) {
			tenants = append(tenants, b.Tenants[t])
		}
		l.group.Go(func() { l.run(ctx, pool, tenants) })
	}
	return l
}

func (l *Load) run(ctx context.Context, pool string, tenants []tenancy.ID) {
	tick := time.Tick(l.every)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		// Not bound to ctx: cut short, the call would leave open whether the job exists.
		var options []tenure.Option
		for _, with := range l.with {
			options = append(options, with(n)...)
		}
		began := time.Now()
		call, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		e, err := l.client.Enqueue(tenancy.For(call, tenants[n%len(tenants)]), l.args(n), options...)
		cancel()
		l.mu.Lock()
		if err != nil {
			l.Unknown, l.Last = l.Unknown+1, err
		} else {
			l.Acked[pool][e.ID], l.Asked[e.ID] = time.Now(), began
			l.Took = append(l.Took, time.Since(began))
		}
		l.mu.Unlock()
	}
}

// Stop returns when no job is being enqueued any more.
func (l *Load) Stop() {
	l.cancel()
	l.group.Wait()
}

// Finish stops, waits until every job has ended, and proves that. err is how the scenario has
// gone so far; if it is not nil, nothing is waited for.
func (l *Load) Finish(ctx context.Context, err error) (out report.Outcome, dead int, _ error) {
	l.Stop()
	if err == nil {
		err = l.bed.UntilDone(ctx)
	}
	if err != nil {
		return out, 0, errors.Join(err, l.Last)
	}
	return l.Prove(ctx)
}

// Prove counts the effects of every tenant and looks for every job in the ledger.
// dead is how many of the jobs are dead letters.
func (l *Load) Prove(ctx context.Context) (out report.Outcome, dead int, err error) {
	for _, pool := range l.bed.Pools {
		conn, err := l.bed.Connect(ctx, pool)
		if err != nil {
			return out, dead, err
		}
		defer conn.Close(ctx)
		ids := slices.Collect(maps.Keys(l.Acked[pool]))
		var finished, died, lost int
		err = conn.QueryRow(ctx, `
			SELECT count(*) FILTER (WHERE c.id IS NOT NULL), count(*) FILTER (WHERE d.id IS NOT NULL),
			       count(*) FILTER (WHERE c.id IS NULL AND d.id IS NULL AND j.id IS NULL AND t.id IS NULL AND s.id IS NULL)
			FROM unnest($1::bigint[]) AS e (id)
			LEFT JOIN (SELECT DISTINCT id FROM tenure.completed_job) c USING (id)
			LEFT JOIN tenure.dead_letter_job d USING (id) LEFT JOIN tenure.job j USING (id)
			LEFT JOIN tenure.timer_job t USING (id) LEFT JOIN tenure.suspended_job s USING (id)`, ids).Scan(&finished, &died, &lost)
		if err != nil {
			return out, dead, fmt.Errorf("look for the jobs of %s: %w", pool, err)
		}
		out.Enqueued, out.Finished, out.Lost, dead = out.Enqueued+len(ids), out.Finished+finished, out.Lost+lost, dead+died
		for id, t := range l.bed.Config.Tenants.Static {
			if t.Pool != pool {
				continue
			}
			var doubled int
			err := conn.QueryRow(ctx, fmt.Sprintf("SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM %s.effect GROUP BY job_id) AS e", id)).Scan(&doubled)
			if err != nil {
				return out, dead, fmt.Errorf("count the effects of %s: %w", id, err)
			}
			out.Doubled += doubled
		}
	}
	return out, dead, nil
}
