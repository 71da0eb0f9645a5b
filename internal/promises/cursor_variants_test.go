package promises_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// TestCursorVariants: jobs that appear where no cursor looks any more, or without a
// hint, while the node is busy draining the same tenant's jobs.
func TestCursorVariants(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	b.cfg.Acquire.Batch = 100
	ran := map[int]chan struct{}{}
	for n := -9; n < 0; n++ {
		ran[n] = make(chan struct{})
	}
	r := job.NewRegistry()
	job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
		if c := ran[j.Args.N]; c != nil {
			close(c)
		}
		return nil
	})
	n := b.start(b.cfg, r)
	n.holds("p1")
	const insert = `INSERT INTO tenure.job (tenant_id, queue, kind, payload, priority) VALUES ($1, 'default', 'plain', jsonb_build_object('n', $2::int), $3)`
	soon := func(n int, what string) {
		t.Helper()
		began := time.Now()
		select {
		case <-ran[n]:
			t.Logf("%s: ran after %v", what, time.Since(began).Round(time.Millisecond))
		case <-time.After(patience / 3): // the sweep from the start would come after a minute
			require.FailNow(t, "skipped: "+what)
		}
	}
	exec := func(n int, tenant string, priority int) {
		b.exec("p1", insert, tenant, n, priority)
	}

	exec(-1, "t1", 0)
	soon(-1, "idle, no hint")
	exec(-2, "t1", 5)
	soon(-2, "idle, no hint, another priority")

	// Transactions that draw their position now, and commit when the drain is far ahead.
	ctx := t.Context()
	late := func(n int, tenant string, priority int) (commit func()) {
		tx, err := b.db["p1"].Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, insert, tenant, n, priority)
		require.NoError(t, err)
		return func() { require.NoError(t, tx.Commit(ctx)) }
	}
	commits := []func(){late(-3, "t1", 0), late(-4, "t1", 5), late(-5, "t2", 0), late(-6, "t1", 7)}

	stopped := make(chan struct{})
	done := make(chan struct{})
	go func() { // the drain is busy in both tenants and three priorities
		defer close(done)
		for {
			var entries []tenure.Entry
			for i := range 300 {
				e := tenure.Entry{Tenant: tenancy.ID([]string{"t1", "t2"}[i%2]), Args: plain{i}}
				if i%10 == 0 {
					e.Options = []tenure.Option{tenure.Priority(5)}
				}
				entries = append(entries, e)
			}
			if _, err := n.Client().EnqueueMany(ctx, entries); err != nil {
				t.Errorf("enqueue: %v", err)
				return
			}
			select {
			case <-stopped:
				return
			case <-time.After(15 * time.Millisecond):
			}
		}
	}()
	timer(t, 4*time.Second) // over several rewinds
	for i, what := range []string{"late", "late, of higher priority", "late, of another tenant", "late, in a lane nobody knows"} {
		commits[i]()
		soon(-3-i, what)
	}
	exec(-7, "t1", 5)
	soon(-7, "busy, no hint, of higher priority")
	exec(-8, "t2", 0)
	soon(-8, "busy, no hint")
	exec(-9, "t2", 20)
	soon(-9, "busy, no hint, in a lane nobody knows")
	close(stopped)
	<-done
	b.eventually(0, "p1", "SELECT count(*) FROM tenure.job")
}
