package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// logs are the lines that a serve prints, as they come.
type logs struct {
	t     *testing.T
	lines chan map[string]any
}

// newLogs reads r to its end.
func newLogs(t *testing.T, r io.Reader) *logs {
	l := &logs{t: t, lines: make(chan map[string]any, 1000)}
	go func() {
		defer close(l.lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			line := map[string]any{}
			if json.Unmarshal(s.Bytes(), &line) != nil {
				line["msg"] = s.Text()
			}
			l.lines <- line
		}
	}()
	return l
}

// until waits for a message.
func (l *logs) until(msg string) map[string]any {
	l.t.Helper()
	return l.untilAll(msg)[msg]
}

// untilAll waits for several messages, in whatever order they come.
func (l *logs) untilAll(msgs ...string) map[string]map[string]any {
	l.t.Helper()
	var seen []map[string]any
	found := map[string]map[string]any{}
	late := time.After(patience)
	for len(found) < len(msgs) {
		var line map[string]any
		select {
		case line = <-l.lines: // nil: there are no more
		case <-late:
		}
		seen = append(seen, line)
		if line == nil {
			l.t.Fatalf("not all of %q in %v", msgs, seen)
		}
		for _, msg := range msgs {
			if text, _ := line["msg"].(string); found[msg] == nil && strings.HasPrefix(text, msg) {
				found[msg] = line
			}
		}
	}
	return found
}

// serving is a node that runs in this process.
type serving struct {
	*logs
	stop context.CancelFunc
	code chan int
	url  string
	said []map[string]any // the lines with the messages that serveWith was to wait for
}

func (b *bed) serve() *serving {
	return b.serveWith()
}

// serveWith serves until it has said these messages, too.
func (b *bed) serveWith(messages ...string) *serving {
	r, w := io.Pipe()
	ctx, stop := context.WithCancel(context.WithoutCancel(b.t.Context()))
	s := &serving{logs: newLogs(b.t, r), stop: stop, code: make(chan int, 1)}
	go func() {
		s.code <- run(ctx, []string{"serve", "--config", b.path}, nil, io.Discard, w)
		w.Close()
	}()
	b.t.Cleanup(func() { // closes the pipe's other end, if the test did not
		stop()
		for range s.lines {
		}
	})
	all := s.untilAll(append(messages, "starting")...)
	for _, msg := range messages {
		s.said = append(s.said, all[msg])
	}
	started := all["starting"]
	require.Contains(b.t, started["kinds"], "http.request")
	require.Len(b.t, started["pools"], len(b.dsn))
	require.NotEmpty(b.t, started["version"])
	s.url = "http://" + started["address"].(string)
	s.until("started")
	return s
}

// get returns a page of the node.
func (s *serving) get(path string) (status int, body string) {
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	require.NoError(s.t, err)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return response.StatusCode, string(text)
}

// getAs asks for a page by the name of another host.
func (s *serving) getAs(host, path string) (status int) {
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	require.NoError(s.t, err)
	request.Close, request.Host = true, host
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	require.NoError(s.t, response.Body.Close())
	if strings.HasPrefix(path, "/api/") {
		require.Equal(s.t, "application/problem+json", response.Header.Get("Content-Type"), path)
	}
	return response.StatusCode
}

// states waits until the job is in this state.
func (b *bed) reaches(id, state string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return strings.Contains(b.ok("jobs", "list", "--state", state), id) }, patience, tick)
}

func TestServe(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	b.sql("p2", "CREATE SCHEMA t; CREATE TABLE t.v (n bigint, tenant text DEFAULT current_setting('app.tenant_id'))")
	calls := make(chan *http.Request, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls <- r
		if r.URL.Path == "/gone" {
			http.Error(w, "nobody\x1b[2J lives here", http.StatusGone)
		}
	}))
	t.Cleanup(hook.Close)

	s := b.serve()
	require.Eventually(t, func() bool { status, _ := s.get("/readyz"); return status == http.StatusOK }, patience, tick)
	status, _ := s.get("/healthz")
	require.Equal(t, http.StatusOK, status)

	called := b.enqueue("http.request", `{"url": "`+hook.URL+`/hook"}`, "--tenant", "P1")
	require.Equal(t, http.StatusMisdirectedRequest, s.getAs("evil.example", "/metrics"))
	require.Equal(t, http.StatusMisdirectedRequest, s.getAs("evil.example", "/-/reload"))
	gone := b.enqueue("http.request", `{"url": "`+hook.URL+`/gone"}`, "--tenant", "P1")
	inside := b.enqueue("http.request", `{"url": "http://169.254.169.254/latest"}`, "--tenant", "P1")
	executed := b.enqueue("sql.exec", `{"sql": "INSERT INTO v (n) SELECT n FROM generate_series($1::bigint, $2) n", "args": [9007199254740993, 9007199254740995]}`, "--tenant", "P2")
	wrong := b.enqueue("sql.exec", `{"sql": "INSERT INTO missing VALUES (1)"}`, "--tenant", "P2")
	several := b.enqueue("sql.exec", `{"sql": "INSERT INTO v VALUES (1); COMMIT"}`, "--tenant", "P2")
	unknown := strings.TrimSpace(b.run("enqueue", "mail.send", `{}`, "--tenant", "P1").out) // and a note
	b.reaches(called, "done")
	b.reaches(executed, "done")
	for id, why := range map[string]string{gone: "410 Gone: nobody [2J lives here", inside: "169.254.169.254 is not public", wrong: "42P01", several: "42601"} {
		b.reaches(id, "dead")
		require.Contains(t, b.ok("jobs", "show", id), why)
	}
	require.ElementsMatch(t, []string{called, gone}, []string{(<-calls).Header.Get("Idempotency-Key"), (<-calls).Header.Get("Idempotency-Key")})
	b.sql("p2", `DO $$ BEGIN
		ASSERT (SELECT count(*) = 3 AND min(n) = 9007199254740993 AND bool_and(tenant = 'P2') FROM t.v), 'not what was inserted';
	END $$`)
	require.Contains(t, b.ok("jobs", "show", unknown), "waiting (no handler)")

	status, metrics := s.get("/metrics")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, metrics, "tenure_build_info")

	for path, says := range map[string]string{"/": "What is wrong", "/jobs/" + called: "http.request", "/api/v1/pools": `"pool":"p1"`} {
		status, page := s.get(path)
		require.Equal(t, http.StatusOK, status, path)
		require.Contains(t, page, says, path)
		require.Equal(t, http.StatusMisdirectedRequest, s.getAs("evil.example", path), path)
	}

	require.Len(t, rows(b.ok("locks")), 2)
	for _, row := range rows(b.ok("locks")) {
		require.Equal(t, "test", row[1])
		require.Equal(t, "no", row[len(row)-1])
	}
	nodes := rows(b.ok("nodes"))
	require.Len(t, nodes, 1)
	require.Equal(t, "test", nodes[0][0])
	require.Equal(t, []string{"p1,p2", "live"}, nodes[0][3:5])
	require.Equal(t, "2", nodes[0][len(nodes[0])-1])

	s.stop()
	require.Zero(t, <-s.code)
	s.until("stopped, nothing is claimed")
	list := b.list("nodes")
	require.Equal(t, []any{"http.request", "sql.exec"}, list[0]["kinds"])
	for _, session := range list {
		require.NotEqual(t, "live", session["state"]) // left, or idle where it had left that pool before
		require.Zero(t, session["claims"])
	}
	require.Empty(t, b.list("nodes", "--live"))
	for _, row := range rows(b.ok("locks")) {
		require.Equal(t, []string{"-", "nobody"}, row[1:3])
	}
}

// Anyone who may insert a job does not thereby run SQL.
func TestServeRunsNoSQLUnlessTold(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	text, err := os.ReadFile(b.path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(b.path, []byte(strings.Replace(string(text), ", sql_exec: {enabled: true}", "", 1)), 0o600))
	s := b.serve()
	id := strings.TrimSpace(b.run("enqueue", "sql.exec", `{"sql": "SELECT 1"}`, "--tenant", "P1").out) // with a note, if the node lives
	var list []map[string]any
	require.Eventually(t, func() bool {
		list = b.list("nodes", "--live")
		return len(list) == 1
	}, patience, tick)
	require.Equal(t, []any{"http.request"}, list[0]["kinds"])
	require.Contains(t, b.ok("jobs", "show", id), "waiting (no handler)")
	s.stop()
	require.Zero(t, <-s.code)
}

func TestServeRefusals(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	b := setup(t, "p1")
	text, err := os.ReadFile(b.path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(b.path, []byte(strings.Replace(string(text), "127.0.0.1:0", l.Addr().String(), 1)), 0o600))
	r := b.fails(exitUsage, "serve")
	require.Equal(t, "tenure: node.listen "+l.Addr().String()+" is in use: stop what uses it, choose another port, or serve nothing with off\n", r.errors)

	gossip := "node: {listen: 'off', name: test}\ncluster: {bind: '" + l.Addr().String() + "'}\npools: {p1: {dsn: '" + b.dsn["p1"] + "'}}\n"
	require.NoError(t, os.WriteFile(b.path, []byte(gossip), 0o600))
	r = b.fails(exitUsage, "serve")
	require.Contains(t, r.errors, "cluster.bind "+l.Addr().String()+": tcp port ")
	require.Contains(t, r.errors, " is in use: stop the other process, or choose another port")
}

// Who has forgotten to migrate is told so at once, and how.
func TestServeUnmigrated(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1?", "p2?")
	r := b.fails(exitUsage, "serve")
	require.Contains(t, r.errors, "pool p1: has no ledger: run: tenure migrate --pool p1; if the pool had jobs, restore it first, as they and its number are gone\n")
	require.Contains(t, r.errors, "pool p2: has no ledger: run: tenure migrate --pool p2; if the pool had jobs, restore it first, as they and its number are gone\n")
}

// A pool that cannot be used does not keep the others from being worked on, and says so
// wherever one looks. When it is mended, nothing has to be started again.
func TestServePoolOutOfService(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2?")
	for _, pool := range []string{"p1", "p2"} {
		b.sql(pool, "CREATE SCHEMA t; CREATE TABLE t.v (n int)")
	}
	s := b.serve()
	enqueue := []string{"enqueue", "sql.exec", `{"sql": "INSERT INTO v VALUES (1)"}`, "--tenant"}
	r := b.run(append(enqueue, "P1")...)
	require.Zero(t, r.code, r.errors)
	require.Contains(t, r.errors, "tenure: note: pool is down: pool p2: has no ledger: run: tenure migrate --pool p2; if the pool had jobs, restore it first, as they and its number are gone\n")
	require.Eventually(t, func() bool {
		return strings.Contains(b.run("jobs", "list", "--state", "done").out, strings.TrimSpace(r.out))
	}, patience, tick)

	r = b.fails(exitUsage, append(enqueue, "P2")...)
	require.Equal(t, "tenure: enqueue sql.exec: pool is down: pool p2: has no ledger: run: tenure migrate --pool p2; if the pool had jobs, restore it first, as they and its number are gone\n", r.errors)
	r = b.run("pools", "list")
	require.Regexp(t, `(?m)^p1 +up +test .*\np2 +out of service +- `, r.out)
	require.Equal(t, 1, strings.Count(r.errors, "run: tenure migrate --pool p2;"), r.errors)
	require.Contains(t, b.run("pools", "list", "-o", "json").out, `"reason": "pool is down: pool p2: has no ledger: run: tenure migrate --pool p2; if the pool had jobs, restore it first, as they and its number are gone"`)
	status, _ := s.get("/readyz")
	require.Equal(t, http.StatusOK, status)
	up := func(want string) func() bool {
		return func() bool {
			_, metrics := s.get("/metrics")
			return strings.Contains(metrics, `tenure_pool_up{pool="p2"} `+want+"\n")
		}
	}
	require.Eventually(t, up("0"), patience, tick)

	b.ok("migrate", "--pool", "p2")
	b.reaches(b.enqueue(append(enqueue, "P2")[1:]...), "done")
	require.Eventually(t, up("1"), patience, tick)
	s.stop()
	require.Zero(t, <-s.code)
}

// A pool that does not answer does not keep the others from being worked on.
func TestServePoolDown(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2!")
	b.sql("p1", "CREATE SCHEMA t; CREATE TABLE t.v (n int)")
	s := b.serve()
	r := b.run("enqueue", "sql.exec", `{"sql": "INSERT INTO v VALUES (1)"}`, "--tenant", "P1")
	require.Zero(t, r.code, r.errors)
	require.Eventually(t, func() bool {
		return strings.Contains(b.run("jobs", "list", "--state", "done").out, strings.TrimSpace(r.out))
	}, patience, tick)
	s.stop()
	require.Zero(t, <-s.code)
}

// A signal that comes while the node starts does not leave half of it behind.
func TestSignalDuringStart(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	text, err := os.ReadFile(b.path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(b.path, []byte(strings.Replace(string(text), "127.0.0.1:0", "off", 1)), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := command(ctx, "", "serve", "--config", b.path)
	require.Zero(t, r.code, r.errors)
	require.Contains(t, r.errors, `"address":"off"`)
	require.Contains(t, r.errors, "stopped, nothing is claimed")
	require.Empty(t, b.list("nodes", "--live"))
}

// process is a serve in a process of its own.
func (b *bed) process() (*exec.Cmd, *logs) {
	cmd, l := b.starting()
	l.until("started")
	return cmd, l
}

// starting is process without the wait for its start.
func (b *bed) starting() (*exec.Cmd, *logs) {
	self, err := os.Executable()
	require.NoError(b.t, err)
	cmd := exec.CommandContext(b.t.Context(), self, "serve", "--config", b.path)
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	r, w := io.Pipe()
	cmd.Stderr = w
	l := newLogs(b.t, r)
	require.NoError(b.t, cmd.Start())
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended already unless the test failed
		_ = cmd.Wait()
		w.Close()
		for range l.lines {
		}
	})
	return cmd, l
}

// hanging is a server whose callers wait until release is called.
func hanging(t *testing.T) (url string, arrived chan struct{}, release func()) {
	arrived, gate := make(chan struct{}, 10), make(chan struct{})
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-gate
	}))
	release = func() {
		select {
		case <-gate:
		default:
			close(gate)
		}
	}
	t.Cleanup(func() {
		release()
		hook.Close()
	})
	return hook.URL, arrived, release
}

func TestFirstSignalLetsHandlersFinish(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	url, arrived, release := hanging(t)
	cmd, l := b.process()
	id := b.enqueue("http.request", `{"url": "`+url+`"}`, "--tenant", "P1")
	<-arrived
	require.Contains(t, b.ok("jobs", "list", "--state", "running"), "on test")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	l.until("stopping")
	release()
	l.until("stopped, nothing is claimed")
	require.NoError(t, cmd.Wait())
	b.reaches(id, "done")
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	url, arrived, _ := hanging(t)
	cmd, l := b.process()
	b.enqueue("http.request", `{"url": "`+url+`"}`, "--tenant", "P1")
	<-arrived
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	l.until("stopping")
	impatient, calm := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		again := time.NewTicker(sameSignal / 4)
		defer again.Stop()
		for {
			select {
			case <-impatient.Done():
				return
			case <-again.C:
				_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			}
		}
	})
	l.until("tenure: second signal")
	calm()
	group.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, 1, exit.ExitCode())
}

// What comes with the first signal is no second one.
func TestSignalsThatComeTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		signals, stops := make(chan os.Signal), 0
		ended := false
		go func() {
			heed(signals, func() { stops++ })
			ended = true
		}()
		for range 5 {
			signals <- syscall.SIGTERM
			time.Sleep(sameSignal / 6)
		}
		synctest.Wait()
		require.Equal(t, 1, stops)
		require.False(t, ended)
		time.Sleep(sameSignal)
		signals <- os.Interrupt
		synctest.Wait()
		require.True(t, ended)
	})
}

// A running job is asked to end, and its node does so.
func TestCancelRunning(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	url, arrived, _ := hanging(t)
	s := b.serve()
	id := b.enqueue("http.request", `{"url": "`+url+`"}`, "--tenant", "P1")
	<-arrived
	require.Equal(t, "job "+id+" is running; its handler is being cancelled\n", b.ok("jobs", "cancel", id))
	b.reaches(id, "cancelled")
	s.stop()
	require.Zero(t, <-s.code)
}
