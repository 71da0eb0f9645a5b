package promises_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/tenancy"
)

// TestP2TheDSNLeadsElsewhere: the DSN of a running pool suddenly leads to another cluster,
// whose ledger says that it is this very pool, or to an earlier timeline of its own. Nothing
// is worked on there, and the pool is out of service, which says why, until the DSN leads
// back.
func TestP2TheDSNLeadsElsewhere(t *testing.T) {
	t.Parallel()
	t.Run("to another cluster", func(t *testing.T) {
		t.Parallel()
		b := newTestbed(t, 1, 1)
		other := pgtest.Server(t, devpg.Options{})
		name := b.db["p1"].Config().ConnConfig.Database
		require.NoError(t, other.CreateDatabase(t.Context(), name))
		require.NoError(t, storetest.Prepare(t.Context(), other.DSN(name), "p1", 1))
		requireLeadsElsewhere(b, other.DSN(name), b.cfg.Pools["p1"].DSN, "its DSN leads to another server than before (system identifier ")
	})
	t.Run("to an earlier timeline", func(t *testing.T) {
		t.Parallel()
		old := pgtest.Server(t, devpg.Options{Settings: map[string]string{"synchronous_commit": "on"}})
		b := newTestbedOn(t, old, 1, 1)
		promoted := pgtest.Standby(t, old) // it stops after the node
		_, err := connectTo(b, promoted.DSN("p1")).Exec(t.Context(), "SELECT pg_promote()")
		require.NoError(t, err)
		pool := b.cfg.Pools["p1"]
		pool.DSN = storetest.AsRuntime(promoted.DSN("p1"))
		b.cfg.Pools["p1"] = pool
		requireLeadsElsewhere(b, old.DSN("p1"), pool.DSN, "its DSN leads to a primary that was replaced (timeline 1; this node has reached timeline 2)")
	})
}

// requireLeadsElsewhere starts a node at right, has its DSN lead to wrong for a while, and back.
func requireLeadsElsewhere(b *testbed, wrong, right, says string) {
	t := b.t
	cfg, proxy := b.behind(b.cfg, "p1")
	n := b.start(cfg, b.registry(nil))
	here, there := connectTo(b, right), connectTo(b, wrong)
	done := func(want int) {
		t.Helper()
		require.Eventually(t, func() bool {
			got := 0
			err := here.QueryRow(t.Context(), "SELECT count(*) FROM tenure.completed_job").Scan(&got)
			return err == nil && got == want
		}, patience, 10*time.Millisecond, "%d finished jobs", want)
	}
	ctx := tenancy.For(t.Context(), "t1")
	enqueue := func() error {
		_, err := n.Client().Enqueue(ctx, plain{1})
		return err
	}
	n.holds("p1")
	require.NoError(t, enqueue())
	done(1)

	_, err := there.Exec(t.Context(), `INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('t1', 'default', 'plain', '{"n": 2}')`)
	require.NoError(t, err)
	const state = `SELECT row(array(SELECT row(id, turn) FROM tenure.job), array(SELECT id FROM tenure.claim), array(SELECT row(session_id, hb_seq) FROM tenure.node_session),
		(SELECT row(epoch, renew_seq) FROM tenure.acquire_lock), array(SELECT id FROM tenure.completed_job))::text`
	var before, after string
	require.NoError(t, there.QueryRow(t.Context(), state).Scan(&before))
	require.NoError(t, proxy.SetServer(wrong))
	require.Eventually(t, func() bool { err := enqueue(); return err != nil && strings.Contains(err.Error(), says) }, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool { return !n.Locks()[0].Holding && errors.Is(enqueue(), tenure.ErrPoolDown) }, patience, 10*time.Millisecond, "it should be out of service")
	require.ErrorContains(t, enqueue(), says)
	require.True(t, b.log.says("WARN", says))
	require.NoError(t, there.QueryRow(t.Context(), state).Scan(&after))
	require.Equal(t, before, after, "nothing may be touched there")

	require.NoError(t, proxy.SetServer(right))
	require.Eventually(t, func() bool { return enqueue() == nil }, patience, 50*time.Millisecond)
	done(2)
	n.stop()
}

// connectTo opens connections to a database that is not one of the bed's pools.
func connectTo(b *testbed, dsn string) *pgxpool.Pool {
	b.t.Helper()
	db, err := pgxpool.New(context.Background(), dsn)
	require.NoError(b.t, err)
	b.t.Cleanup(db.Close)
	return db
}
