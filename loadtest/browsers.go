package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/web"
)

// refresh is how often a page that is open asks for itself again, as its script has it.
const refresh = 2 * time.Second

// openBrowsers serves a node's dashboard and has many browsers look at its overview, until stop is called. That
// says how many pages they were sent, and what failed.
func openBrowsers(ctx context.Context, n *tenure.Node, browsers int) (stop func() (pages int, err error), _ error) {
	if browsers == 0 {
		return func() (int, error) { return 0, nil }, nil
	}
	site, err := web.Handler(n.Client(), web.Settings{})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: site, ReadHeaderTimeout: refresh}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	url := "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	var mu sync.Mutex
	sent, failed := 0, []error(nil)
	for i := range browsers {
		group.Go(func() {
			client := &http.Client{Transport: &http.Transport{}} // each has a connection of its own
			defer client.CloseIdleConnections()
			next := time.NewTimer(time.Duration(i) * refresh / time.Duration(browsers)) // they do not ask all at once
			defer next.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-next.C:
				}
				next.Reset(refresh)
				err := open(ctx, client, url)
				mu.Lock()
				if err == nil {
					sent++
				} else if ctx.Err() == nil {
					failed = append(failed, err)
				}
				mu.Unlock()
			}
		})
	}
	return func() (int, error) {
		cancel()
		group.Wait()
		failed = append(failed, server.Close())
		<-served // it was closed
		return sent, errors.Join(failed...)
	}, nil
}

func open(ctx context.Context, client *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the overview was answered with %s", answer.Status)
	}
	return nil
}
