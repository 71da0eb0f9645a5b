package api

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/access"
)

var update = flag.Bool("update", false, "write openapi.json")

func TestDocumentIsUpToDate(t *testing.T) {
	t.Parallel()
	api := describe(http.NewServeMux(), &server{log: zap.NewNop()})
	text, err := json.MarshalIndent(api.OpenAPI(), "", "  ")
	require.NoError(t, err)
	text = append(text, '\n')
	if *update {
		require.NoError(t, os.WriteFile("openapi.json", text, 0o644))
	}
	committed, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	if string(committed) != string(text) { // which are too long to be shown
		t.Error("run go test ./web/internal/api -run TestDocument -update; git diff shows what has changed")
	}
}

// Every operation refuses who sends no grant, and who has the role below the one it needs.
func TestEveryOperationNeedsItsRole(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	document := describe(mux, &server{log: zap.NewNop()}).OpenAPI()
	operations := 0
	for path, item := range document.Paths {
		for method, op := range map[string]any{get: item.Get, post: item.Post, put: item.Put, patch: item.Patch, del: item.Delete} {
			text, err := json.Marshal(op)
			require.NoError(t, err)
			if string(text) == "null" {
				continue
			}
			operations++
			var said struct {
				Role string `json:"x-tenure-role"`
			}
			require.NoError(t, json.Unmarshal(text, &said))
			role := map[string]access.Role{"read": access.Read, "operate": access.Operate, "admin": access.Admin}[said.Role]
			require.NotZero(t, role, "%s %s has no role", method, path)
			ask := func(g access.Grant) int {
				r := httptest.NewRequest(method, strings.NewReplacer("{", "", "}", "").Replace(path), nil)
				w := httptest.NewRecorder()
				mux.ServeHTTP(w, r.WithContext(access.With(r.Context(), g)))
				require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), "%s %s", method, path)
				return w.Code
			}
			require.Equal(t, http.StatusUnauthorized, ask(access.Grant{}), "%s %s", method, path)
			if role > access.Read {
				require.Equal(t, http.StatusForbidden, ask(access.Grant{Role: role - 1}), "%s %s", method, path)
			}
		}
	}
	require.Equal(t, len(routes), operations)
}
