package membership

import (
	"encoding/base64"
	"net/netip"
	"slices"
	"strconv"
	"unicode"

	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure/internal/fault"
)

// Config is the cluster section of the configuration.
type Config struct {
	// Bind is the address gossip listens on, TCP and UDP: an IP literal and a port; port 0 takes a free one.
	Bind string `yaml:"bind"`
	// Advertise is the address other nodes reach this one at, an IP with or without a port. Empty: the bound
	// address, or, when that is a wildcard, $POD_IP or the address of the interface with the default route.
	Advertise string `yaml:"advertise"`
	// Join lists seeds as host:port or dns:name:port (every A and AAAA record is a seed). One list can serve all
	// nodes: a node skips itself. Empty: this node waits to be joined.
	Join []string `yaml:"join"`
	// Keys are base64 of 16, 24 or 32 bytes; the first encrypts, all decrypt. Required when Bind is not loopback.
	// To change the key, give all nodes the new one last, then all of them first, then without the old one, by
	// [Cluster.SetKeys]. Do so every month: random nonces under one key must not grow too many.
	Keys []string `yaml:"keys"`
	// Label keeps clusters apart that could reach one another; nodes with different labels never merge.
	Label string `yaml:"label"`
	// Insecure allows gossip without keys on addresses that are not loopback.
	Insecure bool `yaml:"insecure"`
	// Profile sets gossip's timing: local (one machine, and tests), lan, or wan.
	Profile string `yaml:"profile"`
}

// maxLabel is less than memberlist allows: every packet carries the label.
const maxLabel = 64

// DefaultConfig gossips on loopback only.
func DefaultConfig() Config {
	return Config{Bind: "127.0.0.1:7946", Label: "tenure", Profile: "lan"}
}

// Validate returns every fault of c, joined.
func (c Config) Validate() error {
	var l fault.List
	bind := c.validateBind(&l)
	c.validateAdvertise(&l, bind)
	c.validateKeys(&l, bind)
	if c.Label == "" || len(c.Label) > maxLabel {
		l.Add("cluster.label", "give 1 to "+strconv.Itoa(maxLabel)+" bytes", "has %d bytes", len(c.Label))
	}
	for _, r := range c.Label {
		if !unicode.IsPrint(r) {
			l.Add("cluster.label", "", "has the unprintable character %U", r)
			break
		}
	}
	for i, s := range c.Join {
		path := "cluster.join[" + strconv.Itoa(i) + "]"
		seed, err := parseSeed(s)
		if err != nil {
			l.Add(path, "write host:port, or dns:name:port for every address of a name", "%v", err)
			continue
		}
		if ip, err := netip.ParseAddr(seed.host); err == nil && bind.IsValid() && !bind.Addr().IsUnspecified() && ip.Unmap().Is4() != bind.Addr().Is4() {
			l.Add(path, "give the address that it has in the family of cluster.bind, or bind 0.0.0.0, which takes both",
				"is of another address family than cluster.bind %s, so that it would never be reached", bind.Addr())
		}
	}
	l.OneOf("cluster.profile", c.Profile, "local", "lan", "wan")
	return l.Err()
}

// validateBind matters more than it looks: memberlist takes whatever it cannot
// parse, a zone included, as a wish to listen on every interface.
func (c Config) validateBind(l *fault.List) netip.AddrPort {
	bind, err := netip.ParseAddrPort(c.Bind)
	const fix = "write an IP literal and a port, such as 0.0.0.0:7946"
	switch {
	case err != nil:
		l.Add("cluster.bind", fix, "is not an address; gossip would listen on every interface")
	case bind.Addr().Zone() != "" || bind.Addr().IsMulticast():
		l.Add("cluster.bind", fix, "%s is not an address gossip can listen on", bind.Addr())
	case bind.Addr().Unmap().IsLoopback() && c.hasRemoteSeed():
		l.Add("cluster.bind", "bind an address of this machine, or 0.0.0.0", "is loopback (%s) while cluster.join names other machines, which cannot be reached from there", bind.Addr())
	default:
		return netip.AddrPortFrom(bind.Addr().Unmap(), bind.Port())
	}
	return netip.AddrPort{}
}

func (c Config) validateAdvertise(l *fault.List, bind netip.AddrPort) {
	if c.Advertise == "" {
		return
	}
	a, err := parseAdvertise(c.Advertise, bind.Port())
	const fix = "write the IP, with or without a port, at which the other nodes reach this one"
	switch {
	case err != nil:
		l.Add("cluster.advertise", fix, "is not an IP address")
	case a.Addr().Zone() != "" || !a.Addr().IsLoopback() && !a.Addr().IsGlobalUnicast():
		l.Add("cluster.advertise", fix, "%s cannot be reached from another node", a.Addr())
	case bind.IsValid() && !bind.Addr().IsUnspecified() && a.Addr().Is4() != bind.Addr().Is4():
		l.Add("cluster.advertise", "use the same address family for both", "%s and cluster.bind %s are of different address families", a.Addr(), bind.Addr())
	case bind.IsValid() && bind.Addr().IsLoopback() && !a.Addr().IsLoopback():
		// Not even if something forwards to it: what is sent from loopback gets to no other machine.
		l.Add("cluster.advertise", "set cluster.bind to 0.0.0.0:"+strconv.Itoa(int(bind.Port()))+" or to an address of this machine",
			"%s cannot be reached while cluster.bind %s is loopback, from where nothing gets to another machine", a.Addr(), bind.Addr())
	case a.Port() == 0 && bind.IsValid() && bind.Port() != 0:
		l.Add("cluster.advertise", fix, "has port 0, at which nobody can be reached")
	case a.Addr().IsLoopback() && bind.IsValid() && !bind.Addr().IsLoopback() && c.hasRemoteSeed():
		l.Add("cluster.advertise", fix, "is loopback (%s) while cluster.join names other machines", a.Addr())
	}
}

// hasRemoteSeed knows of addresses only. What a name stands for is seen when it is looked
// up, in answerable: also one with dots may be this machine, by a hosts file, and then
// nothing is wrong.
func (c Config) hasRemoteSeed() bool {
	for _, s := range c.Join {
		seed, err := parseSeed(s)
		if err != nil {
			continue
		}
		if ip, err := netip.ParseAddr(seed.host); err == nil && !ip.IsLoopback() {
			return true
		}
	}
	return false
}

// trustedWithoutKeys says who can take part without having been given anything, "": nobody, and how
// loudly that is to be said.
func (c Config) trustedWithoutKeys(advertise netip.AddrPort) (who string, level zapcore.Level) {
	switch {
	case len(c.Keys) > 0:
		return "", zapcore.DebugLevel
	case advertise.Addr().IsLoopback():
		return "every user of this machine", zapcore.InfoLevel
	}
	return "anybody who reaches its address", zapcore.WarnLevel
}

func (c Config) validateKeys(l *fault.List, bind netip.AddrPort) {
	if len(c.Keys) == 0 && bind.IsValid() && !bind.Addr().IsLoopback() && !c.Insecure {
		l.Add("cluster.keys", "make one with: openssl rand -base64 32; or set cluster.insecure: true if the network is trusted",
			"is empty, but cluster.bind %s is not loopback: anybody who reaches it could join", bind.Addr())
	}
	if len(c.Keys) > 3 {
		l.Add("cluster.keys", "remove the old ones", "%d keys: 3 are enough for a rotation", len(c.Keys))
	}
	for i, k := range c.Keys {
		path := "cluster.keys[" + strconv.Itoa(i) + "]"
		const fix = "make one with: openssl rand -base64 32"
		raw, err := base64.StdEncoding.DecodeString(k)
		distinct := len(slices.Compact(slices.Sorted(slices.Values(raw))))
		switch {
		case err != nil:
			l.Add(path, fix, "is not base64")
		case len(raw) != 16 && len(raw) != 24 && len(raw) != 32:
			l.Add(path, fix, "has %d bytes: 16, 24 or 32 are allowed", len(raw))
		case distinct < 8:
			l.Add(path, fix, "has only %d different bytes, so it is not random", distinct)
		}
	}
}
