package config

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"

	"github.com/tenurehq/tenure/internal/fault"
)

// Node is the node section: who this process is and what it tells the outside.
type Node struct {
	// Name tells this node from the others: in logs and metrics, and as the owner of
	// locks and claims. Default: the host name.
	Name string `yaml:"name"`
	// Listen is the address of metrics and health checks, and of tenure reload: an IP
	// literal, or nothing for every interface, and a port; port 0 takes a free
	// one. Empty or "off" serves nothing. Default: 127.0.0.1:8080.
	Listen string `yaml:"listen"`
	// InsecureListen allows Listen to be reachable from other machines although
	// nothing asks who calls.
	InsecureListen bool `yaml:"insecure_listen"`
	// AllowedHosts are names by which clients may call this node, beside addresses and
	// localhost: what they put into the Host header, without a port. Empty: none where
	// Listen is loopback, and any where it is not.
	AllowedHosts []string `yaml:"allowed_hosts"`
	Log          Log      `yaml:"log"`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn or error
	Format string `yaml:"format"` // json for machines, console for people
}

// DefaultNode listens on loopback only.
func DefaultNode() Node {
	name, _ := os.Hostname() // Validate refuses an empty name and says what to do
	return Node{Name: name, Listen: "127.0.0.1:8080", AllowedHosts: []string{}, Log: Log{Level: "info", Format: "json"}}
}

// Address is where to listen, "" when nothing is served.
func (n Node) Address() string {
	if n.Listen == "off" {
		return ""
	}
	return n.Listen
}

var nodeName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?$`)

// AnyHost says whether clients may call this node by any name: other machines do, and
// there is no list.
func (n Node) AnyHost() bool {
	addr, err := n.listenAddr()
	return err == nil && !addr.Addr().IsLoopback() && len(n.AllowedHosts) == 0
}

func (n Node) validate(l *fault.List) {
	if !nodeName.MatchString(n.Name) {
		l.Add("node.name", "choose a name that no other node has", "%.80q is not a node's name: 1 to 63 letters, digits and . _ - are allowed", n.Name)
	}
	addr, err := n.listenAddr()
	switch {
	case n.Address() == "":
	case err != nil:
		l.Add("node.listen", n.listenFix(), "%.80q is not an address", n.Listen)
	case !addr.Addr().IsLoopback() && !n.InsecureListen:
		l.Add("node.listen", "listen on 127.0.0.1 behind a proxy that checks who calls, or set node.insecure_listen: true",
			"%s can be reached from other machines, and there is no authentication: whoever calls may see the metrics and have the configuration read again", n.Listen)
	}
	for i, name := range n.AllowedHosts {
		if !hostName.MatchString(name) {
			l.Add("node.allowed_hosts["+strconv.Itoa(i)+"]", "write a name such as tenure.example.com, without a scheme or a port", "%.80q is not a host's name", name)
		}
	}
	switch n.Log.Level {
	case "debug", "info", "warn", "error":
	default:
		l.Add("node.log.level", choice(n.Log.Level, "debug", "info", "warn", "error"), "%.80q is not a log level", n.Log.Level)
	}
	switch n.Log.Format {
	case "json", "console":
	default:
		l.Add("node.log.format", choice(n.Log.Format, "json", "console"), "%.80q is not a log format", n.Log.Format)
	}
}

// listenAddr reads Listen; an empty host is the unspecified address.
func (n Node) listenAddr() (netip.AddrPort, error) {
	host, portText, err := net.SplitHostPort(n.Address())
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return netip.AddrPort{}, errors.New("bad port")
	}
	addr := netip.IPv6Unspecified()
	if host != "" {
		if addr, err = netip.ParseAddr(host); err != nil {
			return netip.AddrPort{}, err
		}
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), nil
}

// listenFix knows the two usual slips: a host name, and a port alone.
func (n Node) listenFix() string {
	host, port, err := net.SplitHostPort(n.Listen)
	if err != nil {
		host, port = "", n.Listen
	}
	if _, portErr := strconv.ParseUint(port, 10, 16); portErr == nil && (host == "localhost" || err != nil) {
		return "did you mean 127.0.0.1:" + port + "?"
	}
	return "write an IP literal and a port, such as 127.0.0.1:8080, or off to serve nothing"
}
