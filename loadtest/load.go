package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// load enqueues jobs for every pool of a bed until it is stopped, and remembers them.
type load struct {
	bed    *bed
	client *tenure.Client
	args   func(n int) job.Args // of the n-th job of a pool
	every  time.Duration        // per pool

	cancel context.CancelFunc
	group  sync.WaitGroup

	mu      sync.Mutex
	acked   map[string]map[job.ID]time.Time // guarded by mu; by pool: enqueued, and when that was known
	asked   map[job.ID]time.Time            // guarded by mu; when the calls that enqueued them began
	took    []time.Duration                 // guarded by mu; the calls that succeeded
	unknown int                             // guarded by mu; calls that failed: the job may exist or not
	last    error                           // guarded by mu; of those calls
}

func (b *bed) load(client *tenure.Client, every time.Duration, args func(n int) job.Args) *load {
	l := &load{bed: b, client: client, args: args, every: every, acked: map[string]map[job.ID]time.Time{}, asked: map[job.ID]time.Time{}}
	for _, p := range b.pools {
		l.acked[p] = map[job.ID]time.Time{}
	}
	return l
}

func (l *load) start() {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	for i, pool := range l.bed.pools {
		var tenants []tenancy.ID
		for t := i; t < len(l.bed.tenants); t += len(l.bed.pools) {
			tenants = append(tenants, l.bed.tenants[t])
		}
		l.group.Go(func() { l.run(ctx, pool, tenants) })
	}
}

func (l *load) run(ctx context.Context, pool string, tenants []tenancy.ID) {
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// Not bound to ctx: cut short, the call would leave open whether the job exists.
		began := time.Now()
		call, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		e, err := l.client.Enqueue(tenancy.For(call, tenants[n%len(tenants)]), l.args(n))
		cancel()
		l.mu.Lock()
		if err != nil {
			l.unknown, l.last = l.unknown+1, err
		} else {
			l.acked[pool][e.ID], l.asked[e.ID] = time.Now(), began
			l.took = append(l.took, time.Since(began))
		}
		l.mu.Unlock()
	}
}

// stop returns when no job is being enqueued any more.
func (l *load) stop() {
	l.cancel()
	l.group.Wait()
}

// untilDone waits until no job is left that may still run.
func (l *load) untilDone(ctx context.Context) error {
	return until(ctx, 3*time.Minute, "jobs were left", func() (bool, error) {
		counts, err := l.client.Count(ctx)
		for _, c := range counts {
			if c.Waiting+c.Timers > 0 {
				return false, nil
			}
		}
		return err == nil, err
	})
}

// enqueued counts the jobs that are known to exist.
func (l *load) enqueued() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ids := range l.acked {
		n += len(ids)
	}
	return n
}

// proof is what the databases say of the jobs that were enqueued.
type proof struct {
	finished int // of the jobs known to exist
	dead     int
	lost     int // neither finished nor in any other table
	doubled  int // effects beyond the first of each job
}

// prove counts the effects of every tenant and looks for every job in the ledger.
func (l *load) prove(ctx context.Context) (out proof, err error) {
	for _, pool := range l.bed.pools {
		conn, err := l.bed.connect(ctx, pool)
		if err != nil {
			return out, err
		}
		defer conn.Close(ctx)
		ids := make([]int64, 0, len(l.acked[pool]))
		for id := range l.acked[pool] {
			ids = append(ids, int64(id))
		}
		var finished, dead, lost int
		err = conn.QueryRow(ctx, `
			SELECT count(*) FILTER (WHERE c.id IS NOT NULL), count(*) FILTER (WHERE d.id IS NOT NULL),
			       count(*) FILTER (WHERE c.id IS NULL AND d.id IS NULL AND j.id IS NULL AND t.id IS NULL AND s.id IS NULL)
			FROM unnest($1::bigint[]) AS e (id)
			LEFT JOIN (SELECT DISTINCT id FROM tenure.completed_job) c USING (id)
			LEFT JOIN tenure.dead_letter_job d USING (id) LEFT JOIN tenure.job j USING (id)
			LEFT JOIN tenure.timer_job t USING (id) LEFT JOIN tenure.suspended_job s USING (id)`, ids).Scan(&finished, &dead, &lost)
		if err != nil {
			return out, fmt.Errorf("look for the jobs of %s: %w", pool, err)
		}
		out.finished, out.dead, out.lost = out.finished+finished, out.dead+dead, out.lost+lost
		for id, t := range l.bed.cfg.Tenants.Static {
			if t.Pool != pool {
				continue
			}
			var doubled int
			err := conn.QueryRow(ctx, fmt.Sprintf("SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM %s.effect GROUP BY job_id) AS e", id)).Scan(&doubled)
			if err != nil {
				return out, fmt.Errorf("count the effects of %s: %w", id, err)
			}
			out.doubled += doubled
		}
	}
	return out, nil
}

// quantile of durations in seconds, rounded to milliseconds; 0 of none.
func quantile(all []time.Duration, p float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	at := sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
	return math.Round(at.Seconds()*1000) / 1000
}
