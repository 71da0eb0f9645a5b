package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// wires join all hosts: processes and databases. What travels takes its time, and can be
// lost, held back or cut off, in one direction or both. Nothing of it is real.
type wires struct {
	mu     sync.Mutex
	rng    *rand.Rand         // guarded by mu
	hosts  map[string]*host   // guarded by mu; the present one at each address
	cut    map[[2]string]bool // guarded by mu; from address, to address: nothing passes
	loss   float64            // guarded by mu; of packets, between processes
	lanes  map[*lane]struct{} // guarded by mu; those of open streams
	counts counts             // guarded by mu
}

// counts is what has been sent.
type counts struct {
	packets, packetBytes, streams, streamBytes int
}

// host is a process, or a database, at an address.
type host struct {
	wires  *wires
	addr   string // an IP
	member string // of the process; set before it starts
	gossip chan *memberlist.Packet
	accept func(conn net.Conn, from *host) // of streams; it must not block

	// The rest is guarded by wires.mu.
	dead    bool     // it exists no more; what it sends goes nowhere
	frozen  bool     // it stands still, as after SIGSTOP: its kernel accepts, and nobody answers
	refuses bool     // it accepts no streams
	waiting []func() // packets, for when it goes on
}

const socketBuffer = 256 // packets

func newWires(seed uint64) *wires {
	return &wires{rng: rand.New(rand.NewPCG(seed, 1)), hosts: map[string]*host{}, cut: map[[2]string]bool{}, lanes: map[*lane]struct{}{}}
}

// plug adds a host; one that was at its address before is dead.
func (w *wires) plug(addr string, accept func(net.Conn, *host)) *host {
	h := &host{wires: w, addr: addr, gossip: make(chan *memberlist.Packet, socketBuffer), accept: accept}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts[addr] = h
	return h
}

// unplug ends a host as a crash does; anyone who had a stream to it finds out at once.
func (w *wires) unplug(h *host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.dead, h.waiting = true, nil
	w.resetLocked(h)
}

// resetLocked breaks all streams of a host.
func (w *wires) resetLocked(h *host) {
	for l := range w.lanes {
		if l.from == h || l.to == h {
			l.fail(syscall.ECONNRESET)
			delete(w.lanes, l)
		}
	}
}

// freeze stops a host, or lets it go on.
func (w *wires) freeze(h *host, frozen bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.frozen = frozen
	if !frozen {
		for _, deliver := range h.waiting {
			time.AfterFunc(0, deliver)
		}
		h.waiting = nil
	}
	w.releaseLocked()
}

// refuse makes a host accept no streams, and breaks those it has.
func (w *wires) refuse(h *host, refuses bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.refuses = refuses
	if refuses {
		w.resetLocked(h)
	}
}

// sever cuts the ways from some addresses to others, or mends them.
func (w *wires) sever(from, to []string, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range from {
		for _, b := range to {
			if cut {
				w.cut[[2]string{a, b}] = true
			} else {
				delete(w.cut, [2]string{a, b})
			}
		}
	}
	w.releaseLocked()
}

func (w *wires) setLoss(p float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loss = p
}

func (w *wires) counted() counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}

// passes tells whether something can get from one host to the other now.
func (w *wires) passes(from, to *host) bool {
	return !w.cut[[2]string{from.addr, to.addr}] && !from.frozen && !to.frozen
}

// reaches tells whether a process can work with a database now.
func (w *wires) reaches(process, database *host) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !process.dead && !database.refuses && w.passes(process, database) && w.passes(database, process)
}

// whole tells whether everything gets from everybody to everybody.
func (w *wires) whole() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.hosts {
		if h.frozen || h.dead {
			return false
		}
	}
	return len(w.cut) == 0 && w.loss == 0
}

// releaseLocked sends on its way what was held back and can travel again.
func (w *wires) releaseLocked() {
	for l := range w.lanes {
		if w.passes(l.from, l.to) {
			l.release(time.Now().Add(w.delay() + time.Duration(w.rng.IntN(200))*time.Millisecond)) // when TCP tries again
		}
	}
}

// delay is how long something travels. wires.mu is held.
func (w *wires) delay() time.Duration {
	return time.Duration(200+w.rng.IntN(1800)) * time.Microsecond
}

// send sends a packet.
func (w *wires) send(from *host, b []byte, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.packets++
	w.counts.packetBytes += len(b)
	target := w.hosts[to]
	if from.dead || from.frozen || target == nil || target.dead || w.cut[[2]string{from.addr, to}] || w.rng.Float64() < w.loss {
		return
	}
	p := &memberlist.Packet{Buf: append([]byte(nil), b...), From: &net.UDPAddr{IP: net.ParseIP(from.addr), Port: gossipPort}}
	time.AfterFunc(w.delay(), func() { w.arrive(target, p) })
}

func (w *wires) arrive(h *host, p *memberlist.Packet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case h.dead:
	case h.frozen:
		if len(h.waiting) < socketBuffer {
			h.waiting = append(h.waiting, func() { w.arrive(h, p) })
		}
	default:
		p.Timestamp = time.Now()
		select {
		case h.gossip <- p:
		default:
		}
	}
}

// Gossip implements underlay.Network.
func (h *host) Gossip(netip.AddrPort) (memberlist.NodeAwareTransport, error) {
	t := &gossip{host: h, streams: make(chan net.Conn, 64)}
	h.wires.mu.Lock()
	defer h.wires.mu.Unlock()
	h.accept = func(conn net.Conn, _ *host) {
		select {
		case t.streams <- conn:
		default:
			conn.Close()
		}
	}
	return t, nil
}

// Dial implements underlay.Network.
func (h *host) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	ip, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	for { // as a kernel repeats its SYN
		conn, err := h.wires.open(h, ip)
		if !errors.Is(err, errNoWay) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("dial %s: %w", addr, context.Cause(ctx))
		case <-time.After(time.Second):
		}
	}
}

var errNoWay = errors.New("no answer")

func (w *wires) open(from *host, addr string) (net.Conn, error) {
	w.mu.Lock()
	to := w.hosts[addr]
	switch {
	case from.dead:
		w.mu.Unlock()
		return nil, syscall.ENETDOWN
	case to == nil || to.dead || to.refuses || to.accept == nil:
		w.mu.Unlock()
		return nil, syscall.ECONNREFUSED
	case from.frozen || w.cut[[2]string{from.addr, addr}] || w.cut[[2]string{addr, from.addr}]:
		w.mu.Unlock()
		return nil, errNoWay
	}
	w.counts.streams++
	there, back := newLane(from, to), newLane(to, from)
	w.lanes[there], w.lanes[back] = struct{}{}, struct{}{}
	wait := w.delay()
	accept := to.accept
	w.mu.Unlock()
	time.Sleep(wait)
	accept(&stream{in: there, out: back}, from)
	return &stream{in: back, out: there}, nil
}

// lane carries a stream's bytes one way.
type lane struct {
	from, to *host
	wake     chan struct{} // one place, read by who reads

	mu       sync.Mutex
	way      []chunk   // guarded by mu; what is under way, ascending
	held     [][]byte  // guarded by mu; what has to wait until it can travel; nil stands for the end
	err      error     // guarded by mu; why the stream is broken
	ended    bool      // guarded by mu; the writer has closed
	left     bool      // guarded by mu; the reader has closed
	deadline time.Time // guarded by mu; of reading
}

type chunk struct {
	at time.Time
	b  []byte // nil: the end
}

func newLane(from, to *host) *lane { return &lane{from: from, to: to, wake: make(chan struct{}, 1)} }

func (l *lane) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *lane) fail(err error) {
	l.mu.Lock()
	l.err, l.way, l.held = err, nil, nil
	l.mu.Unlock()
	l.nudge()
}

func (l *lane) release(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.held {
		l.way = append(l.way, chunk{at, b})
	}
	l.held = nil
	l.nudge()
}

// put sends bytes, or with nil the end.
func (l *lane) put(b []byte) error {
	w := l.from.wires
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.streamBytes += len(b)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return l.err
	case l.ended:
		return net.ErrClosed
	case l.left:
		return syscall.EPIPE
	}
	l.ended = b == nil
	if len(l.held) > 0 || !w.passes(l.from, l.to) {
		l.held = append(l.held, b)
		return nil
	}
	at := time.Now().Add(w.delay())
	if n := len(l.way); n > 0 && at.Before(l.way[n-1].at) {
		at = l.way[n-1].at
	}
	l.way = append(l.way, chunk{at, b})
	l.nudge()
	return nil
}

// get reads what has arrived, waiting for the first of it.
func (l *lane) get(b []byte) (int, error) {
	for {
		n, wait, err := l.take(b)
		if n > 0 || err != nil {
			return n, err
		}
		if wait <= 0 {
			<-l.wake
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-l.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// take is get without waiting; wait is when to look again, 0: when something happens.
func (l *lane) take(b []byte) (n int, wait time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case l.left:
		return 0, 0, net.ErrClosed
	case !l.deadline.IsZero() && !now.Before(l.deadline):
		return 0, 0, os.ErrDeadlineExceeded
	case l.err != nil:
		return 0, 0, l.err
	case len(l.way) > 0 && !l.way[0].at.After(now):
		c := &l.way[0]
		if c.b == nil {
			return 0, 0, io.EOF
		}
		n = copy(b, c.b)
		if c.b = c.b[n:]; len(c.b) == 0 {
			l.way = l.way[1:]
		}
		return n, 0, nil
	}
	if len(l.way) > 0 {
		wait = l.way[0].at.Sub(now)
	}
	if !l.deadline.IsZero() && (wait == 0 || l.deadline.Sub(now) < wait) {
		wait = l.deadline.Sub(now)
	}
	return 0, wait, nil
}

// stream is one end of a connection.
type stream struct{ in, out *lane }

var _ net.Conn = (*stream)(nil)

func (s *stream) Read(b []byte) (int, error) { return s.in.get(b) }

func (s *stream) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if err := s.out.put(append([]byte(nil), b...)); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (s *stream) Close() error {
	err := s.out.put(nil)
	s.in.mu.Lock()
	s.in.left, s.in.way, s.in.held = true, nil, nil
	s.in.mu.Unlock()
	s.in.nudge()
	w := s.in.from.wires
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lanes, s.in)
	if errors.Is(err, syscall.EPIPE) {
		delete(w.lanes, s.out)
	}
	return nil
}

func (s *stream) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.ParseIP(s.in.to.addr)} }
func (s *stream) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(s.in.from.addr)} }

func (s *stream) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }

func (s *stream) SetReadDeadline(t time.Time) error {
	s.in.mu.Lock()
	s.in.deadline = t
	s.in.mu.Unlock()
	s.in.nudge()
	return nil
}

// SetWriteDeadline does nothing: a write never blocks.
func (s *stream) SetWriteDeadline(time.Time) error { return nil }

// gossip is memberlist's transport on a host.
type gossip struct {
	host    *host
	streams chan net.Conn
}

func (g *gossip) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	return net.ParseIP(ip).To4(), port, nil
}

func (g *gossip) WriteTo(b []byte, addr string) (time.Time, error) {
	ip, _, err := net.SplitHostPort(addr)
	if err != nil {
		return time.Time{}, err
	}
	g.host.wires.send(g.host, b, ip)
	return time.Now(), nil
}

func (g *gossip) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	return g.WriteTo(b, to.Addr)
}

func (g *gossip) PacketCh() <-chan *memberlist.Packet { return g.host.gossip }
func (g *gossip) StreamCh() <-chan net.Conn           { return g.streams }

// DialTimeout is not used: membership opens its streams itself.
func (g *gossip) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return g.host.Dial(ctx, "tcp", addr)
}

func (g *gossip) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return g.DialTimeout(to.Addr, timeout)
}

// Shutdown takes the host off the network, as the end of its process would.
func (g *gossip) Shutdown() error {
	h := g.host
	h.wires.mu.Lock()
	h.accept = nil
	h.wires.mu.Unlock()
	return nil
}
