package access

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForHosts(t *testing.T) {
	t.Parallel()
	h := ForHosts(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "tenure_test") }), []string{"tenure.example.com"})
	get := func(host, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, host := range []string{"127.0.0.1:8080", "127.0.0.1", "[::1]:8080", "[::1]", "10.1.2.3:8080", "localhost", "LOCALHOST:8080", "localhost.:80", "Tenure.example.com:443"} {
		require.Equal(t, http.StatusOK, get(host, "/metrics").Code, host)
	}
	for _, host := range []string{"evil.example:8080", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8080", "tenure.example.com.evil.example", "", "[::1", "x:y:z"} {
		w := get(host, "/metrics")
		if host == "[::1" { // an address all the same
			require.Equal(t, http.StatusOK, w.Code)
			continue
		}
		require.Equal(t, http.StatusMisdirectedRequest, w.Code, host)
		require.Contains(t, w.Body.String(), "add the name to node.allowed_hosts")
		require.NotContains(t, w.Body.String(), "tenure_test")
		require.Equal(t, http.StatusMisdirectedRequest, get(host, "/readyz").Code, host)
		require.Equal(t, http.StatusOK, get(host, "/healthz").Code, host)
	}
}
