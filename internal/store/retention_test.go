package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func TestKeepDays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.db.Exec(t.Context(), "CREATE TABLE tenure.mine (id int)")
	require.ErrorContains(t, err, "permission denied", "it makes no table by itself")
	require.NoError(t, store.KeepDays(t.Context(), b.db, 24*time.Hour))
	require.NoError(t, store.KeepDays(t.Context(), b.db, 24*time.Hour))
	b.oldDay(t)
	require.NoError(t, store.KeepDays(t.Context(), b.db, 24*time.Hour))
	var n int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM pg_inherits WHERE inhparent = 'tenure.completed_job'::regclass").Scan(&n))
	require.Equal(t, 4, n, "today, two days ahead and the default")
}

// oldDay makes a day's partition that is to be dropped.
func (b *bundle) oldDay(t *testing.T) {
	t.Helper()
	_, err := b.owner.Exec(t.Context(), `CREATE TABLE tenure.completed_job_20200101 PARTITION OF tenure.completed_job
		FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')`)
	require.NoError(t, err)
}

// A backup reads for hours. No day is dropped or made meanwhile, and nothing of what
// finishes waits behind the attempt.
func TestKeepDaysWaitsForNobody(t *testing.T) {
	t.Parallel()
	const limit = 20 * time.Second
	b := setup(t)
	b.oldDay(t)
	tables := func() (n int) {
		require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM pg_inherits WHERE inhparent = 'tenure.completed_job'::regclass").Scan(&n))
		return n
	}
	require.Equal(t, 2, tables(), "one day and the default")
	backup := b.locks(t, "LOCK TABLE tenure.completed_job IN ACCESS SHARE MODE") // and its partitions, as pg_dump does
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	trying, stop := context.WithCancel(ctx)
	var kept sync.WaitGroup
	kept.Go(func() {
		for trying.Err() == nil {
			assert.ErrorIs(t, store.KeepDays(ctx, b.db, 24*time.Hour), store.ErrLocked)
		}
	})
	for range 50 {
		b.enqueue(t, store.NewJob{})
	}
	p := b.page(t, 0)
	b.claim(t, p)
	for i := range p.Jobs {
		require.Eventually(t, func() bool {
			_, err := store.Finish(ctx, b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, []store.Finished{{Record: &p.Jobs[i].Record, Outcome: job.Outcome{State: job.Done}}}, nil)
			return err == nil
		}, limit, time.Millisecond)
	}
	stop()
	kept.Wait()
	require.Equal(t, 2, tables())
	require.EqualValues(t, 50, counts(t, b.db).Finished)
	backup()
	require.NoError(t, store.KeepDays(t.Context(), b.db, 24*time.Hour))
	require.Equal(t, 3, tables(), "two days ahead and the default, where today's jobs stand")
}
