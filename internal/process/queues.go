package process

import (
	"context"
	"sync"
	"time"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

// kindQueues remembers which queues the nodes give kinds that this process has no handler for, as each pool's ledger says. Safe for
// concurrent use.
type kindQueues struct {
	mu   sync.Mutex
	seen map[string]seenQueues // guarded by mu; by pool
}

type seenQueues struct {
	of map[string]string // by kind
	at time.Time
}

// queuesFor is how long what a ledger said is believed: nodes change it with a deployment.
const queuesFor = 10 * time.Second

// FillInQueue gives a job that names no queue the one in which its kind's jobs wait: as the handler here says, else as the nodes have
// told the ledger of the pool.
func (c *Process) FillInQueue(ctx context.Context, p *routing.Pool, j *store.NewJob) error {
	if j.Queue != "" {
		return nil
	}
	j.Queue = job.DefaultQueue
	if j.External { // a topic is no kind of the nodes'
		return nil
	}
	q := &c.queues
	q.mu.Lock()
	seen, known := q.seen[p.Name]
	q.mu.Unlock()
	if !known || time.Since(seen.at) > queuesFor {
		of, err := store.KindQueues(ctx, p.Jobs())
		if err != nil {
			return err
		}
		seen = seenQueues{of, time.Now()}
		q.mu.Lock()
		if q.seen == nil {
			q.seen = map[string]seenQueues{}
		}
		q.seen[p.Name] = seen
		q.mu.Unlock()
	}
	if queue, told := seen.of[j.Kind]; told {
		j.Queue = queue
	}
	return nil
}
