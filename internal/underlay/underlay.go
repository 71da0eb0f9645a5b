// Package underlay is the network below a node. Tests of the whole replace it, by the
// OnNetwork of packages membership and routing: with wires that can be cut, and that no
// packet leaves the process on.
package underlay

import (
	"context"
	"net"
	"net/netip"

	"github.com/hashicorp/memberlist"
)

// Network carries what one process sends and receives.
type Network interface {
	// Gossip carries packets, and streams that others open, at an address. Streams that
	// this process opens go through Dial.
	Gossip(bind netip.AddrPort) (memberlist.NodeAwareTransport, error)
	// Dial opens a stream: to another member, or to a database.
	Dial(ctx context.Context, network, addr string) (net.Conn, error)
}
