package membership

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// seed is an address to join at. host:port is one member, whichever of the
// name's addresses answers; dns:name:port is one member per address.
type seed struct {
	host string // an IP or a name
	port uint16
	each bool // written dns:
}

// parseSeed reads host:port or dns:name:port.
func parseSeed(s string) (seed, error) {
	rest, each := strings.CutPrefix(s, "dns:")
	host, portText, err := net.SplitHostPort(rest)
	switch {
	case err != nil && strings.Count(rest, ":") > 1 && !strings.Contains(rest, "["):
		return seed{}, errors.New("has several colons; write an IPv6 address in brackets, [::1]:7946")
	case err != nil:
		return seed{}, errors.New("has no port")
	case host == "":
		return seed{}, errors.New("has no host")
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return seed{}, errors.New("has a port that is not between 1 and 65535")
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil && strings.Trim(host, "0123456789.") == "":
		return seed{}, errors.New("looks like an IPv4 address but is none")
	case err != nil && (len(host) > 253 || strings.ContainsFunc(host, notInName)):
		return seed{}, errors.New("has no host name that can be")
	case err == nil && each:
		return seed{}, errors.New("has an IP address behind dns:, which needs a name")
	case err == nil && ip.Zone() != "":
		return seed{}, errors.New("has a zone, which gossip cannot carry")
	case err == nil && (ip.IsUnspecified() || ip.IsMulticast()):
		return seed{}, errors.New("is no address one can connect to")
	}
	return seed{host: host, port: uint16(port), each: each}, nil
}

// notInName reports whether r has no place in the name of a host, or of a node.
func notInName(r rune) bool {
	return !(r == '-' || r == '.' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
}

// lookup resolves a name, as net.Resolver.LookupNetIP does.
type lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// target is a member to be found: at one of these addresses.
type target []netip.AddrPort

// resolveTargets turns s into targets reachable over family ("ip", "ip4" or "ip6").
// memberlist is given IP addresses only: its own resolver asks the first name
// server for records of type ANY and skips names without a dot.
func (s seed) resolveTargets(ctx context.Context, family string, look lookup) ([]target, error) {
	if ip, err := netip.ParseAddr(s.host); err == nil {
		ip = ip.Unmap()
		if family == "ip4" && !ip.Is4() || family == "ip6" && ip.Is4() {
			return nil, fmt.Errorf("%s cannot be reached from the address family of cluster.bind", ip)
		}
		return []target{{netip.AddrPortFrom(ip, s.port)}}, nil
	}
	ips, err := look(ctx, family, s.host)
	if err != nil {
		return nil, err
	}
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	ips = slices.Compact(ips)
	all := make(target, len(ips))
	for i, ip := range ips {
		all[i] = netip.AddrPortFrom(ip, s.port)
	}
	addresses := max(1, len(all)) // of each target
	if s.each {
		addresses = 1
	}
	return slices.Collect(slices.Chunk(all, addresses)), nil
}
