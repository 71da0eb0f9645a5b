package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/faultproxy"
)

// rewrite changes the configuration file.
func (b *bed) rewrite(change func(text string) string) {
	b.t.Helper()
	text, err := os.ReadFile(b.path)
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(b.path, []byte(change(string(text))), 0o600))
}

// withoutPool takes a pool and its tenant out of a configuration's text.
func withoutPool(text, pool string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "  "+pool+": ") && !strings.HasPrefix(line, "    "+strings.ToUpper(pool)+": ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// A node takes a changed file over: when it is asked to, on SIGHUP, and by itself. A
// file with faults, and a pool that is still needed, change nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	address := freePort(t)
	b.rewrite(func(text string) string { return strings.Replace(text, "127.0.0.1:0", address, 1) })
	var both string
	b.rewrite(func(text string) string {
		both = text
		return withoutPool(text, "p2")
	})
	cmd, l := b.process()

	require.Equal(t, "nothing changed since the node read its configuration last\n", b.ok("reload"))
	b.rewrite(func(string) string { return both })
	require.Equal(t, "pools added: p2; changed: tenants\n", b.ok("reload"))
	l.until("pools changed")
	id := b.enqueue("sql.exec", `{"sql": "SELECT 1"}`, "--tenant", "P2")
	b.reaches(id, "scheduled") // there is no schema t

	b.rewrite(func(text string) string { return withoutPool(text, "p2") })
	r := b.fails(2, "reload")
	require.Contains(t, r.errors, "pool p2 cannot be taken away")
	require.Contains(t, r.errors, `tenant "P2" has unfinished jobs there`)
	withBoth := filepath.Join(t.TempDir(), "both.yaml")
	require.NoError(t, os.WriteFile(withBoth, []byte(both), 0o600))
	require.Equal(t, result{0, "job " + id + " is cancelled\n", ""}, command(t.Context(), "", "jobs", "cancel", id, "--config", withBoth))
	require.Equal(t, []any{"p2"}, l.untilAll("pools changed", "pool left")["pools changed"]["removed"], "tried again by itself")

	b.rewrite(func(text string) string { return text + "bogus: true\n" })
	require.Contains(t, l.until("configuration is not reloaded; the one in force stays, and it is tried again. Do not restart a node with this file: a start does not ask what jobs a change leaves behind")["error"], "bogus", "found by itself")
	b.fails(2, "reload")
	refused := func() string {
		response, err := http.Get("http://" + address + "/metrics")
		require.NoError(t, err)
		defer response.Body.Close()
		all, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return regexp.MustCompile(`(?m)^tenure_config_refused (\d)$`).FindStringSubmatch(string(all))[1]
	}
	require.Equal(t, "1", refused())
	b.rewrite(func(string) string { return both })
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	require.Equal(t, []any{"p2"}, l.until("pools changed")["added"])
	require.Eventually(t, func() bool { return refused() == "0" }, patience, tick)
	b.rewrite(func(text string) string { return strings.Replace(text, "max_conns: 8", "max_conns: 7", 1) })
	require.Equal(t, "pools changed: p1\n", b.ok("reload"))

	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/-/reload", nil)
	require.NoError(t, err)
	request.Header.Set("Origin", "https://elsewhere.example")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusForbidden, response.StatusCode, "a page in a browser may not")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	l.until("stopped, nothing is claimed")
	require.NoError(t, cmd.Wait())
	require.Contains(t, b.fails(1, "reload").errors, "is it running here?")
}

func TestPools(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	require.Contains(t, b.ok("pools", "list"), "nobody")
	s := b.serve()
	require.Eventually(t, func() bool { return strings.Count(b.ok("pools", "list"), "  test ") == 2 }, patience, tick)
	require.Contains(t, b.ok("pools", "drain", "p1"), "is frozen, and nothing is running there")
	id := b.enqueue("sql.exec", `{"sql": "SELECT 1"}`, "--tenant", "P1")
	require.Regexp(t, `"pool": "p1",\n +"state": "frozen"`, b.ok("pools", "list", "-o", "json"))
	require.Contains(t, b.ok("jobs", "list", "--state", "waiting"), id)
	require.Equal(t, "pool p1 is thawed\n", b.ok("pools", "thaw", "p1"))
	b.reaches(id, "scheduled") // there is no schema t
	require.Contains(t, b.ok("pools", "freeze", "p1"), "thaw it with: tenure pools thaw p1")
	require.Contains(t, b.fails(2, "pools", "freeze", "p3").errors, "which has: p1, p2")
	s.stop()
	require.Zero(t, <-s.code)
}

// A drain waits for what runs. When its time is over first, it says what is left, and
// run again it goes on waiting.
func TestPoolsDrainWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	url, arrived, release := hanging(t)
	s := b.serve()
	running := b.enqueue("http.request", `{"url": "`+url+`"}`, "--tenant", "P1")
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // once it is frozen, and the command waits
		assert.Eventually(t, func() bool {
			return strings.Contains(command(t.Context(), "", "pools", "list", "--config", b.path).out, "frozen")
		}, patience, tick)
		time.AfterFunc(2*time.Second, cancel)
	}()
	r := command(ctx, "", "pools", "drain", "p1", "--config", b.path)
	require.Equal(t, result{exitFailed, "", "tenure: pool p1 is frozen, but jobs of 1 claim are still running there; see tenure jobs list --state running --pool p1; run this again to keep waiting\n"}, r)
	require.Contains(t, b.ok("jobs", "list", "--state", "running", "--pool", "p1"), running)

	// It stays frozen: what comes waits. Another pool goes on.
	waiting := b.enqueue("sql.exec", `{"sql": "SELECT 1"}`, "--tenant", "P1")
	b.reaches(b.enqueue("sql.exec", `{"sql": "SELECT 1"}`, "--tenant", "P2"), "scheduled") // there is no schema t
	drained := make(chan result, 1)
	go func() { drained <- command(t.Context(), "", "pools", "drain", "p1", "--config", b.path) }()
	select {
	case r := <-drained:
		require.FailNow(t, "it did not wait", "%v", r)
	case <-time.After(4 * drainLook): // time for some looks
	}
	release()
	require.Equal(t, result{0, "pool p1 is frozen, and nothing is running there; thaw it with: tenure pools thaw p1\n", ""}, <-drained)
	require.Contains(t, b.ok("jobs", "list", "--state", "done"), running)
	require.Contains(t, b.ok("jobs", "list", "--state", "waiting"), waiting)

	// A database that does not answer is no empty one.
	proxy, err := faultproxy.New(b.dsn["p1"])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	b.rewrite(func(text string) string { return strings.Replace(text, b.dsn["p1"], proxy.DSN(), 1) })
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if strings.Contains(e.SQL, "FROM tenure.claim") {
			return faultproxy.CutBefore
		}
		return faultproxy.Pass
	})
	ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	r = command(ctx, "", "pools", "drain", "p1", "--config", b.path)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.errors, "pool p1 is frozen, but what is still running there is unknown")
	s.stop()
	require.Zero(t, <-s.code)
}

// A drain does not wait for a node that has died: nobody takes its claims back in a frozen
// pool. They go back once that is thawed.
func TestPoolsDrainPassesTheDead(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	id := b.enqueue("sql.exec", `{"sql": "SELECT 1"}`, "--tenant", "P1")
	b.sql("p1", `INSERT INTO tenure.node_session (session_id, node, member, expires_at) VALUES (gen_random_uuid(), 'b', 'b-1', now() + interval '1 hour');
		INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) SELECT session_id, j.turn, ARRAY[j.id], now() FROM tenure.node_session, tenure.job j WHERE j.id = `+id)
	drained := make(chan result, 1)
	go func() { drained <- command(t.Context(), "", "pools", "drain", "p1", "--config", b.path) }()
	select {
	case r := <-drained:
		require.FailNow(t, "it may still live", "%v", r)
	case <-time.After(4 * drainLook): // time for some looks
	}
	b.sql("p1", "UPDATE tenure.node_session SET expires_at = now()")
	require.Equal(t, result{0, "pool p1 is frozen, and nothing is running there; 1 claim of a dead node is given back when it is thawed; thaw it with: tenure pools thaw p1\n", ""}, <-drained)

	b.ok("pools", "thaw", "p1")
	s := b.serve()
	b.reaches(id, "scheduled") // there is no schema t
	require.Contains(t, b.ok("jobs", "show", id), "the node was lost while the job ran")
	s.stop()
	require.Zero(t, <-s.code)
}

// A session that looks expired is believed dead when its heartbeat was seen to stand still
// for as long as it may be silent.
func TestSilence(t *testing.T) {
	t.Parallel()
	const ttl = 3 * drainLook
	seen := silence{}
	looks := func(beat int64, expired bool, dead ...bool) {
		t.Helper()
		for i, want := range dead {
			s := shownSession{State: map[bool]string{false: "live", true: "expired"}[expired], Beat: beat}
			require.Equal(t, want, seen.dead(&s, ttl), "look %d", i)
		}
	}
	looks(1, false, false, false, false, false, false)
	looks(1, true, true)
	looks(2, true, false, false, false, true)
	looks(3, true, false, false)
	looks(4, true, false, false, false, true, true)
	looks(5, false, false, false, false, false, false, false, false, false, false, true)
	require.True(t, silence{}.dead(&shownSession{State: "dead"}, ttl))
}

// silent makes a pool's database one that takes connections and never says a word. came is
// closed with the first.
func (b *bed) silent(pool string) (came chan struct{}) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = l.Close() }) // nobody is to be told
	b.rewrite(func(text string) string {
		return strings.Replace(text, b.dsn[pool], "postgres://app@"+l.Addr().String()+"/app", 1)
	})
	came = make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			defer conn.Close()
			if n == 0 {
				close(came)
			}
		}
	}()
	return came
}

// A node that is to stop waits for no reload: not for one that was asked for, which fails,
// nor for one that waits for that.
func TestStopWhileReloading(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	address := freePort(t)
	b.rewrite(func(text string) string { return strings.Replace(text, "127.0.0.1:0", address, 1) })
	var both string
	b.rewrite(func(text string) string {
		both = text
		return withoutPool(text, "p2")
	})
	cmd, l := b.process()
	b.rewrite(func(string) string { return both })
	came := b.silent("p2")
	asked := make(chan result, 1)
	go func() { asked <- command(t.Context(), "", "reload", "--config", b.path) }()
	<-came
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	late := time.After(patience)
	for msg := any(nil); msg != "stopped, nothing is claimed"; {
		select {
		case line := <-l.lines:
			msg = line["msg"]
			require.NotEqual(t, "pools changed", msg)
		case <-late:
			require.Fail(t, "it did not stop")
		}
	}
	require.NoError(t, cmd.Wait())
	require.Equal(t, result{exitFailed, "", "tenure: reload: the node is stopping\n"}, <-asked)
}

// SIGHUP does not end a node, whenever it comes: one that comes while the node starts is
// heeded once it has, one that comes while it stops is not.
func TestHangups(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	b.silent("p2") // so that the start takes some seconds
	url, arrived, release := hanging(t)
	cmd, l := b.starting()
	hangup := func() { require.NoError(t, cmd.Process.Signal(syscall.SIGHUP)) }
	l.until("starting")
	hangup()
	l.until("started")
	l.until("configuration reloaded")
	hangup()
	l.until("configuration reloaded")

	require.Zero(t, b.run("enqueue", "http.request", `{"url": "`+url+`"}`, "--tenant", "P1").code) // it notes that p2 is down
	<-arrived
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	l.until("stopping")
	hangup()
	time.AfterFunc(500*time.Millisecond, release) // it would have ended by then
	l.until("stopped, nothing is claimed")
	require.NoError(t, cmd.Wait())
}

// A node that starts says so when it is asked to reload, and starts.
func TestReloadWhileStarting(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2", "p3")
	address := freePort(t)
	b.rewrite(func(text string) string { return strings.Replace(text, "127.0.0.1:0", address, 1) })
	b.silent("p2") // so that the start takes some seconds
	cmd, l := b.starting()
	l.until("starting")
	b.rewrite(func(text string) string { return withoutPool(text, "p3") }) // a change that would be put into force
	r := b.fails(exitFailed, "reload")
	require.Equal(t, "tenure: the node is not started yet: reload it once it is\n", r.errors)
	l.until("started")
	require.Equal(t, []any{"p3"}, l.until("pools changed")["removed"], "found by itself")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	l.until("stopped, nothing is claimed")
	require.NoError(t, cmd.Wait())
}
