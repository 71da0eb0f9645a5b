package promises_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// move moves a tenant, which must succeed.
func (b *testbed) move(c *tenure.Client, tenant tenancy.ID, to string) operate.Moved {
	b.t.Helper()
	moved, err := c.Operator().Tenants().Move(b.t.Context(), tenant, to, operate.MoveOptions{Wait: patience})
	require.NoError(b.t, err)
	return moved
}

func (b *testbed) traffic(c *tenure.Client, tenant tenancy.ID) *traffic {
	f := &traffic{end: make(chan struct{})}
	ctx := tenancy.For(b.t.Context(), tenant)
	ways := []func(i int) (int, error){
		func(i int) (int, error) {
			_, err := c.Enqueue(ctx, write{i})
			return 1, err
		},
		func(i int) (int, error) {
			_, err := c.Enqueue(ctx, write{i}, tenure.In(5*time.Millisecond))
			return 1, err
		},
		func(i int) (int, error) {
			e, err := c.Enqueue(ctx, write{i}, tenure.Unique(fmt.Sprintf("%s-%d", tenant, i%7)))
			if e.Duplicate {
				return 0, err
			}
			return 1, err
		},
		func(i int) (int, error) {
			added, err := c.EnqueueMany(ctx, []tenure.Entry{{Args: write{i}}, {Args: write{i}, Options: []tenure.Option{tenure.Priority(3)}}})
			return len(added), err
		},
		func(i int) (int, error) {
			return 1, c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				_, err := c.EnqueueTx(ctx, tx, write{i})
				return err
			})
		},
	}
	for w, way := range ways {
		f.done.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-f.end:
					return
				case <-time.After(25 * time.Millisecond): // a rate that a busy machine can follow
				}
				n, err := way(i)
				switch {
				case err == nil:
					f.jobs.Add(int64(n))
				case w == len(ways)-1 && errors.Is(err, tenure.ErrWrongPool): // begun before the move; the next one is not
				case ctx.Err() != nil: // the test has failed
					return
				default:
					b.t.Errorf("enqueue for %s: %v", tenant, err)
					return
				}
			}
		})
	}
	b.t.Cleanup(f.stop)
	return f
}

// traffic enqueues jobs of a tenant in every way until it is stopped.
type traffic struct {
	jobs atomic.Int64 // that were committed
	end  chan struct{}
	done sync.WaitGroup
}

func (f *traffic) stop() {
	select {
	case <-f.end:
	default:
		close(f.end)
	}
	f.done.Wait()
}

// slow is a node's registry whose handlers take a while.
func (b *testbed) slow(node string, y *tally, took time.Duration) *job.Registry {
	r := job.NewRegistry()
	wait := func(ctx context.Context) error {
		select {
		case <-time.After(took): // the work
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	job.Handle(r, func(ctx context.Context, j *job.Job[plain]) error {
		y.ran(node, j.ID)
		return wait(ctx)
	})
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
		y.ran(node, j.ID)
		if _, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID)); err != nil {
			return err
		}
		return wait(ctx)
	})
	return r
}

// tally counts how often each job ran, and where.
type tally struct {
	mu    sync.Mutex
	jobs  map[job.ID]int
	nodes map[string]int
}

func newTally() *tally { return &tally{jobs: map[job.ID]int{}, nodes: map[string]int{}} }

func (y *tally) ran(node string, id job.ID) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.jobs[id]++
	y.nodes[node]++
}

func (y *tally) byNode() map[string]int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return maps.Clone(y.nodes)
}

// twice counts the jobs that ran more than once.
func (y *tally) twice() (n int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, runs := range y.jobs {
		if runs > 1 {
			n++
		}
	}
	return n
}

// many are n jobs of each tenant in turn.
func (b *testbed) many(c *tenure.Client, n int, kind func(i int) job.Args) {
	b.t.Helper()
	ids := b.tenants()
	var all []tenure.Entry
	for i := range n {
		all = append(all, tenure.Entry{Tenant: ids[i%len(ids)], Args: kind(i)})
	}
	_, err := c.EnqueueMany(b.t.Context(), all)
	require.NoError(b.t, err)
}

func eitherKind(i int) job.Args {
	if i%2 == 0 {
		return write{i}
	}
	return plain{i}
}

func few(cfg config.Config, workers int) config.Config {
	cfg.Execution.Workers = workers
	return cfg
}

// feed adds jobs by SQL, which hints at nothing, every few milliseconds until ctx
// ends, so that the times at which jobs finish show the gaps in acquiring.
func (b *testbed) feed(ctx context.Context, pool string) (stop func()) {
	tenant := string(b.tenantIn(pool))
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, err := b.db[pool].Exec(ctx, `INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ($1, 'default', 'plain', '{"n": 0}')`, tenant)
			if err != nil && ctx.Err() == nil {
				b.t.Errorf("feed: %v", err)
			}
			pause(ctx, 10*time.Millisecond)
		}
	}()
	return func() { cancel(); <-done }
}

// tenantIn is some tenant of a pool.
func (b *testbed) tenantIn(pool string) tenancy.ID {
	for _, id := range b.tenants() {
		if b.cfg.Tenants.Static[id].Pool == pool {
			return id
		}
	}
	return ""
}

// runs counts the starts of jobs, and those while another run of the job was on.
type runs struct {
	mu       sync.Mutex
	starts   map[job.ID]int
	now      map[job.ID]int
	overlaps int
}

func newRuns() *runs { return &runs{starts: map[job.ID]int{}, now: map[job.ID]int{}} }

// start notes the beginning of a run; the returned function its end.
func (r *runs) start(id job.ID) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starts[id]++
	if r.now[id]++; r.now[id] > 1 {
		r.overlaps++
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.now[id]--
	}
}

func (r *runs) sum() (starts, overlaps int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.starts {
		starts += n
	}
	return starts, r.overlaps
}

// pause waits without being synchronisation: it only thins out a racer's attempts.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// timer lets time pass that is itself what is tested: an outage, a job's length.
func timer(t *testing.T, d time.Duration) {
	c := time.NewTimer(d)
	defer c.Stop()
	select {
	case <-c.C:
	case <-t.Context().Done():
	}
}

// without is a configuration without a pool and its tenants.
func without(cfg config.Config, pool string) config.Config {
	cfg.Pools, cfg.Tenants.Static = maps.Clone(cfg.Pools), maps.Clone(cfg.Tenants.Static)
	delete(cfg.Pools, pool)
	for id, s := range cfg.Tenants.Static {
		if s.Pool == pool {
			delete(cfg.Tenants.Static, id)
		}
	}
	return cfg
}
