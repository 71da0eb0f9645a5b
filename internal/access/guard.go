package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// maxBody bounds the body of a request: more than a job's arguments may be.
const maxBody = 1 << 20

// SignIn lets people in who have signed in elsewhere.
type SignIn interface {
	// GrantOf is what the sender of a request may do, if it shows that they signed in.
	GrantOf(*http.Request) (Grant, bool)
	// Invite answers a stranger by leading them to where they can sign in; false: it has not
	// answered, as this is no browser that somebody looks at.
	Invite(http.ResponseWriter, *http.Request) bool
}

// Guard finds out who sends a request: a proxy says it, or a token, or a sign-in. While the rules
// name nobody, programs on this machine may do everything and others nothing. Safe for concurrent
// use.
type Guard struct {
	// SignIn is how people sign in; nil: they do not, neither by a cookie of a token that they have shown. Set it before the guard is used.
	SignIn SignIn
	// Log gets who is not let in though they show something that is to let them in, at most a line a second: anybody can have it
	// logged. nil: nobody does. Set it before the guard is used.
	Log *zap.Logger

	seldom   sync.Mutex
	lastLine time.Time // guarded by seldom; when somebody was logged

	rules atomic.Pointer[ready]
	now   func() time.Time
}

// ready are rules that are ready to be compared.
type ready struct {
	doors   []door
	proxies Proxies
	hosts   []string
	nobody  bool          // the rules name nobody
	old     chan struct{} // closed when others have replaced them
}

// NewGuard returns a guard that goes by rules.
func NewGuard(rules Rules) *Guard {
	g := &Guard{now: time.Now}
	g.Set(rules)
	return g
}

// Set replaces the rules. Each request is judged by either the old or the new ones, and one that waits by both: see
// [WhileGranted].
func (g *Guard) Set(rules Rules) {
	r := &ready{doors: doorsOf(rules.Tokens), proxies: rules.Proxies, hosts: rules.Hosts, old: make(chan struct{})}
	r.nobody = len(r.doors) == 0 && len(r.proxies.Networks) == 0 && !rules.SignIn
	if before := g.rules.Swap(r); before != nil {
		close(before.old)
	}
}

// Wrap puts a [Grant] into the context of each request before next has it, and answers those of
// strangers with 401. It refuses what another site has a browser send, and bodies of more than 1 MiB.
func (g *Guard) Wrap(next http.Handler) http.Handler { return Secured(g.authenticate(next)) }

// maxAddress bounds the address of a request, which a page has in its links again.
const maxAddress = 16 << 10

// Secured refuses what another site has a browser send, and has browsers load and run nothing that
// does not come from here.
func Secured(next http.Handler) http.Handler {
	inner := http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		if len(r.RequestURI) > maxAddress {
			http.Error(w, "The address is too long.", http.StatusRequestURITooLong)
			return
		}
		if isEmbedded(r) {
			http.Error(w, "A page of another site has asked for this: open it by itself.", http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

// isEmbedded says whether a page of another site has its visitor's browser ask, other than by leading the
// visitor here. It could not read the answer, and yet have a node on the visitor's machine keep many
// requests waiting, or ask all databases again and again.
func isEmbedded(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site": // same-site: of another name or port, which somebody else may have
		return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
	default: // from here, typed, or by no browser
		return false
	}
}

func (g *Guard) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		grant := g.GrantOf(r)
		switch {
		case grant.Role != None:
			ctx := context.WithValue(With(r.Context(), grant), senderKey{}, sender{g, r})
			r := r.WithContext(ctx) // the server has to see its own body, or takes what is left of it for a request
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			next.ServeHTTP(w, r)
		case g.SignIn != nil && g.SignIn.Invite(w, r):
		default:
			g.refuse(w, r)
		}
	})
}

// Require lets those to next who have a role and reach all tenants and pools, and programs on this
// machine: it is for what is the node's own.
func (g *Guard) Require(role Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		grant := g.GrantOf(r)
		rules := g.rules.Load()
		proxied := r.Header.Get(rules.proxies.Header) != ""
		switch {
		case rules.isLocal(r) && !proxied, grant.May(role) && grant.IsUnlimited():
			next.ServeHTTP(w, r)
		case grant.Role == None:
			g.refuse(w, r)
		default:
			http.Error(w, "This needs the role "+role.String()+", for all tenants and pools.", http.StatusForbidden)
		}
	})
}

// refuse answers a stranger. A browser asks for a password where somebody opens a page, and not where
// a page that is open asks for something, as live ones do.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request) {
	if rules := g.rules.Load(); rules.nobody && comesFromHere(r) { // by a name that is not this server's
		refuseHost(w, r)
		return
	}
	if _, shown := secretOf(r); shown || g.rules.Load().proxies.names(r) {
		g.logRefused(r)
	}
	w.Header().Add("WWW-Authenticate", `Bearer realm="tenure"`)
	if IsOpened(r) {
		w.Header().Add("WWW-Authenticate", `Basic realm="tenure", charset="UTF-8"`)
	}
	http.Error(w, "Send a token of node.tokens, as a bearer token or as the password of HTTP Basic authentication.", http.StatusUnauthorized)
}

// logRefused logs who was not let in, unless somebody was within the last second.
func (g *Guard) logRefused(r *http.Request) {
	g.seldom.Lock()
	now := g.now()
	quiet := g.Log == nil || now.Sub(g.lastLine) < time.Second && !now.Before(g.lastLine)
	if !quiet {
		g.lastLine = now
	}
	g.seldom.Unlock()
	if !quiet {
		g.Log.Warn("somebody was not let in: what they sent is no token or user that is, or not any more", zap.String("from", r.RemoteAddr))
	}
}

// IsOpened says whether somebody opens what is asked for, or a program asks, and not a page that is open: a browser that
// does not tell (it does with TLS, and on loopback) sends a header of the page's.
func IsOpened(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return mode == "navigate" || mode == "" && r.Header.Get("Tenure-Live") == ""
}

// GrantOf is what the sender of a request may do.
func (g *Guard) GrantOf(r *http.Request) Grant {
	rules := g.rules.Load()
	if rules.nobody {
		if rules.isLocal(r) {
			return Grant{Name: "loopback", Role: Admin, Args: true}
		}
		return Grant{}
	}
	if grant, said := rules.proxies.grantOf(r); said {
		return grant
	}
	if secret, ok := secretOf(r); ok {
		return rules.grantOf(secret, g.now())
	}
	if g.SignIn != nil {
		if grant, in := g.SignIn.GrantOf(r); in {
			return grant
		}
		return rules.grantOfSession(r, g.now())
	}
	return Grant{}
}

// grantOf is what a secret is good for.
func (rules *ready) grantOf(secret string, now time.Time) Grant {
	hash := sha256.Sum256([]byte(secret))
	var found Grant
	for _, d := range rules.doors { // all of them: how long it takes does not tell which one it is
		if subtle.ConstantTimeCompare(hash[:], d.hash[:]) == 1 && (d.expires.IsZero() || now.Before(d.expires)) {
			found = d.grant
		}
	}
	return found
}

// grantOf is what the user may do that a proxy names; said: one has.
func (p *Proxies) grantOf(r *http.Request) (grant Grant, said bool) {
	if !p.Trusts(r) {
		return Grant{}, false // anybody can write a header
	}
	switch users := r.Header.Values(p.Header); {
	case len(users) == 0:
		return Grant{}, false
	case len(users) > 1 || users[0] == "":
		return Grant{}, true // nobody knows which one the proxy means
	default:
		grant, known := p.Users[users[0]]
		if !known {
			grant = p.Users["*"]
			grant.Name = users[0]
		}
		return grant, true
	}
}

// names says whether a proxy names a user.
func (p *Proxies) names(r *http.Request) bool { return p.Trusts(r) && r.Header.Get(p.Header) != "" }

// Trusts says whether a request comes from one of the proxies.
func (p *Proxies) Trusts(r *http.Request) bool {
	addr, ok := remoteAddr(r)
	return ok && r.Header.Get(ofJob) == "" && slices.ContainsFunc(p.Networks, func(n netip.Prefix) bool { return n.Contains(addr) })
}

// ThroughProxies lets those to next whom a proxy has passed on, and programs on this machine. It is
// for what others could read on the way.
func (g *Guard) ThroughProxies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rules := g.rules.Load(); !rules.isLocal(r) && !rules.proxies.Trusts(r) {
			http.Error(w, "This node is asked through its proxy (node.trusted_proxies), or once it has TLS (node.tls_cert and node.tls_key).", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// secretOf is the bearer token of a request, or the password that a browser asked for.
func secretOf(r *http.Request) (string, bool) {
	if _, password, ok := r.BasicAuth(); ok {
		return password, password != ""
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}

// isLocal says whether a request comes from a program on this machine, and neither from a job nor through a proxy on
// it, whose clients may be anybody, nor from another site's page in a browser on it; see [ForHosts].
func (rules *ready) isLocal(r *http.Request) bool {
	return comesFromHere(r) && isKnownHost(r.Host, rules.hosts)
}

// ofJob is the header that http.request sends with what a job asks for: it comes from a node, and a tenant wants it.
const ofJob = "X-Tenure-Job"

func comesFromHere(r *http.Request) bool {
	for _, h := range []string{ofJob, "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(h) != "" {
			return false
		}
	}
	addr, ok := remoteAddr(r)
	if !ok || addr.IsLoopback() {
		return ok
	}
	own, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr) // who calls from where it is called is here, too
	return own != nil && own.AddrPort().Addr().Unmap() == addr
}

// remoteAddr is where a connection comes from.
func remoteAddr(r *http.Request) (netip.Addr, bool) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(host)
	return addr.Unmap().WithZone(""), err == nil
}

func setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // forms say where they come from, other sites learn nothing
	h.Set("Cache-Control", "no-store")
}
