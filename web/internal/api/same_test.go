package api_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web"
)

// What somebody may see on a page they may see by the API, and the other way round; and the audit tells of whom a token's name is.
func TestPagesAndAPIShowTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme")
	hash := sha256.Sum256([]byte("new"))
	tokens := map[string]config.Token{"new": {SHA256: hex.EncodeToString(hash[:]), Role: "admin"}}
	for _, role := range []string{"read", "operate", "admin"} {
		for reach, c := range map[string]config.Token{"all": {}, "acme": {Tenants: []tenancy.ID{"acme"}}, "pool-1": {Pools: []string{"pool-1"}}, "both": {Tenants: []tenancy.ID{"acme"}, Pools: []string{"pool-1"}}} {
			secret := sha256.Sum256([]byte(role + reach))
			c.SHA256, c.Role = hex.EncodeToString(secret[:]), role
			tokens[role+reach] = c
		}
	}
	site, err := web.Handler(b.env.Client(), web.Settings{Tokens: tokens})
	require.NoError(t, err)
	get := func(secret, method, path string) (int, string) {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		site.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for name := range tokens {
		for page, api := range map[string]string{"/doctor": "/doctor", "/nodes": "/nodes", "/pools": "/pools", "/cluster": "/locks", "/jobs": "/jobs", "/jobs/" + id: "/jobs/" + id,
			"/tenants": "/tenants", "/tenant?id=acme": "/tenants/acme", "/tenant?id=globex": "/tenants/globex", "/queues": "/queues", "/schedules": "/schedules", "/batches": "/batches", "/dead": "/dead-letters/groups", "/operations": "/operations", "/audit": "/audit"} {
			onPage, text := get(name, http.MethodGet, page)
			byAPI, out := get(name, http.MethodGet, "/api/v1"+api)
			require.Equal(t, byAPI, onPage, "%s sees %s: %s", name, page, out)
			if strings.HasSuffix(name, "acme") || strings.HasSuffix(name, "both") {
				require.NotContains(t, text, "jobtest", "%s sees the node on %s", name, page)
				require.NotContains(t, text, "pool-2", "%s sees a pool on %s", name, page)
			}
		}
		for _, path := range []string{"/doctor", "/nodes", "/pools", "/cluster"} { // a link leads to what may be seen
			code, _ := get(name, http.MethodGet, path)
			_, text := get(name, http.MethodGet, "/")
			require.Equal(t, code == http.StatusOK, strings.Contains(text, `href="`+path+`"`), "%s: %s", name, path)
		}
	}
	code, out := get("new", http.MethodPost, "/api/v1/jobs/"+id+"/suspend")
	require.Equal(t, http.StatusNoContent, code, out)
	_, out = get("new", http.MethodGet, "/api/v1/audit?who=token:new")
	require.Contains(t, out, fmt.Sprintf("%q", id))
}
