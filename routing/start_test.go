package routing_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/routing"
)

func TestStart_usesEveryPool(t *testing.T) {
	t.Parallel()
	r := started(t, withPools(map[string]string{"a": storetest.DSN(t, "a", 3), "b": storetest.DSN(t, "b", 65535)}))
	requireUp(t, poolOf(t, r, "a"), 3)
	requireUp(t, poolOf(t, r, "b"), 65535)
}

// sessions counts what a router has open in a database.
const sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'tenure %'"

func requireNoSessions(t *testing.T, dsn string) {
	c := connect(t, dsn)
	require.Eventually(t, func() bool { // the server learns of a closed socket a little later
		var n int
		require.NoError(t, c.QueryRow(t.Context(), sessions).Scan(&n))
		return n == 0
	}, patience, 5*time.Millisecond)
}

func TestStart_refuses(t *testing.T) {
	t.Parallel()
	ledger := func(change string) func(*testing.T) string {
		return func(t *testing.T) string {
			dsn := storetest.DSN(t, "main", 1)
			exec(t, dsn, strings.ReplaceAll(change, "DATABASE", "DATABASE "+databaseOf(t, dsn)))
			return dsn
		}
	}
	for name, tc := range map[string]struct {
		dsn  func(t *testing.T) string
		want string
	}{
		"not migrated": {
			func(t *testing.T) string { return pgtest.Database(t) },
			"has no ledger: run: tenure migrate --pool main; if the pool had jobs, restore it first, as they and its number are gone",
		},
		"a newer schema": {
			ledger("INSERT INTO tenure.migration (version_id, is_applied) VALUES (9999, true); UPDATE tenure.pool SET oldest_program = 9999"),
			"its ledger has version 9999, which only programs for version 9999 or newer can work on; this one is for version ",
		},
		"no number": {
			ledger("DELETE FROM tenure.pool"),
			"its ledger has no number yet: run: tenure migrate --pool main",
		},
		"another pool's database": {
			func(t *testing.T) string { return storetest.DSN(t, "eu-1", 2) },
			`the database says that it is pool "eu-1": correct the DSN, or name the pool as it was named`,
		},
		"read-only": {
			ledger("ALTER DATABASE SET default_transaction_read_only = on"),
			"its transactions are read-only: unset default_transaction_read_only for this user and database",
		},
		"read-only by its DSN": {
			func(t *testing.T) string { return storetest.DSN(t, "main", 1) + "&default_transaction_read_only=on" },
			"its transactions are read-only",
		},
		"other strings": {
			ledger("ALTER DATABASE SET standard_conforming_strings = off"),
			"standard_conforming_strings is off",
		},
		"no triggers": {
			ledger("ALTER DATABASE SET session_replication_role = replica"),
			"session_replication_role is replica, so that no trigger does what is asked of the ledger: unset it for this user and database",
		},
		"a lock that a crash empties": {
			ledger("ALTER TABLE tenure.acquire_lock SET UNLOGGED"),
			"tenure.acquire_lock is UNLOGGED",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := tc.dsn(t)
			r := newRouter(t, withPools(map[string]string{"main": dsn}))
			err := r.Start(t.Context())
			var refused *store.PoolError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "main", refused.Pool)
			require.ErrorContains(t, err, "pool main: "+tc.want)
			requireDown(t, poolOf(t, r, "main"), tc.want)
			requireNoSessions(t, dsn) // though nobody has called Stop
		})
	}
}

// Tenants' transactions would have what the ledger's own connections do without.
func TestStart_refusesASettingThatCannotBe(t *testing.T) {
	t.Parallel()
	r := newRouter(t, withPools(map[string]string{"main": storetest.DSN(t, "main", 1) + "&datestyle=tomorrow"}))
	err := r.Start(t.Context())
	require.ErrorContains(t, err, "pool main: its server refuses user")
	require.ErrorContains(t, err, `invalid value for parameter "DateStyle": "tomorrow": correct that setting in the DSN, or take it out`)
}

// A ledger that is older than the program needs the command that brings it up to date,
// which is said, and only that: serving changes no schema.
func TestStart_refusesAnOlderLedger(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	conn := connect(t, dsn)
	exec(t, dsn, fmt.Sprintf("DELETE FROM tenure.migration WHERE version_id = %d", store.LedgerVersion()))
	var older int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT max(version_id) FROM tenure.migration").Scan(&older))
	r := newRouter(t, withPools(map[string]string{"main": dsn}))
	require.EqualError(t, r.Start(t.Context()),
		fmt.Sprintf("pool main: its ledger has version %d, and this program needs version %d or newer: run: tenure migrate --pool main", older, store.LedgerVersion()))
	requireDown(t, poolOf(t, r, "main"), "run: tenure migrate --pool main")
	var now int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT max(version_id) FROM tenure.migration").Scan(&now))
	require.Equal(t, older, now)
}

func databaseOf(t *testing.T, dsn string) string {
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	return pgx.Identifier{cfg.Database}.Sanitize()
}

// The database is the pool's whose name it has. Nobody touches it in the name of the other.
func TestStart_keepsASecondPoolOutOfOneDatabase(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "a", 1)
	r := started(t, withPools(map[string]string{"a": dsn, "b": dsn}))
	requireUp(t, poolOf(t, r, "a"), 1)
	requireUnfit(t, poolOf(t, r, "b"), `pool b: the database says that it is pool "a"`)
}

// requireUnfit wants a pool to be out of service, and closed to everybody.
func requireUnfit(t *testing.T, p *routing.Pool, why string) {
	t.Helper()
	requireDown(t, p, why)
	require.ErrorContains(t, p.Unfit(), why)
	require.ErrorContains(t, p.Outage(), why)
	require.ErrorContains(t, p.Jobs().Ping(t.Context()), why)
	require.ErrorContains(t, execTenants(t.Context(), p, "-- ping"), why)
}

// Jobs may depend on the older ledger; the newer one can be made again.
func TestStart_keepsTheNewerOfTwoWithOneNumberOut(t *testing.T) {
	t.Parallel()
	dsnA, dsnB := storetest.DSN(t, "a", 7), storetest.DSN(t, "b", 7)
	exec(t, dsnB, "UPDATE tenure.migration SET tstamp = '2020-01-01'")
	r := started(t, withPools(map[string]string{"a": dsnA, "b": dsnB, "c": storetest.DSN(t, "c", 8)}))
	requireUp(t, poolOf(t, r, "b"), 7)
	requireUp(t, poolOf(t, r, "c"), 8)
	requireUnfit(t, poolOf(t, r, "a"), "pool a: it has the same number 7 as pool b, so their job ids would collide: they were migrated apart; migrate new pools with one configuration that names all of them")
}

// What somebody has to mend in one pool does not keep the others from being worked on, and
// nobody has to start the node again once it is mended.
func TestStart_keepsOutWhatCannotBeUsed(t *testing.T) {
	t.Parallel()
	role := func(t *testing.T, dsn, name string, grants ...string) {
		exec(t, dsn, "CREATE ROLE "+name+" LOGIN")
		t.Cleanup(func() {
			conn, err := pgx.Connect(context.Background(), dsn)
			require.NoError(t, err)
			defer conn.Close(context.Background())
			_, err = conn.Exec(context.Background(), "DROP OWNED BY "+name+"; DROP ROLE "+name)
			require.NoError(t, err)
		})
		for _, g := range grants {
			exec(t, dsn, g)
		}
	}
	as := func(t *testing.T, dsn, user string) string {
		u, err := url.Parse(dsn)
		require.NoError(t, err)
		u.User = url.User(user)
		return u.String()
	}
	unique := fmt.Sprintf("routing_%d_", os.Getpid()) // roles belong to the whole server
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, dsn string) (through string)
		want    string
		mend    func(t *testing.T, dsn string)
	}{
		"not migrated": {
			func(t *testing.T, dsn string) string {
				exec(t, dsn, "ALTER SCHEMA tenure RENAME TO hidden")
				return dsn
			},
			"pool bad: has no ledger: run: tenure migrate --pool bad; if the pool had jobs, restore it first, as they and its number are gone",
			func(t *testing.T, dsn string) { exec(t, dsn, "ALTER SCHEMA hidden RENAME TO tenure") },
		},
		"an older ledger": {
			func(t *testing.T, dsn string) string {
				exec(t, dsn, fmt.Sprintf("UPDATE tenure.migration SET is_applied = false WHERE version_id = %d", store.LedgerVersion()))
				return dsn
			},
			fmt.Sprintf("and this program needs version %d or newer: run: tenure migrate --pool bad", store.LedgerVersion()),
			func(t *testing.T, dsn string) { exec(t, dsn, "UPDATE tenure.migration SET is_applied = true") },
		},
		"a newer ledger": {
			func(t *testing.T, dsn string) string {
				exec(t, dsn, "UPDATE tenure.pool SET oldest_program = 9999")
				return dsn
			},
			"which only programs for version 9999 or newer can work on",
			func(t *testing.T, dsn string) { exec(t, dsn, "UPDATE tenure.pool SET oldest_program = 3") },
		},
		"no such user": {
			func(t *testing.T, dsn string) string { return as(t, dsn, unique+"nobody") },
			`pool bad: its server refuses user "` + unique + `nobody" of database `,
			func(t *testing.T, dsn string) { role(t, dsn, unique+"nobody", "ALTER ROLE "+unique+"nobody SUPERUSER") },
		},
		"a user that may not connect": {
			func(t *testing.T, dsn string) string {
				role(t, dsn, unique+"outside", "REVOKE CONNECT ON DATABASE "+databaseOf(t, dsn)+" FROM PUBLIC")
				return as(t, dsn, unique+"outside")
			},
			"grant it to that user, or correct the user in the DSN",
			func(t *testing.T, dsn string) { exec(t, dsn, "ALTER ROLE "+unique+"outside SUPERUSER") },
		},
		"a user that may not use the ledger": {
			func(t *testing.T, dsn string) string {
				role(t, dsn, unique+"reader")
				return as(t, dsn, unique+"reader")
			},
			"its user lacks privileges on the ledger",
			func(t *testing.T, dsn string) { exec(t, dsn, "ALTER ROLE "+unique+"reader SUPERUSER") },
		},
		"a server that hides its timeline": {
			func(t *testing.T, dsn string) string {
				role(t, dsn, unique+"owner", "REVOKE EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) FROM PUBLIC",
					"GRANT SELECT ON tenure.pool, tenure.migration TO "+unique+"owner", "ALTER FUNCTION tenure.server_state() OWNER TO "+unique+"owner")
				return dsn
			},
			`pool bad: its server does not let the ledger's owner "` + unique + `owner" read which timeline it is on (permission denied for function pg_walfile_name)`,
			func(t *testing.T, dsn string) { exec(t, dsn, "UPDATE tenure.pool SET storage_keeps_commits = true") },
		},
		"no such database": {
			func(t *testing.T, dsn string) string {
				return strings.Replace(dsn, strings.Trim(databaseOf(t, dsn), `"`), unique+"nowhere", 1)
			},
			"if it is new, create the database, and run: tenure migrate --pool bad",
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := storetest.DSN(t, "bad", 2)
			r := started(t, withPools(map[string]string{"good": storetest.DSN(t, "good", 1), "bad": tc.prepare(t, dsn)}))
			requireUp(t, poolOf(t, r, "good"), 1)
			bad := poolOf(t, r, "bad")
			requireUnfit(t, bad, tc.want)
			if tc.mend != nil {
				tc.mend(t, dsn)
				requireUp(t, bad, 2)
				require.NoError(t, bad.Unfit())
			}
		})
	}
}

// A pool that is out of service is tried again and again, and why is said once.
func TestWatch_saysOnceWhatIsToBeMended(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	tries := make(chan struct{}, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b := pgproto3.NewBackend(c, c)
			if _, err := b.ReceiveStartupMessage(); err == nil {
				b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "wrong password"})
				_ = b.Flush() // the client has gone if this fails
			}
			c.Close()
			tries <- struct{}{}
		}
	}()
	core, logs := observer.New(zap.ErrorLevel)
	r, err := routing.New(withPools(map[string]string{
		"good": storetest.DSN(t, "good", 1), "bad": "postgres://app:hunter2@" + l.Addr().String() + "/app?sslmode=disable",
	}), zap.New(core))
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context()))
	defer func() { require.NoError(t, r.Stop(context.WithoutCancel(t.Context()))) }()
	for range 4 {
		select {
		case <-tries:
		case <-time.After(patience):
			require.Fail(t, "it should be tried again")
		}
	}
	said := logs.FilterMessageSnippet("out of service").All()
	require.Len(t, said, 1)
	require.NotContains(t, fmt.Sprint(said[0].ContextMap()), "hunter2")
}

// A pool that comes up later is looked at as closely.
func TestWatch_keepsOneNumberTwiceOut(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "b", 7)
	away := shutterOf(t, dsn)
	away.close(t)
	r := started(t, withPools(map[string]string{"a": storetest.DSN(t, "a", 7), "b": dsn}))
	requireUp(t, poolOf(t, r, "a"), 7)
	b := poolOf(t, r, "b")
	requireDown(t, b, "not currently accepting connections")
	away.open(t)
	require.Eventually(t, func() bool {
		_, err := b.Number()
		return err != nil && strings.Contains(err.Error(), "pool b: it has the same number 7 as pool a")
	}, patience, 5*time.Millisecond)
	requireDown(t, b, "collide")
}

// When no pool can be used, that is more likely a mistake than an outage.
func TestStart_refusesWhenNoPoolCanBeUsed(t *testing.T) {
	t.Parallel()
	readOnly := storetest.DSN(t, "d", 4)
	exec(t, readOnly, "ALTER DATABASE "+databaseOf(t, readOnly)+" SET default_transaction_read_only = on")
	away := storetest.DSN(t, "e", 5)
	shutterOf(t, away).close(t)
	none := map[string]string{
		"b": pgtest.Database(t),
		"c": storetest.DSN(t, "x", 3),
		"d": readOnly,
		"f": pgtest.Database(t),
	}
	r := newRouter(t, withPools(none))
	err := r.Start(t.Context())
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 4, "%v", err)
	for i, want := range []string{"pool b: has no ledger", `pool c: the database says that it is pool "x"`, "pool d: its transactions are read-only", "pool f: has no ledger"} {
		require.Contains(t, lines[i], want, "in order of their names")
	}
	none["e"] = away // which may come back by itself
	requireDown(t, poolOf(t, started(t, withPools(none)), "e"), "not currently accepting connections")
}

func TestStart_doesNotWaitForAPoolThatIsDown(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "down", 2)
	away := shutterOf(t, dsn)
	away.close(t)
	r := started(t, withPools(map[string]string{"main": storetest.DSN(t, "main", 1), "down": dsn}))
	requireUp(t, poolOf(t, r, "main"), 1)
	down := poolOf(t, r, "down")
	requireDown(t, down, "not currently accepting connections")
	require.Error(t, down.Jobs().Ping(t.Context()))
	require.Error(t, execTenants(t.Context(), down, "-- ping"))
	_, err := down.ConnectLock(t.Context())
	require.ErrorContains(t, err, "connect to pool down: ")

	away.open(t)
	requireUp(t, down, 2)
}

// While a pool is down its database may have been exchanged: it is kept out, and
// let in when it is mended, without a restart.
func TestWatch_letsInOnlyWhatCanBeUsed(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	away := shutterOf(t, dsn)
	conn := connect(t, dsn)
	_, err := conn.Exec(t.Context(), "UPDATE tenure.pool SET name = 'other'")
	require.NoError(t, err)
	away.close(t)
	r := started(t, withPools(map[string]string{"main": dsn}))
	p := poolOf(t, r, "main")
	requireDown(t, p, "not currently accepting connections")

	away.open(t)
	require.Eventually(t, func() bool {
		_, err := p.Number()
		return strings.Contains(err.Error(), `pool main: the database says that it is pool "other"`)
	}, patience, 5*time.Millisecond)
	exec(t, dsn, "UPDATE tenure.pool SET name = 'main'")
	requireUp(t, p, 1)
}

func TestStart_boundsTheLookAtADatabaseThatHangs(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	dsn := fmt.Sprintf("postgres://app@%s/app?sslmode=disable&connect_timeout=600", l.Addr())

	r := newRouter(t, withPools(map[string]string{"hangs": dsn, "main": storetest.DSN(t, "main", 1)}))
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // as under Fx
	defer cancel()
	require.NoError(t, r.Start(ctx))
	require.NoError(t, ctx.Err())
	requireUp(t, poolOf(t, r, "main"), 1)
	requireDown(t, poolOf(t, r, "hangs"), "connect to pool hangs: ")
	require.NoError(t, r.Stop(ctx), "nor does it keep Stop")
}

// A whole server goes and comes back, as one that was up and as one that was not.
func TestPool_survivesACrash(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Options{TCP: true})
	require.NoError(t, server.CreateDatabase(t.Context(), "ledger"))
	dsn := server.DSN("ledger")
	require.NoError(t, storetest.Prepare(t.Context(), dsn, "main", 1))
	exec(t, dsn, "CHECKPOINT") // the server does not sync
	cfg := withPools(map[string]string{"main": dsn})
	up := started(t, cfg)
	requireUp(t, poolOf(t, up, "main"), 1)

	require.NoError(t, server.Crash(t.Context()))
	require.Error(t, poolOf(t, up, "main").Jobs().Ping(t.Context()))
	later := started(t, cfg)
	requireDown(t, poolOf(t, later, "main"), "connect to pool main: ")

	require.NoError(t, server.Resume(t.Context()))
	requireUp(t, poolOf(t, later, "main"), 1)
	require.Eventually(t, func() bool { // broken connections are found out by using them
		return poolOf(t, up, "main").Jobs().Ping(t.Context()) == nil && execTenants(t.Context(), poolOf(t, up, "main"), "-- ping") == nil
	}, patience, 5*time.Millisecond)
	requireUp(t, poolOf(t, up, "main"), 1)

	t.Run("a wrong password is told nobody", func(t *testing.T) {
		real, err := pgx.ParseConfig(server.TCPDSN("ledger"))
		require.NoError(t, err)
		r := newRouter(t, withPools(map[string]string{"main": strings.ReplaceAll(server.TCPDSN("ledger"), real.Password, "hunter2")}))
		err = r.Start(t.Context())
		require.ErrorContains(t, err, `pool main: its server refuses user "postgres" of database "ledger": password authentication failed`)
		require.NotContains(t, err.Error(), "hunter2")
		p := poolOf(t, r, "main")
		requireDown(t, p, "password authentication failed")
	})
}

func TestStop_closesEveryConnection(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	r := started(t, withPools(map[string]string{"main": dsn}))
	requireUp(t, poolOf(t, r, "main"), 1)
	var n int
	require.NoError(t, connect(t, dsn).QueryRow(t.Context(), sessions).Scan(&n))
	require.Positive(t, n)

	errs := make([]error, 4)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { errs[i] = r.Stop(context.Background()) })
	}
	group.Wait()
	require.NoError(t, errors.Join(errs...))
	requireNoSessions(t, dsn)
	require.NoError(t, r.Stop(context.Background()))
	require.Error(t, poolOf(t, r, "main").Jobs().Ping(t.Context()))
}

func TestStop_withoutStart(t *testing.T) {
	t.Parallel()
	r, err := routing.New(good(), zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, r.Stop(context.Background()))
	require.NoError(t, r.Stop(context.Background()))
}

func TestStop_whileAPoolIsDown(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	shutterOf(t, dsn).close(t)
	r := started(t, withPools(map[string]string{"main": dsn}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, r.Stop(ctx))
	requireDown(t, poolOf(t, r, "main"), "pool is down")
}

// Somebody has not given a connection back. Stop says so in time, and the
// connection is closed when it comes.
func TestStop_waitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	r := started(t, withPools(map[string]string{"main": dsn}))
	c, err := poolOf(t, r, "main").Tenants().Acquire(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = r.Stop(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "connections are still in use")
	require.NoError(t, c.Ping(t.Context()), "it is not taken away")

	c.Release()
	require.NoError(t, r.Stop(t.Context()))
	requireNoSessions(t, dsn)
}
