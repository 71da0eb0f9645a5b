package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

func TestTimersFire(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{DueAt: time.Now().Add(-time.Hour)})
	b.enqueue(t, store.NewJob{DueIn: time.Hour})
	in, ok, err := store.NextTimer(t.Context(), b.db)
	require.NoError(t, err)
	require.True(t, ok)
	require.Zero(t, in)
	fired, err := store.FireTimers(t.Context(), b.db, b.fence, 10)
	require.NoError(t, err)
	require.Equal(t, []store.Fired{{Lane: store.Lane{Queue: "default", Tenant: "acme"}, Count: 1}}, fired)
	in, ok, err = store.NextTimer(t.Context(), b.db)
	require.NoError(t, err)
	require.True(t, ok)
	require.InDelta(t, time.Hour, in, float64(time.Minute))
	require.Equal(t, b.first()+1, b.page(t, 0).Jobs[0].Record.Turn)
}

// A timer whose row somebody has locked fires when it is free; the others do not wait.
func TestTimersFireBesideALockedOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	locked := b.enqueue(t, store.NewJob{DueAt: time.Now().Add(-time.Hour)})
	b.enqueue(t, store.NewJob{DueAt: time.Now().Add(-time.Minute)})
	unlock := b.locks(t, "SELECT FROM tenure.timer_job WHERE id = $1 FOR UPDATE", locked)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 2 {
		fired, err := store.FireTimers(ctx, b.db, b.fence, 1)
		require.NoError(t, err)
		require.Equal(t, []store.Fired{{Lane: store.Lane{Queue: "default", Tenant: "acme"}, Count: 1}}, fired)
		if unlock != nil {
			unlock()
			unlock = nil
		}
	}
	require.Equal(t, store.Counts{Waiting: 2}, counts(t, b.db))
}
