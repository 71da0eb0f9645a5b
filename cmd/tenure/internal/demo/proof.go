package demo

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// proof is what the effect tables say.
type proof struct {
	finished int // jobs with at least one effect
	lost     int // enqueued without an effect
	doubled  int // effects beyond the first of each job
}

// prove counts every tenant's effects against what was enqueued.
func (s *stage) prove(ctx context.Context, p *play) (proof, error) {
	var out proof
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := map[job.ID]int{}
	for i, id := range s.tenants {
		rows, err := s.db[s.pools[i%len(s.pools)]].Query(ctx, fmt.Sprintf("SELECT job_id, count(*) FROM %s.effect GROUP BY job_id", id))
		if err != nil {
			return out, err
		}
		var jobID job.ID
		var n int
		if _, err := pgx.ForEachRow(rows, []any{&jobID, &n}, func() error {
			seen[jobID] += n
			return nil
		}); err != nil {
			return out, fmt.Errorf("count the effects of %s: %w", id, err)
		}
	}
	for _, ids := range p.ids {
		for id := range ids {
			switch n := seen[id]; {
			case n == 0:
				out.lost++
			default:
				out.finished++
				out.doubled += n - 1
			}
			delete(seen, id)
		}
	}
	for id, n := range seen { // an effect of a job that was never acknowledged to the enqueuer
		return out, fmt.Errorf("job %d has %d effects but was not enqueued by the demo", id, n)
	}
	return out, nil
}
