package handlers

import (
	"fmt"
	"net/netip"
	"syscall"
)

// refusedError is an address that a request may not reach.
type refusedError struct{ addr netip.Addr }

func (e *refusedError) Error() string {
	return fmt.Sprintf("address %s is not public and not in handlers.http_request.allow", e.addr)
}

// guard refuses connections into the inside of the network.
type guard struct{ allow []netip.Prefix }

// control is a net.Dialer's Control: it sees the address that is about to be
// dialled, after every look-up and redirect, so that a name cannot resolve to a
// public address for a check and to another one for the connection.
func (g guard) control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q cannot be checked: %w", address, err)
	}
	if addr := ap.Addr().Unmap().WithZone(""); !g.permits(addr) {
		return &refusedError{addr}
	}
	return nil
}

func (g guard) permits(addr netip.Addr) bool {
	for _, p := range g.allow {
		if p.Contains(addr) {
			return true
		}
	}
	if !addr.IsGlobalUnicast() || addr.IsPrivate() { // that leaves out loopback, link-local, multicast, unspecified
		return false
	}
	for _, p := range special {
		if p.Contains(addr) {
			return false
		}
	}
	return true
}

// special are the blocks that IANA lists as not globally reachable, those of IPv6 that
// carry an IPv4 address, which a gateway may turn into a private one, and addresses that
// look public and at which clouds serve their machines credentials and their own services.
var special = prefixes(
	"168.63.129.16/32",              // Azure: the host's agent, DNS, and secrets of the machine
	"161.26.0.0/16", "166.8.0.0/14", // IBM Cloud: services for its machines
	"192.80.8.124/32", // Equinix Metal: metadata

	"0.0.0.0/8",                                         // this network
	"100.64.0.0/10",                                     // carriers and clouds, behind their own translation; Alibaba's metadata at 100.100.100.200
	"192.0.0.0/24",                                      // protocol assignments; Oracle's metadata at 192.0.0.192
	"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", // documentation
	"198.18.0.0/15", // benchmarks
	"240.0.0.0/4",   // reserved, and broadcast

	"::/96",                          // IPv4-compatible
	"64:ff9b::/96", "64:ff9b:1::/48", // IPv4 translated (NAT64)
	"100::/64",      // discard
	"2001::/23",     // protocol assignments, Teredo among them
	"2001:db8::/32", // documentation
	"2002::/16",     // IPv4 tunnelled (6to4)
	"3fff::/20",     // documentation
	"5f00::/16",     // segment routing
	"fec0::/10",     // site-local, deprecated
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}
