package lease

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// TestKeeperListens: between two renewals the keeper hears what is told on the lock's
// connection, which is everybody's meanwhile who wants to call.
func TestKeeperListens(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) {
		c.Lock.TTL, c.Lock.RenewEvery, c.Session.HeartbeatEvery = 4*time.Hour, time.Hour, time.Hour
	}, nil).start()
	s := b.session()
	_, h := b.lock(s)
	b.until(func() bool {
		require.NoError(t, store.Notify(t.Context(), b.db, "it listens"))
		return len(b.events.heard()) > 0
	})
	renewed := b.count(renewals)
	heard := func(want string) {
		t.Helper()
		b.until(func() bool { return slices.Contains(b.events.heard(), want) }, want)
	}
	require.NoError(t, store.Notify(t.Context(), b.db, "one"))
	heard("one")
	for range 20 { // calls take the connection from the listener, which has it again then
		require.NoError(t, b.keeper.Call(t.Context(), func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SELECT 1")
			return err
		}))
	}
	require.NoError(t, b.keeper.Call(t.Context(), func(ctx context.Context, conn *pgx.Conn) error {
		if err := store.Notify(ctx, b.db, "two"); err != nil { // while somebody else has it
			return err
		}
		_, err := conn.Exec(ctx, "SELECT 1")
		return err
	}))
	heard("two")
	require.Equal(t, renewed, b.count(renewals), "no renewal was needed for that")

	b.keeper.SetDozing(true) // something for the keeper to do is done at once
	b.until(func() bool { return b.count(renewals) > renewed }, "a renewal")
	require.NoError(t, store.Notify(t.Context(), b.db, "three"))
	heard("three")

	b.keeper.Release(h) // who holds no lock is told nothing
	b.keeper.SetDozing(false)
	b.until(func() bool {
		return b.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'UNLISTEN%'") == 1
	}, "the end of listening")
}

// TestKeeperIsDeafWithoutItsConnection: a connection that breaks while somebody listens on it is
// made again by the next renewal, as ever.
func TestKeeperIsDeafWithoutItsConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	ctx, _ := b.lock(b.session())
	for i := range 3 {
		hint := fmt.Sprint("time ", i)
		b.until(func() bool {
			require.NoError(t, store.Notify(t.Context(), b.db, hint))
			return slices.Contains(b.events.heard(), hint)
		}, hint)
		b.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tenure lock'")
	}
	require.NoError(t, ctx.Err(), "the lock is held as ever")
}
