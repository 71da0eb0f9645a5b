package faultproxy_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/faultproxy"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bed is a table behind a proxy, and a way to it around the proxy.
func bed(t *testing.T) (p *faultproxy.Proxy, direct *pgx.Conn) {
	dsn := pgtest.Database(t)
	direct = connect(t, dsn)
	_, err := direct.Exec(t.Context(), "CREATE TABLE thing (n int)")
	require.NoError(t, err)
	p, err = faultproxy.New(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p, direct
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func things(t *testing.T, db *pgx.Conn) (n int) {
	require.NoError(t, db.QueryRow(t.Context(), "SELECT count(*) FROM thing").Scan(&n))
	return n
}

func TestCuts(t *testing.T) {
	t.Parallel()
	p, direct := bed(t)
	for name, c := range map[string]struct {
		verdict faultproxy.Verdict
		adds    int
	}{"after": {faultproxy.CutAfter, 1}, "before": {faultproxy.CutBefore, 0}} {
		var cuts atomic.Int32
		p.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
			if e.SQL == "COMMIT" && cuts.Add(1) == 1 {
				return c.verdict
			}
			return faultproxy.Pass
		})
		before := things(t, direct)
		conn := connect(t, p.DSN())
		_, err := conn.Exec(t.Context(), "BEGIN")
		require.NoError(t, err)
		var b pgx.Batch
		b.Queue("INSERT INTO thing VALUES (1)")
		b.Queue("COMMIT")
		require.Error(t, conn.SendBatch(t.Context(), &b).Close(), name)
		require.EqualValues(t, 1, cuts.Load())
		require.Equal(t, before+c.adds, things(t, direct), name)
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	p, _ := bed(t)
	p.SetLimit(func(string) int64 { return 400 })
	conn := connect(t, p.DSN())
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		_, err = conn.Exec(t.Context(), "SELECT 1")
	}
	require.Error(t, err)
	require.Less(t, n, 100)
}

func TestHoldAndCut(t *testing.T) {
	t.Parallel()
	p, _ := bed(t)
	conn := connect(t, p.DSN()+"&application_name=held")
	p.Hold(func(app string) bool { return app == "held" })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, conn.Ping(ctx), context.DeadlineExceeded)

	conn = connect(t, p.DSN())
	require.NoError(t, conn.Ping(t.Context()))
	p.Cut(nil)
	require.Error(t, conn.Ping(t.Context()))

	p.Hold(nil)
	conn = connect(t, p.DSN()+"&application_name=held")
	require.NoError(t, conn.Ping(t.Context()))
}

func TestHoldWay(t *testing.T) {
	t.Parallel()
	p, direct := bed(t)
	all := func(string) bool { return true }
	for way, arrives := range map[faultproxy.Way]int{faultproxy.ToClient: 1, faultproxy.ToServer: 0} {
		before := things(t, direct)
		conn := connect(t, p.DSN())
		p.HoldWay(way, all)
		ctx, cancel := context.WithCancel(t.Context())
		answer := make(chan error, 1)
		go func() {
			_, err := conn.Exec(ctx, "INSERT INTO thing VALUES (1)")
			answer <- err
		}()
		if arrives > 0 {
			require.Eventually(t, func() bool { return things(t, direct) == before+arrives }, 30*time.Second, time.Millisecond)
		} else { // it has some time to arrive
			time.AfterFunc(50*time.Millisecond, cancel)
			<-ctx.Done()
		}
		cancel()
		require.ErrorIs(t, <-answer, context.Canceled)
		require.Equal(t, before+arrives, things(t, direct))
		p.Cut(nil) // first: what is held must not arrive late
		p.Hold(nil)
	}
}

func TestSetServer(t *testing.T) {
	t.Parallel()
	p, _ := bed(t)
	conn := connect(t, p.DSN())
	require.NoError(t, conn.Ping(t.Context()))
	require.NoError(t, p.SetServer("host=/nowhere"))
	require.Error(t, conn.Ping(t.Context()), "open connections break")
	_, err := pgx.Connect(t.Context(), p.DSN())
	require.Error(t, err, "new ones go to the other server")
}
