// Package poolertest gives tests a PgBouncer in front of their databases.
package poolertest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Pooler is a PgBouncer of a test's own, in front of the server of one of its databases.
type Pooler struct {
	t      testing.TB
	binary string
	dir    string
	server *pgx.ConnConfig

	process *exec.Cmd
	ended   chan struct{} // closed when process has ended
	mu      sync.Mutex
	log     bytes.Buffer // guarded by mu
}

// poolerPort is only a part of its socket's name.
const poolerPort = 6432

// cleanLimit bounds each start and end.
const cleanLimit = 30 * time.Second

// admin is who may use PgBouncer's console.
const admin = "pooler_admin"

// Start starts a PgBouncer in front of the server that dsn leads to, in transaction mode
// unless settings, those of its section [pgbouncer], say otherwise. It lets in the user of dsn
// and no other. It ends with the test, which is skipped where there is no PgBouncer.
func Start(t testing.TB, dsn string, settings map[string]string) *Pooler {
	t.Helper()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		if binary, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil { // where Debian has it, and users do not look
			t.Skip("needs PgBouncer: apt-get install pgbouncer")
		}
	}
	server, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal("poolertest:", err)
	}
	dir, err := os.MkdirTemp("", "pooler") // short enough for a socket
	if err == nil {
		err = os.Chmod(dir, 0o777) // PgBouncer does not run as root
	}
	if err != nil {
		t.Fatal("poolertest:", err)
	}
	p := &Pooler{t: t, binary: binary, dir: dir, server: server}
	p.Configure(settings)
	p.Launch()
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			p.mu.Lock()
			defer p.mu.Unlock()
			t.Logf("pgbouncer said:\n%s", p.log.String())
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error("poolertest:", err)
		}
	})
	return p
}

// Configure writes the configuration; a running PgBouncer takes it over by RELOAD. With
// database_name, no setting of PgBouncer's, every name of a database leads to that one.
func (p *Pooler) Configure(settings map[string]string) {
	p.t.Helper()
	all := map[string]string{
		"listen_addr": "", "listen_port": fmt.Sprint(poolerPort), "unix_socket_dir": p.dir,
		"auth_type": "trust", "auth_file": filepath.Join(p.dir, "users"), "admin_users": admin,
		"pool_mode": "transaction", "max_client_conn": "200",
	}
	maps.Copy(all, settings)
	database := ""
	if name := all["database_name"]; name != "" {
		database = " dbname=" + name
		delete(all, "database_name")
	}
	var ini strings.Builder
	fmt.Fprintf(&ini, "[databases]\n* = host=%s port=%d%s\n[pgbouncer]\n", p.server.Host, p.server.Port, database)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&ini, "%s = %s\n", key, all[key])
	}
	users := fmt.Sprintf("%q %q\n%q \"\"\n", p.server.User, p.server.Password, admin)
	for name, text := range map[string]string{"pooler.ini": ini.String(), "users": users} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil {
			p.t.Fatal("poolertest:", err)
		}
	}
}

// Launch starts it and waits until it listens.
func (p *Pooler) Launch() {
	p.t.Helper()
	args := []string{filepath.Join(p.dir, "pooler.ini")}
	if os.Geteuid() == 0 {
		args = append([]string{"-u", "nobody"}, args...)
	}
	p.process = exec.Command(p.binary, args...)
	stderr, err := p.process.StderrPipe()
	if err == nil {
		err = p.process.Start()
	}
	if err != nil {
		p.t.Fatal("poolertest: start PgBouncer:", err)
	}
	up := make(chan struct{})
	ended := make(chan struct{})
	p.ended = ended
	process := p.process
	go func() {
		defer close(ended)
		told := sync.OnceFunc(func() { close(up) })
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.log, lines.Text())
			p.mu.Unlock()
			if strings.Contains(lines.Text(), "process up") {
				told()
			}
		}
		_ = process.Wait() // how it ended is in its log
	}()
	select {
	case <-up:
	case <-ended:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.t.Fatalf("poolertest: PgBouncer did not start:\n%s", p.log.String())
	case <-time.After(cleanLimit):
		p.t.Fatal("poolertest: PgBouncer did not start in time")
	}
}

// Stop ends it at once, with all its connections.
func (p *Pooler) Stop() {
	_ = p.process.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(cleanLimit):
		_ = p.process.Process.Kill()
		<-p.ended
	}
}

// DSN is the connection string of a database through it.
func (p *Pooler) DSN(database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(p.server.User, p.server.Password), Path: "/" + database,
		RawQuery: url.Values{"host": {p.dir}, "port": {fmt.Sprint(poolerPort)}, "sslmode": {"disable"}}.Encode()}
	return u.String()
}

// Admin executes a command of PgBouncer's console, such as PAUSE.
func (p *Pooler) Admin(command string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cleanLimit)
	defer cancel()
	cfg, err := pgx.ParseConfig(p.DSN("pgbouncer"))
	if err != nil {
		p.t.Fatal("poolertest:", err)
	}
	cfg.User = admin
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		p.t.Fatal("poolertest: PgBouncer's console:", err)
	}
	defer c.Close(ctx)
	if err := c.PgConn().Exec(ctx, command).Close(); err != nil {
		p.t.Fatalf("poolertest: %s: %v", command, err)
	}
}
