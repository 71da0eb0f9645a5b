package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/tenancy"
)

func hashOf(secret string) string {
	hash := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(hash[:])
}

func token(name, secret string, role Role) Token {
	return Token{Grant: Grant{Name: name, Role: role, Tenants: []tenancy.ID{"acme"}, Pools: []string{"eu"}}, SHA256: hashOf(secret)}
}

func tokens(all ...Token) Rules { return Rules{Tokens: all} }

// ask sends a request through a guard, and returns the grant that arrives behind it.
func ask(g *Guard, changes ...func(*http.Request)) (*httptest.ResponseRecorder, Grant) {
	var got Grant
	h := g.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = From(r.Context())
		if _, err := io.ReadAll(r.Body); errors.As(err, new(*http.MaxBytesError)) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	}))
	r := httptest.NewRequest(http.MethodPost, "http://localhost/", http.NoBody)
	for _, change := range changes {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w, got
}

func bearer(secret string) func(*http.Request) { return header("Authorization", "Bearer "+secret) }

func header(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[name] = values }
}

func from(addr string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = addr } }

func TestTokens(t *testing.T) {
	t.Parallel()
	g := NewGuard(tokens(token("ci", "s3cret", Operate), token("eye", "other", Read)))
	w, grant := ask(g, bearer("s3cret"))
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, Grant{Name: "ci", Role: Operate, Tenants: []tenancy.ID{"acme"}, Pools: []string{"eu"}}, grant)
	w, grant = ask(g, func(r *http.Request) { r.SetBasicAuth("anybody", "other") })
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "eye", grant.Name)
	for name, change := range map[string]func(*http.Request){
		"nothing":       func(*http.Request) {},
		"loopback":      from("127.0.0.1:1"),
		"wrong":         bearer("s3cres"),
		"the hash":      bearer(token("", "s3cret", Read).SHA256),
		"empty":         bearer(""),
		"no password":   func(r *http.Request) { r.SetBasicAuth("s3cret", "") },
		"another order": header("Authorization", "Digest s3cret"),
		"as a user":     header("X-Forwarded-User", "ci"),
	} {
		w, grant := ask(g, change)
		require.Equal(t, http.StatusUnauthorized, w.Code, name)
		require.Zero(t, grant, name)
		require.Len(t, w.Header().Values("WWW-Authenticate"), 2, name)
	}
	w, _ = ask(g, header("Sec-Fetch-Mode", "cors"))
	require.Len(t, w.Header().Values("WWW-Authenticate"), 1, "a page that is open has the browser ask for no password")
	w, _ = ask(g, header("Tenure-Live", "1"))
	require.Len(t, w.Header().Values("WWW-Authenticate"), 1, "a page that is open has the browser ask for no password")
}

func TestTokensAreReplaced(t *testing.T) {
	t.Parallel()
	g := NewGuard(tokens(token("old", "old", Admin)))
	g.Set(tokens(token("new", "new", Admin)))
	w, _ := ask(g, bearer("old"))
	require.Equal(t, http.StatusUnauthorized, w.Code)
	w, _ = ask(g, bearer("new"))
	require.Equal(t, http.StatusOK, w.Code)
}

// While a secret is replaced both are good, and the token stays the same.
func TestATokenWithTwoSecrets(t *testing.T) {
	t.Parallel()
	both := token("ci", "new", Operate)
	both.OldSHA256 = hashOf("old")
	g := NewGuard(tokens(both))
	for _, secret := range []string{"new", "old"} {
		w, grant := ask(g, bearer(secret))
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "ci", grant.Name)
	}
	w, _ := ask(g, bearer(""))
	require.Equal(t, http.StatusUnauthorized, w.Code)
}

func TestATokenExpires(t *testing.T) {
	t.Parallel()
	ends := time.Date(2027, 1, 31, 9, 0, 0, 0, time.UTC)
	one := token("ci", "s3cret", Operate)
	one.Expires, one.OldSHA256 = ends, hashOf("old")
	g := NewGuard(tokens(one))
	for _, c := range []struct {
		now  time.Time
		code int
	}{{ends.Add(-time.Second), http.StatusOK}, {ends, http.StatusUnauthorized}, {ends.Add(time.Hour), http.StatusUnauthorized}} {
		g.now = func() time.Time { return c.now }
		for _, secret := range []string{"s3cret", "old"} {
			w, _ := ask(g, bearer(secret))
			require.Equal(t, c.code, w.Code, "%s at %v", secret, c.now)
		}
	}
	w, _ := ask(g, from("127.0.0.1:1"))
	require.Equal(t, http.StatusUnauthorized, w.Code, "the last token has expired, and the doors stay closed")
}

// What people wait for ends once they may do something else, and goes on for others.
func TestWhoWaitsIsAskedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		less, short := token("less", "less", Operate), token("short", "short", Read)
		short.Expires = time.Now().Add(time.Minute)
		g := NewGuard(tokens(token("gone", "gone", Read), less, short, token("stays", "stays", Read)))
		ended := map[string]error{}
		var mu sync.Mutex
		ctx, stop := context.WithCancel(t.Context())
		wait := g.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ctx, cancel := WhileGranted(r.Context())
			defer cancel()
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			ended[From(ctx).Name] = context.Cause(ctx)
		}))
		seen := func() map[string]error {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(ended)
		}
		for _, secret := range []string{"gone", "less", "short", "stays"} {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			bearer(secret)(r)
			go wait.ServeHTTP(httptest.NewRecorder(), r)
		}
		synctest.Wait()
		less.Grant.Pools = []string{"us"}
		g.Set(tokens(less, short, token("stays", "new", Read), token("stays", "stays", Read)))
		synctest.Wait() // for no time at all
		require.Equal(t, map[string]error{"gone": ErrChanged, "less": ErrChanged}, seen())
		time.Sleep(time.Minute + 2*askAgain)
		synctest.Wait()
		require.Equal(t, map[string]error{"gone": ErrChanged, "less": ErrChanged, "short": ErrChanged}, seen())
		stop()
		synctest.Wait()
		require.Equal(t, context.Canceled, seen()["stays"])
	})
}

func TestWithoutTokensOnlyThisMachineIsLetIn(t *testing.T) {
	t.Parallel()
	g := NewGuard(Rules{})
	for _, addr := range []string{"127.0.0.1:4711", "[::1]:4711", "[::ffff:127.0.0.1]:4711"} {
		w, grant := ask(g, from(addr))
		require.Equal(t, http.StatusOK, w.Code, addr)
		require.Equal(t, Grant{Name: "loopback", Role: Admin, Args: true}, grant)
	}
	for _, addr := range []string{"10.0.0.1:4711", "[2001:db8::1]:4711", "@", ""} {
		w, _ := ask(g, from(addr))
		require.Equal(t, http.StatusUnauthorized, w.Code, addr)
	}
	w, _ := ask(g, from("127.0.0.1:4711"), header("X-Forwarded-For", "203.0.113.9"))
	require.Equal(t, http.StatusUnauthorized, w.Code, "a proxy on this machine speaks for others")
	w, _ = ask(g, from("127.0.0.1:4711"), header("X-Tenure-Job", "7"))
	require.Equal(t, http.StatusUnauthorized, w.Code, "and a job for its tenant")

	here := func(r *http.Request) {
		*r = *r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 80}))
	}
	w, _ = ask(g, from("10.0.0.1:4711"), here)
	require.Equal(t, http.StatusOK, w.Code, "by another address of this machine")
	w, _ = ask(g, from("10.0.0.2:4711"), here)
	require.Equal(t, http.StatusUnauthorized, w.Code)

	g.Set(Rules{Hosts: []string{"jobs.internal"}})
	named := func(host string) func(*http.Request) { return func(r *http.Request) { r.Host = host } }
	w, _ = ask(g, from("127.0.0.1:4711"), named("jobs.internal:8080"))
	require.Equal(t, http.StatusOK, w.Code)
	w, _ = ask(g, from("127.0.0.1:4711"), named("rebound.example:8080"))
	require.Equal(t, http.StatusMisdirectedRequest, w.Code, "a page in a browser here, of a site whose name leads here")
	require.Contains(t, w.Body.String(), "web.Settings.AllowedHosts")
}

func TestAHashThatCannotBeReadLetsNobodyIn(t *testing.T) {
	t.Parallel()
	g := NewGuard(tokens(Token{Grant: Grant{Name: "broken", Role: Admin}, SHA256: "zz"}))
	w, _ := ask(g, from("127.0.0.1:1"))
	require.Equal(t, http.StatusUnauthorized, w.Code)
	w, _ = ask(g, bearer("zz"))
	require.Equal(t, http.StatusUnauthorized, w.Code)
}

func proxies(networks ...string) Rules {
	p := Proxies{Header: "X-Forwarded-User", Users: map[string]Grant{"ann": {Name: "ann", Role: Admin}, "eve": {Name: "eve", Role: Read, Tenants: []tenancy.ID{"acme"}}}}
	for _, n := range networks {
		p.Networks = append(p.Networks, netip.MustParsePrefix(n))
	}
	return Rules{Proxies: p, Tokens: []Token{token("ci", "s3cret", Operate)}}
}

// What a proxy says of its users counts, and what anybody else says of himself does not.
func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	g := NewGuard(proxies("10.20.0.5/32", "2001:db8::/64"))
	for _, addr := range []string{"10.20.0.5:1", "[::ffff:10.20.0.5]:1", "[2001:db8::7]:1"} {
		_, grant := ask(g, from(addr), header("X-Forwarded-User", "ann"))
		require.Equal(t, "ann", grant.Name, addr)
		require.Equal(t, Admin, grant.Role)
	}
	_, grant := ask(g, from("10.20.0.5:1"), header("X-Forwarded-User", "eve"))
	require.False(t, grant.SeesTenant("globex"))
	for name, changes := range map[string][]func(*http.Request){
		"from elsewhere":       {from("10.20.0.6:1"), header("X-Forwarded-User", "ann")},
		"from here":            {from("127.0.0.1:1"), header("X-Forwarded-User", "ann")},
		"nobody":               {from("10.20.0.5:1")},
		"a job":                {from("10.20.0.5:1"), header("X-Forwarded-User", "ann"), header("X-Tenure-Job", "7")},
		"an empty name":        {from("10.20.0.5:1"), header("X-Forwarded-User", "")},
		"two names":            {from("10.20.0.5:1"), header("X-Forwarded-User", "eve", "ann")},
		"somebody not named":   {from("10.20.0.5:1"), header("X-Forwarded-User", "bob")},
		"in another spelling":  {from("10.20.0.5:1"), header("X-Forwarded-User", "Ann")},
		"another header":       {from("10.20.0.5:1"), header("X-Remote-User", "ann")},
		"a token cannot mend":  {from("10.20.0.5:1"), header("X-Forwarded-User", "bob"), bearer("s3cret")},
		"elsewhere, forwarded": {from("192.0.2.1:1"), header("X-Forwarded-For", "10.20.0.5"), header("X-Forwarded-User", "ann")},
	} {
		w, grant := ask(g, changes...)
		require.Equal(t, http.StatusUnauthorized, w.Code, name)
		require.Zero(t, grant.Role, name)
	}
	_, grant = ask(g, from("10.20.0.5:1"), bearer("s3cret"))
	require.Equal(t, "ci", grant.Name, "a program behind the proxy has a token")
	_, grant = ask(g, from("192.0.2.1:1"), header("X-Forwarded-User", "ann"), bearer("s3cret"))
	require.Equal(t, "ci", grant.Name)

	rules := proxies("10.20.0.5/32")
	rules.Proxies.Users["*"] = Grant{Name: "*", Role: Read}
	g.Set(rules)
	_, grant = ask(g, from("10.20.0.5:1"), header("X-Forwarded-User", "bob"))
	require.Equal(t, Grant{Name: "bob", Role: Read}, grant)
	w, _ := ask(g, from("10.20.0.5:1"), header("X-Forwarded-User", "bob", "ann"))
	require.Equal(t, http.StatusUnauthorized, w.Code)
}

// Where there is no TLS others are answered through the proxy only.
func TestThroughProxies(t *testing.T) {
	t.Parallel()
	h := NewGuard(proxies("10.20.0.5/32")).ThroughProxies(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for addr, code := range map[string]int{"10.20.0.5:1": http.StatusOK, "127.0.0.1:1": http.StatusOK, "10.20.0.6:1": http.StatusForbidden, "@": http.StatusForbidden} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
		r.RemoteAddr = addr
		bearer("s3cret")(r)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, code, w.Code, addr)
	}
}

// What is the node's own is for this machine, and for those who reach everything.
func TestRequire(t *testing.T) {
	t.Parallel()
	rules := proxies("127.0.0.1/32")
	whole := token("whole", "whole", Read)
	whole.Grant.Tenants, whole.Grant.Pools = nil, nil
	rules.Tokens = append(rules.Tokens, whole)
	g := NewGuard(rules)
	get := func(role Role, changes ...func(*http.Request)) int {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/metrics", nil)
		for _, change := range changes {
			change(r)
		}
		w := httptest.NewRecorder()
		g.Require(role, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, http.StatusOK, get(Admin, from("127.0.0.1:1")))
	require.Equal(t, http.StatusUnauthorized, get(Read, from("192.0.2.1:1")))
	require.Equal(t, http.StatusOK, get(Read, bearer("whole")))
	require.Equal(t, http.StatusForbidden, get(Admin, bearer("whole")))
	require.Equal(t, http.StatusForbidden, get(Read, bearer("s3cret")), "it reaches one tenant only")
	require.Equal(t, http.StatusUnauthorized, get(Read, from("127.0.0.1:1"), header("X-Forwarded-For", "192.0.2.1")))
	require.Equal(t, http.StatusUnauthorized, get(Read, from("127.0.0.1:1"), header("X-Forwarded-User", "bob")), "a proxy here speaks for others")
	require.Equal(t, http.StatusOK, get(Admin, from("127.0.0.1:1"), header("X-Forwarded-User", "ann")))
}

// signIn knows one person, by a header.
type signIn struct{}

func (signIn) GrantOf(r *http.Request) (Grant, bool) {
	return Grant{Name: "sue", Role: Read, SignedIn: true}, r.Header.Get("Cookie") == "sue"
}

func (signIn) Invite(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Accept") != "text/html" {
		return false
	}
	w.WriteHeader(http.StatusFound)
	return true
}

func TestPeopleSignIn(t *testing.T) {
	t.Parallel()
	g := NewGuard(Rules{SignIn: true})
	g.SignIn = signIn{}
	_, grant := ask(g, header("Cookie", "sue"))
	require.Equal(t, "sue", grant.Name)
	w, grant := ask(g, from("127.0.0.1:1"))
	require.Equal(t, http.StatusUnauthorized, w.Code, "to be on this machine is not enough")
	require.Zero(t, grant)
	w, _ = ask(g, header("Accept", "text/html"))
	require.Equal(t, http.StatusFound, w.Code)
	w, _ = ask(g, header("Cookie", "sue"), bearer("wrong"))
	require.Equal(t, http.StatusUnauthorized, w.Code)
}

func TestOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	w, grant := ask(NewGuard(Rules{}), from("127.0.0.1:1"), header("Sec-Fetch-Site", "cross-site"))
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Zero(t, grant)
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'")
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
}

// Other sites may lead somebody here, and have the browser ask for nothing behind its back: no stream that is kept open,
// no picture that is the doctor's answer, no frame.
func TestOtherSitesLeadHereOnly(t *testing.T) {
	t.Parallel()
	get := func(r *http.Request) { r.Method = http.MethodGet }
	for _, c := range []struct {
		site, mode, dest string
		code             int
	}{
		{"cross-site", "navigate", "document", http.StatusOK}, {"same-site", "navigate", "document", http.StatusOK},
		{"cross-site", "navigate", "iframe", http.StatusForbidden}, {"cross-site", "no-cors", "image", http.StatusForbidden},
		{"cross-site", "cors", "empty", http.StatusForbidden}, {"same-site", "cors", "empty", http.StatusForbidden}, {"cross-site", "", "", http.StatusForbidden},
		{"same-origin", "cors", "empty", http.StatusOK}, {"same-origin", "no-cors", "style", http.StatusOK}, {"none", "navigate", "document", http.StatusOK}, {"", "", "", http.StatusOK},
	} {
		w, grant := ask(NewGuard(Rules{}), from("127.0.0.1:1"), get, header("Sec-Fetch-Site", c.site), header("Sec-Fetch-Mode", c.mode), header("Sec-Fetch-Dest", c.dest))
		require.Equal(t, c.code, w.Code, c)
		require.Equal(t, c.code == http.StatusOK, grant.Role == Admin, c)
	}
	w, _ := ask(NewGuard(Rules{}), from("127.0.0.1:1"), header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Mode", "navigate"), header("Sec-Fetch-Dest", "document"))
	require.Equal(t, http.StatusForbidden, w.Code, "a form of another site")
}

func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	send := func(size int) int {
		w, _ := ask(NewGuard(Rules{}), from("127.0.0.1:1"), func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(strings.Repeat("x", size)))
		})
		return w.Code
	}
	require.Equal(t, http.StatusOK, send(1<<20))
	require.Equal(t, http.StatusRequestEntityTooLarge, send(1<<20+1))
}

// The audit's name of a token is nobody's whom a provider or a proxy has called so.
func TestNamesOfDifferentSources(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, source := range []Source{OfToken, OfProxy, OfOIDC} {
		for _, name := range []string{"ci", "token:ci", "oidc:ci", "proxy:ci", "loopback"} {
			names[Grant{Name: name, Source: source}.Who()] = true
		}
	}
	require.Len(t, names, 15)
	require.False(t, names["loopback"], "programs on this machine are called so")
}

// Who is not let in by a secret is logged, whichever way it came, and a line a second at most. Who shows none is a stranger.
func TestWhoIsNotLetInIsLogged(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	rules := proxies("10.20.0.5/32")
	g := NewGuard(rules)
	now := time.Date(2027, 1, 31, 9, 0, 0, 0, time.UTC)
	g.Log, g.now = zap.New(core), func() time.Time { return now }
	basic := func(r *http.Request) { r.SetBasicAuth("ci", "wrong") }
	user := func(r *http.Request) { from("10.20.0.5:1")(r); header("X-Forwarded-User", "bob")(r) }
	for i, change := range []func(*http.Request){bearer("wrong"), basic, user} {
		for range 3 {
			ask(g, change)
			g.Require(Read, http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "http://localhost/metrics", nil))
		}
		require.Equal(t, i+1, logs.Len())
		now = now.Add(time.Second)
	}
	ask(g)
	ask(g, bearer("s3cret"))
	require.Equal(t, 3, logs.Len(), "strangers and those who are let in are not logged")
}

func TestRulesOf(t *testing.T) {
	t.Parallel()
	n := config.Node{
		Tokens: map[string]config.Token{
			"b": {SHA256: "22", OldSHA256: "11", Expires: "2027-01-31T10:00:00+01:00", Role: "operate", Tenants: []tenancy.ID{"acme"}, Pools: []string{"eu"}, Args: true},
			"a": {SHA256: "33", Role: "read"},
		},
		TrustedProxies: config.TrustedProxies{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}, UserHeader: "X-User", Users: map[string]config.Access{"ann": {Role: "admin", Args: true}}},
		OIDC:           config.OIDC{Issuer: "https://login.example.com"},
	}
	r, err := RulesOf(n)
	require.NoError(t, err)
	require.True(t, r.SignIn)
	require.Equal(t, Proxies{n.TrustedProxies.Networks, "X-User", map[string]Grant{"ann": {Name: "ann", Source: OfProxy, Role: Admin, Args: true}}}, r.Proxies)
	require.Equal(t, Token{Grant: Grant{Name: "a", Source: OfToken, Role: Read}, SHA256: "33"}, r.Tokens[0])
	require.Equal(t, Grant{Name: "b", Source: OfToken, Role: Operate, Tenants: []tenancy.ID{"acme"}, Pools: []string{"eu"}, Args: true}, r.Tokens[1].Grant)
	require.True(t, r.Tokens[1].Expires.Equal(time.Date(2027, 1, 31, 9, 0, 0, 0, time.UTC)))
	require.Equal(t, "11", r.Tokens[1].OldSHA256)

	_, err = RulesOf(config.Node{Tokens: map[string]config.Token{"ops": {Role: "root"}}})
	require.EqualError(t, err, `token ops: the role "root" is none: read, operate and admin are`)
	_, err = RulesOf(config.Node{Tokens: map[string]config.Token{"ops": {Role: "read", Expires: "soon"}}})
	require.ErrorContains(t, err, "token ops: expires")
	_, err = RulesOf(config.Node{TrustedProxies: config.TrustedProxies{Users: map[string]config.Access{"ann": {}}}})
	require.ErrorContains(t, err, "user ann of trusted proxies")
}
