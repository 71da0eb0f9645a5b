package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Limits on what serves health and metrics: callers are few and near.
const (
	webHeaderTimeout = 5 * time.Second
	webTimeout       = 30 * time.Second // of reading, and of writing
	webIdleTimeout   = 2 * time.Minute
	webMaxHeader     = 16 << 10
	webStopLimit     = 5 * time.Second
)

// web serves HTTP on node.listen.
type web struct {
	listener net.Listener // nil: nothing is served
	server   *http.Server // nil before serve
	failed   chan error   // gets one error if serving ends by itself
	group    sync.WaitGroup
}

// listen takes the address; "" serves nothing.
func listen(address string) (*web, error) {
	w := &web{failed: make(chan error, 1)}
	if address == "" {
		return w, nil
	}
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, &configError{fmt.Errorf("node.listen %s is in use: stop what uses it, or choose another port", address)}
	case err != nil:
		return nil, &advised{fmt.Errorf("node.listen: %w", err), "choose an address of this machine and a port that this user may take"}
	}
	w.listener = l
	return w, nil
}

// serve starts serving handler.
func (w *web) serve(handler http.Handler, log *zap.Logger) {
	if w.listener == nil {
		return
	}
	w.server = &http.Server{
		Handler: handler, ErrorLog: zap.NewStdLog(log.Named("http")),
		ReadHeaderTimeout: webHeaderTimeout, ReadTimeout: webTimeout, WriteTimeout: webTimeout,
		IdleTimeout: webIdleTimeout, MaxHeaderBytes: webMaxHeader,
	}
	w.group.Go(func() {
		if err := w.server.Serve(w.listener); !errors.Is(err, http.ErrServerClosed) {
			w.failed <- fmt.Errorf("serve on %s: %w", w.address(), err)
		}
	})
}

// address is the one that was bound, "off" without.
func (w *web) address() string {
	if w.listener == nil {
		return "off"
	}
	return w.listener.Addr().String()
}

// stop ends serving and gives the address back; requests that do not end in time
// are cut off.
func (w *web) stop() {
	switch {
	case w.listener == nil:
		return
	case w.server == nil:
		_ = w.listener.Close() // nothing was served on it
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), webStopLimit)
	defer cancel()
	if w.server.Shutdown(ctx) != nil {
		_ = w.server.Close() // what is cut off was asking for health or metrics
	}
	w.group.Wait()
}
