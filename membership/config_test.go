package membership

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure/internal/fault"
)

const goodKey = "MDEyMzQ1Njc4OWFiY2RlZg=="

func TestTrusted(t *testing.T) {
	t.Parallel()
	here, there := netip.MustParseAddrPort("127.0.0.1:7946"), netip.MustParseAddrPort("10.0.0.7:7946")
	says := func(c Config, at netip.AddrPort, want string, loudly zapcore.Level) {
		who, level := c.trustedWithoutKeys(at)
		require.Equal(t, want, who)
		require.Equal(t, loudly, level)
	}
	says(Config{}, here, "every user of this machine", zapcore.InfoLevel)
	says(Config{Insecure: true}, there, "anybody who reaches its address", zapcore.WarnLevel)
	says(Config{Keys: []string{gossipKey(1)}}, there, "", zapcore.DebugLevel)
}

func TestConfigDefault(t *testing.T) {
	t.Parallel()
	require.NoError(t, DefaultConfig().Validate())
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	public := func(c *Config) { c.Bind, c.Keys = "0.0.0.0:7946", []string{goodKey} }
	for name, tc := range map[string]struct {
		set  func(c *Config)
		want []string // path: part of the text; none if valid
	}{
		"public with key":          {set: public},
		"public and insecure":      {set: func(c *Config) { c.Bind, c.Insecure = "[::]:7946", true }},
		"public without key":       {set: func(c *Config) { c.Bind = "0.0.0.0:7946" }, want: []string{"cluster.keys: is empty"}},
		"any port":                 {set: func(c *Config) { c.Bind = "127.0.0.1:0" }},
		"bind a name":              {set: func(c *Config) { c.Bind = "localhost:7946" }, want: []string{"cluster.bind: is not an address"}},
		"bind without port":        {set: func(c *Config) { c.Bind = "127.0.0.1" }, want: []string{"cluster.bind: "}},
		"bind with zone":           {set: func(c *Config) { c.Bind = "[fe80::1%eth0]:7946" }, want: []string{"cluster.bind: fe80::1%eth0 is not"}},
		"bind multicast":           {set: func(c *Config) { c.Bind = "224.0.0.1:7946" }, want: []string{"cluster.bind: "}},
		"loopback, remote seed":    {set: func(c *Config) { c.Join = []string{"10.0.0.1:7946"} }, want: []string{"cluster.bind: is loopback"}},
		"loopback, mapped seed":    {set: func(c *Config) { c.Join = []string{"[::ffff:10.0.0.1]:7946"} }, want: []string{"cluster.bind: is loopback"}},
		"loopback, local seed":     {set: func(c *Config) { c.Join = []string{"127.0.0.1:7947", "127.1.2.3:7946", "[::ffff:127.0.0.1]:7948"} }},
		"loopback, local seed, v6": {set: func(c *Config) { c.Bind, c.Join = "[::1]:7946", []string{"[::1]:7947"} }},
		"loopback, named seed":     {set: func(c *Config) { c.Join = []string{"localhost:7947", "dns:node-b.example.com:7946"} }}, // see TestOneWay
		"seed of another family":   {set: func(c *Config) { c.Join = []string{"127.0.0.1:7947", "[::1]:7947"} }, want: []string{"cluster.join[1]: is of another address family than cluster.bind 127.0.0.1"}},
		"seed of the other family": {set: func(c *Config) { public(c); c.Bind, c.Join = "[2001:db8::1]:7946", []string{"10.0.0.1:7946"} }, want: []string{"cluster.join[0]: is of another address family than cluster.bind 2001:db8::1"}},
		"seeds of both families":   {set: func(c *Config) { public(c); c.Join = []string{"10.0.0.1:7946", "[2001:db8::1]:7946"} }},
		"advertise IP":             {set: func(c *Config) { public(c); c.Advertise = "10.0.0.1" }},
		"advertise IP and port":    {set: func(c *Config) { public(c); c.Advertise = "10.0.0.1:1234" }},
		"advertise v6":             {set: func(c *Config) { public(c); c.Bind, c.Advertise = "[::]:7946", "2001:db8::1" }},
		"advertise name":           {set: func(c *Config) { public(c); c.Advertise = "node-1:7946" }, want: []string{"cluster.advertise: is not an IP"}},
		"advertise wildcard":       {set: func(c *Config) { public(c); c.Advertise = "0.0.0.0" }, want: []string{"cluster.advertise: 0.0.0.0 cannot be reached"}},
		"advertise link-local":     {set: func(c *Config) { public(c); c.Advertise = "fe80::1%eth0" }, want: []string{"cluster.advertise: fe80::1%eth0 cannot be reached"}},
		"advertise port 0":         {set: func(c *Config) { public(c); c.Advertise = "10.0.0.1:0" }, want: []string{"cluster.advertise: has port 0"}},
		"advertise another family": {set: func(c *Config) { public(c); c.Bind, c.Advertise = "10.0.0.1:7946", "2001:db8::1" }, want: []string{"different address families"}},
		"advertise, not listen":    {set: func(c *Config) { c.Advertise = "10.0.0.5" }, want: []string{"cluster.advertise: 10.0.0.5 cannot be reached while cluster.bind 127.0.0.1 is loopback"}},
		"advertise loopback":       {set: func(c *Config) { c.Advertise = "127.0.0.1:7950" }},
		"advertise loopback afar":  {set: func(c *Config) { public(c); c.Advertise, c.Join = "127.0.0.1", []string{"10.0.0.2:7946"} }, want: []string{"cluster.advertise: is loopback"}},
		"label empty":              {set: func(c *Config) { c.Label = "" }, want: []string{"cluster.label: has 0 bytes"}},
		"label long":               {set: func(c *Config) { c.Label = strings.Repeat("x", 65) }, want: []string{"cluster.label: has 65 bytes"}},
		"label unprintable":        {set: func(c *Config) { c.Label = "a\x00" }, want: []string{"cluster.label: has the unprintable"}},
		"profile":                  {set: func(c *Config) { c.Profile = "moon" }, want: []string{"cluster.profile: "}},
		"seed":                     {set: func(c *Config) { c.Join = []string{"127.0.0.1:7946", "b"} }, want: []string{"cluster.join[1]: has no port"}},
		"key not base64":           {set: func(c *Config) { c.Keys = []string{"?"} }, want: []string{"cluster.keys[0]: is not base64"}},
		"key length":               {set: func(c *Config) { c.Keys = []string{goodKey, "MDEyMw=="} }, want: []string{"cluster.keys[1]: has 4 bytes"}},
		"key not random":           {set: func(c *Config) { c.Keys = []string{"AAAAAAAAAAAAAAAAAAAAAA=="} }, want: []string{"cluster.keys[0]: has only 1"}},
		"too many keys":            {set: func(c *Config) { c.Keys = []string{goodKey, goodKey, goodKey, goodKey} }, want: []string{"cluster.keys: 4 keys"}},
		"all faults in one go":     {set: func(c *Config) { *c = Config{Keys: []string{"?"}} }, want: []string{"cluster.bind", "cluster.keys[0]", "cluster.label", "cluster.profile"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := DefaultConfig()
			tc.set(&c)
			err := c.Validate()
			if tc.want == nil {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			require.Len(t, fault.All(err), len(tc.want), "%v", err)
			for _, text := range tc.want {
				require.ErrorContains(t, err, text)
			}
			for _, k := range c.Keys {
				if len(k) > 1 {
					require.NotContains(t, err.Error(), k, "a key is a secret")
				}
			}
		})
	}
}

func TestParseSeed(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]seed{
		"10.0.0.1:7946":        {host: "10.0.0.1", port: 7946},
		"[2001:db8::1]:7946":   {host: "2001:db8::1", port: 7946},
		"node-1.cluster_x:1":   {host: "node-1.cluster_x", port: 1},
		"dns:tenure.svc:65535": {host: "tenure.svc", port: 65535, each: true},
		"dns.example.com:7946": {host: "dns.example.com", port: 7946},
	} {
		got, err := parseSeed(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got)
	}
	for _, in := range []string{
		"", ":", "a", "a:", ":7946", "a:0", "a:65536", "a:-1", "a:x", "a:1:2", "::1:7946", "2001:db8::1", "[::1]", "dns:a", "dns::1", "dns:10.0.0.1:1",
		"10.0.0.256:1", "10.0.0:1", "[fe80::1%eth0]:1", "0.0.0.0:1", "[::]:1", "224.0.0.1:1", "a b:1", "a/b:1", "http://a:1", strings.Repeat("a", 254) + ":1",
	} {
		_, err := parseSeed(in)
		require.Error(t, err, "%q", in)
	}
}

func FuzzParseSeed(f *testing.F) {
	for _, s := range []string{"a:1", "dns:a:1", "[::1]:1", "10.0.0.1:1", "dns::", "[::1%x]:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseSeed(s)
		if err != nil {
			return
		}
		require.NotZero(t, got.port)
		require.NotEmpty(t, got.host)
		require.Equal(t, strings.HasPrefix(s, "dns:"), got.each)
		_, err = got.resolveTargets(context.Background(), "ip", func(context.Context, string, string) ([]netip.Addr, error) { return nil, nil })
		require.NoError(t, err)
	})
}

func TestSeedResolve(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr
	look := func(_ context.Context, family, host string) ([]netip.Addr, error) {
		switch {
		case host == "gone":
			return nil, errors.New("no such host")
		case family == "ip4":
			return []netip.Addr{addr("::ffff:10.0.0.2"), addr("10.0.0.1"), addr("10.0.0.2")}, nil
		default:
			return []netip.Addr{addr("2001:db8::1"), addr("10.0.0.1")}, nil
		}
	}
	resolve := func(s, family string) ([]target, error) {
		parsed, err := parseSeed(s)
		require.NoError(t, err)
		return parsed.resolveTargets(t.Context(), family, look)
	}
	ap := netip.MustParseAddrPort

	got, err := resolve("10.0.0.9:1", "ip")
	require.NoError(t, err)
	require.Equal(t, []target{{ap("10.0.0.9:1")}}, got)

	got, err = resolve("name:1", "ip4") // one member, whichever address answers
	require.NoError(t, err)
	require.Equal(t, []target{{ap("10.0.0.1:1"), ap("10.0.0.2:1")}}, got)

	got, err = resolve("dns:name:1", "ip4") // a member per address
	require.NoError(t, err)
	require.Equal(t, []target{{ap("10.0.0.1:1")}, {ap("10.0.0.2:1")}}, got)

	got, err = resolve("dns:name:1", "ip")
	require.NoError(t, err)
	require.Equal(t, []target{{ap("10.0.0.1:1")}, {ap("[2001:db8::1]:1")}}, got)

	_, err = resolve("gone:1", "ip")
	require.EqualError(t, err, "no such host")
	_, err = resolve("[::1]:1", "ip4")
	require.ErrorContains(t, err, "address family")
	_, err = resolve("10.0.0.1:1", "ip6")
	require.ErrorContains(t, err, "address family")
}

func TestAdvertise(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr
	type machine struct {
		env    string
		route4 string
		route6 string
		addrs  []netip.Addr
	}
	for name, tc := range map[string]struct {
		machine
		cfg, bind string
		want, err string
	}{
		"configured":                 {cfg: "203.0.113.7:99", bind: "0.0.0.0:7946", machine: machine{env: "10.1.1.1"}, want: "203.0.113.7:99"},
		"configured without port":    {cfg: "203.0.113.7", bind: "0.0.0.0:7946", want: "203.0.113.7:7946"},
		"configured v6 without port": {cfg: "2001:db8::7", bind: "[::]:7946", want: "[2001:db8::7]:7946"},
		// Nothing listens anywhere else, whatever the environment says.
		"bound":                {bind: "127.0.0.1:7946", machine: machine{env: "10.1.1.1", route4: "10.1.1.1"}, want: "127.0.0.1:7946"},
		"pod":                  {bind: "0.0.0.0:7946", machine: machine{env: "10.1.1.1", route4: "10.2.2.2"}, want: "10.1.1.1:7946"},
		"pod outside RFC 6890": {bind: "0.0.0.0:7946", machine: machine{env: "11.1.1.1"}, want: "11.1.1.1:7946"},
		"pod nonsense":         {bind: "0.0.0.0:7946", machine: machine{env: "pod-1", route4: "10.2.2.2"}, err: "POD_IP"},
		"pod loopback":         {bind: "0.0.0.0:7946", machine: machine{env: "127.0.0.1"}, err: "POD_IP"},
		"route":                {bind: "0.0.0.0:7946", machine: machine{route4: "100.64.3.3", route6: "2001:db8::3"}, want: "100.64.3.3:7946"},
		"route v6 only":        {bind: "0.0.0.0:7946", machine: machine{route6: "2001:db8::3"}, want: "[2001:db8::3]:7946"},
		"route, v6 written":    {bind: "[::]:7946", machine: machine{route4: "100.64.3.3", route6: "2001:db8::3"}, want: "[2001:db8::3]:7946"},
		"only address":         {bind: "0.0.0.0:7946", machine: machine{addrs: []netip.Addr{addr("127.0.0.1"), addr("::1"), addr("fe80::1"), addr("192.168.5.5")}}, want: "192.168.5.5:7946"},
		"no address":           {bind: "0.0.0.0:7946", machine: machine{addrs: []netip.Addr{addr("127.0.0.1")}}, err: "no address but loopback; set cluster.advertise"},
		"several and no route": {bind: "0.0.0.0:7946", machine: machine{addrs: []netip.Addr{addr("10.1.1.1"), addr("10.2.2.2")}}, err: "set cluster.advertise to one of [10.1.1.1 10.2.2.2]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := advertiser{
				getenv: func(key string) string {
					require.Equal(t, "POD_IP", key)
					return tc.env
				},
				route: func(family string) (netip.Addr, error) {
					return netip.ParseAddr(map[string]string{"ip4": tc.route4, "ip6": tc.route6}[family])
				},
				interfaces: func() ([]netip.Addr, error) { return tc.addrs, nil },
			}
			got, err := a.findAddress(Config{Advertise: tc.cfg}, netip.MustParseAddrPort(tc.bind))
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got.String())
		})
	}
}

// Asks the kernel, so it can only check what holds on every machine.
func TestAdvertiseSystem(t *testing.T) {
	t.Parallel()
	got, err := systemAdvertiser(func(string) string { return "" }).findAddress(Config{}, netip.MustParseAddrPort("0.0.0.0:7946"))
	if err != nil {
		require.ErrorContains(t, err, "cluster.advertise")
		return
	}
	require.True(t, isReachable(got.Addr()), "%s", got)
	require.True(t, isLocal(got.Addr()), "%s", got)
}
