package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg"
)

func TestMain(m *testing.M) { Main(m) }

func exec(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

func query[T any](t *testing.T, dsn, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	var v T
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&v))
	return v
}

func TestDatabase_isFreshAndDropped(t *testing.T) {
	t.Parallel()
	var dsn string
	t.Run("lent", func(t *testing.T) {
		dsn = Database(t)
		require.NotEqual(t, dsn, Database(t))
		require.Zero(t, query[int](t, dsn, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"))
	})
	const gone = "3D000"
	var pgErr interface{ SQLState() string }
	require.ErrorAs(t, exec(t.Context(), dsn, "SELECT 1"), &pgErr)
	require.Equal(t, gone, pgErr.SQLState())
}

func TestClone_isolatesAndPreparesOnce(t *testing.T) {
	t.Parallel()
	key := rand.Text() // of this run only, for -count
	var prepared atomic.Int32
	prepare := func(ctx context.Context, dsn string) error {
		prepared.Add(1)
		return exec(ctx, dsn, "CREATE TABLE things (id int); INSERT INTO things VALUES (1)")
	}
	t.Run("parallel", func(t *testing.T) {
		for range 8 {
			t.Run("clone", func(t *testing.T) {
				t.Parallel()
				dsn := Clone(t, key, prepare)
				require.Equal(t, 1, query[int](t, dsn, "SELECT count(*) FROM things"))
				require.NoError(t, exec(t.Context(), dsn, "INSERT INTO things VALUES (2)"))
				require.Equal(t, 2, query[int](t, dsn, "SELECT count(*) FROM things"))
			})
		}
	})
	require.EqualValues(t, 1, prepared.Load())
}

func TestClone_cutsConnectionsLeftOpen(t *testing.T) {
	t.Parallel()
	var left *pgx.Conn
	dsn := Clone(t, "leaks "+rand.Text(), func(ctx context.Context, dsn string) (err error) {
		left, err = pgx.Connect(ctx, dsn)
		return err
	})
	require.Equal(t, 1, query[int](t, dsn, "SELECT 1"))
	require.Error(t, left.Ping(t.Context()))
}

// fakeTB stands in for a test that fails, without failing this one.
type fakeTB struct {
	testing.TB
	cleanups []func()
	log      strings.Builder
	fatal    bool
}

func (f *fakeTB) Helper()               {}
func (f *fakeTB) Failed() bool          { return true }
func (f *fakeTB) Cleanup(g func())      { f.cleanups = append(f.cleanups, g) }
func (f *fakeTB) Fatal(...any)          { f.fatal = true; panic(f) }
func (f *fakeTB) Fatalf(string, ...any) { f.fatal = true; panic(f) }
func (f *fakeTB) Logf(format string, args ...any) {
	for _, a := range args {
		f.log.WriteString(a.(string))
	}
}

func (f *fakeTB) end() {
	for len(f.cleanups) > 0 {
		last := len(f.cleanups) - 1
		g := f.cleanups[last]
		f.cleanups = f.cleanups[:last]
		g()
	}
}

func TestDatabase_isKeptByAFailedTest(t *testing.T) {
	t.Parallel()
	failing := &fakeTB{TB: t}
	dsn := Database(failing)
	failing.end()
	require.Contains(t, failing.log.String(), dsn)
	require.Equal(t, 1, query[int](t, dsn, "SELECT 1"))
}

func TestClone_reportsAFailedPrepareToEveryTest(t *testing.T) {
	t.Parallel()
	for range 2 {
		failing := &fakeTB{TB: t}
		require.Panics(t, func() {
			Clone(failing, "broken", func(context.Context, string) error { return errors.New("no") })
		})
		require.True(t, failing.fatal)
		failing.end()
	}
}

func TestNewName_fitsPostgres(t *testing.T) {
	t.Parallel()
	name := newName("TestÜber/" + strings.Repeat("long", 40))
	require.LessOrEqual(t, len(name), 63)
	require.Regexp(t, `^[a-z0-9_]+$`, name)
}

func TestServer_isTheTestsOwn(t *testing.T) {
	t.Parallel()
	s := Server(t, devpg.Options{})
	require.NoError(t, s.Restart(t.Context(), true))
	require.Equal(t, 1, query[int](t, s.DSN("postgres"), "SELECT 1"))
}

func TestOpen_usesAGivenServerAndCleansIt(t *testing.T) {
	given := Server(t, devpg.Options{})
	t.Setenv(URLEnv, given.DSN("postgres"))
	s, err := open(t.Context())
	require.NoError(t, err)

	tmpl := s.template("key")
	require.Same(t, tmpl, s.template("key"))
	tmpl.prepare(t.Context(), s, "template0", func(ctx context.Context, dsn string) error {
		return exec(ctx, dsn, "CREATE TABLE things (id int)")
	})
	require.NoError(t, tmpl.err)
	require.NoError(t, s.CloneDatabase(t.Context(), tmpl.name, "copy"))
	require.Zero(t, query[int](t, given.DSN("copy"), "SELECT count(*) FROM things"))

	require.NoError(t, s.close(t.Context()))
	require.Zero(t, query[int](t, given.DSN("postgres"), "SELECT count(*) FROM pg_database WHERE datname = '"+tmpl.name+"'"))
}

func TestShared_stopsWithItsLastUser(t *testing.T) {
	t.Parallel()
	var c shared
	c.hold()
	c.hold()
	s, err := c.get(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.release())
	again, err := c.get(t.Context())
	require.NoError(t, err)
	require.Same(t, s, again)
	require.NoError(t, exec(t.Context(), s.DSN("postgres"), "SELECT 1"))

	require.NoError(t, c.release())
	require.Nil(t, c.server)
	if s.stop != nil {
		require.Error(t, exec(t.Context(), s.DSN("postgres"), "SELECT 1"))
	}
}

func BenchmarkClone(b *testing.B) {
	prepare := func(ctx context.Context, dsn string) error {
		return exec(ctx, dsn, "CREATE TABLE things (id int); INSERT INTO things SELECT generate_series(1, 1000)")
	}
	Clone(b, "bench", prepare)
	for b.Loop() {
		Clone(b, "bench", prepare)
	}
}
