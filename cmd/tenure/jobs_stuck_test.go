package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// configure replaces text in the bed's file.
func (b *bed) configure(old, with string) {
	b.t.Helper()
	text, err := os.ReadFile(b.path)
	require.NoError(b.t, err)
	require.Contains(b.t, string(text), old)
	require.NoError(b.t, os.WriteFile(b.path, []byte(strings.Replace(string(text), old, with, 1)), 0o600))
}

// Of a job that does not end one sees on which node it is and since when, that a cancel waits, and, on
// the node's machine, where its handler is.
func TestShowAStuckJob(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	arrived, goOn := make(chan struct{}, 1), make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-goOn
	}))
	defer target.Close()
	defer close(goOn)
	far := b.enqueue("http.request", fmt.Sprintf(`{"url": %q}`, target.URL), "--tenant", "P1")
	b.sql("p1", `INSERT INTO tenure.node_session (session_id, node, member, expires_at) VALUES (gen_random_uuid(), 'far', 'far', now() + interval '1 h');
		INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) SELECT session_id, turn, ARRAY[id], now() FROM tenure.job, tenure.node_session WHERE id = `+far+`;
		INSERT INTO tenure.cancel_request (job_id) VALUES (`+far+`)`)
	node := b.serve()
	b.configure("listen: 127.0.0.1:0", "listen: "+strings.TrimPrefix(node.url, "http://"))
	id := b.enqueue("http.request", fmt.Sprintf(`{"url": %q}`, target.URL), "--tenant", "P1")
	<-arrived
	show := func(args ...string) result {
		return command(t.Context(), "", append([]string{"jobs", "show", id, "--config", b.path}, args...)...)
	}
	r := show("--stack")
	require.Empty(t, r.errors)
	require.Contains(t, r.out, "its handler is at:\n  goroutine ")
	require.Contains(t, r.out, "handlers.(*caller).handle")
	require.Regexp(t, `(?m)^node +test$`, r.out)
	require.NotContains(t, r.out, "cancel asked")

	// Another node of the cluster has the job: its own machine is where to ask.
	b.configure("name: test", "name: other")
	r = show("--stack")
	require.Contains(t, r.errors, "its handler's stack is on node test")
	require.Contains(t, r.out, "running")
	b.configure("name: other", "name: test")
	r = command(t.Context(), "", "jobs", "show", id, "--stack", "--server", node.url)
	require.Contains(t, r.errors, "its handler's stack is on node test")
	require.Contains(t, r.out, "running")

	// A node hears of a cancel with a heartbeat; one whose handler ignores it still has the job then.
	id = far
	r = show("-o", "json")
	var shown map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.out), &shown))
	require.NotEmpty(t, shown["cancel_asked_at"])
	require.NotContains(t, shown, "stack")
	require.Regexp(t, `^it is running on node far, or is next there; its cancellation was asked for at \S+Z, and waits for its node and its handler\n`, b.ok("jobs", "why", far))
	require.Contains(t, b.fails(exitFailed, "jobs", "retry", far).errors, "if its run fails, it is tried again by itself")

	status, answer := node.get("/-/jobs/1/stack")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, answer, "no handler of this job runs on this node")
}
