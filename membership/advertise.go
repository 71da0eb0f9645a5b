package membership

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// advertiser finds the address other nodes reach this one at. memberlist's own
// way accepts private addresses by RFC 6890 only, which many pod networks are not.
type advertiser struct {
	getenv func(string) string
	// route is the local address of the route to the internet, for ip4 or ip6.
	route func(family string) (netip.Addr, error)
	// interfaces lists the machine's addresses.
	interfaces func() ([]netip.Addr, error)
}

func systemAdvertiser(getenv func(string) string) advertiser {
	return advertiser{getenv: getenv, route: routeAddr, interfaces: interfaceAddrs}
}

// findAddress takes the first of: the configured address; the bound one, if it is an
// address and not a wildcard, for nothing listens elsewhere; POD_IP; the address
// of the interface with the default route; the only address of the machine.
func (a advertiser) findAddress(cfg Config, bind netip.AddrPort) (netip.AddrPort, error) {
	if cfg.Advertise != "" {
		return parseAdvertise(cfg.Advertise, bind.Port())
	}
	if !bind.Addr().IsUnspecified() {
		return bind, nil
	}
	if pod := a.getenv("POD_IP"); pod != "" {
		ip, err := netip.ParseAddr(pod)
		if err != nil || !isReachable(ip) {
			return netip.AddrPort{}, fmt.Errorf("POD_IP is %q, which other nodes cannot reach; correct it or set cluster.advertise", pod)
		}
		return netip.AddrPortFrom(ip.Unmap(), bind.Port()), nil
	}
	families := []string{"ip4", "ip6"} // a wildcard socket takes both; prefer the one written
	if bind.Addr().Is6() {
		families = []string{"ip6", "ip4"}
	}
	for _, family := range families {
		if ip, err := a.route(family); err == nil && isReachable(ip) {
			return netip.AddrPortFrom(ip.Unmap(), bind.Port()), nil
		}
	}
	ips, err := a.interfaces()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("find the address to advertise: %w; set cluster.advertise", err)
	}
	ips = slices.DeleteFunc(ips, func(ip netip.Addr) bool { return !isReachable(ip) })
	switch len(ips) {
	case 1:
		return netip.AddrPortFrom(ips[0].Unmap(), bind.Port()), nil
	case 0:
		return netip.AddrPort{}, fmt.Errorf("cluster.bind is %s and this machine has no address but loopback; set cluster.advertise, or cluster.bind to a loopback address", bind)
	default:
		return netip.AddrPort{}, fmt.Errorf("cluster.bind is %s and no default route says which address others reach; set cluster.advertise to one of %v", bind, ips)
	}
}

// parseAdvertise reads an IP with or without a port; without, port is taken.
func parseAdvertise(s string, port uint16) (netip.AddrPort, error) {
	if a, err := netip.ParseAddrPort(s); err == nil {
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
	}
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return netip.AddrPort{}, errors.New("is not an IP address")
	}
	return netip.AddrPortFrom(ip.Unmap(), port), nil
}

// isReachable reports whether another machine could use ip at all.
func isReachable(ip netip.Addr) bool { return ip.Zone() == "" && ip.Unmap().IsGlobalUnicast() }

// routeAddr asks the kernel which address it would send from. Connecting a UDP
// socket sends nothing; the targets are addresses reserved for documentation.
func routeAddr(family string) (netip.Addr, error) {
	network, to := "udp4", "192.0.2.1:9"
	if family == "ip6" {
		network, to = "udp6", "[2001:db8::1]:9"
	}
	conn, err := net.Dial(network, to)
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr(), nil
}

// interfaceAddrs are this machine's addresses.
func interfaceAddrs() ([]netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var ips []netip.Addr
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				ips = append(ips, ip.Unmap())
			}
		}
	}
	return ips, nil
}
