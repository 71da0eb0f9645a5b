package web

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
)

// Without tokens programs on this machine are let in; with one, only those who know its secret are.
func TestHandlerAsksWhoCalls(t *testing.T) {
	t.Parallel()
	// printf %s secret | sha256sum
	const hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
	for name, c := range map[string]struct {
		tokens map[string]config.Token
		remote string
		secret string
		status int
	}{
		"nobody is known, from here":      {nil, "127.0.0.1:1", "", http.StatusOK},
		"nobody is known, from elsewhere": {nil, "192.0.2.1:1", "", http.StatusUnauthorized},
		"the secret":                      {map[string]config.Token{"ops": {SHA256: hash, Role: "read"}}, "192.0.2.1:1", "secret", http.StatusOK},
		"another secret":                  {map[string]config.Token{"ops": {SHA256: hash, Role: "read"}}, "127.0.0.1:1", "Secret", http.StatusUnauthorized},
		"no secret, from here":            {map[string]config.Token{"ops": {SHA256: hash, Role: "read"}}, "127.0.0.1:1", "", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, err := Handler(new(tenure.Client), Settings{Tokens: c.tokens})
			require.NoError(t, err)
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "/static/style.css", nil)
			r.RemoteAddr = c.remote
			if c.secret != "" {
				r.SetBasicAuth("anybody", c.secret)
			}
			h.ServeHTTP(w, r)
			require.Equal(t, c.status, w.Code)
		})
	}
}

func TestHandlerRefusesRoles(t *testing.T) {
	t.Parallel()
	_, err := Handler(new(tenure.Client), Settings{Tokens: map[string]config.Token{"ops": {Role: "root"}}})
	require.EqualError(t, err, `token ops: the role "root" is none: read, operate and admin are`)
}

// Whatever refuses a request for the API says so in a problem.
func TestRefusalsOfTheAPIAreProblems(t *testing.T) {
	t.Parallel()
	h, err := Handler(new(tenure.Client), Settings{Prefix: "/ops"})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		remote, origin string
		status         int
	}{
		"a stranger": {"192.0.2.1:1", "", http.StatusUnauthorized}, "another site": {"127.0.0.1:1", "https://evil.example", http.StatusForbidden},
	} {
		r := httptest.NewRequest(http.MethodPost, "/ops/api/v1/jobs", nil)
		r.RemoteAddr = c.remote
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, c.status, w.Code, name)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), name)
		var problem struct {
			Status int
			Detail string
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem), name)
		require.Equal(t, c.status, problem.Status, name)
		require.NotEmpty(t, problem.Detail, name)
	}
}
