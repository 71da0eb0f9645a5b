package demo

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/web"
)

// board is the dashboard, for this machine only. It belongs to this process, and so survives the node
// that is killed.
type board struct {
	Address string

	server *http.Server
	pages  atomic.Pointer[web.Site] // nil: the cluster has not begun to be
	ended  chan error
}

// soon is shown until there is something to show, and then replaced by itself.
const soon = `<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="1"><title>Tenure</title><p>Postgres is starting. This page becomes the dashboard.</p></html>`

// openBoard listens, so that the address is known before anything else is there.
func openBoard(ctx context.Context) (*board, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &board{Address: "http://" + l.Addr().String() + "/cluster", ended: make(chan error, 1)}
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: 5 * time.Second}
	go func() { b.ended <- b.server.Serve(l) }()
	return b, nil
}

func (b *board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if pages := b.pages.Load(); pages != nil {
		pages.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, soon) // those who asked may have gone
}

// show has it show a client's cluster.
func (b *board) show(client *tenure.Client) error {
	pages, err := web.Handler(client, web.Settings{})
	if err == nil {
		b.pages.Store(pages)
	}
	return err
}

func (b *board) close() error {
	err := b.server.Close()
	if serveErr := <-b.ended; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}
