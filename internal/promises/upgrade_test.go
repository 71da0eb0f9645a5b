package promises_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/release"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
)

// releaseBefore is the newest commit of the release before this one; the programs built
// from it know a ledger of version ledgerBefore, and work on newer ones. Set them after
// each release, together with internal/store/testdata: see docs/upgrades.md.
const (
	releaseBefore = "a8338194519e9ccb916891f6b756604f1cf49508"
	ledgerBefore  = 55
)

// releaseEnv makes this test binary a process of this release: see [release.Run]. Its
// arguments are the configuration and the name.
const releaseEnv = "TENURE_TEST_RELEASE"

func runRelease(role string) int {
	if err := release.Run(role, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[2], err)
		return 1
	}
	return 0
}

// buildRelease compiles internal/release with a commit of this module.
func buildRelease(t *testing.T, commit string) (exe string) {
	t.Helper()
	const repository, program = "../..", "internal/release"
	tree := t.TempDir()
	archive := filepath.Join(tree, "release.tar")
	run(t, repository, "git", "archive", "--format=tar", "-o", archive, commit)
	run(t, tree, "tar", "-xf", archive)
	require.NoError(t, os.RemoveAll(filepath.Join(tree, program))) // the text is this tree's
	require.NoError(t, os.CopyFS(filepath.Join(tree, program), os.DirFS(filepath.Join(repository, program))))
	exe = filepath.Join(tree, "release")
	run(t, tree, "go", "build", "-trimpath", "-o", exe, "./"+program+"/program") // so that the cache knows it the next time
	return exe
}

// command is a process of a release.
func (u *upgrade) command(release, role, file, name string) *exec.Cmd {
	if release == "before" {
		return exec.Command(u.before, role, file, name)
	}
	self, err := os.Executable()
	require.NoError(u.t, err)
	cmd := exec.Command(self, file, name)
	cmd.Env = append(os.Environ(), releaseEnv+"="+role)
	return cmd
}

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
}

// upgrade is a cluster of processes of two releases.
type upgrade struct {
	t      *testing.T
	b      *testbed
	seed   string // where gossip is joined
	before string // the program of the release before

	mu    sync.Mutex
	known []int64 // guarded by mu; ids of jobs that clients know to be enqueued
}

// process is one of them.
type process struct {
	u      *upgrade
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan error
}

// file is the configuration as a user has it, for one process.
func (u *upgrade) file(name string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "node: {name: %s, listen: 'off'}\n", name)
	fmt.Fprintf(&text, "cluster: {bind: '127.0.0.1:0', label: upgrade-%d, profile: local, join: [%s]}\n", os.Getpid(), u.seed)
	// Times to live are as by default: on a busy machine no node is to look dead.
	text.WriteString("acquire: {idle_wait: 200ms}\npools:\n")
	for _, pool := range []string{"p1", "p2"} {
		fmt.Fprintf(&text, "  %s: {dsn: %q, max_conns: 8}\n", pool, u.b.cfg.Pools[pool].DSN)
	}
	text.WriteString("tenants:\n  static: {t1: {pool: p1}, t2: {pool: p1}, t3: {pool: p2}, t4: {pool: p2}}\n")
	path := filepath.Join(u.t.TempDir(), name+".yaml")
	require.NoError(u.t, os.WriteFile(path, []byte(text.String()), 0o600))
	return path
}

// start starts a node or a client of a release, and waits until it runs.
func (u *upgrade) start(release, role, name string) *process {
	u.t.Helper()
	p := &process{u: u, name: release + "/" + name, cmd: u.command(release, role, u.file(name), release), exited: make(chan error, 1)}
	p.cmd.Stderr = u.b.log
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(u.t, err)
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(u.t, err)
	require.NoError(u.t, p.cmd.Start())
	ready := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var id int64
			if _, err := fmt.Sscanf(lines.Text(), "job %d", &id); err == nil {
				u.mu.Lock()
				u.known = append(u.known, id)
				u.mu.Unlock()
			} else {
				ready <- lines.Text()
			}
		}
		p.exited <- p.cmd.Wait()
	}()
	u.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended already unless the test failed
		_ = p.stdin.Close()
	})
	select {
	case line := <-ready:
		if role == "node" {
			u.seed = strings.TrimPrefix(line, "ready ")
		}
	case err := <-p.exited:
		require.FailNow(u.t, "it ended", "%s: %v", p.name, err)
	case <-time.After(patience):
		require.FailNow(u.t, "it does not start", p.name)
	}
	return p
}

// stop ends a process in order, which must succeed: of a client, that all its calls have.
func (p *process) stop() {
	p.u.t.Helper()
	require.NoError(p.u.t, p.stdin.Close())
	select {
	case err := <-p.exited:
		require.NoError(p.u.t, err, p.name)
	case <-time.After(2 * patience):
		require.FailNow(p.u.t, "it does not stop", p.name)
	}
}

// ran is how many jobs of a pool ran on nodes of a release.
func (u *upgrade) ran(pool, release string) (n int) {
	for _, tenant := range map[string][]string{"p1": {"t1", "t2"}, "p2": {"t3", "t4"}}[pool] {
		n += u.b.count(pool, "SELECT count(*) FROM "+tenant+".effect WHERE ran_on = $1", release)
	}
	return n
}

// flows waits until nodes of a release have run more jobs of these pools.
func (u *upgrade) flows(release string, pools ...string) {
	u.t.Helper()
	for _, pool := range pools {
		was := u.ran(pool, release)
		require.Eventually(u.t, func() bool { return u.ran(pool, release) > was+20 }, 2*patience, 20*time.Millisecond,
			"nodes of the release %q should run jobs of %s", release, pool)
	}
}

// holds waits until the locks of both pools are held by a session of a node, by its name.
func (u *upgrade) holds(node string) {
	u.t.Helper()
	for _, pool := range []string{"p1", "p2"} {
		u.b.eventually(1, pool, `SELECT count(*) FROM tenure.acquire_lock l JOIN tenure.node_session s ON s.session_id = l.holder
			WHERE s.node = $1 AND l.expires_at > clock_timestamp()`, node)
	}
}

// Nodes and clients of the release before and of this one work side by side on one ledger,
// in either order, while it is migrated under load: jobs that were enqueued by either, at
// once, for later, in a transaction and failing at first, are neither lost nor doubled.
func TestARollingUpgradeFromTheReleaseBefore(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the release before")
	}
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "git", "cat-file", "-e", releaseBefore+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("the commit of the release before is not in this clone, perhaps because it is shallow (git fetch --unshallow): "+
			"TestEarlierProgramsWorkOnTheNewestLedger in internal/store executes that release's statements all the same: %v: %s", err, out)
	}
	u := &upgrade{t: t, b: &testbed{t: t, cfg: config.Default(), db: map[string]*pgxpool.Pool{}, log: newLogbook(t)},
		before: buildRelease(t, releaseBefore)}
	b := u.b
	b.cfg.Pools = bare(t, b, "p1", "p2")
	out, err := u.command("before", "migrate", u.file("migrate"), "before").CombinedOutput()
	require.NoError(t, err, "%s", out)
	const version = "SELECT max(version_id) FROM tenure.migration"
	require.Equal(t, ledgerBefore, b.count("p1", version))

	// The old nodes hold the locks, the ledgers are migrated under them, a new one joins
	// when one of them is, and the old ones stop.
	old := []*process{u.start("before", "node", "a1"), u.start("before", "node", "b1")}
	clients := []*process{u.start("before", "client", "c1")}
	u.flows("before", "p1", "p2")
	cfg, err := config.Load(u.file("migrate"))
	require.NoError(t, err)
	_, err = operate.Migrate(t.Context(), cfg, "p1")
	require.NoError(t, err)
	require.Equal(t, int(operate.LedgerVersion()), b.count("p1", version))
	u.flows("before", "p1", "p2")
	a2 := u.start("after", "node", "a2")
	old[0].stop()
	u.flows("before", "p2") // which the new one cannot use yet
	_, err = operate.Migrate(t.Context(), cfg)
	require.NoError(t, err)
	clients = append(clients, u.start("after", "client", "c2"))
	old[1].stop()
	u.holds("a2")
	u.flows("after", "p1", "p2")

	// Somebody starts an old one again; it takes the locks from the new one, and gives them
	// to another new one.
	d1 := u.start("before", "node", "d1")
	a2.stop()
	u.holds("d1")
	u.flows("before", "p1", "p2")
	e2 := u.start("after", "node", "e2")
	d1.stop()
	u.holds("e2")
	u.flows("after", "p1", "p2")

	for _, c := range clients {
		c.stop()
	}
	for pool := range b.db {
		b.dwindles(pool, allJobs)
	}
	e2.stop()
	u.requireNothingLost()
}

// bare makes databases with tenants' schemas and no ledger.
func bare(t *testing.T, b *testbed, pools ...string) map[string]routing.PoolConfig {
	all := map[string]routing.PoolConfig{}
	for i, pool := range pools {
		dsn := pgtest.Database(t)
		all[pool] = routing.PoolConfig{DSN: dsn}
		db, err := pgxpool.New(t.Context(), dsn)
		require.NoError(t, err)
		t.Cleanup(db.Close)
		b.db[pool] = db
		for tenant := 2*i + 1; tenant <= 2*i+2; tenant++ {
			b.exec(pool, fmt.Sprintf("CREATE SCHEMA t%[1]d; CREATE TABLE t%[1]d.effect (job_id bigint, ran_on text)", tenant))
		}
	}
	return all
}

func (u *upgrade) requireNothingLost() {
	t, b := u.t, u.b
	u.mu.Lock()
	defer u.mu.Unlock()
	require.Greater(t, len(u.known), 100)
	found, jobs := 0, 0
	for pool, tenants := range map[string]string{"p1": "SELECT job_id FROM t1.effect UNION ALL SELECT job_id FROM t2.effect",
		"p2": "SELECT job_id FROM t3.effect UNION ALL SELECT job_id FROM t4.effect"} {
		effects := b.count(pool, "SELECT count(*) FROM ("+tenants+") e")
		require.Equal(t, effects, b.count(pool, "SELECT count(DISTINCT job_id) FROM ("+tenants+") e"), broken+"doubled in %s", pool)
		require.Equal(t, effects, b.count(pool, "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'done'"), "effects and finished jobs of %s", pool)
		require.Zero(t, b.count(pool, "SELECT count(*) FROM tenure.dead_letter_job"))
		require.Zero(t, b.count(pool, "SELECT count(*) FROM tenure.job_error e WHERE error <> 'the first time it fails'"))
		require.Zero(t, b.count(pool, "SELECT count(*) FROM tenure.completed_job WHERE losses > 0"))
		found += b.count(pool, "SELECT count(*) FROM ("+tenants+") e WHERE job_id = ANY($1)", u.known)
		jobs += effects
	}
	require.Equal(t, len(u.known), found, broken+"lost")
	t.Logf("%d jobs, %d of them known by their ids; none lost, none doubled", jobs, found)
}
