package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"go.uber.org/zap"
)

// Bounds of requests for profiles. A CPU profile and a trace take as long as they are asked to.
const (
	profileHeader = 5 * time.Second
	profileIdle   = time.Minute
	profileWrite  = 5 * time.Minute
)

// serveProfiles serves the process's profiles at an address of their own, which is on loopback, until
// stop is called; "": nowhere.
func serveProfiles(address string, log *zap.Logger) (stop func() error, err error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("node.pprof_listen: %w: choose another port, or off", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: forThisMachine(mux), ReadHeaderTimeout: profileHeader, ReadTimeout: profileHeader, WriteTimeout: profileWrite, IdleTimeout: profileIdle}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	log.Info("profiles are served", zap.Stringer("address", l.Addr()))
	return func() error {
		err := server.Close()
		if serveErr := <-ended; !errors.Is(serveErr, http.ErrServerClosed) {
			err = errors.Join(err, fmt.Errorf("serve profiles: %w", serveErr))
		}
		return err
	}, nil
}

// forThisMachine answers requests that name this server by an address or as localhost: a page in a
// browser could reach it by a name of its own.
func forThisMachine(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if net.ParseIP(host) == nil && host != "localhost" {
			http.Error(w, "Profiles are served by address, or as localhost.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
