package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// plain is a job without a transaction.
type plain struct {
	N int `json:"n"`
}

func (plain) Kind() string { return "plain" }

// write is a job that writes an effect in its tenant's schema.
type write struct {
	N int `json:"n"`
}

func (write) Kind() string { return "write" }

// testbed is a number of pools with tenants, and what was done in them.
type testbed struct {
	t   *testing.T
	cfg config.Config
	db  map[string]*pgxpool.Pool // by pool
}

// newTestbed makes pools p1, p2, … with the given number of tenants each: t1, t2, …
func newTestbed(t *testing.T, pools, tenants int) *testbed {
	b := &testbed{t: t, cfg: config.Default(), db: map[string]*pgxpool.Pool{}}
	b.cfg.Node.Name = "test"
	b.cfg.Pools = map[string]routing.PoolConfig{}
	b.cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{}
	b.cfg.Acquire.IdleWait = 200 * time.Millisecond
	b.cfg.Acquire.Lock.TTL, b.cfg.Acquire.Lock.RenewEvery = 2*time.Second, 400*time.Millisecond
	b.cfg.Acquire.Session.TTL, b.cfg.Acquire.Session.HeartbeatEvery = 3*time.Second, 500*time.Millisecond
	for p := 1; p <= pools; p++ {
		name := fmt.Sprintf("p%d", p)
		dsn := storetest.DSN(t, name, p)
		b.cfg.Pools[name] = routing.PoolConfig{DSN: dsn, MaxConns: 16}
		db, err := pgxpool.New(context.Background(), dsn)
		require.NoError(t, err)
		t.Cleanup(db.Close)
		b.db[name] = db
		for i := 1; i <= tenants; i++ {
			id := fmt.Sprintf("t%d", (p-1)*tenants+i)
			_, err := db.Exec(t.Context(), fmt.Sprintf("CREATE SCHEMA %s; CREATE TABLE %s.effect (job_id bigint, tenant text DEFAULT current_setting('app.tenant_id'))", id, id))
			require.NoError(t, err)
			b.cfg.Tenants.Static[tenancy.ID(id)] = routing.TenantConfig{Pool: name}
		}
	}
	return b
}

// registry handles plain and write.
func (b *testbed) registry(ran func(job.ID)) *job.Registry {
	r := job.NewRegistry()
	job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
		if ran != nil {
			ran(j.ID)
		}
		return nil
	})
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID))
		return err
	})
	return r
}

// node starts a node and stops it with the test.
func (b *testbed) node(cfg config.Config, r *job.Registry) *tenure.Node {
	n, err := tenure.New(cfg, r, tenure.WithLogger(zaptest.NewLogger(b.t)))
	require.NoError(b.t, err)
	require.NoError(b.t, n.Start(b.t.Context()))
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(b.t, n.Stop(ctx))
	})
	return n
}

// finished waits until nothing but finished jobs is left.
func (b *testbed) finished(c *tenure.Client, want int) {
	require.Eventually(b.t, func() bool {
		counts, err := c.Count(b.t.Context())
		require.NoError(b.t, err)
		done := 0
		for _, n := range counts {
			if n.Waiting+n.Claimed+n.Timers+n.Dead > 0 {
				return false
			}
			done += int(n.Finished)
		}
		return done == want
	}, 30*time.Second, 20*time.Millisecond)
}

func TestJobsOfEveryTenantRun(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 3)
	n := b.node(b.cfg, b.registry(nil))
	c := n.Client()
	total := 0
	for id := range b.cfg.Tenants.Static {
		ctx := tenancy.For(t.Context(), id)
		for i := range 20 {
			_, err := c.Enqueue(ctx, plain{i})
			require.NoError(t, err)
			err = c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				_, err := c.EnqueueTx(ctx, tx, write{i})
				return err
			})
			require.NoError(t, err)
			total += 2
		}
	}
	b.finished(c, total)
	for id, where := range b.cfg.Tenants.Static {
		var n, others int
		require.NoError(t, b.db[where.Pool].QueryRow(t.Context(), fmt.Sprintf("SELECT count(*), count(*) FILTER (WHERE tenant <> $1) FROM %s.effect", id), string(id)).Scan(&n, &others))
		require.Equal(t, 20, n)
		require.Zero(t, others)
	}
}

func TestFailuresAreRetriedThenDead(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	r := job.NewRegistry()
	boom := errors.New("boom")
	job.Handle(r, func(context.Context, *job.Job[plain]) error { return boom }, job.Retry("R3/PT0.05S"))
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
		if _, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID)); err != nil {
			return err
		}
		panic("after the effect")
	}, job.Retry("R2/PT0.05S"))
	n := b.node(b.cfg, r)
	ctx := tenancy.For(t.Context(), "t1")
	failing, err := n.Client().Enqueue(ctx, plain{1})
	require.NoError(t, err)
	panicking, err := n.Client().Enqueue(ctx, write{1})
	require.NoError(t, err)
	for id, runs := range map[job.ID]int{failing.ID: 3, panicking.ID: 2} {
		require.Eventually(t, func() bool {
			s, _, err := n.Client().Job(t.Context(), id)
			require.NoError(t, err)
			return s.State == "dead"
		}, 20*time.Second, 20*time.Millisecond)
		_, errs, err := n.Client().Job(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, errs, runs)
	}
	var effects int
	require.NoError(t, b.db["p1"].QueryRow(t.Context(), "SELECT count(*) FROM t1.effect").Scan(&effects))
	require.Zero(t, effects)
}
