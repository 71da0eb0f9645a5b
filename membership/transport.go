package membership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/tenurehq/tenure/internal/underlay"
)

// transport is memberlist's network transport with two repairs: every stream has
// a deadline from the start (memberlist writes user messages without one, so a
// stopped peer with a full window would hold the sender for ever), and all
// outgoing streams end when Stop begins, so that it need not wait for them.
type transport struct {
	memberlist.NodeAwareTransport
	bound       netip.AddrPort  // where it listens
	ctx         context.Context // ends the outgoing streams
	dial        func(ctx context.Context, network, addr string) (net.Conn, error)
	dialTimeout time.Duration
	timeout     time.Duration // for the whole stream
	encrypted   bool
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// listen opens the gossip sockets, TCP and UDP on one port.
func listen(ctx context.Context, bind netip.AddrPort, t timing, ml *memberlist.Config) (*transport, error) {
	attempts := 1
	if bind.Port() == 0 {
		attempts = 10 // the kernel's free TCP port can be taken for UDP
	}
	var err error
	for range attempts {
		var nt *memberlist.NetTransport
		nt, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{bind.Addr().String()},
			BindPort:  int(bind.Port()),
			Logger:    ml.Logger,
		})
		if err == nil {
			bound := netip.AddrPortFrom(bind.Addr().Unmap(), uint16(nt.GetAutoBindPort()))
			return newTransport(ctx, nt, bound, new(net.Dialer).DialContext, t, ml), nil
		}
	}
	return nil, explainListen(bind, err)
}

// listenOn is listen on another network than this machine's.
func listenOn(ctx context.Context, under underlay.Network, bind netip.AddrPort, t timing, ml *memberlist.Config) (*transport, error) {
	tr, err := under.Gossip(bind)
	if err != nil {
		return nil, err
	}
	return newTransport(ctx, tr, bind, under.Dial, t, ml), nil
}

func newTransport(ctx context.Context, tr memberlist.NodeAwareTransport, bound netip.AddrPort, dial func(context.Context, string, string) (net.Conn, error), t timing, ml *memberlist.Config) *transport {
	encrypted := ml.EncryptionEnabled()
	if encrypted {
		tr = newPacketFilter(tr, ml.Label)
	}
	return &transport{encrypted: encrypted, NodeAwareTransport: tr, bound: bound, ctx: ctx, dial: dial, dialTimeout: t.dialTimeout, timeout: ml.TCPTimeout}
}

// explainListen finds out what is wrong with bind: memberlist's error wraps nothing.
func explainListen(bind netip.AddrPort, cause error) error {
	for _, network := range []string{"tcp", "udp"} {
		err := tryListen(network, bind)
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			return fmt.Errorf("gossip on cluster.bind %s: %s port %d is in use: stop the other process, or choose another port: %w", bind, network, bind.Port(), err)
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return fmt.Errorf("gossip on cluster.bind %s: this machine has no address %s: bind one of its own, or 0.0.0.0, and set cluster.advertise to the outer one: %w", bind, bind.Addr(), err)
		case errors.Is(err, syscall.EACCES):
			return fmt.Errorf("gossip on cluster.bind %s: not permitted: choose a port above 1023: %w", bind, err)
		}
	}
	return fmt.Errorf("gossip on cluster.bind %s: %w", bind, cause)
}

func tryListen(network string, bind netip.AddrPort) error {
	var l io.Closer
	var err error
	if network == "udp" {
		l, err = net.ListenPacket(network, bind.String())
	} else {
		l, err = net.Listen(network, bind.String())
	}
	if err == nil {
		l.Close()
	}
	return err
}

// closeUnread closes a transport memberlist never read from. Its listeners may be
// waiting to hand something over, and Shutdown waits for them.
func (t *transport) closeUnread() {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-t.PacketCh():
			case conn := <-t.StreamCh():
				conn.Close()
			case <-done:
				return
			}
		}
	}()
	_ = t.Shutdown()
	close(done)
}

func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	timeout = min(timeout, t.dialTimeout)
	dialCtx, done := context.WithTimeout(t.ctx, timeout)
	conn, err := t.dial(dialCtx, "tcp", a.Addr)
	done()
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(t.timeout)); err != nil {
		conn.Close()
		return nil, err
	}
	// memberlist moves the deadline on with every step of an exchange, and forgets
	// the connection if it cannot write the label; so there is a last end as well.
	ctx, cancel := context.WithTimeout(t.ctx, 3*t.timeout)
	context.AfterFunc(ctx, func() { conn.Close() })
	if t.encrypted {
		conn = &checkedStream{Conn: conn, head: make([]byte, 0, streamHead)} // an answer has no label
	}
	return &stream{Conn: conn, cancel: cancel}, nil
}

// stream is a connection that is closed with its context.
type stream struct {
	net.Conn
	cancel context.CancelFunc
}

func (s *stream) Close() error {
	s.cancel()
	return s.Conn.Close()
}
