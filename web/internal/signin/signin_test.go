package signin_test

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web/internal/signin"
)

// bed is a dashboard below /ops that says who somebody is, and a provider.
type bed struct {
	t        *testing.T
	provider *provider
	signIn   *signin.SignIn
	site     *httptest.Server // with TLS: cookies are for that only
	cfg      config.OIDC
}

func setup(t *testing.T) *bed {
	b := &bed{t: t, provider: newProvider(t), signIn: signin.New("/ops", zap.NewNop())}
	guard := access.NewGuard(access.Rules{SignIn: true})
	guard.SignIn = b.signIn
	mux := http.NewServeMux()
	mux.Handle("/ops/oidc/", access.Secured(b.signIn))
	mux.Handle("/", guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g := access.From(r.Context())
		_, _ = io.WriteString(w, r.URL.RequestURI()+" "+g.Name+" "+g.Role.String())
	})))
	b.site = httptest.NewTLSServer(mux)
	t.Cleanup(b.site.Close)
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(b.provider.secret+"\n"), 0o600))
	b.cfg = config.OIDC{Issuer: b.provider.URL, ClientID: "tenure", ClientSecretFile: secret, RedirectURL: b.site.URL + "/ops/oidc/callback",
		Scopes: []string{"email"}, Claim: "groups", Session: time.Hour,
		Roles: map[string]config.Access{"ops": {Role: "admin", Args: true}, "support": {Role: "read", Tenants: []tenancy.ID{"acme"}}}}
	require.NoError(t, b.signIn.Set(b.cfg))
	return b
}

// browser is somebody's, with cookies of its own.
func (b *bed) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	require.NoError(b.t, err)
	c := *b.site.Client()
	c.Jar = jar
	return &c
}

// get opens a page as a browser does.
func (b *bed) get(c *http.Client, path string) (code int, text string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.site.URL+path, nil)
	require.NoError(b.t, err)
	r.Header.Set("Accept", "text/html,*/*")
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	response, err := c.Do(r)
	require.NoError(b.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(b.t, err)
	return response.StatusCode, string(body)
}

func (b *bed) cookies(c *http.Client) []*http.Cookie {
	u, err := url.Parse(b.site.URL)
	require.NoError(b.t, err)
	return c.Jar.Cookies(u)
}

var ann = object{"preferred_username": "ann", "groups": []string{"staff", "ops"}}

func TestSignIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provider.next(ann, nil)
	c := b.browser()
	code, text := b.get(c, "/ops/jobs?state=dead")
	require.Equal(t, http.StatusOK, code, text)
	require.Equal(t, "/ops/jobs?state=dead ann (1234) admin", text, "back where somebody wanted to go")
	_, text = b.get(c, "/ops/")
	require.Equal(t, "/ops/ ann (1234) admin", text)
	for _, cookie := range b.cookies(c) {
		require.NotContains(t, cookie.Value, "ann")
		require.Equal(t, "__Host-tenure-session", cookie.Name, "the attempt is over")
	}

	// The sign-out ends it, here; what the browser had before is worth nothing without its cookie.
	response, err := c.PostForm(b.site.URL+"/ops/oidc/sign-out", nil)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, "/ops/oidc/signed-out", response.Request.URL.Path)
	require.Empty(t, b.cookies(c))
}

// Cookies are for this host, with TLS, and for no script; they end by themselves.
func TestCookies(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provider.next(ann, nil)
	c := b.browser()
	var seen []*http.Cookie
	c.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		seen = append(seen, r.Response.Cookies()...)
		return nil
	}
	b.get(c, "/ops/")
	require.Len(t, seen, 3, "the attempt, its end, and the session")
	for _, cookie := range seen {
		require.True(t, cookie.HttpOnly && cookie.Secure && cookie.SameSite == http.SameSiteLaxMode && cookie.Path == "/" && cookie.Domain == "", cookie.Name)
	}
	require.Equal(t, 3600, seen[2].MaxAge)
	require.Equal(t, 600, seen[0].MaxAge)
}

// Who has no role, or is not who they say they are, is not let in.
func TestStrangers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		claims object
		change func(claims, head object)
		code   int
	}{
		"without groups":         {object{"preferred_username": "bob"}, nil, http.StatusForbidden},
		"with other groups":      {object{"groups": []string{"staff", "Ops"}}, nil, http.StatusForbidden},
		"groups of a wrong sort": {object{"groups": object{"ops": true}}, nil, http.StatusForbidden},
		"for another client":     {ann, func(c, _ object) { c["aud"] = "other" }, http.StatusBadGateway},
		"of another provider":    {ann, func(c, _ object) { c["iss"] = "https://evil.example" }, http.StatusBadGateway},
		"expired":                {ann, func(c, _ object) { c["exp"] = time.Now().Add(-time.Hour).Unix() }, http.StatusBadGateway},
		"of another sign-in":     {ann, func(c, _ object) { c["nonce"] = "another" }, http.StatusBadGateway},
		"without a nonce":        {ann, func(c, _ object) { delete(c, "nonce") }, http.StatusBadGateway},
		"unsigned":               {ann, func(_, h object) { h["alg"] = "none" }, http.StatusBadGateway},
	} {
		b.provider.next(c.claims, c.change)
		browser := b.browser()
		code, text := b.get(browser, "/ops/")
		require.Equal(t, c.code, code, "%s: %s", name, text)
		require.NotContains(t, text, "admin", name)
		require.Empty(t, b.cookies(browser), name)
	}
	b.provider.signWith(other)
	b.provider.next(ann, nil)
	code, _ := b.get(b.browser(), "/ops/")
	require.Equal(t, http.StatusBadGateway, code, "signed by somebody else")
}

// An answer that was not asked for by this browser signs nobody in, nor does the same one twice.
func TestAnswersAreForOneBrowser(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provider.next(ann, nil)
	c := b.browser()
	var answered *url.URL
	c.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasSuffix(r.URL.Path, "/callback") {
			answered = r.URL
			return http.ErrUseLastResponse
		}
		return nil
	}
	b.get(c, "/ops/")
	require.NotNil(t, answered)
	path := answered.RequestURI()
	code, _ := b.get(b.browser(), path)
	require.Equal(t, http.StatusBadRequest, code, "in a browser that did not ask")
	code, _ = b.get(c, strings.Replace(path, "state=", "state=x", 1))
	require.Equal(t, http.StatusBadRequest, code, "to another question")
	c.CheckRedirect = nil
	code, text := b.get(c, path)
	require.Equal(t, http.StatusOK, code, text)
	code, _ = b.get(c, path)
	require.Equal(t, http.StatusBadRequest, code, "for the second time")
	require.Empty(t, b.provider.failed)
}

// What somebody may do is what the configuration says now.
func TestRolesGoAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provider.next(object{"sub": "7", "email": "ann@example.com", "email_verified": true, "groups": []string{"ops", "support"}}, nil)
	c := b.browser()
	_, text := b.get(c, "/ops/")
	require.Equal(t, "/ops/ ann@example.com admin", text, "the highest role")
	less := b.cfg
	less.Roles = map[string]config.Access{"support": b.cfg.Roles["support"]}
	require.NoError(t, b.signIn.Set(less))
	_, text = b.get(c, "/ops/")
	require.Equal(t, "/ops/ ann@example.com read", text)
	less.Roles = map[string]config.Access{"others": b.cfg.Roles["support"]}
	require.NoError(t, b.signIn.Set(less))
	code, text := b.get(c, "/ops/")
	require.Equal(t, http.StatusForbidden, code, text)
	less.Roles, less.Session = b.cfg.Roles, time.Nanosecond
	require.NoError(t, b.signIn.Set(less))
	r := httptest.NewRequest(http.MethodGet, "/ops/", nil)
	for _, cookie := range b.cookies(c) {
		r.AddCookie(cookie)
	}
	_, in := b.signIn.GrantOf(r)
	require.False(t, in, "the session is over")
	require.NoError(t, b.signIn.Set(config.OIDC{}))
	_, in = b.signIn.GrantOf(r)
	require.False(t, in)
}

// What is taken away is gone, too, where the rest cannot be had.
func TestRolesGoWithoutTheKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provider.next(object{"email": "ann@example.com", "email_verified": true, "groups": []string{"ops", "support"}}, nil)
	c := b.browser()
	b.get(c, "/ops/")
	less := b.cfg
	less.CookieKeyFile, less.Roles = "/no/such/file", map[string]config.Access{"support": b.cfg.Roles["support"]}
	require.ErrorContains(t, b.signIn.Set(less), "node.oidc.cookie_key_file")
	_, text := b.get(c, "/ops/")
	require.Equal(t, "/ops/ ann@example.com read", text)
	r := httptest.NewRequest(http.MethodGet, "/ops/", nil)
	for _, cookie := range b.cookies(c) {
		r.AddCookie(cookie)
	}
	for name, change := range map[string]func(*config.OIDC){
		"shorter sessions":    func(c *config.OIDC) { c.Session = time.Nanosecond },
		"another provider":    func(c *config.OIDC) { c.Issuer = "https://login.example.com" },
		"another client":      func(c *config.OIDC) { c.ClientID = "other" },
		"people come nowhere": func(c *config.OIDC) { c.RedirectURL, c.Roles = "https://tenure.example.com/", nil },
	} {
		require.NoError(t, b.signIn.Set(b.cfg))
		_, in := b.signIn.GrantOf(r)
		require.True(t, in, name)
		cfg := less
		change(&cfg)
		require.Error(t, b.signIn.Set(cfg), name)
		_, in = b.signIn.GrantOf(r)
		require.False(t, in, name)
	}
}

// Nodes with the same key know each other's sessions, and no cookie can be changed.
func TestSessionsAmongNodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(key, []byte(strings.Repeat("k", 44)+"\n"), 0o600))
	b.cfg.CookieKeyFile = key
	require.NoError(t, b.signIn.Set(b.cfg))
	b.provider.next(ann, nil)
	c := b.browser()
	b.get(c, "/ops/")
	cookie := b.cookies(c)[0]
	knows := func(s *signin.SignIn, value string) bool {
		r := httptest.NewRequest(http.MethodGet, "/ops/", nil)
		r.AddCookie(&http.Cookie{Name: cookie.Name, Value: value})
		_, in := s.GrantOf(r)
		return in
	}
	second := signin.New("/ops", zap.NewNop())
	require.NoError(t, second.Set(b.cfg))
	require.True(t, knows(second, cookie.Value))
	for i := range cookie.Value {
		changed := []byte(cookie.Value)
		changed[i] ^= 1
		require.False(t, knows(second, string(changed)), "at %d", i)
	}
	require.NoError(t, os.WriteFile(key, []byte(strings.Repeat("x", 44)), 0o600))
	require.NoError(t, second.Set(b.cfg))
	require.False(t, knows(second, cookie.Value), "another key")
	b.cfg.CookieKeyFile, b.cfg.ClientID = "", "other"
	require.NoError(t, b.signIn.Set(b.cfg))
	require.False(t, knows(b.signIn, cookie.Value), "for another client")
}

// Programs are told that they are strangers, and are not sent to the provider; nor is anybody sent to
// another site.
func TestInvite(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ask := func(method, path string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		if !b.signIn.Invite(w, r) {
			w.Code = 0
		}
		return w
	}
	require.Equal(t, "/ops/oidc/sign-in?to=%2Fops%2Fjobs%3Fstate%3Ddead", ask(http.MethodGet, "/ops/jobs?state=dead", "Accept", "text/html").Header().Get("Location"))
	for _, w := range []*httptest.ResponseRecorder{
		ask(http.MethodGet, "/ops/"), ask(http.MethodPost, "/ops/jobs/1/cancel", "Accept", "text/html"), ask(http.MethodGet, "/ops/api/v1/jobs", "Accept", "text/html"),
		ask(http.MethodGet, "/ops/", "Accept", "text/html", "Authorization", "Bearer x"), ask(http.MethodGet, "/ops/", "Accept", "text/html", "Sec-Fetch-Mode", "cors"),
	} {
		require.Zero(t, w.Code)
	}
	b.provider.next(ann, nil)
	for _, to := range []string{"https://evil.example/", "//evil.example/ops/", `/\evil.example`, "/elsewhere", "javascript:alert(1)", ""} {
		code, text := b.get(b.browser(), "/ops/oidc/sign-in?"+url.Values{"to": {to}}.Encode())
		require.Equal(t, http.StatusOK, code, to)
		require.Equal(t, "/ops/ ann (1234) admin", text, to)
	}
}

// A node works whether the provider does or not, and signs people in once it answers.
func TestProviderThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cfg := b.cfg
	cfg.Issuer = "http://127.0.0.1:1"
	require.NoError(t, b.signIn.Set(cfg))
	code, text := b.get(b.browser(), "/ops/")
	require.Equal(t, http.StatusBadGateway, code)
	require.Contains(t, text, "under id")
	require.NotContains(t, text, "127.0.0.1")
	require.NoError(t, b.signIn.Set(b.cfg))
	b.provider.next(ann, nil)
	code, _ = b.get(b.browser(), "/ops/")
	require.Equal(t, http.StatusOK, code)
}

// Strangers can have the provider asked. However many they are, it is asked by one of them at a time, those who wait
// have that one's answer, and a reload waits for nobody.
func TestManyAskForAProviderThatHangs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var asked atomic.Int32
	begun, answer := make(chan struct{}, 100), make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		begun <- struct{}{}
		<-answer
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(hangs.Close)
	cfg := b.cfg
	cfg.Issuer = hangs.URL
	require.NoError(t, b.signIn.Set(cfg))
	codes := make(chan int)
	for range 20 {
		go func() {
			w := httptest.NewRecorder()
			b.signIn.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ops/oidc/sign-in", nil))
			codes <- w.Code
		}()
	}
	<-begun
	require.NoError(t, b.signIn.Set(cfg), "while it is asked")
	close(answer)
	for range 20 {
		require.Equal(t, http.StatusBadGateway, <-codes)
	}
	require.LessOrEqual(t, asked.Load(), int32(2), "of the realm before the reload, and of the one after it")
}

// Somebody with more values than a cookie holds is told so, and not sent to the provider for ever.
func TestSessionsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var groups []string
	for i := range 100 {
		groups = append(groups, fmt.Sprintf("%d%s", i, strings.Repeat("g", 60)))
		b.cfg.Roles[groups[i]] = config.Access{Role: "read"}
	}
	require.NoError(t, b.signIn.Set(b.cfg))
	b.provider.next(object{"preferred_username": "ann", "groups": groups}, nil)
	c := b.browser()
	code, text := b.get(c, "/ops/")
	require.Equal(t, http.StatusBadGateway, code)
	require.Contains(t, text, "under id")
	require.Empty(t, b.cookies(c))
	b.provider.next(object{"preferred_username": "ann", "groups": groups[:20]}, nil)
	_, text = b.get(c, "/ops/")
	require.Equal(t, "/ops/ ann (1234) read", text)
}

// An address that is too long for a cookie is forgotten, and not the sign-in.
func TestSignInFromALongAddress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provider.next(ann, nil)
	code, text := b.get(b.browser(), "/ops/jobs?kind="+strings.Repeat("k", 3000))
	require.Equal(t, http.StatusOK, code, text)
	require.Equal(t, "/ops/ ann (1234) admin", text)
}

func TestSettingsOfSignIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for text, change := range map[string]func(*config.OIDC){
		"expects people back at /ops/oidc/callback": func(c *config.OIDC) { c.RedirectURL = "https://tenure.example.com/oidc/callback" },
		"no such file":                         func(c *config.OIDC) { c.CookieKeyFile = "/no/such/file" },
		"less than 32 characters":              func(c *config.OIDC) { c.CookieKeyFile = c.ClientSecretFile },
		`node.oidc.roles.ops: the role "root"`: func(c *config.OIDC) { c.Roles = map[string]config.Access{"ops": {Role: "root"}} },
	} {
		cfg := b.cfg
		change(&cfg)
		require.ErrorContains(t, b.signIn.Set(cfg), text)
	}
	b.provider.next(ann, nil)
	code, _ := b.get(b.browser(), "/ops/")
	require.Equal(t, http.StatusOK, code, "what was refused leaves the sign-in as it was")
}
