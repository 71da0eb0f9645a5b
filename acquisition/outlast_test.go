package acquisition

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/internal/store"
)

// otherClaims makes a session of another node with a claim, which has an hour to live by
// the database's clock.
func (b *bundle) otherClaims(ttl time.Duration) (id uuid.UUID) {
	b.t.Helper()
	id = uuid.New()
	b.exec(`INSERT INTO tenure.node_session (session_id, node, member, last_seen, expires_at)
		SELECT $1, 'other', 'other', at - $2::bigint * interval '1 ms', at FROM (SELECT now() + interval '1 hour') AS t (at)`, id, ttl.Milliseconds())
	b.exec("INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) SELECT $1, turn, ARRAY[id], now() FROM tenure.job WHERE id = $2", id, int64(b.enqueue("k")))
	return id
}

// term takes the lock and begins a term, whose loop does not run.
func (b *bundle) term(ctx context.Context) (*term, *observer.ObservedLogs) {
	b.t.Helper()
	core, logged := observer.New(zap.WarnLevel)
	a := b.acquirer(&fakeElector{})
	a.log = zap.New(core)
	tm := tried(ctx, a)
	require.NotNil(b.t, tm)
	b.t.Cleanup(func() { b.keeper.Release(tm.lock.Lock) })
	_, err := tm.load(ctx)
	require.NoError(b.t, err)
	return tm, logged
}

// A session of which the database's clock says that it lives is dead when this node has
// seen its heartbeat stand still for several times as long as it was told to live, and as
// sessions live here; not earlier, and not if it has moved.
func TestReapingOutlastsTheClock(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	own := b.cfg.Session.TTL
	cases := []struct {
		ttl, still time.Duration
		moves      bool
		state      string
	}{
		{ttl: own, still: own, state: "live"},
		{ttl: own, still: outlastFactor*own - time.Second, state: "live"},
		{ttl: own, still: outlastFactor * own, state: "dead"},
		{ttl: own, still: outlastFactor * own, moves: true, state: "live"},
		{ttl: time.Second, still: outlastFactor*own - time.Second, state: "live"},
		{ttl: time.Second, still: outlastFactor * own, state: "dead"},
		{ttl: 10 * own, still: outlastFactor * own, state: "live"},
		{ttl: 10 * own, still: outlastFactor * 10 * own, state: "dead"},
	}
	ids := make([]uuid.UUID, len(cases))
	for i, c := range cases {
		ids[i] = b.otherClaims(c.ttl)
	}
	tm, logged := b.term(t.Context())
	tm.lock.from = "other"
	for i, c := range cases {
		tm.recovery.heartbeats[ids[i]] = heartbeatSeen{at: time.Now(), still: c.still}
		if c.moves {
			b.exec("UPDATE tenure.node_session SET hb_seq = hb_seq + 1 WHERE session_id = $1", ids[i])
		}
	}
	require.NoError(t, tm.recovery.reapSessions(t.Context()))
	dead := int64(0)
	for i, c := range cases {
		state, _ := b.state(ids[i])
		require.Equal(t, c.state, state, "%+v", c)
		if state == "dead" {
			dead++
		}
	}
	require.Equal(t, dead, b.count("SELECT count(*) FROM tenure.job WHERE losses = 1"))
	require.EqualValues(t, int64(len(cases))-dead, b.count("SELECT count(*) FROM tenure.claim"))
	lines := logged.FilterMessageSnippet("declared dead").All()
	require.Len(t, lines, int(dead), "one warning each")
	for _, l := range lines {
		require.Equal(t, []any{"other", int64(1), true}, []any{l.ContextMap()["node"], l.ContextMap()["jobs"], l.ContextMap()["held_lock"]})
	}
}

// A duty that would have to wait for somebody's lock is deferred, which is said now and
// then; the term goes on. Timers whose rows are locked are not tried all the time.
func TestADutyIsDeferredForALock(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	_, _, err := store.Enqueue(t.Context(), b.db.QueryRow, 1, &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("1"), DueIn: time.Millisecond})
	require.NoError(t, err)
	b.eventually(1, "SELECT count(*) FROM tenure.timer_job WHERE due_at < now()")
	locked := func(sql string, try func()) {
		t.Helper()
		tx, err := b.db.Begin(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
		_, err = tx.Exec(t.Context(), sql)
		require.NoError(t, err)
		try()
	}
	tm, logged := b.term(t.Context())
	tm.duties.queries = nil
	later := time.Now().Add(time.Hour)
	locked("SELECT FROM tenure.timer_job FOR UPDATE", func() {
		began := time.Now()
		tm.timers.fireDuty.due = began.Add(time.Hour)
		require.NoError(t, tm.timers.fire(t.Context()))
		require.WithinRange(t, tm.timers.fireDuty.due, began.Add(recheckEvery), time.Now().Add(recheckEvery))
	})
	locked("LOCK TABLE tenure.timer_job IN ACCESS EXCLUSIVE MODE", func() {
		for range 2 {
			for _, d := range tm.duties.inLoop {
				d.due = later
			}
			tm.timers.fireDuty.due = time.Now()
			require.NoError(t, tm.duties.doDue(t.Context()))
			require.Greater(t, time.Until(tm.timers.fireDuty.due), recheckEvery/2)
		}
	})
	require.Len(t, logged.FilterMessageSnippet("somebody has locked what a duty needs").All(), 1)
	require.EqualValues(t, 2, counted(t, tm.metrics.dutiesFailed))
	tm.timers.fireDuty.due = time.Now()
	require.NoError(t, tm.duties.doDue(t.Context()))
	require.Zero(t, b.count("SELECT count(*) FROM tenure.timer_job"))
	tm.duties.group.Wait()
}
