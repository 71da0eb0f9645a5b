package dashboard_test

import (
	"context"
	"encoding/json"
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
	"github.com/tenurehq/tenure/web/internal/dashboard"
)

// Outputs are shown as arguments are: to those who may see them, and without what is redacted.
func TestOutputsAreForWhoMaySeeThem(t *testing.T) {
	t.Parallel()
	env := jobtest.New(t, jobtest.Tenants("acme"), jobtest.Register(func(r *job.Registry) {
		job.Handle(r, func(ctx context.Context, j *job.Job[mail]) error { return job.SetOutput(ctx, j.Args) })
	}))
	op := env.Client().Operator()
	h, err := dashboard.Handler(op, dashboard.Settings{Prefix: "/ops", Redact: func(kind string, text json.RawMessage) json.RawMessage {
		return json.RawMessage(strings.ReplaceAll(string(text), "hunter2", "…"))
	}})
	require.NoError(t, err)
	b := &bed{t: t, env: env, op: op, handler: h, grant: access.Grant{Role: access.Admin}}
	id := b.enqueue("acme", mail{"ann hunter2"})
	env.Drain(t)
	page := "/jobs/" + id.String()
	require.NotContains(t, b.page(page), "ann ")
	text := b.as(access.Grant{Role: access.Read, Args: true}).page(page)
	require.Equal(t, 2, strings.Count(text, "ann …"), "the arguments, and the output")
	require.NotContains(t, text, "hunter2")
}

// No page says where a database is, who its user is, or which SQL was run: the log does.
func TestPagesTellNoSQLAndNoDSN(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Pools = map[string]routing.PoolConfig{"lost": {DSN: "postgres://sekretuser:hunter2@127.0.0.1:1/sekretdb"}}
	cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "lost"}}
	client, err := tenure.NewClient(cfg)
	require.NoError(t, err)
	require.NoError(t, client.Start(t.Context()))
	defer func() { require.NoError(t, client.Stop(context.Background())) }()
	core, logs := observer.New(zapcore.DebugLevel)
	h, err := dashboard.Handler(client.Operator(), dashboard.Settings{Prefix: "/ops", Logger: zap.New(core)})
	require.NoError(t, err)
	b := &bed{t: t, op: client.Operator(), handler: h, grant: access.Grant{Role: access.Admin, Args: true}}
	for _, r := range []struct{ method, path string }{
		{http.MethodGet, "/"}, {http.MethodGet, "/cluster"}, {http.MethodGet, "/pools"}, {http.MethodGet, "/tenants"}, {http.MethodGet, "/tenant?id=acme"}, {http.MethodGet, "/jobs"},
		{http.MethodGet, "/jobs/7"}, {http.MethodGet, "/dead"}, {http.MethodGet, "/schedules"}, {http.MethodGet, "/batches"}, {http.MethodGet, "/nodes"}, {http.MethodGet, "/operations"}, {http.MethodGet, "/audit"}, {http.MethodGet, "/queues"}, {http.MethodGet, "/doctor"},
		{http.MethodPost, "/jobs/7/cancel"}, {http.MethodPost, "/tenant/freeze?id=acme"}, {http.MethodPost, "/pools/freeze?pool=lost"}, {http.MethodPost, "/schedules/pause?tenant=acme&name=x"},
	} {
		w := b.do(r.method, r.path, nil)
		for _, secret := range []string{"sekret", "hunter2", "127.0.0.1", "postgres", "SELECT", "tenure.", "dial"} {
			require.NotContains(t, w.Body.String(), secret, "%s %s: %d", r.method, r.path, w.Code)
		}
	}
	require.NotEmpty(t, logs.All(), "the log has the reasons")
}
