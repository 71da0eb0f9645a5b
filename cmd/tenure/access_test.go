package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/config"
)

// set replaces a line of the bed's node section.
func (b *bed) setNode(section string) {
	b.t.Helper()
	b.rewrite(func(text string) string {
		return regexp.MustCompile(`(?m)^node: .*$`).ReplaceAllLiteralString(text, "node: "+section)
	})
}

// answer asks a node for a path, with a secret if there is one.
func (s *serving) answer(client *http.Client, url, secret string) (int, error) {
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	if secret != "" {
		request.Header.Set("Authorization", "Bearer "+secret)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

func (b *bed) newToken() jsonToken {
	b.t.Helper()
	var t jsonToken
	require.NoError(b.t, json.Unmarshal([]byte(b.ok("token", "new", "-o", "json")), &t))
	return t
}

func TestTokenNew(t *testing.T) {
	t.Parallel()
	r := command(t.Context(), "", "token", "new")
	require.Zero(t, r.code)
	m := regexp.MustCompile(`^secret: (tenure_[\w-]{43})\nsecret_hash: ([0-9a-f]{64})\n$`).FindStringSubmatch(r.out)
	require.NotNil(t, m, r.out)
	require.NotEqual(t, r.out, command(t.Context(), "", "token", "new").out)
	cfg := config.Default()
	cfg.Node.Tokens["ops"] = config.Token{SHA256: m[2], Role: "read"}
	require.NotContains(t, cfg.Validate().Error(), "secret_hash", "it is what the configuration wants")
}

// The documented rotation of a secret, on a node that serves: who has the old one is let in until it is
// taken away, who has the new one from then on when it is known, and no request fails meanwhile.
func TestTokensAreRotatedWhileTheNodeServes(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	address := freePort(t)
	old, next := b.newToken(), b.newToken()
	tokens := func(text string) {
		b.setNode("{name: test, listen: '" + address + "', tokens: {ops: {" + text + ", role: read}}}")
	}
	tokens("secret_hash: " + old.Hash)
	s := b.serve()
	const path = "/api/v1/tenants"
	codes := func() (codes [2]int) {
		for i, secret := range []string{old.Secret, next.Secret} {
			code, err := s.answer(http.DefaultClient, s.url+path, secret)
			require.NoError(t, err)
			codes[i] = code
		}
		return codes
	}
	require.Equal(t, [2]int{200, 401}, codes())

	// Somebody asks all the time, with the secret that is good throughout.
	var group sync.WaitGroup
	asking, enough := context.WithCancel(t.Context())
	askWith := func(secret string) (stop func() int) {
		ctx, cancel := context.WithCancel(asking)
		asked, failed := 0, 0
		done := make(chan struct{})
		group.Go(func() {
			defer close(done)
			for ctx.Err() == nil {
				code, err := s.answer(http.DefaultClient, s.url+path, secret)
				if asked++; err != nil || code != http.StatusOK {
					failed++
				}
			}
		})
		return func() int {
			cancel()
			<-done
			require.Zero(t, failed, "of %d requests", asked)
			return asked
		}
	}
	defer group.Wait()
	defer enough()
	withOld := askWith(old.Secret)
	tokens("secret_hash: " + next.Hash + ", old_secret_hash: " + old.Hash)
	require.NotContains(t, b.ok("reload"), "after a restart")
	require.Equal(t, [2]int{200, 200}, codes())
	withNext := askWith(next.Secret)
	require.Positive(t, withOld())
	tokens("secret_hash: " + next.Hash)
	require.NotContains(t, b.ok("reload"), "after a restart")
	require.Equal(t, [2]int{401, 200}, codes())
	require.Positive(t, withNext())

	// A file with a fault changes nothing; one that is found by itself does, as does the end of a token.
	tokens("secret_hash: abc")
	b.fails(2, "reload")
	require.Equal(t, [2]int{401, 200}, codes())
	tokens("secret_hash: " + next.Hash + ", expires: '2020-01-31T09:00:00Z'")
	require.Eventually(t, func() bool { return codes() == [2]int{401, 401} }, patience, tick, "found by itself")
	s.stop()
	require.Zero(t, <-s.code)
}

// A reload whose part about signing in cannot be had says so, and the node tries it again.
func TestAReloadWithoutTheCookieKey(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	address, key := freePort(t), filepath.Join(t.TempDir(), "key")
	writeKey := func() { require.NoError(t, os.WriteFile(key, []byte(strings.Repeat("k", 44)), 0o600)) }
	setRole := func(role string) {
		b.setNode("{name: test, listen: '" + address + "', oidc: {issuer: 'https://login.example.com', client_id: tenure, redirect_url: 'https://tenure.example.com/oidc/callback', cookie_key_file: '" + key + "', roles: {ops: {role: " + role + "}}}}")
	}
	writeKey()
	setRole("admin")
	s := b.serve()
	refused := func() bool {
		response, err := http.Get(s.url + "/metrics")
		require.NoError(t, err)
		defer response.Body.Close()
		all, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return strings.Contains(string(all), "\ntenure_config_refused 1\n")
	}
	require.NoError(t, os.Remove(key))
	setRole("read")
	r := b.fails(1, "reload")
	require.Contains(t, r.errors, "the configuration is in force but for this; mend it and reload: node.oidc.cookie_key_file: open "+key)
	require.NotContains(t, r.errors, "goes on with what it had")
	require.True(t, refused())
	writeKey()
	require.Eventually(t, func() bool { return !refused() }, patience, tick, "tried again by itself")
	s.stop()
	require.Zero(t, <-s.code)
}

// certificateFor writes a certificate for names and its key, and returns their paths.
func certificateFor(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"tenure.example.com"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	text, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text}), 0o600))
	return cert, key
}

// outer is an address of this machine that is not loopback.
func outer(t *testing.T) string {
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback")
	return ""
}

// With TLS and tokens a node is served to other machines; who is unknown there learns nothing. The
// commands on its own machine know it by its certificate.
func TestServeTLS(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	port := freePort(t)
	address := "0.0.0.0" + port[strings.LastIndexByte(port, ':'):]
	dir := t.TempDir()
	cert, key := certificateFor(t, dir)
	ops, support := b.newToken(), b.newToken()
	b.setNode(fmt.Sprintf("{name: test, listen: '%s', tls_cert: '%s', tls_key: '%s', tokens: {ops: {secret_hash: %s, role: admin}, support: {secret_hash: %s, role: admin, tenants: [P1]}}}", address, cert, key, ops.Hash, support.Hash))
	s := b.serve()
	pem, err := os.ReadFile(cert)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "tenure.example.com"}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	url := "https://127.0.0.1" + port[strings.LastIndexByte(port, ':'):]
	for _, c := range []struct {
		path, secret string
		code         int
	}{
		{"/healthz", "", 200}, {"/readyz", "", 200}, {"/api/v1/tenants", "", 401}, {"/", "", 401}, {"/api/v1/tenants", ops.Secret, 200}, {"/api/v1/tenants", support.Secret, 200},
		{"/metrics", "", 200}, // from this machine
	} {
		require.Eventually(t, func() bool {
			code, err := s.answer(client, url+c.path, c.secret)
			return err == nil && code == c.code
		}, patience, tick, c.path)
	}
	b.ok("health")
	require.NotContains(t, b.ok("reload"), "after a restart")

	// It is asked by its outer address as by a proxy's clients: nobody is known by where they are.
	ask := func(method, path, secret string) int {
		request, err := http.NewRequestWithContext(t.Context(), method, url+path, nil)
		require.NoError(t, err)
		request.Header.Set("X-Forwarded-For", "192.0.2.1")
		if secret != "" {
			request.Header.Set("Authorization", "Bearer "+secret)
		}
		response, err := client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	require.Equal(t, 401, ask(http.MethodGet, "/metrics", ""))
	require.Equal(t, 403, ask(http.MethodGet, "/metrics", support.Secret))
	require.Equal(t, 200, ask(http.MethodGet, "/metrics", ops.Secret))
	require.Equal(t, 401, ask(http.MethodPost, "/-/reload", ""))
	require.Equal(t, 403, ask(http.MethodPost, "/-/reload", support.Secret))
	require.Equal(t, 200, ask(http.MethodPost, "/-/reload", ops.Secret))

	// Another certificate than the one in the file is not the node's.
	other := t.TempDir()
	otherCert, otherKey := certificateFor(t, other)
	b.rewrite(func(text string) string {
		return strings.NewReplacer(cert, otherCert, key, otherKey).Replace(text)
	})
	require.Contains(t, b.fails(1, "health").errors, "shows another certificate")
	s.stop()
	require.Zero(t, <-s.code)
}

// A node behind a trusted proxy knows whom that names, and answers nobody else who could be listened to
// on the way.
func TestServeBehindATrustedProxy(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	here := outer(t)
	port := freePort(t)
	address := "0.0.0.0" + port[strings.LastIndexByte(port, ':'):]
	node := func(networks string) string {
		return fmt.Sprintf("{name: test, listen: '%s', trusted_proxies: {networks: [%s], users: {ann: {role: read}}}}", address, networks)
	}
	b.setNode(node("127.0.0.1/32"))
	s := b.serve()
	ask := func(host, user string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+port[strings.LastIndexByte(port, ':'):]+"/api/v1/tenants", nil)
		require.NoError(t, err)
		request.Header.Set("X-Forwarded-For", "192.0.2.1")
		if user != "" {
			request.Header.Set("X-Forwarded-User", user)
		}
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	require.Equal(t, 200, ask("127.0.0.1", "ann"))
	require.Equal(t, 401, ask("127.0.0.1", "bob"))
	require.Equal(t, 401, ask("127.0.0.1", ""))
	require.Equal(t, 403, ask(here, "ann"), "from an address that is no proxy's")
	b.setNode(node(here + "/32"))
	require.NotContains(t, b.ok("reload"), "after a restart")
	require.Equal(t, 200, ask(here, "ann"))
	require.Equal(t, 403, ask("127.0.0.1", "ann"))
	s.stop()
	require.Zero(t, <-s.code)
}

// What would be open to others is refused before anything is served.
func TestServeRefusesToBeOpen(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	for section, why := range map[string]string{
		"{name: test, listen: '0.0.0.0:0'}": "set node.tls_cert and node.tls_key",
		"{name: test, listen: '0.0.0.0:0', tokens: {ops: {secret_hash: " + strings.Repeat("0", 64) + ", role: read}}}": "can be read on the way",
		"{name: test, listen: '0.0.0.0:0', tls_cert: /c, tls_key: /k}":                                                 "nobody is named who may call",
	} {
		b.setNode(section)
		require.Contains(t, b.fails(2, "serve").errors, why)
	}
	b.setNode("{name: test, listen: '127.0.0.1:0', tls_cert: /no/such.crt, tls_key: /no/such.key}")
	require.Contains(t, b.fails(1, "serve").errors, "node.tls_cert and node.tls_key: stat /no/such.crt")
}

// Profiles have an address of their own, and are nowhere unless they are asked for.
func TestProfiles(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	address := freePort(t)
	b.setNode("{name: test, listen: '127.0.0.1:0', pprof_listen: '" + address + "'}")
	s := b.serve()
	code, err := s.answer(http.DefaultClient, "http://"+address+"/debug/pprof/goroutine?debug=1", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code)
	code, err = s.answer(http.DefaultClient, s.url+"/debug/pprof/goroutine?debug=1", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, code, "not where the rest is")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/debug/pprof/", nil)
	require.NoError(t, err)
	request.Host = "evil.example"
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusMisdirectedRequest, response.StatusCode)
	s.stop()
	require.Zero(t, <-s.code)
	_, err = s.answer(http.DefaultClient, "http://"+address+"/debug/pprof/", "")
	require.Error(t, err, "it ends with the node")
}
