//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package devpg

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func setup(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	return s
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func run(ctx context.Context, dsn, sql string) error {
	d, err := At(dsn)
	if err != nil {
		return err
	}
	return d.exec(ctx, sql)
}

func value[T any](t *testing.T, dsn, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	var v T
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&v))
	return v
}

func setting(t *testing.T, s *Server, name string) string {
	t.Helper()
	return value[string](t, s.DSN("postgres"), "SELECT current_setting('"+name+"')")
}

func TestStart_isFastAndPrivate(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{Settings: map[string]string{"work_mem": "1MB", "max_connections": "33"}})
	require.Equal(t, "off", setting(t, s, "fsync"))
	require.Equal(t, "off", setting(t, s, "synchronous_commit"))
	require.Equal(t, "off", setting(t, s, "full_page_writes"))
	require.Equal(t, "64MB", setting(t, s, "shared_buffers"))
	require.Equal(t, "1MB", setting(t, s, "work_mem"))
	require.Equal(t, "33", setting(t, s, "max_connections"), "settings override options")
	require.Empty(t, setting(t, s, "listen_addresses"))

	info, err := os.Stat(s.dir.path)
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|0o700, info.Mode())
	require.NoFileExists(t, filepath.Join(s.dir.path, "password"))
	require.Panics(t, func() { s.TCPDSN("postgres") })
}

func TestStart_durableKeepsDefaults(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{Durable: true, SharedBuffers: "32MB", MaxConnections: 20})
	require.Equal(t, "on", setting(t, s, "fsync"))
	require.Equal(t, "on", setting(t, s, "synchronous_commit"))
	require.Equal(t, "on", setting(t, s, "full_page_writes"))
	require.Equal(t, "32MB", setting(t, s, "shared_buffers"))
	require.Equal(t, "20", setting(t, s, "max_connections"))
	require.NotEqual(t, memoryDir, filepath.Dir(s.dir.path))
}

func TestStart_durableInMemory(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{Durable: true, InMemory: true, SharedBuffers: "32MB"})
	require.Equal(t, "on", setting(t, s, "fsync"))
	require.Equal(t, chooseBase(Options{}), filepath.Dir(s.dir.path), "where all others are that may be lost")
}

func TestStart_onTCPAsksForThePassword(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{TCP: true})
	require.Equal(t, "postgres", value[string](t, s.TCPDSN("postgres"), "SELECT current_database()::text"))
	require.Equal(t, "postgres", value[string](t, s.DSN("postgres"), "SELECT current_database()::text"))

	const wrongPassword = "28P01"
	var pgErr interface{ SQLState() string }
	wrong := strings.Replace(s.TCPDSN("postgres"), s.password, "guess", 1)
	require.ErrorAs(t, run(t.Context(), wrong, "SELECT 1"), &pgErr)
	require.Equal(t, wrongPassword, pgErr.SQLState())
}

// openTemp is a temporary directory that, unlike t.TempDir, other users may enter.
func openTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "devpg-test-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func TestStart_failedLeavesNothing(t *testing.T) {
	base := openTemp(t)
	t.Setenv("TMPDIR", base)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Start(ctx, Options{})
	require.ErrorIs(t, err, context.Canceled)

	_, err = Start(t.Context(), Options{Settings: map[string]string{"no_such_setting": "1"}})
	require.ErrorContains(t, err, "no_such_setting", "the error must show what postgres said")

	entries, err := os.ReadDir(base)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestStart_serversSideBySide(t *testing.T) {
	t.Parallel()
	a, b := setup(t, Options{}), setup(t, Options{TCP: true})
	require.NoError(t, a.CreateDatabase(t.Context(), "only_a"))
	require.NoError(t, a.Stop(t.Context()))
	require.Error(t, run(t.Context(), b.DSN("only_a"), "SELECT 1"))
	require.NoError(t, run(t.Context(), b.DSN("postgres"), "SELECT 1"))
}

func TestStop_removesEverythingAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{})
	conn := connect(t, s.DSN("postgres"))
	require.NoError(t, s.Stop(t.Context()))
	require.NoDirExists(t, s.dir.path)
	require.Error(t, conn.Ping(t.Context()), "sessions are ended, not waited for")

	require.NoError(t, s.Stop(t.Context()))
	require.ErrorIs(t, s.Resume(t.Context()), errStopped)
	require.ErrorIs(t, s.Crash(t.Context()), errStopped)
	require.ErrorIs(t, s.Restart(t.Context(), false), errStopped)
}

func TestStop_outOfTimeStillRemovesEverything(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, s.Stop(ctx))
	require.NoDirExists(t, s.dir.path)
}

func TestStop_afterPostgresDiedByItself(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{})
	// Not SIGKILL, after which postgres leaves shared memory behind.
	require.NoError(t, s.proc.cmd.Process.Signal(syscall.SIGQUIT))
	<-s.proc.exited
	require.NoError(t, s.Stop(t.Context()))
	require.NoDirExists(t, s.dir.path)
}

func TestRestart_keepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{Durable: true, SharedBuffers: "32MB", TCP: true})
	ctx := t.Context()
	dsn, tcp := s.DSN("postgres"), s.TCPDSN("postgres")
	require.NoError(t, run(ctx, dsn, "CREATE TABLE things (id int)"))
	open := connect(t, dsn)
	_, err := open.Exec(ctx, "BEGIN; INSERT INTO things VALUES (99)")
	require.NoError(t, err)

	for id, immediate := range []bool{true, false} {
		require.NoError(t, run(ctx, dsn, "INSERT INTO things VALUES ("+string(rune('0'+id))+")"))
		require.NoError(t, s.Restart(ctx, immediate))
		require.Error(t, open.Ping(ctx))
		require.Equal(t, id+1, value[int](t, dsn, "SELECT count(*) FROM things"))
	}
	require.Equal(t, 2, value[int](t, tcp, "SELECT count(*) FROM things"), "the port stays")
}

func TestCrash_isDownUntilResumed(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{})
	ctx := t.Context()
	require.NoError(t, s.Resume(ctx), "resuming a running server does nothing")
	require.NoError(t, s.Crash(ctx))
	require.NoError(t, s.Crash(ctx))
	require.Error(t, run(ctx, s.DSN("postgres"), "SELECT 1"))
	require.NoError(t, s.Resume(ctx))
	require.NoError(t, run(ctx, s.DSN("postgres"), "SELECT 1"))
}

func TestStandby_followsUntilItIsPromoted(t *testing.T) {
	t.Parallel()
	s := setup(t, Options{Settings: map[string]string{"synchronous_commit": "on"}})
	if _, err := os.Stat(filepath.Join(s.bin, "pg_basebackup")); err != nil {
		t.Skip("not installed: ", err)
	}
	require.NoError(t, run(t.Context(), s.DSN("postgres"), "CREATE TABLE thing AS SELECT 1 AS n"))
	standby, err := s.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop(context.Background())) })
	require.NoError(t, run(t.Context(), s.DSN("postgres"), "INSERT INTO thing VALUES (2)"))
	require.Eventually(t, func() bool {
		return value[int](t, standby.DSN("postgres"), "SELECT count(*) FROM thing") == 2
	}, 10*time.Second, 10*time.Millisecond)

	require.NoError(t, s.Stop(t.Context()))
	require.True(t, value[bool](t, standby.DSN("postgres"), "SELECT pg_promote()"))
	require.NoError(t, run(t.Context(), standby.DSN("postgres"), "INSERT INTO thing VALUES (3)"))
}

// parent starts this binary as the parent of a server and kills it the hard way.
func parent(t *testing.T) (dir string, kill func()) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			_ = stdin.Close()
		}
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line), kill
}

func TestSweep_removesWhatAKilledParentLeft(t *testing.T) {
	t.Parallel()
	dir, kill := parent(t)
	require.True(t, answers(dir))
	sweep(filepath.Dir(dir))
	require.DirExists(t, dir, "its parent lives")

	kill()
	// postgres removes its pid file last.
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "data", "postmaster.pid"))
		return os.IsNotExist(err)
	}, 5*time.Second, 10*time.Millisecond, "postgres must end with its parent")
	require.Eventually(t, func() bool {
		sweep(filepath.Dir(dir))
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	}, 5*time.Second, 10*time.Millisecond)
}

func TestSweep_leavesOthersAlone(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	fresh := filepath.Join(base, dirPrefix+"fresh")
	old := filepath.Join(base, dirPrefix+"old")
	dead := filepath.Join(base, dirPrefix+"dead")
	other := filepath.Join(base, "other")
	for _, dir := range []string{fresh, old, dead, other} {
		require.NoError(t, os.Mkdir(dir, 0o700))
	}
	link := filepath.Join(base, dirPrefix+"link")
	require.NoError(t, os.Symlink(other, link))
	pipe := filepath.Join(base, dirPrefix+"pipe")
	require.NoError(t, os.Mkdir(pipe, 0o700))
	require.NoError(t, syscall.Mkfifo(filepath.Join(pipe, ownerFile), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dead, ownerFile), []byte("1\n"), 0o600))
	closed := filepath.Join(base, dirPrefix+"closed")
	require.NoError(t, os.Mkdir(closed, 0o700))
	require.NoError(t, os.Symlink(other, filepath.Join(closed, ownerFile))) // cannot be opened, as if it were another user's
	long := time.Now().Add(-2 * time.Hour)
	for _, dir := range []string{old, closed} {
		require.NoError(t, os.Chtimes(dir, long, long))
	}

	living, err := newDirectory(base)
	require.NoError(t, err)
	defer func() { require.NoError(t, living.remove()) }()

	sweep(base) // must not hang at the pipe
	require.DirExists(t, fresh, "its parent may be about to lock it")
	require.DirExists(t, living.path)
	require.DirExists(t, other)
	require.DirExists(t, closed, "its parent may live")
	require.NoDirExists(t, old)
	require.NoDirExists(t, dead)
	_, err = os.Lstat(link)
	require.NoError(t, err)
}

func TestDiskBase_isShort(t *testing.T) {
	t.Setenv("TMPDIR", "/"+strings.Repeat("x", 80))
	require.Equal(t, "/tmp", diskBase())
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		s, err := Start(b.Context(), Options{})
		require.NoError(b, err)
		require.NoError(b, s.Stop(b.Context()))
	}
}
