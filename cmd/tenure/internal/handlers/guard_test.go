package handlers

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	for _, refused := range []string{
		"127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", // loopback
		"10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fd00::1", "::ffff:10.0.0.1", // private
		"169.254.169.254", "fe80::1", "fe80::1%eth0", // link-local
		"224.0.0.1", "239.1.1.1", "ff02::1", // multicast
		"0.0.0.0", "::", "0.1.2.3", // unspecified
		"255.255.255.255", "240.0.0.1", "100.64.0.1", "100.100.100.200", "198.18.0.1", "192.0.2.1",
		"168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110", "192.0.0.192", "169.254.170.2", "161.26.0.10", "166.9.1.1", "192.80.8.124", "fd20:ce::254", // clouds
		"64:ff9b::a00:1", "2002:7f00:1::", "2001:0:1::1", "::7f00:1", "fec0::1", "fd00:ec2::254",
	} {
		require.Error(t, guard{}.control("tcp", net.JoinHostPort(refused, "80"), nil), refused)
	}
	for _, public := range []string{"1.1.1.1", "8.8.8.8", "172.32.0.1", "100.63.0.1", "2606:4700:4700::1111", "168.63.129.17", "166.12.0.1", "::ffff:1.1.1.1"} {
		require.NoError(t, guard{}.control("tcp", net.JoinHostPort(public, "443"), nil), public)
	}
	g := guard{allow: []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16"), netip.MustParsePrefix("fd12::/16")}}
	for _, allowed := range []string{"10.20.1.1", "::ffff:10.20.1.1", "fd12::1"} {
		require.NoError(t, g.control("tcp", net.JoinHostPort(allowed, "80"), nil), allowed)
	}
	require.Error(t, g.control("tcp", "10.21.1.1:80", nil))
	require.Error(t, g.control("tcp", "nonsense", nil))
	err := guard{}.control("tcp", "169.254.169.254:80", nil)
	require.ErrorAs(t, err, new(*refusedError))
	require.EqualError(t, err, "address 169.254.169.254 is not public and not in handlers.http_request.allow")
}
