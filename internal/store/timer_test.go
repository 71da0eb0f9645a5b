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

// No time is too far: a holder looks again after a day.
func TestTimersOfAnotherAge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, at := range []string{"9999-12-31", "9000-01-01", "infinity"} {
		execute(t, b.owner, "DELETE FROM tenure.timer_job")
		if at == "infinity" {
			execute(t, b.owner, "ALTER TABLE tenure.timer_job DROP CONSTRAINT timer_job_time") // somebody has
		} else {
			execute(t, b.owner, "SELECT tenure.enqueue('acme', 'k', run_at => '"+at+"')")
		}
		execute(t, b.owner, "INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at) VALUES ('acme', 'q', 'k', '{}', '"+at+"')")
		in, ok, err := store.NextTimer(t.Context(), b.db)
		require.NoError(t, err)
		require.True(t, ok)
		require.InDelta(t, 24*time.Hour, in, float64(time.Minute))
		idle, err := store.LookIdle(t.Context(), b.db)
		require.NoError(t, err)
		require.InDelta(t, 24*time.Hour, *idle.Due, float64(time.Minute))
		fired, err := store.FireTimers(t.Context(), b.db, b.fence, 10)
		require.NoError(t, err)
		require.Empty(t, fired)
	}
	execute(t, b.owner, "DELETE FROM tenure.timer_job")
	idle, err := store.LookIdle(t.Context(), b.db)
	require.NoError(t, err)
	require.Nil(t, idle.Due)
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
