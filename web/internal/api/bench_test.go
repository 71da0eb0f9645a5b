package api_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/jobtest"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web/internal/api"
)

// BenchmarkExternalWorkers has a worker acquire and complete jobs of two pools over HTTP, many at a time.
func BenchmarkExternalWorkers(b *testing.B) {
	const many = 1000
	env := jobtest.New(b, jobtest.Pools(2), jobtest.Tenants("acme", "globex"))
	h := api.Handler(env.Client(), nil, zap.NewNop())
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(access.With(r.Context(), admin)))
	}))
	b.Cleanup(node.Close)
	for left := b.N; left > 0; left -= many {
		entries := make([]tenure.Entry, min(left, many))
		for i := range entries {
			entries[i] = tenure.Entry{Tenant: []tenancy.ID{"acme", "globex"}[i%2], Args: job.RawArgs{Name: "print", Payload: []byte(`{"n":1}`)}, Options: []tenure.Option{tenure.External()}}
		}
		_, err := env.Client().EnqueueMany(b.Context(), entries)
		require.NoError(b, err)
	}
	ask := func(path string, body, into any) {
		text, err := json.Marshal(body)
		require.NoError(b, err)
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, node.URL+"/api/v1/external/"+path, bytes.NewReader(text))
		require.NoError(b, err)
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		require.NoError(b, err)
		defer answer.Body.Close()
		require.Equal(b, http.StatusOK, answer.StatusCode)
		require.NoError(b, json.NewDecoder(answer.Body).Decode(into))
	}
	type lock struct {
		Job  string `json:"job"`
		Turn int32  `json:"turn"`
	}
	b.ResetTimer()
	for left := b.N; left > 0; {
		var got struct{ Items []lock }
		ask("acquire", map[string]any{"topic": "print", "worker": "w", "lock": 300, "max": many}, &got)
		require.NotEmpty(b, got.Items)
		var ended struct{ Lost []string }
		ask("complete-many", map[string]any{"worker": "w", "jobs": got.Items}, &ended)
		require.Empty(b, ended.Lost)
		left -= len(got.Items)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
