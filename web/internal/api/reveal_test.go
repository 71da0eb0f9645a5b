package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/jobtest"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web/internal/api"
)

type charge struct {
	Card string `json:"card"`
}

func (charge) Kind() string { return "card.charge" }

// Arguments and outputs are for tokens that say so, whatever their role is, and nobody sees what is
// redacted.
func TestArgumentsAreForWhoMaySeeThem(t *testing.T) {
	t.Parallel()
	env := jobtest.New(t, jobtest.Tenants("acme"), jobtest.Register(func(r *job.Registry) {
		job.Handle(r, func(ctx context.Context, j *job.Job[charge]) error { return job.SetOutput(ctx, j.Args) })
	}))
	e, err := env.Client().Enqueue(tenancy.For(t.Context(), "acme"), charge{"4111"})
	require.NoError(t, err)
	env.Drain(t)
	shown := func(g access.Grant, redact func(string, json.RawMessage) json.RawMessage) map[string]any {
		b := &bundle{t, env, api.Handler(env.Client(), redact, zap.NewNop())}
		code, out := b.ask(g, http.MethodGet, "/jobs/"+e.ID.String(), "")
		require.Equal(t, http.StatusOK, code, out)
		return out
	}
	for _, role := range []access.Role{access.Read, access.Operate, access.Admin} {
		out := shown(access.Grant{Role: role}, nil)
		require.NotContains(t, out, "args")
		require.NotContains(t, outputOf(t, out), "output")
		out = shown(access.Grant{Role: role, Args: true}, nil)
		require.Equal(t, map[string]any{"card": "4111"}, out["args"])
		require.Equal(t, map[string]any{"card": "4111"}, outputOf(t, out)["output"])
	}
	all := access.Grant{Role: access.Admin, Args: true}
	out := shown(all, func(kind string, text json.RawMessage) json.RawMessage {
		require.Equal(t, "card.charge", kind)
		return json.RawMessage(strings.ReplaceAll(string(text), "4111", "…"))
	})
	require.Equal(t, map[string]any{"card": "…"}, out["args"])
	require.Equal(t, map[string]any{"card": "…"}, outputOf(t, out)["output"])
	out = shown(all, func(string, json.RawMessage) json.RawMessage { return json.RawMessage("4111…") })
	require.Equal(t, "***", out["args"], "what is no JSON is not shown")
}

// So are the arguments of a schedule, which its jobs will have, one for every tenant among them.
func TestArgumentsOfSchedulesAreForWhoMaySeeThem(t *testing.T) {
	t.Parallel()
	env := jobtest.New(t, jobtest.Tenants("acme"))
	b := &bundle{t, env, api.Handler(env.Client(), func(_ string, text json.RawMessage) json.RawMessage {
		return json.RawMessage(strings.ReplaceAll(string(text), "4111", "…"))
	}, zap.NewNop())}
	const body = `{"kind":"card.charge","args":{"card":"4111"},"rule":"PT1H"}`
	for _, path := range []string{"/tenants/acme/schedules/hourly", "/schedules/daily"} {
		code, out := b.ask(admin, http.MethodPut, path, body)
		require.Equal(t, http.StatusOK, code, out)
		for _, role := range []access.Role{access.Read, access.Operate, access.Admin} {
			for _, tenants := range [][]tenancy.ID{nil, {"acme"}} {
				for _, read := range []string{path, "/schedules"} {
					code, out := b.ask(access.Grant{Role: role, Tenants: tenants}, http.MethodGet, read, "")
					require.Equal(t, http.StatusOK, code, out)
					require.NotContains(t, fmt.Sprint(out), "card:", "%v %v %s", role, tenants, read)
				}
			}
		}
		_, out = b.ask(access.Grant{Role: access.Read, Args: true}, http.MethodGet, path, "")
		require.Equal(t, map[string]any{"card": "…"}, out["args"])
	}
}

// outputOf is the report of a job's only run.
func outputOf(t *testing.T, j map[string]any) map[string]any {
	t.Helper()
	require.Len(t, j["reports"], 1)
	return j["reports"].([]any)[0].(map[string]any)
}

// A worker is handed arguments, so its token has to say that it may see them.
func TestAcquiringNeedsArguments(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const body = `{"topic":"invoice.print","worker":"w","lock":60,"max":1}`
	code, out := b.ask(access.Grant{Role: access.Operate}, http.MethodPost, "/external/acquire", body)
	require.Equal(t, http.StatusForbidden, code)
	require.Contains(t, out["detail"], "args: true")
	code, out = b.ask(access.Grant{Role: access.Operate, Args: true}, http.MethodPost, "/external/acquire", body)
	require.Equal(t, http.StatusOK, code, out)
}

// No answer says where a database is, who its user is, or which SQL was run: the log does.
func TestAnswersTellNoSQLAndNoDSN(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Pools = map[string]routing.PoolConfig{"lost": {DSN: "postgres://sekretuser:hunter2@127.0.0.1:1/sekretdb"}}
	cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "lost"}}
	client, err := tenure.NewClient(cfg)
	require.NoError(t, err)
	require.NoError(t, client.Start(t.Context()))
	defer func() { require.NoError(t, client.Stop(context.Background())) }()
	core, _ := observer.New(zapcore.DebugLevel)
	b := &bundle{t, nil, api.Handler(client, nil, zap.New(core))}
	for _, r := range []struct{ method, path, body string }{
		{http.MethodGet, "/jobs", ""}, {http.MethodGet, "/jobs/7", ""}, {http.MethodGet, "/jobs/7/why", ""}, {http.MethodPost, "/jobs/7/cancel", ""}, {http.MethodPost, "/jobs/7/retry", ""},
		{http.MethodPost, "/jobs", `{"tenant":"acme","kind":"k","args":{}}`}, {http.MethodGet, "/tenants", ""}, {http.MethodGet, "/tenants/acme/why", ""},
		{http.MethodPost, "/tenants/acme/freeze", ""}, {http.MethodPut, "/tenants/acme/weight", `{"weight":2}`}, {http.MethodGet, "/pools", ""}, {http.MethodPost, "/pools/lost/freeze", ""},
		{http.MethodGet, "/locks", ""}, {http.MethodGet, "/locks/history", ""}, {http.MethodGet, "/queues", ""}, {http.MethodGet, "/doctor", ""}, {http.MethodGet, "/audit", ""},
		{http.MethodGet, "/limits", ""}, {http.MethodGet, "/dead-letters/groups", ""}, {http.MethodGet, "/operations", ""}, {http.MethodGet, "/schedules", ""}, {http.MethodGet, "/batches", ""}, {http.MethodGet, "/nodes", ""}, {http.MethodPost, "/external/acquire", `{"topic":"t","worker":"w","lock":60,"max":1}`},
		{http.MethodPost, "/external/complete", `{"job":"7","turn":1,"worker":"w"}`},
	} {
		code, out := b.ask(admin, r.method, r.path, r.body)
		text, err := json.Marshal(out)
		require.NoError(t, err)
		for _, secret := range []string{"sekret", "hunter2", "127.0.0.1", "postgres", "SELECT", "tenure.", "dial"} {
			require.NotContains(t, string(text), secret, "%s %s: %d", r.method, r.path, code)
		}
	}
}
