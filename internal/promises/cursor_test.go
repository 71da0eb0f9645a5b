package promises_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// TestCursorLateCommit: a transaction that drew its position early commits late,
// behind a drain that has long read on, and nobody notifies of it.
func TestCursorLateCommit(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	var late atomic.Int64
	lateRan := make(chan struct{})
	n := b.start(b.cfg, b.registry(func(id job.ID) {
		if int64(id) == late.Load() {
			close(lateRan)
		}
	}))
	n.holds("p1")
	tx, err := b.db["p1"].Begin(t.Context())
	require.NoError(t, err)
	var id int64
	require.NoError(t, tx.QueryRow(t.Context(), `INSERT INTO tenure.job (tenant_id, queue, kind, payload)
		VALUES ('t1', 'default', 'plain', '{"n": -1}') RETURNING id`).Scan(&id))
	late.Store(id)

	ctx := tenancy.For(t.Context(), "t1")
	done := 0
	for began := time.Now(); time.Since(began) < 5*time.Second; { // over several rewinds
		entries := make([]tenure.Entry, 500)
		for i := range entries {
			entries[i].Args = plain{i}
		}
		_, err := n.Client().EnqueueMany(ctx, entries)
		require.NoError(t, err)
		done += len(entries)
		b.eventually(done, "p1", "SELECT count(*) FROM tenure.completed_job")
	}
	require.NoError(t, tx.Commit(ctx))
	committed := time.Now()
	select {
	case <-lateRan:
	case <-time.After(15 * time.Second): // the sweep from the start would come after a minute
		require.FailNow(t, "the late job was skipped")
	}
	t.Logf("committed late behind %d jobs, ran after %v", done, time.Since(committed).Round(time.Millisecond))
	b.drained("p1", done+1)
}

// TestCursorsPassWhatMustWait: a job is committed late, behind the cursor, while it may not
// run. Once it may it is found at once, and not by the sweep, although the floor has long
// risen above it.
func TestCursorsPassWhatMustWait(t *testing.T) {
	t.Parallel()
	late := func(b *testbed, kind string) (commit func()) {
		tx, err := b.db["p1"].Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('t1', 'default', $1, '{\"n\": -1}')", kind)
		require.NoError(t, err)
		return func() { require.NoError(t, tx.Commit(t.Context())) }
	}
	work := func(b *testbed, n *running, jobs int) {
		for i := range jobs {
			_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{i})
			require.NoError(t, err)
		}
	}
	const risen = 5 * time.Second // by then the floor has risen
	found := func(ran <-chan struct{}) {
		t.Helper()
		select {
		case <-ran:
		case <-time.After(15 * time.Second): // the sweep from the start would come after a minute
			require.FailNow(t, "the late job was not found")
		}
	}
	t.Run("its tenant is frozen", func(t *testing.T) {
		t.Parallel()
		b := newTestbed(t, 1, 2)
		ran := make(chan struct{})
		r := job.NewRegistry()
		job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
			if j.Args.N < 0 {
				close(ran)
			}
			return nil
		})
		n := b.start(b.cfg, r)
		n.holds("p1")
		commit := late(b, "plain")
		work(b, n, 10)
		b.eventually(10, "p1", "SELECT count(*) FROM tenure.completed_job")
		require.NoError(t, n.Operator().Tenants().Freeze(t.Context(), "t1"))
		commit()
		timer(t, risen)
		require.NoError(t, n.Operator().Tenants().Thaw(t.Context(), "t1"))
		found(ran)
	})
	t.Run("nobody handles its kind", func(t *testing.T) {
		t.Parallel()
		b := newTestbed(t, 1, 2)
		only := b.start(b.gossiping("a"), b.registry(nil))
		only.holds("p1")
		late(b, "other")()
		work(b, only, 10)
		b.eventually(10, "p1", "SELECT count(*) FROM tenure.completed_job")
		timer(t, risen)
		ran := make(chan struct{})
		r := job.NewRegistry()
		r.Add(job.Spec{Kind: "other", Handle: func(context.Context, *job.Record) error { close(ran); return nil }})
		b.start(b.gossiping("b", only.Self().Addr), r)
		found(ran)
	})
}
