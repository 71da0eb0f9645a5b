package devpg

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options of a server; the zero value is a fast throwaway.
type Options struct {
	// Durable keeps PostgreSQL's default durability, for benchmarks and crash tests. Otherwise fsync,
	// full_page_writes and synchronous_commit are off, and on Linux the data is in memory if there is room to
	// spare and TMPDIR is not set.
	Durable bool
	// InMemory puts a durable server's data into memory too, where there is room. It does all that it does for
	// durability, but no time depends on a disk.
	InMemory bool
	// MaxConnections is 200 when zero.
	MaxConnections int
	// SharedBuffers is 64MB when empty, 512MB when durable.
	SharedBuffers string
	// Settings are further server settings; they override all others.
	Settings map[string]string
	// TCP also listens on a free port of 127.0.0.1, with a random password; see [Server.TCPDSN].
	TCP bool
}

// superuser owns the cluster; the name is what tools expect.
const superuser = "postgres"

// startLimit bounds one start of postgres when the caller's context does not;
// recovery after a crash under load is the slowest.
const startLimit = 2 * time.Minute

var (
	errSlowStart = errors.New("postgres did not answer in " + startLimit.String())
	errStopped   = errors.New("the server was stopped")
)

// Server is a running PostgreSQL of ours.
type Server struct {
	*Databases

	options  Options
	bin      string
	dir      *directory
	as       identity
	port     int
	password string

	mu      sync.Mutex // held through every start and stop
	proc    *process   // the last one started; nil when it was ended by us
	stopped bool
}

// Start makes a cluster, starts it and waits until it answers. The context
// bounds the start only; the server runs until [Server.Stop] or the end of this
// process. Without binaries the error is [ErrNotFound].
func Start(ctx context.Context, o Options) (*Server, error) {
	bin, err := Find()
	if err != nil {
		return nil, err
	}
	users, err := identities()
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	for _, base := range bases() {
		sweep(base)
	}
	return start(ctx, bin, o, users)
}

func start(ctx context.Context, bin string, o Options, users []identity) (*Server, error) {
	s := &Server{options: o, bin: bin, port: socketPort, password: rand.Text()}
	return s.begin(ctx, func() error { return s.create(ctx, users) })
}

// begin starts the server for the first time, on the data that fill puts into its directory.
func (s *Server) begin(ctx context.Context, fill func() error) (_ *Server, err error) {
	if s.dir, err = newDirectory(chooseBase(s.options)); err != nil {
		return nil, fmt.Errorf("make a directory for PostgreSQL: %w", err)
	}
	if err = fill(); err == nil {
		err = s.firstLaunch(ctx)
	}
	if err != nil {
		_ = s.dir.remove() // what is left, the next start sweeps
		return nil, err
	}
	return s, nil
}

// create runs initdb as the first user that the system lets us be.
func (s *Server) create(ctx context.Context, users []identity) error {
	passwordFile := filepath.Join(s.dir.path, "password")
	if err := os.WriteFile(passwordFile, []byte(s.password), 0o600); err != nil {
		return err
	}
	args := []string{
		"--pgdata", s.dir.data(), "--username", superuser, "--pwfile", passwordFile,
		"--auth-local", "trust", "--auth-host", "scram-sha-256", "--encoding", "UTF8", "--locale", "C",
	}
	if !s.options.Durable {
		args = append(args, "--no-sync")
	}
	var faults []error
	for _, user := range users {
		err := s.initdb(ctx, user, passwordFile, args)
		if err == nil {
			s.as = user
			return os.Remove(passwordFile)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("initdb: %w", context.Cause(ctx))
		}
		faults = append(faults, fmt.Errorf("initdb as %s: %w", user.name, err))
		_ = os.RemoveAll(s.dir.data())
	}
	return fmt.Errorf("%w\n%s", errors.Join(faults...), s.dir.logTail())
}

func (s *Server) initdb(ctx context.Context, as identity, passwordFile string, args []string) error {
	for _, path := range []string{passwordFile, s.dir.path} {
		if err := os.Lchown(path, as.uid, as.gid); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), args...)
	s.prepare(cmd, as)
	return runProcess(cmd)
}

// prepare runs a command where its user can be: the current directory may be closed to it.
func (s *Server) prepare(cmd *exec.Cmd, as identity) {
	cmd.Dir = s.dir.path
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = s.dir.log, s.dir.log
	cmd.SysProcAttr = as.attr()
}

// firstLaunch chooses the port. Between our choice and postgres' use of it
// somebody else may take it, so it tries again with another.
func (s *Server) firstLaunch(ctx context.Context) error {
	attempts := 1
	if s.options.TCP {
		attempts = 3
	}
	var err error
	for range attempts {
		if s.options.TCP {
			if s.port, err = freePort(); err != nil {
				return fmt.Errorf("choose a port: %w", err)
			}
		}
		s.Databases = &Databases{dsn: s.socketDSN(), copyFiles: !s.options.Durable && s.hasStrategies()}
		if err = s.launch(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// hasStrategies tells whether CREATE DATABASE knows STRATEGY, as of version 15.
func (s *Server) hasStrategies() bool {
	raw, _ := os.ReadFile(filepath.Join(s.dir.data(), "PG_VERSION")) // unreadable: without is always right
	major, _ := strconv.Atoi(strings.TrimSpace(string(raw)))
	return major >= 15
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// launch starts postgres on the data that is there and waits until it answers.
func (s *Server) launch(ctx context.Context) error {
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), s.arguments()...)
	s.prepare(cmd, s.as)
	p, err := startProcess(cmd)
	if err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	if err := s.await(ctx, p); err != nil {
		p.end(ctx, syscall.SIGQUIT)
		return fmt.Errorf("start postgres: %w\n%s", err, s.dir.logTail())
	}
	s.proc = p
	return nil
}

func (s *Server) arguments() []string {
	settings := map[string]string{
		"port":                    strconv.Itoa(s.port),
		"listen_addresses":        "",
		"unix_socket_directories": s.dir.path,
		"unix_socket_permissions": "0700",
		"max_connections":         strconv.Itoa(cmp.Or(s.options.MaxConnections, 200)),
		"shared_buffers":          cmp.Or(s.options.SharedBuffers, "64MB"),
	}
	if s.options.TCP {
		settings["listen_addresses"] = "127.0.0.1"
	}
	if s.options.Durable {
		settings["shared_buffers"] = cmp.Or(s.options.SharedBuffers, "512MB")
	} else {
		settings["fsync"] = "off"
		settings["synchronous_commit"] = "off"
		settings["full_page_writes"] = "off"
	}
	maps.Copy(settings, s.options.Settings)

	args := []string{"-D", s.dir.data()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

func (s *Server) await(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errSlowStart)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.dsn)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-p.exited:
			return fmt.Errorf("it ended: %w", p.err)
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *Server) socketDSN() string {
	// Every part is written out, so that no PG… variable of the environment changes the meaning.
	q := url.Values{"host": {s.dir.path}, "port": {strconv.Itoa(s.port)}, "sslmode": {"disable"}}
	u := url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/" + superuser}
	u.RawQuery = strings.ReplaceAll(q.Encode(), "%2F", "/")
	return u.String()
}

// TCPDSN is the connection string of a database over TCP, with the password in
// it. It panics without [Options.TCP].
func (s *Server) TCPDSN(database string) string {
	if !s.options.TCP {
		panic("devpg: TCPDSN of a server without Options.TCP")
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, s.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Crash ends postgres without letting it tidy up: clients see their connections
// break, and the next start goes through recovery. Crashing a server that is
// down does nothing.
func (s *Server) Crash(ctx context.Context) error {
	return s.halt(ctx, syscall.SIGQUIT)
}

// Halt ends postgres in order; Resume starts it again.
func (s *Server) Halt(ctx context.Context) error {
	return s.halt(ctx, syscall.SIGINT)
}

// Standby starts a server of its own on a copy of this one's data, which follows it
// until it is promoted. It is stopped by itself.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	to := &Server{options: s.options, bin: s.bin, as: s.as, port: socketPort, password: s.password}
	return to.begin(ctx, func() error {
		if err := os.Lchown(to.dir.path, s.as.uid, s.as.gid); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "pg_basebackup"), "--host", s.dir.path, "--port", strconv.Itoa(s.port),
			"--username", superuser, "--pgdata", to.dir.data(), "--checkpoint", "fast", "--no-sync", "--write-recovery-conf")
		to.prepare(cmd, s.as)
		if err := runProcess(cmd); err != nil {
			return fmt.Errorf("copy PostgreSQL's data: %w\n%s", err, to.dir.logTail())
		}
		return nil
	})
}

// Resume starts a crashed server again, on the same data and sockets.
func (s *Server) Resume(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errStopped
	}
	if s.proc != nil && s.proc.alive() {
		return nil
	}
	return s.launch(ctx)
}

// Restart ends postgres, in order or as a crash, and starts it again.
func (s *Server) Restart(ctx context.Context, immediate bool) error {
	sig := syscall.SIGINT
	if immediate {
		sig = syscall.SIGQUIT
	}
	if err := s.halt(ctx, sig); err != nil {
		return err
	}
	return s.Resume(ctx)
}

func (s *Server) halt(ctx context.Context, sig os.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errStopped
	}
	s.end(ctx, sig)
	return nil
}

// end is called with mu held.
func (s *Server) end(ctx context.Context, sig os.Signal) {
	if s.proc != nil {
		s.proc.end(ctx, sig)
		s.proc = nil
	}
}

// Stop shuts the server down and removes its directory. Sessions are ended, not
// waited for. When ctx ends first, the shutdown becomes an immediate one, and
// Stop still returns only when nothing is left. Later calls do nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.end(ctx, syscall.SIGINT)
	s.stopped = true
	if err := s.dir.remove(); err != nil {
		return fmt.Errorf("remove PostgreSQL's directory: %w", err)
	}
	return nil
}
