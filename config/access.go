package config

import (
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenurehq/tenure/internal/fault"
	"github.com/tenurehq/tenure/tenancy"
)

// Token is what somebody who knows its secret may do. The secret itself stands nowhere.
type Token struct {
	SHA256 string `yaml:"secret_hash"` // of the secret, in hexadecimal digits
	// OldSHA256 is the hash of another secret that is as good as the one of SHA256, for as long
	// as somebody still uses it. Empty: there is none.
	OldSHA256 string `yaml:"old_secret_hash"`
	// Expires is when the token ends, such as 2027-01-31T09:00:00Z. Empty: never.
	Expires string       `yaml:"expires"`
	Role    string       `yaml:"role"`    // read, operate or admin
	Tenants []tenancy.ID `yaml:"tenants"` // the only ones that it reaches; none: all
	Pools   []string     `yaml:"pools"`   // the only ones that it reaches; none: all
	Args    bool         `yaml:"args"`    // it may see jobs' arguments and outputs
}

// ExpiresAt is when the token ends; zero: never.
func (t Token) ExpiresAt() (time.Time, error) {
	if t.Expires == "" {
		return time.Time{}, nil
	}
	return time.Parse(time.RFC3339, t.Expires)
}

const hashFix = "write the hash that tenure token new prints, or what this prints for a long random secret: printf %s \"$SECRET\" | sha256sum"

func (t Token) validate(at string, l *fault.List) {
	if !tokenHash.MatchString(t.SHA256) {
		l.Add(at+".secret_hash", hashFix, "is not a SHA-256 hash: 64 hexadecimal digits are")
	}
	if t.OldSHA256 != "" && !tokenHash.MatchString(t.OldSHA256) {
		l.Add(at+".old_secret_hash", hashFix, "is not a SHA-256 hash: 64 hexadecimal digits are")
	}
	if _, err := t.ExpiresAt(); err != nil {
		l.Add(at+".expires", "write a time such as 2027-01-31T09:00:00Z", "is not a time")
	}
	l.OneOf(at+".role", t.Role, roles...)
}

var tokenHash = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// Access is what somebody may do.
type Access struct {
	Role    string       `yaml:"role"`    // read, operate or admin
	Tenants []tenancy.ID `yaml:"tenants"` // the only ones that it reaches; none: all
	Pools   []string     `yaml:"pools"`   // the only ones that it reaches; none: all
	Args    bool         `yaml:"args"`    // it may see jobs' arguments and outputs
}

var roles = []string{"read", "operate", "admin"}

// TrustedProxies are between callers and the node, and have found out who calls.
type TrustedProxies struct {
	// Networks are where they are: who connects from there is believed. Empty: nobody is.
	Networks []netip.Prefix `yaml:"networks"`
	// UserHeader is where they write who calls. They must remove it from what they are sent.
	UserHeader string `yaml:"user_header"`
	// Users are what each may do, by what is in the header; "*" is whoever is not named.
	Users map[string]Access `yaml:"users"`
}

// Enabled says whether there are any.
func (p TrustedProxies) Enabled() bool { return len(p.Networks) > 0 }

func (p TrustedProxies) validate(l *fault.List) {
	const at = "node.trusted_proxies"
	for i, n := range p.Networks {
		path := at + ".networks[" + strconv.Itoa(i) + "]"
		switch {
		case !n.IsValid():
			l.Add(path, "write the address of a proxy such as 10.20.0.5/32", "is not a network")
		case n.Bits() == 0:
			l.Add(path, "name the proxies' own addresses", "is every network: anybody could say who they are")
		}
	}
	if p.Enabled() && !headerName.MatchString(p.UserHeader) {
		l.Add(at+".user_header", "write a name such as X-Forwarded-User", "is not the name of a header")
	} else if name := http.CanonicalHeaderKey(p.UserHeader); slices.Contains([]string{"Authorization", "Cookie", "Host", "Forwarded", "X-Forwarded-For"}, name) {
		l.Add(at+".user_header", "write the one in which the proxy puts the user's name, such as X-Forwarded-User", "does not say who calls")
	}
	if p.Enabled() && len(p.Users) == 0 {
		l.Add(at+".users", `write a line such as ann@example.com: {role: admin}; "*" is for whoever is not named`, "is empty, so that nobody would be let in")
	}
	for _, user := range slices.Sorted(maps.Keys(p.Users)) {
		l.OneOf(at+".users."+user+".role", p.Users[user].Role, roles...)
	}
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

// OIDC is where people sign in to the dashboard, by OpenID Connect.
type OIDC struct {
	// Issuer is the provider's URL, below which its discovery document is. Empty: nobody signs in.
	Issuer string `yaml:"issuer"`
	// ClientID is the name that the provider knows the dashboard by.
	ClientID string `yaml:"client_id"`
	// ClientSecretFile is the path of a file with the client's secret, which is read at each
	// sign-in. Empty: the client has none.
	ClientSecretFile string `yaml:"client_secret_file"`
	// RedirectURL is where the provider sends people back: the dashboard's address as browsers
	// know it, and /oidc/callback.
	RedirectURL string `yaml:"redirect_url"`
	// Scopes are asked for beside openid.
	Scopes []string `yaml:"scopes"`
	// Claim is what of the ID token says what somebody may do: a name, or a path with dots.
	Claim string `yaml:"claim"`
	// Roles are what people may do, by a value of the claim. Of several that somebody has, the one
	// with the highest role counts, and of equal ones the first by name. Without one they may do
	// nothing.
	Roles map[string]Access `yaml:"roles"`
	// Session is after how long they have to sign in again.
	Session time.Duration `yaml:"session"`
	// CookieKeyFile is the path of a file with a secret, the same on all nodes, that sessions are
	// encrypted with. Empty: each node makes one when it starts, and knows its own sessions only.
	CookieKeyFile string `yaml:"cookie_key_file"`
}

// CallbackPath is at the end of [OIDC.RedirectURL].
const CallbackPath = "/oidc/callback"

// Enabled says whether people sign in.
func (o OIDC) Enabled() bool { return o.Issuer != "" }

func (o OIDC) validate(l *fault.List) {
	const at = "node.oidc"
	if !o.Enabled() {
		if o.ClientID != "" || o.RedirectURL != "" {
			l.Add(at+".issuer", "write the provider's URL such as https://login.example.com", "is empty, so that nobody could sign in")
		}
		return
	}
	if !isSecureURL(o.Issuer) {
		l.Add(at+".issuer", "write the provider's URL such as https://login.example.com", "is not the URL of a provider")
	}
	if o.ClientID == "" {
		l.Add(at+".client_id", "write the name that the provider knows the dashboard by", "is empty")
	}
	if u, err := url.Parse(o.RedirectURL); !isSecureURL(o.RedirectURL) || err != nil || !strings.HasSuffix(u.Path, CallbackPath) || u.RawQuery != "" {
		l.Add(at+".redirect_url", "write the dashboard's address and "+CallbackPath+", such as https://tenure.example.com"+CallbackPath, "is not where a browser is sent back to")
	}
	requireWholePath(at+".client_secret_file", o.ClientSecretFile, l)
	requireWholePath(at+".cookie_key_file", o.CookieKeyFile, l)
	if o.Claim == "" {
		l.Add(at+".claim", "write the one that has people's groups, such as groups", "is empty")
	}
	if len(o.Roles) == 0 {
		l.Add(at+".roles", "write a line such as operators: {role: admin}", "is empty, so that nobody would be let in")
	}
	for _, value := range slices.Sorted(maps.Keys(o.Roles)) {
		l.OneOf(at+".roles."+value+".role", o.Roles[value].Role, roles...)
	}
	if o.Session < minSession || o.Session > maxSession {
		l.Add(at+".session", "", "%v: %v to %v are allowed", o.Session, minSession, maxSession)
	}
}

const (
	minSession = time.Minute
	maxSession = 24 * time.Hour
)

// requireWholePath refuses paths that depend on where a process was started.
func requireWholePath(at, file string, l *fault.List) {
	if file != "" && !filepath.IsAbs(file) {
		l.Add(at, "write the whole path, beginning with /", "is not the whole path of a file")
	}
}

// isSecureURL says whether text is the URL of something that nobody can listen to on the way:
// https, or on this machine.
func isSecureURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	here := u.Hostname() == "localhost" || err == nil && addr.IsLoopback()
	return u.Scheme == "https" || u.Scheme == "http" && here
}
