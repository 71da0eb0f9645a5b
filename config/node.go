package config

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenurehq/tenure/internal/fault"
)

// Node is the node section: who this process is and what it tells the outside.
type Node struct {
	// Name tells this node from the others: in logs and metrics, and as the owner of
	// locks and claims. Default: the host name.
	Name string `yaml:"name"`
	// Listen is the address of metrics and health checks, and of tenure reload: an IP
	// literal, or nothing for every interface, and a port; port 0 takes a free
	// one. "off" serves nothing. Empty, the default: [DefaultListen] for programs that serve something there,
	// such as tenure serve, and nothing for others, of which a host may have several. One that other machines
	// reach needs TLS and somebody who may call, or TrustedProxies.
	Listen string `yaml:"listen"`
	// InsecureListen allows Listen to be reachable from other machines without that. Then
	// anybody reads the metrics and has the configuration reloaded.
	InsecureListen bool `yaml:"insecure_listen"`
	// TLSCert and TLSKey are the paths of PEM files, of a certificate with what leads to its
	// authority, and of its key. They are read again when they change. Empty: no TLS.
	TLSCert string `yaml:"tls_cert"`
	TLSKey  string `yaml:"tls_key"`
	// AllowedHosts are names by which clients may call this node, beside addresses and
	// localhost: what they put into the Host header, without a port. Empty: none where
	// Listen is loopback, and any where it is not.
	AllowedHosts []string `yaml:"allowed_hosts"`
	// Tokens, TrustedProxies and OIDC are who may use the dashboard and the API, by a name for
	// each. None: programs on this machine may do everything, and others nothing.
	Tokens         map[string]Token `yaml:"tokens"`
	TrustedProxies TrustedProxies   `yaml:"trusted_proxies"`
	OIDC           OIDC             `yaml:"oidc"`
	// PprofListen is the address, on loopback, of the profiles of tenure serve. "off": there
	// are none.
	PprofListen string `yaml:"pprof_listen"`
	// TenantMetrics says of which tenants there are metrics: off, top or all. top: the hundred with most
	// work, and the others together as the tenant "other". Default: top.
	TenantMetrics string `yaml:"tenant_metrics"`
	// OTLPEndpoint is where `tenure serve` sends a span for each run, by OTLP over HTTP, such as
	// http://127.0.0.1:4318. Empty: where OpenTelemetry's variables say, and else nowhere.
	OTLPEndpoint string `yaml:"otlp_endpoint"`
	// TraceURL is where a trace can be seen, with {trace} for its id: a job's page in the dashboard leads
	// there. Empty: it does not.
	TraceURL string `yaml:"trace_url"`
	Log      Log    `yaml:"log"`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn or error
	Format string `yaml:"format"` // json for machines, console for people
}

// DefaultListen is where a node listens that is not told where.
const DefaultListen = "127.0.0.1:8080"

// DefaultNode is named as the host.
func DefaultNode() Node {
	name, _ := os.Hostname() // Validate refuses an empty name and says what to do
	return Node{Name: name, AllowedHosts: []string{}, Tokens: map[string]Token{},
		TrustedProxies: TrustedProxies{Networks: []netip.Prefix{}, UserHeader: "X-Forwarded-User", Users: map[string]Access{}},
		OIDC:           OIDC{Scopes: []string{"profile", "email"}, Claim: "groups", Roles: map[string]Access{}, Session: 8 * time.Hour},
		PprofListen:    "off", TenantMetrics: "top", Log: Log{Level: "info", Format: "json"}}
}

// TopTenants is how many tenants have metrics of their own where TenantMetrics is top.
const TopTenants = 100

// MeteredTenants is how many tenants have metrics of their own; 0: there are none of tenants.
func (n Node) MeteredTenants() int {
	switch n.TenantMetrics {
	case "off":
		return 0
	case "all":
		return math.MaxInt
	}
	return TopTenants
}

// Address is where to listen, if anything is served, "" when nothing is.
func (n Node) Address() string {
	if n.Listen == "off" {
		return ""
	}
	return cmp.Or(n.Listen, DefaultListen)
}

// PprofAddress is where profiles are served, "" when they are not.
func (n Node) PprofAddress() string {
	if n.PprofListen == "off" {
		return ""
	}
	return n.PprofListen
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
		l.Add("node.name", "choose a name that no other node has", "is not a node's name: 1 to 63 letters, digits and . _ - are allowed")
	}
	n.validateListen(l)
	for i, name := range n.AllowedHosts {
		if !hostName.MatchString(name) {
			l.Add("node.allowed_hosts["+strconv.Itoa(i)+"]", "write a name such as tenure.example.com, without a scheme or a port", "is not a host's name")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.Tokens)) {
		n.Tokens[name].validate("node.tokens."+name, l)
	}
	n.TrustedProxies.validate(l)
	n.OIDC.validate(l)
	if addr, err := parseAddr(n.PprofAddress()); n.PprofAddress() != "" && (err != nil || !addr.Addr().IsLoopback()) {
		l.Add("node.pprof_listen", "write 127.0.0.1 and a port, or off; from elsewhere go through ssh -L or kubectl port-forward",
			"is not an address of this machine alone: profiles ask nobody who they are, and show what is in the memory")
	}
	l.OneOf("node.tenant_metrics", n.TenantMetrics, "off", "top", "all")
	if u, err := url.Parse(n.OTLPEndpoint); n.OTLPEndpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		l.Add("node.otlp_endpoint", "write a URL such as http://127.0.0.1:4318", "is not the URL of a collector")
	}
	if u, err := url.Parse(n.TraceURL); n.TraceURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || !strings.Contains(n.TraceURL, "{trace}")) {
		l.Add("node.trace_url", "write a URL such as https://grafana.example.com/trace/{trace}", "is not a URL with {trace} in it")
	}
	l.OneOf("node.log.level", n.Log.Level, "debug", "info", "warn", "error")
	l.OneOf("node.log.format", n.Log.Format, "json", "console")
}

// validateListen refuses an address that others reach where they are not known, or could be listened
// to on the way.
func (n Node) validateListen(l *fault.List) {
	if (n.TLSCert == "") != (n.TLSKey == "") {
		l.Add("node.tls_cert", "set both, or neither", "goes with node.tls_key, and one of them is empty")
	}
	requireWholePath("node.tls_cert", n.TLSCert, l)
	requireWholePath("node.tls_key", n.TLSKey, l)
	addr, err := n.listenAddr()
	switch {
	case n.Address() == "":
	case err != nil:
		l.Add("node.listen", n.listenFix(), "is not an address")
	case addr.Addr().IsLoopback(), n.InsecureListen, n.TrustedProxies.Enabled():
	case !n.TLS():
		l.Add("node.listen", "set node.tls_cert and node.tls_key, or node.trusted_proxies if a proxy in front has TLS and knows who calls, or listen on 127.0.0.1; node.insecure_listen: true allows it as it is",
			"can be reached from other machines, and there is no TLS: what is sent there, tokens among it, can be read on the way")
	case !n.knowsSomebody():
		l.Add("node.listen", "add one under node.tokens (tenure token new makes its secret), or set node.oidc, or listen on 127.0.0.1; node.insecure_listen: true allows it as it is",
			"can be reached from other machines, and nobody is named who may call: anyone who connects would be a stranger")
	}
}

// TLS says whether Listen is served with TLS.
func (n Node) TLS() bool { return n.TLSCert != "" && n.TLSKey != "" }

// knowsSomebody says whether there is anybody who may call from another machine.
func (n Node) knowsSomebody() bool {
	return len(n.Tokens) > 0 || n.OIDC.Enabled() || n.TrustedProxies.Enabled()
}

// OnlyProxies says whether other machines are answered only through TrustedProxies, as what they
// send directly could be read on the way.
func (n Node) OnlyProxies() bool {
	addr, err := n.listenAddr()
	return err == nil && !addr.Addr().IsLoopback() && !n.TLS() && !n.InsecureListen
}

// listenAddr reads Listen.
func (n Node) listenAddr() (netip.AddrPort, error) { return parseAddr(n.Address()) }

// parseAddr reads an address to listen on; an empty host is the unspecified one.
func parseAddr(address string) (netip.AddrPort, error) {
	host, portText, err := net.SplitHostPort(address)
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
