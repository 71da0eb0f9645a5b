package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tenurehq/tenure/internal/devpg"
)

// URLEnv names the environment variable that replaces the embedded server.
const URLEnv = "TEST_DATABASE_URL"

// cleanLimit bounds each cleaning up: a test that hangs at its end says less
// than one that fails.
const cleanLimit = 30 * time.Second

// forAll is how many connections the shared server takes: eight tests with clusters of
// their own had 190 at once, and one that is refused a connection says nothing of its own.
const forAll = 600

// Main runs the tests of a package, stops the shared server and fails the run
// when a goroutine is left over. It exits the process.
func Main(m *testing.M, options ...goleak.Option) {
	goleak.VerifyTestMain(runner{m}, options...)
}

// Run is Main without the search for leaks and without the exit, for tests of
// programs whose libraries leave goroutines behind.
func Run(m *testing.M) int { return runner{m}.Run() }

type runner struct{ m *testing.M }

// Run stops the server before goleak looks: the server's goroutine is no leak.
func (r runner) Run() int {
	flag.Parse()
	if testing.Short() && flag.Lookup("rapid.seed") != nil {
		// What chance may find holds up nobody's change: rapid draws anew where nothing is left out, in make verify.
		_ = flag.Set("rapid.seed", "1")
		flag.Parse() // of who gives a seed, that
	}
	common.hold()
	code := r.m.Run()
	if err := common.release(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	return code
}

// Database returns the DSN of a fresh, empty database. It is dropped when the
// test passes and kept when it fails.
func Database(t testing.TB) string {
	t.Helper()
	return use(t).lend(t, "template0")
}

// Clone returns the DSN of a fresh copy of a template that prepare filled once
// in this process; key tells templates apart. prepare must not keep connections:
// those that are left are cut.
func Clone(t testing.TB, key string, prepare func(ctx context.Context, dsn string) error) string {
	t.Helper()
	s := use(t)
	return s.lend(t, s.prepared(t, key, "template0", prepare))
}

// CloneOf is Clone of a template that is a copy of another one, which prepare filled, and
// which finish made different from others of its copies.
func CloneOf(t testing.TB, base string, prepare func(ctx context.Context, dsn string) error, key string, finish func(ctx context.Context, dsn string) error) string {
	t.Helper()
	s := use(t)
	return s.lend(t, s.prepared(t, key, s.prepared(t, base, "template0", prepare), finish))
}

// Server gives a test a server of its own, to be crashed; TEST_DATABASE_URL has
// no effect on it. It stops when the test ends.
func Server(t testing.TB, o devpg.Options) *devpg.Server {
	t.Helper()
	s, err := devpg.Start(t.Context(), o)
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanLimit)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error("pgtest:", err)
		}
	})
	return s
}

// lend makes a copy of a template.
func (s *server) lend(t testing.TB, template string) string {
	t.Helper()
	name := newName(t.Name())
	if err := s.CloneDatabase(t.Context(), template, name); err != nil {
		t.Fatal("pgtest:", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("pgtest: kept %s%s", s.DSN(name), s.keepHint)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), cleanLimit)
		defer cancel()
		if err := s.DropDatabase(ctx, name); err != nil {
			t.Error("pgtest:", err)
		}
	})
	return s.DSN(name)
}

// newName is unique also among processes that share a server, and short enough
// for PostgreSQL, which cuts at 63 bytes.
func newName(test string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(test))
	return "tenure_" + plain[:min(len(plain), 40)] + "_" + strings.ToLower(rand.Text()[:12])
}

// common is the server that the tests of this process share.
var common shared

type shared struct {
	mu      sync.Mutex
	users   int     // tests, and Main
	server  *server // nil: not started, or stopped with its last user
	failure error   // of a start; not tried again, since every test would wait for it
}

func use(t testing.TB) *server {
	t.Helper()
	common.hold()
	t.Cleanup(func() { // registered before the drop, so it runs after
		if err := common.release(); err != nil {
			t.Error("pgtest:", err)
		}
	})
	s, err := common.get(t.Context())
	if err != nil {
		t.Fatal("pgtest:", err)
	}
	return s
}

func (c *shared) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
}

func (c *shared) get(ctx context.Context) (*server, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil && c.failure == nil {
		c.server, c.failure = open(ctx)
	}
	return c.server, c.failure
}

func (c *shared) release() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users--
	if c.users > 0 || c.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanLimit)
	defer cancel()
	err := c.server.close(ctx)
	c.server = nil
	return err
}

// server is an embedded or a given one.
type server struct {
	*devpg.Databases
	stop     func(context.Context) error // nil when the server is not ours
	keepHint string

	mu        sync.Mutex
	templates map[string]*template
}

func open(ctx context.Context) (*server, error) {
	if url := os.Getenv(URLEnv); url != "" {
		d, err := devpg.At(url)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", URLEnv, err)
		}
		return &server{Databases: d, templates: map[string]*template{}}, nil
	}
	s, err := devpg.Start(ctx, devpg.Options{MaxConnections: forAll})
	if err != nil {
		return nil, err
	}
	return &server{
		Databases: s.Databases, stop: s.Stop, templates: map[string]*template{},
		keepHint: " as long as this process runs; to look at it later, run the test with " + URLEnv + " set",
	}, nil
}

func (s *server) close(ctx context.Context) error {
	if s.stop != nil {
		return s.stop(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var faults []error
	for _, t := range s.templates {
		faults = append(faults, s.DropDatabase(ctx, t.name))
	}
	return errors.Join(faults...)
}

// prepared is the name of a template, which is made of a copy of from unless it has been.
func (s *server) prepared(t testing.TB, key, from string, fill func(ctx context.Context, dsn string) error) string {
	t.Helper()
	tmpl := s.template(key)
	tmpl.once.Do(func() { tmpl.prepare(t.Context(), s, from, fill) })
	if tmpl.err != nil {
		t.Fatalf("pgtest: prepare template %q: %v", key, tmpl.err)
	}
	return tmpl.name
}

func (s *server) template(key string) *template {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.templates[key]
	if !ok {
		t = &template{name: newName("template_" + key)}
		s.templates[key] = t
	}
	return t
}

type template struct {
	name string
	once sync.Once
	err  error // written in once
}

func (t *template) prepare(ctx context.Context, s *server, from string, fill func(context.Context, string) error) {
	t.err = errors.New("it did not return") // a t.FailNow or panic inside fill leaves it so
	if err := s.CloneDatabase(ctx, from, t.name); err != nil {
		t.err = err
		return
	}
	if err := fill(ctx, s.DSN(t.name)); err != nil {
		t.err = err
		return
	}
	t.err = s.CloseDatabase(ctx, t.name)
}
