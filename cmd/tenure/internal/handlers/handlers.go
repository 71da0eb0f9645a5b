package handlers

import (
	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
)

// BuiltIn is the daemon's handlers.
type BuiltIn struct {
	http    *caller
	sqlExec bool
}

// New returns the handlers as configured.
func New(cfg config.Handlers) *BuiltIn {
	return &BuiltIn{http: newCaller(cfg.HTTPRequest.Allow), sqlExec: cfg.SQLExec.Enabled}
}

// Register adds them to a registry.
func (b *BuiltIn) Register(r *job.Registry) {
	job.Handle(r, b.http.handle)
	if b.sqlExec {
		tenure.HandleTx(r, execSQL)
	}
}

// Close closes the connections that no request uses; for after the node's stop.
func (b *BuiltIn) Close() { b.http.client.CloseIdleConnections() }
