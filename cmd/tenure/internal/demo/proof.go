package demo

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// prove counts every tenant's effects against the jobs that were enqueued.
func (s *stage) prove(ctx context.Context, enqueued map[job.ID]bool, r *result) error {
	seen := map[job.ID]int{}
	for i, id := range s.tenants {
		rows, err := s.db[s.pools[i%len(s.pools)]].Query(ctx, fmt.Sprintf("SELECT job_id, count(*) FROM %s.effect GROUP BY job_id", id))
		if err != nil {
			return err
		}
		var jobID job.ID
		var n int
		if _, err := pgx.ForEachRow(rows, []any{&jobID, &n}, func() error {
			seen[jobID] += n
			return nil
		}); err != nil {
			return fmt.Errorf("count the effects of %s: %w", id, err)
		}
	}
	r.Enqueued = len(enqueued)
	for id := range enqueued {
		if n := seen[id]; n > 0 {
			r.Finished++
			r.Doubled += n - 1
		}
		delete(seen, id)
	}
	r.Lost = r.Enqueued - r.Finished
	for id, n := range seen { // an effect of a job that was never acknowledged to the enqueuer
		return fmt.Errorf("job %d has %d effects but was not enqueued by the demo", id, n)
	}
	return nil
}
