package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Event is what a client is about to do.
type Event struct {
	App string // the connection's application_name
	SQL string // the statement to be executed; "": the connection is being opened
}

// Verdict is what becomes of an event.
type Verdict int

const (
	// Pass lets it go by.
	Pass Verdict = iota
	// CutBefore breaks the connection; the server does not see the statement.
	CutBefore
	// CutAfter passes the statement and the rest of its batch on, waits until the
	// server has answered, drops the answer and breaks the connection.
	CutAfter
)

// Rule decides about events. It is called from many connections at once.
type Rule func(Event) Verdict

// Way is a direction in which bytes travel.
type Way int

const (
	// ToServer is what clients say.
	ToServer Way = 1 << iota
	// ToClient is what the server answers.
	ToClient
)

// Proxy listens for one server.
type Proxy struct {
	dsn      string
	listener net.Listener
	group    sync.WaitGroup
	done     chan struct{} // closed by Close

	mu      sync.Mutex
	network string                 // guarded by mu; with address: the server's
	address string                 // guarded by mu
	rule    Rule                   // guarded by mu; nil: everything passes
	limit   func(app string) int64 // guarded by mu; nil: no limits
	held    func(app string) bool  // guarded by mu; whose bytes are held back
	ways    Way                    // guarded by mu; in which directions
	moved   chan struct{}          // guarded by mu; closed when held changes
	links   map[*link]struct{}     // guarded by mu; nil: closed
}

// New starts a proxy on loopback in front of the server that dsn points at.
func New(dsn string) (*Proxy, error) { return Listen("127.0.0.1:0", dsn) }

// Listen starts a proxy at an address of this machine.
func Listen(address, dsn string) (*Proxy, error) {
	cfg, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for the fault proxy: %w", err)
	}
	u := url.URL{Scheme: "postgres", User: url.User(cfg.User), Host: listener.Addr().String(), Path: "/" + cfg.Database, RawQuery: "sslmode=disable"}
	if cfg.Password != "" {
		u.User = url.UserPassword(cfg.User, cfg.Password)
	}
	p := &Proxy{dsn: u.String(), listener: listener, done: make(chan struct{}), moved: make(chan struct{}), links: map[*link]struct{}{}}
	p.network, p.address = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	p.group.Go(p.accept)
	return p, nil
}

// DSN reaches the server's database through the proxy.
func (p *Proxy) DSN() string { return p.dsn }

// SetServer leads new connections to another server, and breaks the open ones: the
// first has failed, and this one stands in for it.
func (p *Proxy) SetServer(dsn string) error {
	cfg, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.network, p.address = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	p.mu.Unlock()
	p.Cut(nil)
	return nil
}

// SetRule replaces the rule; nil lets everything pass.
func (p *Proxy) SetRule(r Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = r
}

// SetLimit makes connections break once the server has received so many bytes of
// them; limit is asked once per connection, and 0 or less means never.
func (p *Proxy) SetLimit(limit func(app string) int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = limit
}

// Hold holds back the bytes of chosen connections in both directions, as a
// black hole would, until it is called again; nil holds nothing.
func (p *Proxy) Hold(which func(app string) bool) { p.HoldWay(ToServer|ToClient, which) }

// HoldWay is Hold in the given directions only.
func (p *Proxy) HoldWay(ways Way, which func(app string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held, p.ways = which, ways
	close(p.moved)
	p.moved = make(chan struct{})
}

// Cut breaks the open connections of which; nil breaks all.
func (p *Proxy) Cut(which func(app string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if which == nil || which(l.app()) {
			l.close()
		}
	}
}

// Close breaks all connections and waits until nothing is left of them.
func (p *Proxy) Close() error {
	p.mu.Lock()
	links := p.links
	p.links = nil
	p.mu.Unlock()
	if links == nil {
		return nil
	}
	close(p.done)
	err := p.listener.Close()
	for l := range links {
		l.close()
	}
	p.group.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		p.group.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	l := &link{proxy: p, client: client, ended: make(chan struct{})}
	defer l.close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	p.mu.Lock()
	network, address := p.network, p.address
	p.mu.Unlock()
	server, err := new(net.Dialer).DialContext(ctx, network, address)
	cancel()
	if err != nil {
		return // the server is down: so are we
	}
	l.server = server
	p.mu.Lock()
	if p.links == nil {
		p.mu.Unlock()
		_ = server.Close()
		return
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
	var both sync.WaitGroup
	both.Go(func() { defer l.close(); l.fromServer() })
	both.Go(func() { defer l.close(); l.fromClient() })
	both.Wait()
}

func (p *Proxy) judge(e Event) Verdict {
	p.mu.Lock()
	rule := p.rule
	p.mu.Unlock()
	if rule == nil {
		return Pass
	}
	return rule(e)
}

// wait returns when bytes of l may travel.
func (p *Proxy) wait(l *link, way Way) {
	for {
		p.mu.Lock()
		held, moved := p.held != nil && p.ways&way != 0 && p.held(l.app()), p.moved
		p.mu.Unlock()
		if !held {
			return
		}
		select {
		case <-moved:
		case <-l.ended:
			return
		}
	}
}
