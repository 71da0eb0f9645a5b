package lease

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// add adds a job to a queue, and returns it as one of those that are told of.
func (b *bundle) add(queue string) []job.ID {
	id, _, err := store.Enqueue(b.t.Context(), b.db.QueryRow, 1, &store.NewJob{Tenant: "acme", Queue: queue, Kind: "k", Payload: []byte("{}")})
	require.NoError(b.t, err)
	return []job.ID{id}
}

// sees tells whether work was seen in a queue.
func (b *bundle) sees(queue string) bool {
	return slices.Contains(b.events.seen(), store.Lane{Queue: queue, Tenant: "acme"})
}

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
		require.NoError(t, store.Notify(t.Context(), b.db, b.add("ready")))
		return len(b.events.seen()) > 0
	})
	renewed := b.count(renewals)
	heard := func(want string) {
		t.Helper()
		b.until(func() bool { return b.sees(want) }, want)
	}
	require.NoError(t, store.Notify(t.Context(), b.db, b.add("one")))
	heard("one")
	for range 20 { // calls take the connection from the listener, which has it again then
		require.NoError(t, b.keeper.Call(t.Context(), func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SELECT 1")
			return err
		}))
	}
	require.NoError(t, b.keeper.Call(t.Context(), func(ctx context.Context, conn *pgx.Conn) error {
		if err := store.Notify(ctx, b.db, b.add("two")); err != nil { // while somebody else has it
			return err
		}
		_, err := conn.Exec(ctx, "SELECT 1")
		return err
	}))
	heard("two")
	require.Equal(t, renewed, b.count(renewals), "no renewal was needed for that")

	b.keeper.SetDozing(true) // something for the keeper to do is done at once
	b.until(func() bool { return b.count(renewals) > renewed }, "a renewal")
	require.NoError(t, store.Notify(t.Context(), b.db, b.add("three")))
	heard("three")

	b.keeper.Release(h) // who holds no lock is told nothing
	b.keeper.SetDozing(false)
	b.until(func() bool {
		return b.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'UNLISTEN%'") == 1
	}, "the end of listening")
}

// TestKeeperHearsSoMuch: what anybody can send does not keep the lock from being renewed. Jobs that are not there, or
// names, tell the holder of nobody's work, and after too many notifications it hears no more until the next renewal.
func TestKeeperHearsSoMuch(t *testing.T) {
	t.Parallel()
	logs, observed := observer.New(zap.WarnLevel)
	b := setup(t, func(c *Config) {
		c.Lock.TTL, c.Lock.RenewEvery, c.Session.HeartbeatEvery = 4*time.Hour, time.Hour, time.Hour
	}, nil)
	b.keeper.hearing.log = zap.New(logs)
	b.start().lock(b.session())
	b.until(func() bool {
		require.NoError(t, store.Notify(t.Context(), b.db, b.add("ready")))
		return b.sees("ready")
	})
	b.exec(`SELECT pg_notify('tenure_enqueued', n::text), pg_notify('tenure_enqueued', '{"l": [{"Tenant": "globex", "Queue": "q", "Priority": 0}]}') FROM generate_series(1, 9000) n`)
	require.NoError(t, store.Notify(t.Context(), b.db, b.add("one")))
	b.until(func() bool { return b.sees("one") })
	require.NotContains(t, b.events.seen(), store.Lane{Tenant: "globex", Queue: "q"}, "who names a lane")
	require.Len(t, slices.DeleteFunc(b.events.seen(), func(l store.Lane) bool { return l.Queue == "ready" }), 1, "of jobs that are there alone")
	b.exec("SELECT pg_notify('tenure_enqueued', n::text) FROM generate_series(1, 100000) n")
	b.until(func() bool {
		return b.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'UNLISTEN%'") == 1
	}, "the end of listening")
	looked := b.events.looked()
	b.keeper.SetDozing(true) // renews
	b.until(func() bool { return b.events.looked() > looked }, "a look for what was not heard")
	b.until(func() bool {
		require.NoError(t, store.Notify(t.Context(), b.db, b.add("two")))
		return b.sees("two")
	})
	require.Equal(t, 1, observed.FilterMessageSnippet("come too fast").Len())
}

// TestKeeperIsDeafWithoutItsConnection: a connection that breaks while somebody listens on it is
// made again by the next renewal, as ever.
func TestKeeperIsDeafWithoutItsConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	ctx, _ := b.lock(b.session())
	for i := range 3 {
		hint := fmt.Sprint("time", i)
		b.until(func() bool {
			require.NoError(t, store.Notify(t.Context(), b.db, b.add(hint)))
			return b.sees(hint)
		}, hint)
		b.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tenure lock'")
	}
	require.NoError(t, ctx.Err(), "the lock is held as ever")
}
