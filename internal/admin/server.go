package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Limits on requests; docs/access.md tells them.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 30 * time.Second // of reading, and of writing
	idleTimeout    = 2 * time.Minute
	maxHeader      = 12 << 10 // net/http reads 4 KiB more: 16 KiB in all
	stopLimit      = 5 * time.Second
)

// Server serves HTTP on a node's address. Its methods are called one after another, but
// for Address.
type Server struct {
	listener net.Listener // nil: nothing is served
	cert     *certificate // nil: without TLS
	server   *http.Server // nil before Serve
	failed   chan error
	group    sync.WaitGroup
}

// Listen takes the address, so that a second node by mistake fails before it does
// anything; "" serves nothing. With the paths of a certificate and its key it serves TLS.
func Listen(address, certFile, keyFile string) (*Server, error) {
	w := &Server{failed: make(chan error, 1)}
	if address == "" {
		return w, nil
	}
	if certFile != "" {
		var err error
		if w.cert, err = openCertificate(certFile, keyFile); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, &addressError{fmt.Sprintf("node.listen %s is in use: stop what uses it, choose another port, or serve nothing with off", address), err}
	case err != nil:
		return nil, &addressError{fmt.Sprintf("node.listen: %v: choose an address of this machine and a port that this user may take", err), err}
	}
	w.listener = l
	return w, nil
}

// addressError says what is wrong with an address, and keeps the system's error for those
// who look for it.
type addressError struct {
	text string
	err  error
}

func (e *addressError) Error() string { return e.text }
func (e *addressError) Unwrap() error { return e.err }

// ErrStopping is why a context of [UntilStop] ends.
var ErrStopping = errors.New("the node is stopping")

type runningKey struct{}

// UntilStop is a request's context for what waits: it ends, by ErrStopping, once the server is about to stop.
func UntilStop(request context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(request)
	detach := func() bool { return true }
	if running, ok := ctx.Value(runningKey{}).(context.Context); ok {
		detach = context.AfterFunc(running, func() { cancel(ErrStopping) })
	}
	return ctx, func() {
		detach()
		cancel(nil)
	}
}

// Serve starts to serve handler. The end of running says that Stop is going to be called.
func (w *Server) Serve(running context.Context, handler http.Handler, log *zap.Logger) {
	if w.listener == nil {
		return
	}
	w.server = &http.Server{
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.WithoutCancel(running), runningKey{}, running)
		},
		Handler: handler, ErrorLog: zap.NewStdLog(log.Named("http")),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
	}
	serve := w.server.Serve
	if w.cert != nil {
		w.cert.logTo(log)
		w.server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: w.cert.get}
		serve = func(l net.Listener) error { return w.server.ServeTLS(l, "", "") }
	}
	w.group.Go(func() {
		if err := serve(w.listener); !errors.Is(err, http.ErrServerClosed) {
			w.failed <- fmt.Errorf("serve on %s: %w", w.Address(), err)
		}
	})
}

// Failed gets one error if serving ends by itself.
func (w *Server) Failed() <-chan error { return w.failed }

// Address is the one that was bound, "off" without.
func (w *Server) Address() string {
	if w.listener == nil {
		return "off"
	}
	return w.listener.Addr().String()
}

// Stop ends serving and gives the address back; requests that do not end in time
// are cut off.
func (w *Server) Stop() {
	switch {
	case w.listener == nil:
		return
	case w.server == nil:
		_ = w.listener.Close() // nothing was served on it
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if w.server.Shutdown(ctx) != nil {
		_ = w.server.Close() // what is cut off was asking for health or metrics
	}
	w.group.Wait()
}
