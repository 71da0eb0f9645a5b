package routing_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/routing"
)

// slowServer is a way to the server of dsn on which one connection at a time gets in,
// and takes a while for it.
func slowServer(t *testing.T, dsn string, each time.Duration) (reach func(dsn string) string) {
	proxy, err := faultproxy.New(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	var entry sync.Mutex
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if e.SQL == "" {
			entry.Lock()
			time.Sleep(each)
			entry.Unlock()
		}
		return faultproxy.Pass
	})
	database := func(dsn string) string {
		cfg, err := pgx.ParseConfig(dsn)
		require.NoError(t, err)
		return cfg.Database
	}
	through := proxy.DSN()
	return func(to string) string { return strings.Replace(through, database(dsn), database(to), 1) }
}

// All pools of a server connect when a node starts. Together they would take longer than
// any of them may.
func TestStart_isPatientWithACrowd(t *testing.T) {
	t.Parallel()
	const pools, each = 24, 300 * time.Millisecond // 7.2 s, and each may take 5 s
	first := storetest.DSN(t, "pool-1", 1)
	reach := slowServer(t, first, each)
	dsns := map[string]string{"pool-1": reach(first)}
	for i := 2; i <= pools; i++ {
		name := fmt.Sprintf("pool-%d", i)
		dsns[name] = reach(storetest.DSN(t, name, i))
	}
	core, logs := observer.New(zapcore.InfoLevel)
	r, err := routing.New(withPools(dsns), zap.New(core))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Stop(context.Background())) })

	require.NoError(t, r.Start(t.Context()))
	for i := 1; i <= pools; i++ {
		select {
		case <-poolOf(t, r, fmt.Sprintf("pool-%d", i)).Ready():
		case <-time.After(patience):
			require.FailNow(t, "a pool does not come up", "%d", i)
		}
	}
	require.Zero(t, logs.FilterMessageSnippet("does not answer").Len(), "none was given up on")
	require.Equal(t, 1, logs.FilterMessageSnippet("many pools are on one server").Len(), "one line for all that had to wait")
}

func TestAwaitDial(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	elsewhere := fmt.Sprintf("postgres://app@%s/app?sslmode=disable", l.Addr())
	r := newRouter(t, withPools(map[string]string{"main": storetest.DSN(t, "main", 1), "beside": storetest.DSN(t, "beside", 2), "elsewhere": elsewhere}))
	await := func(pool string, wait time.Duration) (done func(), err error) {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		return poolOf(t, r, pool).AwaitDial(ctx, false)
	}
	var taken []func()
	for range 8 {
		done, err := await("main", patience)
		require.NoError(t, err)
		taken = append(taken, done)
	}
	_, err = await("beside", time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.EqualError(t, err, "connect to pool beside: 8 other connections are being opened to its server: context deadline exceeded")
	done, err := await("elsewhere", patience)
	require.NoError(t, err, "one server's crowd does not hold up another's")
	done()

	came := make(chan error)
	go func() {
		done, err := await("beside", patience)
		if err == nil {
			done()
		}
		came <- err
	}()
	taken[0]()
	require.NoError(t, <-came)
	for _, done := range taken[1:] {
		done()
	}
}

// Terms begin a few at a time on each server, and one that hangs gives its place up after a second.
func TestAwaitTerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const at = "postgres://app@%s/app"
		r, err := routing.New(withPools(map[string]string{"main": fmt.Sprintf(at, "main"), "elsewhere": fmt.Sprintf(at, "elsewhere")}), zap.NewNop())
		require.NoError(t, err)
		await := func(pool string, within time.Duration) (begun func(), err error) {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			return poolOf(t, r, pool).AwaitTerm(ctx)
		}
		var begun []func()
		for range 8 {
			done, err := await("main", time.Hour)
			require.NoError(t, err)
			begun = append(begun, done)
		}
		_, err = await("main", 400*time.Millisecond)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = await("elsewhere", time.Millisecond)
		require.NoError(t, err)

		begun[0]()
		_, err = await("main", time.Millisecond)
		require.NoError(t, err)
		for range 7 {
			_, err = await("main", 700*time.Millisecond)
			require.NoError(t, err)
		}
		for _, done := range begun { // what was given up is not given up for another
			done()
		}
		_, err = await("main", 300*time.Millisecond)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second) // all are over
	})
}

// The connection with which a pool was verified serves anyone who comes for the lock first,
// and is closed when nobody comes.
func TestConnectLock_takesWhatThePoolWasVerifiedWith(t *testing.T) {
	t.Parallel()
	wanted, unwanted := storetest.DSN(t, "wanted", 1), storetest.DSN(t, "unwanted", 2)
	r := started(t, withPools(map[string]string{"wanted": wanted, "unwanted": unwanted}))
	pid := func(db interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}, sql string) (pid int) {
		require.NoError(t, db.QueryRow(t.Context(), sql).Scan(&pid))
		return pid
	}
	const self, other = "SELECT pg_backend_pid()", "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tenure lock'"
	verified := pid(connect(t, wanted), other)
	first, err := poolOf(t, r, "wanted").ConnectLock(t.Context())
	require.NoError(t, err)
	defer first.Close(context.Background())
	second, err := poolOf(t, r, "wanted").ConnectLock(t.Context())
	require.NoError(t, err)
	defer second.Close(context.Background())
	require.Equal(t, verified, pid(first, self))
	require.NotEqual(t, verified, pid(second, self))

	pid(connect(t, unwanted), other)
	requireNoSessions(t, unwanted)
}
