package handlers

import (
	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
)

// Register adds the daemon's handlers to a registry, as configured. What is returned closes
// the connections that no request uses; for after the node's stop.
func Register(r *job.Registry, cfg config.Handlers) (closeIdle func()) {
	c := newCaller(cfg.HTTPRequest.Allow)
	job.Handle(r, c.handle)
	if cfg.SQLExec.Enabled {
		tenure.HandleTx(r, execSQL)
	}
	return c.client.CloseIdleConnections
}
