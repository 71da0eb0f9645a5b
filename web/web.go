// Package web has what people and programs operate a cluster by over HTTP: the dashboard, an API
// below /api/, which /api/openapi.json describes, and, below /external-job-api/, the part of
// Flowable's that its external workers use.
//
// [Handler] asks everybody who they are, and lets nobody do more than they may. Encryption on the
// way is the business of whoever serves it, as tenure.Node does with node.tls_cert: without that, on
// an address that others reach, tokens could be read by anyone in between.
package web

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/internal/slogcore"
	"github.com/tenurehq/tenure/web/internal/api"
	"github.com/tenurehq/tenure/web/internal/dashboard"
	"github.com/tenurehq/tenure/web/internal/flowable"
	"github.com/tenurehq/tenure/web/internal/signin"
)

// Settings are where dashboard and API stand, and who may use them.
type Settings struct {
	// Prefix is the path that they are served under, such as /tenure; "": the root.
	Prefix string
	// Tokens let in those who know their secrets, by name. Without any, and without
	// TrustedProxies and OIDC, programs on this machine may do everything, and others nothing.
	Tokens map[string]config.Token
	// AllowedHosts are the names by which programs on this machine call the site, beside addresses and localhost, while
	// nobody is named: by another name it could be a page in a browser on this machine.
	AllowedHosts []string
	// TraceURL is where a trace can be seen, such as https://grafana.example.com/trace/{trace}: a job's page leads
	// to the trace in which it was enqueued. "": it does not.
	TraceURL string
	// TrustedProxies say who calls.
	TrustedProxies config.TrustedProxies
	// OIDC is where people sign in to the dashboard.
	OIDC config.OIDC
	// Redact takes out of a job's arguments and outputs, which are JSON, what nobody is to see,
	// whoever asks; nil: nothing. It may be called concurrently. What it returns is to be JSON.
	// Workers outside the cluster get the arguments of what they acquire as they are.
	Redact func(kind string, text json.RawMessage) json.RawMessage
	// Logger gets the errors that are not told to callers, and who signs in; nil: nobody does, with Serve slog.Default().
	Logger *zap.Logger
}

// Site is the dashboard and the API, an http.Handler. Safe for concurrent use.
type Site struct {
	handler http.Handler
	guard   *access.Guard
	signIn  *signin.SignIn
	log     *zap.Logger
}

// Serve is an option of tenure.New that has Node.Run serve the dashboard and the API on node.listen. Who may
// use them, and where traces are seen, are as the node's section says: what s says of that is not heeded. A reload
// changes who may, so that a token which is taken away opens nothing any more.
func Serve(node config.Node, s Settings) tenure.NodeOption {
	s.AllowedHosts, s.Tokens, s.TrustedProxies, s.OIDC, s.TraceURL = node.AllowedHosts, node.Tokens, node.TrustedProxies, node.OIDC, node.TraceURL
	if s.Logger == nil {
		s.Logger = zap.New(slogcore.New(slog.Default().Handler()))
	}
	return tenure.WithHandler(func(n *tenure.Node) http.Handler {
		site, err := Handler(n.Client(), s)
		if err != nil {
			s.Logger.Error("there is no dashboard, and no API", zap.Error(err))
			return http.NotFoundHandler()
		}
		return served{site}
	})
}

// served is a site that goes by the node's configuration.
type served struct{ *Site }

// Reloaded is called as tenure.WithHandler says.
func (s served) Reloaded(cfg config.Config) error { return s.SetAccess(cfg.Node) }

// Handler serves the dashboard and the API of a client, which has to be started, such as a node's
// own. Requests come with their whole path, the prefix included. An error says what is wrong with
// the settings.
func Handler(client *tenure.Client, s Settings) (*Site, error) {
	if client == nil {
		return nil, errors.New("web.Handler: the client is nil: pass a node's, or one made with tenure.NewClient")
	}
	log := s.Logger
	if log == nil {
		log = zap.NewNop()
	}
	pages, err := dashboard.Handler(client.Operator(), dashboard.Settings{Prefix: s.Prefix, Redact: s.Redact, TraceURL: s.TraceURL, Logger: log})
	if err != nil {
		return nil, err
	}
	prefix := strings.TrimRight(s.Prefix, "/")
	site := &Site{log: log, guard: access.NewGuard(access.Rules{SignIn: true}), signIn: signin.New(prefix, log)}
	site.guard.Log = log
	site.guard.SignIn, site.signIn.Tokens = site.signIn, site.guard
	if site.signIn.Style, err = dashboard.StyleLink(prefix); err != nil {
		return nil, err
	}
	if err := site.SetAccess(config.Node{AllowedHosts: s.AllowedHosts, Tokens: s.Tokens, TrustedProxies: s.TrustedProxies, OIDC: s.OIDC}); err != nil {
		return nil, err
	}
	known := http.NewServeMux()
	known.Handle(prefix+"/api/", http.StripPrefix(prefix, api.Handler(client, s.Redact, log)))
	known.Handle(prefix+flowable.Path+"/", http.StripPrefix(prefix, flowable.Handler(client, prefix, log)))
	known.Handle("/", pages)
	mux := http.NewServeMux()
	for _, path := range []string{"/oidc/", "/sign-in"} { // for strangers
		mux.Handle(prefix+path, access.Secured(site.signIn))
	}
	mux.Handle(prefix+"/static/", access.Secured(pages)) // likewise: it tells nothing, and a page without it is none
	guarded := site.guard.Wrap(known)
	mux.Handle(prefix+"/api/", access.Problems(guarded))
	mux.Handle("/", guarded)
	site.handler = mux
	return site, nil
}

// Local is how a process asks the API of its own client; see [InProcess].
type Local struct {
	// Who does what is done, in the audit.
	Who string
	// Look is for how long each pool is waited for by requests that change nothing.
	Look time.Duration
	// Redact takes out of arguments and outputs what is not shown; nil: nothing.
	Redact func(kind string, text json.RawMessage) json.RawMessage
	// Open has encrypted arguments shown decrypted. Else the name of their key is.
	Open bool
	// Failed, unless it is nil, gets errors as they are before a request is answered: what it failed of, and why an
	// answer has nothing of some pools. Answers to the network say less.
	Failed func(error)
}

// InProcess serves the API, below /api/v1/, to the process that the client is of, as the command tenure asks it without
// --server. Who has the databases' credentials may do everything: never have a listener serve it.
func InProcess(client *tenure.Client, l Local) http.Handler {
	return api.InProcess(client, api.Local(l))
}

// ServeHTTP implements http.Handler.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// SetAccess replaces who may use the site by what a node section says: its allowed_hosts, tokens,
// trusted_proxies and oidc. Requests go on meanwhile, and each is judged by either the old or the new. An error says
// what is wrong with the section: of oidc, then tokens and proxies are replaced, and what sessions may do, and signing in
// stays as it was or, at another provider, ends; else nothing is changed. Of a site that [Serve] makes a reload does it.
func (s *Site) SetAccess(n config.Node) error {
	rules, err := access.RulesOf(n)
	if err != nil {
		return err
	}
	err = s.signIn.Set(n.OIDC)
	s.guard.Set(rules) // whatever is wrong with oidc; and last, as it asks again who waits
	return err
}
