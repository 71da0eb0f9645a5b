package acquisition

import (
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/internal/store"
)

// Somebody is told of what holds up the tidying for long, not of what ends in time, and
// again if it goes on.
func TestHoldupIsSaidNowAndThen(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var h holdup
	one := store.Holdup{HoldupID: store.HoldupID{What: "session", ID: "17", XID: "800"}}
	look := func(o store.Holdup, after, held time.Duration, say bool) {
		t.Helper()
		now = now.Add(after)
		gotHeld, gotSay := h.see(o, now)
		require.Equal(t, held, gotHeld)
		require.Equal(t, say, gotSay)
	}
	look(one, 0, 0, false)
	look(one, longHoldup-1, longHoldup-1, false)
	other := one
	other.XID = "900" // the same session's next transaction
	look(other, 1, 0, false)
	look(other, longHoldup, longHoldup, true)
	look(other, sayHoldup-1, longHoldup+sayHoldup-1, false)
	look(other, 1, longHoldup+sayHoldup, true)
	one.Open = time.Hour // it may be seen for how long
	look(one, time.Minute, time.Hour, true)
}

// The holder names the transaction that holds up the tidying, and how to end it.
func TestHoldupIsReported(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	a := b.acquirer(&fakeElector{})
	core, logged := observer.New(zap.WarnLevel)
	a.log = zap.New(core)
	a.look(t.Context())
	tm, err := a.take(t.Context())
	require.NoError(t, err)
	require.NotNil(t, tm)
	gauge := a.metrics.holdup.WithLabelValues("main")

	conn, err := pgx.Connect(t.Context(), b.proxy.DSN())
	require.NoError(t, err)
	defer conn.Close(t.Context())
	pid := strconv.Itoa(int(conn.PgConn().PID()))
	_, err = conn.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tenure.job")
	require.NoError(t, err)
	b.exec("SELECT pg_current_xact_id()") // it is older than this
	report := func() {
		use, err := tm.reportHoldup()(t.Context())
		require.NoError(t, err)
		use()
	}
	report()
	require.Empty(t, logged.All(), "it has only begun")
	require.Equal(t, pid, tm.holdup.id.ID)
	tm.holdup.since = time.Now().Add(-longHoldup)
	report()
	require.Equal(t, 1, logged.Len())
	require.Contains(t, logged.All()[0].Message, "SELECT pg_terminate_backend("+pid+")")
	require.GreaterOrEqual(t, counted(t, gauge), longHoldup.Seconds())

	_, err = conn.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	b.until(func() bool {
		report()
		return counted(t, gauge) < longHoldup.Seconds()
	})
	require.Equal(t, 1, logged.Len())
	a.end(tm, errLockLost)
}
