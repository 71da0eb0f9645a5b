package access

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ForHosts answers requests that name this server by an address, as localhost or by one
// of names, and refuses others with 421. A page in somebody's browser reaches a server on
// loopback by a name of its own that is made to stand for 127.0.0.1 (DNS rebinding), and
// could then read the answers; it cannot give such a request another Host than that name.
// /healthz, which tells nothing, is always answered.
func ForHosts(next http.Handler, names []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" || isKnownHost(r.Host, names) {
			next.ServeHTTP(w, r)
			return
		}
		refuseHost(w, r)
	})
}

func refuseHost(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.Error(w, fmt.Sprintf("This node is not known by the name %.100q: ask it by its address, or add the name to node.allowed_hosts; "+
		"a program that serves web.Handler itself, to web.Settings.AllowedHosts.", r.Host), http.StatusMisdirectedRequest)
}

func isKnownHost(hostport string, names []string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" {
		return true
	}
	return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) })
}
