package execution

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// endSavepoint is one way out of the workers.
type end struct {
	how     string // finish, in tx, return
	claim   *ClaimedJob
	outcome job.Outcome
}

// fakeOwner keeps in memory what it is told.
type fakeOwner struct {
	ctx       context.Context
	lose      context.CancelCauseFunc
	tenants   *routing.TenantConns
	ends      chan end
	mayStart  atomic.Bool
	lost      atomic.Bool // of claims: the statement that finishes jobs says so
	available atomic.Int64
	reported  atomic.Int64
	patience  time.Duration                   // with an end
	ledger    func(ctx context.Context) error // what TryFinish comes to; nil: it works
	asked     atomic.Int64                    // how often

	mu    sync.Mutex
	count map[job.ID]int // guarded by mu; ends of each job
}

var _ Owner = (*fakeOwner)(nil)

func newFakeOwner() *fakeOwner {
	o := &fakeOwner{patience: dayAndNight, ends: make(chan end, 10_000), count: map[job.ID]int{}}
	o.ctx, o.lose = context.WithCancelCause(context.Background())
	o.mayStart.Store(true)
	return o
}

func (o *fakeOwner) end(e end) {
	o.mu.Lock()
	o.count[e.claim.Record.ID]++
	o.mu.Unlock()
	o.ends <- e
}

func (o *fakeOwner) Context() context.Context { return o.ctx }
func (o *fakeOwner) MayStart() bool           { return o.mayStart.Load() }
func (o *fakeOwner) Tenants() Conns           { return o.tenants }
func (o *fakeOwner) FinishInTx(claims []*ClaimedJob) string {
	// With an operator and a type, which must be those of Postgres.
	if o.lost.Load() {
		return "DO $$BEGIN RAISE 'lost' USING ERRCODE = 'TN001'; END$$"
	}
	ids := strings.ReplaceAll(fmt.Sprint(IDs(claims)), " ", ",")
	return fmt.Sprintf("INSERT INTO tenure.ended (job_id, who) SELECT id, current_user FROM unnest(ARRAY%s) AS id WHERE 1 = 1 AND '{}'::jsonb IS NOT NULL", ids)
}
func (o *fakeOwner) FinishError(err error) error {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && pg.Code == "TN001" {
		return job.ErrClaimLost
	}
	return fmt.Errorf("finish the job: %w", err)
}
func (o *fakeOwner) TryFinish(ctx context.Context, _ []*ClaimedJob) error {
	o.asked.Add(1)
	if o.ledger == nil {
		return nil
	}
	return o.ledger(ctx)
}
func (o *fakeOwner) FinishedInTx(c *ClaimedJob)                { o.end(end{"in tx", c, job.Outcome{State: job.Done}}) }
func (o *fakeOwner) Finish(c *ClaimedJob, outcome job.Outcome) { o.end(end{"finish", c, outcome}) }
func (o *fakeOwner) Return(c *ClaimedJob)                      { o.end(end{"return", c, job.Outcome{}}) }
func (o *fakeOwner) Reported(*ClaimedJob)                      { o.reported.Add(1) }
func (o *fakeOwner) CapacityAvailable()                        { o.available.Add(1) }

const (
	patience    = 30 * time.Second // for what takes milliseconds on an idle machine
	dayAndNight = 24 * time.Hour   // on synctest's clock
)

// nextRunnable waits for the next end.
func (o *fakeOwner) next(t testing.TB) end {
	t.Helper()
	select {
	case e := <-o.ends:
		return e
	case <-time.After(o.patience):
		require.FailNow(t, "no claim came to its end")
		return end{}
	}
}

// bundle is a set of workers with one owner.
type bundle struct {
	t       testing.TB
	workers *Workers
	owner   *fakeOwner
	lastID  atomic.Int64
}

// newBundle makes workers, not started, whose registry fill has filled.
func newBundle(t testing.TB, change func(*Config), fill func(*job.Registry)) *bundle {
	cfg := DefaultConfig()
	cfg.Workers, cfg.TenantShare = 2, 100 // most tests have one tenant
	if change != nil {
		change(&cfg)
	}
	r := job.NewRegistry()
	r.Add(job.Spec{Kind: "noop", Handle: func(context.Context, *job.Record) error { return nil }})
	if fill != nil {
		fill(r)
	}
	r.Freeze()
	w, err := New(cfg, r, zap.NewNop())
	require.NoError(t, err)
	return &bundle{t: t, workers: w, owner: newFakeOwner()}
}

// start starts the workers, and stops them with the test; by then no claim may be left.
func (b *bundle) start() *bundle {
	require.NoError(b.t, b.workers.Start(b.t.Context()))
	b.t.Cleanup(func() { b.stop() })
	return b
}

func (b *bundle) stop() {
	require.NoError(b.t, b.workers.Stop(context.Background()))
	b.settled()
}

// settled checks that each job has ended exactly once and no slot is taken.
func (b *bundle) settled() {
	b.t.Helper()
	b.owner.mu.Lock()
	defer b.owner.mu.Unlock()
	for id, n := range b.owner.count {
		require.Equal(b.t, 1, n, "ends of job %d", id)
	}
	require.Len(b.t, b.owner.count, int(b.lastID.Load()), "jobs that came to an end")
	require.Zero(b.t, b.workers.capacity.used.Load(), "slots taken")
}

var acme = &tenancy.Tenant{ID: "acme", Pool: "main", Schema: "acme"}

func (b *bundle) claim(kind string) ClaimedJob {
	id := job.ID(b.lastID.Add(1))
	c := []ClaimedJob{{ID: 1, Owner: b.owner, Tenant: acme, Record: job.Record{ID: id, Kind: kind, Tenant: "acme", Queue: "default", Attempt: 1}}}
	b.workers.metrics.prepare(c)
	return c[0]
}

// submit reserves slots for n jobs of a kind and submits them as one batch.
func (b *bundle) submit(kind string, n int) {
	b.t.Helper()
	batch := make([]ClaimedJob, n)
	for i := range batch {
		batch[i] = b.claim(kind)
	}
	b.submitClaims(batch)
}

func (b *bundle) submitClaims(batch []ClaimedJob) {
	b.workers.capacity.used.Add(int64(len(batch))) // as if so much had been reserved, whatever the capacity
	b.workers.Submit(b.owner, batch)
}
