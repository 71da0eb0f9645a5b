package main

import (
	"encoding/json"
	"net/http"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/cmd/tenure/internal/handlers"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/web"
)

// site is the dashboard and the API of a node.
type site struct {
	log   *zap.Logger
	pages atomic.Pointer[web.Site] // nil: there are none
}

// handler makes the pages of a node.
func (s *site) handler(n *tenure.Node, cfg config.Config) http.Handler {
	pages, err := web.Handler(n.Client(), web.Settings{Tokens: cfg.Node.Tokens, TrustedProxies: cfg.Node.TrustedProxies, OIDC: cfg.Node.OIDC,
		Redact: redact, TraceURL: cfg.Node.TraceURL, Logger: s.log.Named("web")})
	if err != nil {
		s.log.Error("there is no dashboard, and no API", zap.Error(err))
		return http.NotFoundHandler()
	}
	s.pages.Store(pages)
	return pages
}

// reload has the pages go by a configuration that has been put into force.
func (s *site) reload(cfg config.Config) {
	pages := s.pages.Load()
	if pages == nil {
		return
	}
	if err := pages.SetAccess(cfg.Node); err != nil {
		s.log.Error("who may use the dashboard and the API is not changed", zap.Error(err))
	}
}

// redact hides credentials in the arguments of the built-in handlers.
func redact(kind string, text json.RawMessage) json.RawMessage { return handlers.Redact(kind, text) }
