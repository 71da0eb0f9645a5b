package tenure_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// TestCursorLateCommit: a transaction that drew its position early commits late,
// behind a drain that has long read on, and nobody rings a bell for it.
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
