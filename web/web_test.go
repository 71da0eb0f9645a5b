package web

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

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
			r := httptest.NewRequest(http.MethodGet, "http://localhost/api/openapi.json", nil)
			r.RemoteAddr = c.remote
			if c.secret != "" {
				r.SetBasicAuth("anybody", c.secret)
			}
			h.ServeHTTP(w, r)
			require.Equal(t, c.status, w.Code)
		})
	}
	_, err := Handler(nil, Settings{})
	require.ErrorContains(t, err, "tenure.NewClient")
}

// A link in a chat opens in a browser that has never been here: somebody shows a token on a page that looks like one, is led
// on, and need not show it again. The cookie is worth no more than the token, and no other site can make use of it.
func TestALinkOpens(t *testing.T) {
	t.Parallel()
	// printf %s secret | sha256sum
	tokens := map[string]config.Token{"ops": {SHA256: "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", Role: "read"}, "other": {SHA256: strings.Repeat("0", 64), Role: "admin"}}
	logs, log := observed()
	site := func() *Site {
		h, err := Handler(new(tenure.Client), Settings{Prefix: "/ops", Tokens: tokens, Logger: log})
		require.NoError(t, err)
		return h
	}
	h, otherNode := site(), site()
	do := func(h http.Handler, method, path string, form url.Values, cookies []*http.Cookie, header ...string) *http.Response {
		r := httptest.NewRequest(method, "https://node.example"+path, strings.NewReader(form.Encode()))
		r.TLS = &tls.ConnectionState{}
		r.Header.Set("Accept", "text/html")
		if method == http.MethodPost {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		for _, c := range cookies {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	textOf := func(r *http.Response) string {
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return string(text)
	}
	const link, known = "/ops/jobs?state=dead&tenant=acme", "/ops/api/openapi.json"
	led := do(h, http.MethodGet, link, nil, nil)
	require.Equal(t, http.StatusFound, led.StatusCode)
	require.Empty(t, led.Header.Get("WWW-Authenticate"), "a browser asks for no password")
	page := textOf(do(h, http.MethodGet, led.Header.Get("Location"), nil, nil))
	style := regexp.MustCompile(`rel="stylesheet" href="([^"]+)"`).FindStringSubmatch(page)
	require.NotNil(t, style)
	require.Equal(t, http.StatusOK, do(h, http.MethodGet, style[1], nil, nil).StatusCode, "for strangers, too")
	require.Contains(t, page, `value="`+html.EscapeString(link)+`"`)

	sent := func(token string) url.Values { return url.Values{"token": {token}, "to": {link}} }
	wrong := do(h, http.MethodPost, "/ops/sign-in", sent("Secret"), nil)
	require.Equal(t, http.StatusUnauthorized, wrong.StatusCode)
	require.Empty(t, wrong.Cookies())
	require.Equal(t, http.StatusForbidden, do(h, http.MethodPost, "/ops/sign-in", sent("secret"), nil, "Sec-Fetch-Site", "cross-site").StatusCode)
	in := do(h, http.MethodPost, "/ops/sign-in", sent("secret"), nil)
	require.Equal(t, http.StatusSeeOther, in.StatusCode)
	require.Equal(t, link, in.Header.Get("Location"))
	require.Equal(t, "/ops/", do(h, http.MethodPost, "/ops/sign-in", url.Values{"token": {"secret"}, "to": {"//evil.example/ops/"}}, nil).Header.Get("Location"))
	require.Len(t, in.Cookies(), 1)
	c := in.Cookies()[0]
	require.Equal(t, []any{"__Host-tenure-token", true, true, http.SameSiteLaxMode, "/", 8 * 3600}, []any{c.Name, c.HttpOnly, c.Secure, c.SameSite, c.Path, c.MaxAge})
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	require.NoError(t, err)
	require.NotContains(t, string(sealed), "secret")
	for _, node := range []*Site{h, otherNode} {
		require.Equal(t, http.StatusOK, do(node, http.MethodGet, known, nil, in.Cookies()).StatusCode)
	}
	require.Equal(t, http.StatusForbidden, do(h, http.MethodPost, "/ops/api/v1/jobs", nil, in.Cookies(), "Origin", "https://evil.example").StatusCode)
	require.Equal(t, http.StatusUnauthorized, do(h, http.MethodGet, known, nil, []*http.Cookie{{Name: c.Name, Value: c.Value[:len(c.Value)-2] + "AA"}}).StatusCode)
	require.Equal(t, http.StatusUnauthorized, do(h, http.MethodGet, known, nil, []*http.Cookie{{Name: "tenure-token", Value: c.Value}}).StatusCode, "that anybody on this host could set")

	out := do(h, http.MethodPost, "/ops/oidc/sign-out", nil, in.Cookies())
	require.Negative(t, out.Cookies()[1].MaxAge)
	require.Contains(t, textOf(do(h, http.MethodGet, out.Header.Get("Location"), nil, nil)), `href="/ops/sign-in"`)
	require.Equal(t, http.StatusOK, do(h, http.MethodGet, known, nil, in.Cookies()).StatusCode, "nodes keep nothing, so a copy of the cookie lasts")
	delete(tokens, "ops")
	require.NoError(t, h.SetAccess(config.Node{Tokens: tokens}))
	require.Equal(t, http.StatusUnauthorized, do(h, http.MethodGet, known, nil, in.Cookies()).StatusCode, "the token is taken away")
	live := do(h, http.MethodGet, link, nil, in.Cookies(), "Tenure-Live", "1")
	require.Equal(t, http.StatusUnauthorized, live.StatusCode, "a page that is open is not led away")
	require.Equal(t, []string{`Bearer realm="tenure"`}, live.Header.Values("WWW-Authenticate"))
	for _, line := range logs.All() {
		require.NotContains(t, fmt.Sprint(line.Message, line.ContextMap()), "ecret")
	}
}

// A session of a token ends by itself, with the token, and where its clock says so.
func TestSessionsOfTokensEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ends := time.Now().Add(10 * time.Hour)
		tokens := map[string]config.Token{"ops": {SHA256: "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", Role: "read", Expires: ends.Format(time.RFC3339)}}
		logs, log := observed()
		h, err := Handler(new(tenure.Client), Settings{Tokens: tokens, Logger: log})
		require.NoError(t, err)
		signIn := func() []*http.Cookie {
			r := httptest.NewRequest(http.MethodPost, "/sign-in", strings.NewReader("token=secret"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Result().Cookies()
		}
		code := func(cookies []*http.Cookie) int {
			r := httptest.NewRequest(http.MethodGet, "/api/openapi.json", nil)
			for _, c := range cookies {
				r.AddCookie(c)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		first := signIn()
		require.Equal(t, "tenure-token", first[0].Name)
		require.False(t, first[0].Secure, "there is no TLS")
		time.Sleep(8*time.Hour - time.Minute)
		require.Equal(t, http.StatusOK, code(first))
		second := signIn()
		time.Sleep(2 * time.Minute)
		require.Equal(t, http.StatusUnauthorized, code(first))
		require.Equal(t, http.StatusOK, code(second))
		time.Sleep(2 * time.Hour)
		require.Equal(t, http.StatusUnauthorized, code(second), "the token has expired")
		for range 10 {
			require.Empty(t, signIn())
		}
		require.Equal(t, 1, logs.FilterMessageSnippet("somebody was not let in").Len(), "a line a second")
	})
}

func observed() (*observer.ObservedLogs, *zap.Logger) {
	core, logs := observer.New(zap.InfoLevel)
	return logs, zap.New(core)
}

func TestHandlerRefusesRoles(t *testing.T) {
	t.Parallel()
	_, err := Handler(new(tenure.Client), Settings{Tokens: map[string]config.Token{"ops": {Role: "root"}}})
	require.EqualError(t, err, `token ops: the role "root" is none: read, operate and admin are`)
}

// What is left of a body that is too large is no other request: the connection ends.
func TestTheRestOfABodyIsNoRequest(t *testing.T) {
	t.Parallel()
	h, err := Handler(new(tenure.Client), Settings{})
	require.NoError(t, err)
	server := httptest.NewServer(h)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	const rest = "POST /api/v1/batches HTTP/1.1\r\nHost: localhost\r\n\r\n"
	body := strings.Repeat(rest, 2<<20/len(rest))
	go fmt.Fprintf(conn, "POST /api/v1/batches HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body) // until the other side has ended
	all, _ := io.ReadAll(conn)                                                                                                                                  // it may end by a reset
	require.Equal(t, 1, strings.Count(string(all), "HTTP/1.1 "), string(all[:min(len(all), 2000)]))
	require.Contains(t, string(all), "413 ")
}

// Whatever refuses a request for the API says so in a problem.
func TestRefusalsOfTheAPIAreProblems(t *testing.T) {
	t.Parallel()
	h, err := Handler(new(tenure.Client), Settings{Prefix: "/ops"})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		remote, method, query, header, value string
		status                               int
	}{
		"a stranger": {"192.0.2.1:1", http.MethodPost, "", "X", "", http.StatusUnauthorized}, "another site": {"127.0.0.1:1", http.MethodPost, "", "Origin", "https://evil.example", http.StatusForbidden},
		"inside of another site": {"127.0.0.1:1", http.MethodGet, "", "Sec-Fetch-Site", "cross-site", http.StatusForbidden},
		"a long address":         {"127.0.0.1:1", http.MethodGet, "?kind=" + strings.Repeat("k", 20<<10), "X", "", http.StatusRequestURITooLong},
	} {
		r := httptest.NewRequest(c.method, "/ops/api/v1/jobs"+c.query, nil)
		r.RemoteAddr = c.remote
		r.Header.Set(c.header, c.value)
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
