// Package signin has people sign in to the dashboard at an OpenID provider, by an authorization code
// with PKCE, or by a token, and remembers it in a cookie that is encrypted.
//
// What somebody may do is decided at each request, by the values of the claim that they had when they
// signed in and by the configuration of now: a role that is taken away is gone at once. Nothing is
// kept on the node, so that any node with the same cookie key knows all sessions. Safe for concurrent
// use.
package signin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.uber.org/zap"
	"golang.org/x/oauth2"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/access"
)

const (
	// providerLimit bounds one call of the provider.
	providerLimit = 10 * time.Second
	// providerPause is for how long a provider that has not answered is asked for nothing: anybody can have it asked.
	providerPause = providerLimit / 10
	// maxTo bounds the address that somebody wanted to go to, which has to fit in a cookie.
	maxTo = 1500
	// maxForm bounds what somebody sends to sign in by a token.
	maxForm = 16 << 10
	// signInPath is where tokens are asked for.
	signInPath = "/sign-in"
)

// Tokens are what people can sign in by without a provider.
type Tokens interface {
	TakesTokens() bool
	// OpenSession remembers in the browser who shows the secret of a token; ok: it is one.
	OpenSession(w http.ResponseWriter, r *http.Request, secret string) (name string, ok bool)
}

// SignIn is the pages by which people sign in and out; see [access.SignIn], too.
type SignIn struct {
	// Tokens let people in, too; nil: they do not. Style is the address of the pages' style. Set both before it is used.
	Tokens Tokens
	Style  string

	prefix  string
	log     *zap.Logger
	mux     *http.ServeMux
	client  *http.Client
	now     func() time.Time
	own     []byte // the cookies' key where none is configured
	current atomic.Pointer[realm]
}

var _ access.SignIn = (*SignIn)(nil)

// realm is one provider, and what its people may do.
type realm struct {
	cfg    config.OIDC
	grants map[string]access.Grant // by a value of the claim
	seal   sealer

	provider atomic.Pointer[oidc.Provider] // nil until it has answered

	mu     sync.Mutex // held while the provider is asked for its endpoints
	failed error      // guarded by mu; its last answer, if that was none
	until  time.Time  // guarded by mu; to when failed is the answer
}

// New returns a SignIn that stands at prefix+"/sign-in" and prefix+"/oidc/", and that nobody can sign in at yet.
func New(prefix string, log *zap.Logger) *SignIn {
	s := &SignIn{prefix: prefix, log: log, mux: http.NewServeMux(), client: &http.Client{Timeout: providerLimit}, now: time.Now, own: make([]byte, 32)}
	rand.Read(s.own) // never fails
	s.mux.HandleFunc("GET "+prefix+signInPath, func(w http.ResponseWriter, r *http.Request) { s.ask(w, http.StatusOK, "", r.FormValue("to")) })
	s.mux.HandleFunc("POST "+prefix+signInPath, s.takeToken)
	s.mux.HandleFunc("GET "+prefix+"/oidc/sign-in", s.begin)
	s.mux.HandleFunc("GET "+prefix+config.CallbackPath, s.finish)
	s.mux.HandleFunc("POST "+prefix+"/oidc/sign-out", s.signOut)
	s.mux.HandleFunc("GET "+prefix+"/oidc/signed-out", func(w http.ResponseWriter, _ *http.Request) {
		s.say(w, http.StatusOK, "You are signed out.")
	})
	s.current.Store(&realm{})
	return s
}

// Set replaces the provider and what people may do. An error says what is wrong with cfg. A role that there is not then
// changes nothing. Anything else leaves sessions to what cfg gives them, or ends them if they are not of its provider and client.
func (s *SignIn) Set(cfg config.OIDC) error {
	old := s.current.Load()
	r := &realm{cfg: cfg, grants: map[string]access.Grant{}}
	if !cfg.Enabled() {
		s.current.Store(r)
		return nil
	}
	for value, a := range cfg.Roles {
		g, err := access.GrantOf(access.OfOIDC, "", a)
		if err != nil {
			return fmt.Errorf("node.oidc.roles.%s: %w", value, err)
		}
		g.SignedIn = true
		r.grants[value] = g
	}
	key, err := s.readKey(cfg)
	switch {
	case err == nil:
		r.seal = newSealer(key, cfg.Issuer, cfg.ClientID)
	case old.cfg.Issuer == cfg.Issuer && old.cfg.ClientID == cfg.ClientID: // or what was taken away would stay in force
		r.cfg, r.seal = old.cfg, old.seal
		r.cfg.Roles, r.cfg.Session = cfg.Roles, cfg.Session
	default:
		r = &realm{}
	}
	if old.cfg.Issuer == r.cfg.Issuer {
		r.provider.Store(old.provider.Load())
	}
	s.current.Store(r)
	return err
}

// readKey returns the cookies' key, if people come back here at all.
func (s *SignIn) readKey(cfg config.OIDC) ([]byte, error) {
	if u, err := url.Parse(cfg.RedirectURL); err != nil || u.Path != s.prefix+config.CallbackPath {
		return nil, fmt.Errorf("node.oidc.redirect_url %.200q: the dashboard expects people back at %s", cfg.RedirectURL, s.prefix+config.CallbackPath)
	}
	if cfg.CookieKeyFile == "" {
		return s.own, nil
	}
	key, err := readSecret(cfg.CookieKeyFile)
	if err == nil && len(key) < 32 {
		err = errors.New("it has less than 32 characters: make one with: openssl rand -base64 32")
	}
	if err != nil {
		return nil, fmt.Errorf("node.oidc.cookie_key_file: %w", err)
	}
	return []byte(key), nil
}

// readSecret is what a file holds, without white space around it.
func readSecret(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

// ServeHTTP implements http.Handler.
func (s *SignIn) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// GrantOf implements [access.SignIn].
func (s *SignIn) GrantOf(r *http.Request) (access.Grant, bool) {
	realm := s.current.Load()
	var who session
	if !realm.cfg.Enabled() || !realm.seal.read(r, sessionCookie, &who) || s.now().After(who.Began.Add(realm.cfg.Session)) {
		return access.Grant{}, false
	}
	g := realm.grantOf(who.Values)
	g.Name = who.Name
	return g, g.Role != access.None
}

// Invite implements [access.SignIn]: a browser that somebody looks at is sent to the provider, or to the page for tokens.
func (s *SignIn) Invite(w http.ResponseWriter, r *http.Request) bool {
	way := "/oidc/sign-in"
	if !s.current.Load().cfg.Enabled() {
		way = signInPath
	}
	switch {
	case way == signInPath && !s.takesTokens(), r.Method != http.MethodGet, r.Header.Get("Authorization") != "",
		!access.IsOpened(r), !strings.Contains(r.Header.Get("Accept"), "text/html"), strings.HasPrefix(r.URL.Path, s.prefix+"/api/"):
		return false
	}
	http.Redirect(w, r, s.prefix+way+"?"+url.Values{"to": {r.URL.RequestURI()}}.Encode(), http.StatusFound)
	return true
}

func (s *SignIn) takesTokens() bool { return s.Tokens != nil && s.Tokens.TakesTokens() }

// takeToken lets somebody in who shows a token.
func (s *SignIn) takeToken(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	to, secret := r.PostFormValue("to"), strings.TrimSpace(r.PostFormValue("token"))
	if !s.takesTokens() || secret == "" {
		s.ask(w, http.StatusBadRequest, "No token came with this.", to)
		return
	}
	name, ok := s.Tokens.OpenSession(w, r, secret)
	if !ok {
		s.ask(w, http.StatusUnauthorized, "This is no token that is let in, or not any more.", to)
		return
	}
	s.log.Info("signed in by a token", zap.String("token", name))
	http.Redirect(w, r, s.ownPath(to), http.StatusSeeOther)
}

// begin sends somebody to the provider.
func (s *SignIn) begin(w http.ResponseWriter, r *http.Request) {
	realm := s.current.Load()
	flow, err := s.flow(r.Context(), realm)
	if err != nil {
		s.fail(w, "the provider cannot be asked", err)
		return
	}
	a := attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), To: s.ownPath(r.FormValue("to")), Began: s.now()}
	if err := realm.seal.write(w, attemptCookie, a, attemptLimit); err != nil {
		s.fail(w, "the attempt cannot be remembered", err)
		return
	}
	http.Redirect(w, r, flow.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), http.StatusFound)
}

// finish takes in somebody whom the provider has sent back.
func (s *SignIn) finish(w http.ResponseWriter, r *http.Request) {
	realm := s.current.Load()
	var a attempt
	if !realm.seal.read(r, attemptCookie, &a) || s.now().After(a.Began.Add(attemptLimit)) || !a.isAnswered(r.FormValue("state")) {
		s.say(w, http.StatusBadRequest, "This sign-in was not begun in this browser within the last minutes.")
		return
	}
	forget(w, attemptCookie) // it is good for one answer
	if code := r.FormValue("error"); code != "" {
		s.log.Info("the provider let nobody sign in", zap.String("error", fmt.Sprintf("%.100q", code)))
		s.say(w, http.StatusForbidden, "The provider did not let you sign in.")
		return
	}
	claims, err := s.redeem(r, realm, a)
	if err != nil {
		s.fail(w, "what the provider answered is not accepted", err)
		return
	}
	who := session{Name: claims.name(), Values: realm.known(claims.values(realm.cfg.Claim)), Began: s.now()}
	if realm.grantOf(who.Values).Role == access.None {
		s.log.Warn("somebody without a role signed in", zap.String("user", who.Name))
		s.say(w, http.StatusForbidden, "You signed in as "+who.Name+", who has no role here: ask whoever runs this for one.")
		return
	}
	if err := realm.seal.write(w, sessionCookie, who, realm.cfg.Session); err != nil {
		s.fail(w, "the session cannot be remembered", err)
		return
	}
	s.log.Info("signed in", zap.String("user", who.Name), zap.Strings("values", who.Values))
	http.Redirect(w, r, a.To, http.StatusSeeOther)
}

// redeem gets the ID token for what somebody brought from the provider.
func (s *SignIn) redeem(r *http.Request, realm *realm, a attempt) (claims, error) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(r.Context(), s.client), providerLimit)
	defer cancel()
	flow, err := s.flow(ctx, realm)
	if err != nil {
		return nil, err
	}
	token, err := flow.Exchange(ctx, r.FormValue("code"), oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return nil, fmt.Errorf("redeem the code: %w", err)
	}
	text, ok := token.Extra("id_token").(string)
	if !ok {
		return nil, errors.New("there is no ID token beside the access token")
	}
	id, err := flow.provider.Verifier(&oidc.Config{ClientID: realm.cfg.ClientID, Now: s.now}).Verify(ctx, text)
	if err != nil {
		return nil, err
	}
	if id.Nonce != a.Nonce {
		return nil, errors.New("the ID token is for another sign-in")
	}
	var c claims
	if err := id.Claims(&c); err != nil {
		return nil, fmt.Errorf("read the claims: %w", err)
	}
	return c, nil
}

// flow is how codes are asked for and redeemed.
type flow struct {
	oauth2.Config
	provider *oidc.Provider
}

func (s *SignIn) flow(ctx context.Context, realm *realm) (*flow, error) {
	if !realm.cfg.Enabled() {
		return nil, errors.New("node.oidc is not set")
	}
	provider, err := s.providerOf(ctx, realm)
	if err != nil {
		return nil, err
	}
	f := &flow{provider: provider, Config: oauth2.Config{ClientID: realm.cfg.ClientID, RedirectURL: realm.cfg.RedirectURL,
		Endpoint: provider.Endpoint(), Scopes: append([]string{oidc.ScopeOpenID}, realm.cfg.Scopes...)}}
	if realm.cfg.ClientSecretFile != "" {
		if f.ClientSecret, err = readSecret(realm.cfg.ClientSecretFile); err != nil {
			return nil, fmt.Errorf("node.oidc.client_secret_file: %w", err)
		}
	}
	return f, nil
}

// providerOf asks the provider for its endpoints until it has answered once: a node starts, and tokens
// work, whether it answers or not. Those who come while it is asked have the same answer.
func (s *SignIn) providerOf(ctx context.Context, realm *realm) (*oidc.Provider, error) {
	if p := realm.provider.Load(); p != nil {
		return p, nil
	}
	realm.mu.Lock()
	defer realm.mu.Unlock()
	if p := realm.provider.Load(); p != nil {
		return p, nil
	}
	if realm.failed != nil && s.now().Before(realm.until) {
		return nil, realm.failed
	}
	p, err := oidc.NewProvider(oidc.ClientContext(ctx, s.client), realm.cfg.Issuer)
	if err != nil {
		if ctx.Err() == nil { // else whoever asked has gone, and the provider may be well
			realm.failed, realm.until = err, s.now().Add(providerPause)
		}
		return nil, err
	}
	realm.provider.Store(p)
	return p, nil
}

func (s *SignIn) signOut(w http.ResponseWriter, r *http.Request) {
	forget(w, sessionCookie)
	access.CloseSession(w)
	http.Redirect(w, r, s.prefix+"/oidc/signed-out", http.StatusSeeOther)
}

// ownPath is a path of the dashboard; anything else, such as another site, becomes its first page.
func (s *SignIn) ownPath(to string) string {
	u, err := url.Parse(to)
	if err != nil || len(to) > maxTo || u.Scheme != "" || u.Host != "" || strings.HasPrefix(to, "//") || strings.Contains(to, `\`) || !strings.HasPrefix(u.Path, s.prefix+"/") {
		return s.prefix + "/"
	}
	return u.RequestURI()
}
