package admin_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/admin"
)

// files are a certificate and its key.
type files struct{ cert, key string }

// write makes a new certificate for 127.0.0.1 there.
func (f files) write(t *testing.T, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(f.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	require.NoError(t, os.WriteFile(f.key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600))
}

// A certificate that is renewed is shown to who connects from then on; while its files do not belong
// together the one before is, and what is connected goes on.
func TestCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := files{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
	_, err := admin.Listen("127.0.0.1:0", f.cert, f.key)
	require.ErrorContains(t, err, "node.tls_cert and node.tls_key")
	require.ErrorIs(t, err, os.ErrNotExist)
	f.write(t, "one")
	s, err := admin.Listen("127.0.0.1:0", f.cert, f.key)
	require.NoError(t, err)
	s.Serve(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }), zap.NewNop())
	defer s.Stop()
	shown := func() string {
		conn, err := tls.Dial("tcp", s.Address(), &tls.Config{InsecureSkipVerify: true})
		require.NoError(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	require.Equal(t, "one", shown())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	get := func() string {
		response, err := client.Get("https://" + s.Address())
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, "HTTP/2.0", get())

	require.NoError(t, os.WriteFile(f.key, []byte("half"), 0o600))
	began := time.Now()
	for time.Since(began) < 1500*time.Millisecond { // for longer than the files are not looked at
		require.Equal(t, "one", shown())
	}
	f.write(t, "two")
	require.Eventually(t, func() bool { return shown() == "two" }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, "HTTP/2.0", get(), "on the connection of before")

	_, err = tls.Dial("tcp", s.Address(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11})
	require.Error(t, err, "what is older than TLS 1.2 is refused")
	response, err := http.Get("http://" + s.Address())
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusBadRequest, response.StatusCode, "without TLS nothing is told")
}

// Who does not end the header of a request, or sends too large a one, keeps no connection.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	s, err := admin.Listen("127.0.0.1:0", "", "")
	require.NoError(t, err)
	s.Serve(t.Context(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), zap.NewNop())
	defer s.Stop()
	send := func(text string) (answer string) {
		conn, err := net.Dial("tcp", s.Address())
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		_, _ = io.WriteString(conn, text) // it may be hung up on
		answer, _ = bufio.NewReader(conn).ReadString('\n')
		return answer
	}
	began := time.Now()
	require.Empty(t, send("GET / HTTP/1.1\r\nHost: x\r\n"))
	require.InDelta(t, 5, time.Since(began).Seconds(), 3)
	for size, code := range map[int]string{15 << 10: "200", 16 << 10: "431"} {
		require.Contains(t, send("GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", size)+"\r\n\r\n"), code, size)
	}
}
