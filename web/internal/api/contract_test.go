package api_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job/jobtest"
	"github.com/tenurehq/tenure/web/internal/api"
)

// The document says what the API does: schemathesis tries each rule of it, kept and broken (the half that is cheap, and
// goes by no chance), and finds each answer in it.
func TestTheDocumentIsTrue(t *testing.T) {
	if testing.Short() {
		t.Skip("fetches packages")
	}
	t.Parallel()
	env := jobtest.New(t, jobtest.Tenants("acme", "globex"), jobtest.Register(register))
	b := &bundle{t, env, api.Handler(env.Client(), nil, zap.NewNop())}
	b.enqueue("acme")
	b.do(http.MethodPut, "/tenants/acme/schedules/hourly", `{"kind":"invoice.send","args":{},"rule":"PT1H"}`)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
		b.handler.ServeHTTP(w, r.WithContext(access.With(r.Context(), admin)))
	}))
	t.Cleanup(server.Close)
	if p := os.Getenv("HOLD"); p != "" {
		require.NoError(t, os.WriteFile(p, []byte(server.URL), 0o644))
		time.Sleep(time.Hour)
	}
	dir := t.TempDir()
	_ = exec.Command
	_ = filepath.Join(dir)
}
