package admin

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
)

// certificate is what a server shows who it is by: files that are read again when they change, as
// whoever renews certificates tells nobody. Safe for concurrent use.
type certificate struct {
	certFile, keyFile string

	mu     sync.Mutex
	log    *zap.Logger      // guarded by mu
	looked time.Time        // guarded by mu; when the files were looked at last
	stamps [2]stamp         // guarded by mu; what they looked like when they were read last
	pair   *tls.Certificate // guarded by mu; the last that could be read
}

// stamp tells one content of a file from another.
type stamp struct {
	changed time.Time
	size    int64
}

// lookEvery is how often the files are looked at, at most: once for each handshake would be many.
const lookEvery = time.Second

// openCertificate reads the files for the first time.
func openCertificate(certFile, keyFile string) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: zap.NewNop()}
	if _, err := c.get(nil); err != nil {
		return nil, fmt.Errorf("node.tls_cert and node.tls_key: %w: they are the paths of PEM files that this user may read, of a certificate and of its key", err)
	}
	return c, nil
}

func (c *certificate) logTo(log *zap.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = log
}

// get is tls.Config's GetCertificate. Files that cannot be read, or that do not belong together,
// as may be while they are being replaced, leave the last ones in force.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair != nil && time.Since(c.looked) < lookEvery {
		return c.pair, nil
	}
	c.looked = time.Now()
	stamps, err := c.readStamps()
	if err == nil && c.pair != nil && stamps == c.stamps {
		return c.pair, nil
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.LoadX509KeyPair(c.certFile, c.keyFile)
	}
	switch {
	case err == nil:
		if c.pair != nil {
			c.log.Info("certificate renewed", zap.String("file", c.certFile))
		}
		c.pair, c.stamps = &pair, stamps
	case c.pair == nil:
		return nil, err
	default:
		c.log.Warn("the changed certificate cannot be read: the one before stays in force", zap.Error(err))
	}
	return c.pair, nil
}

func (c *certificate) readStamps() (stamps [2]stamp, err error) {
	for i, file := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(file)
		if err != nil {
			return stamps, err
		}
		stamps[i] = stamp{info.ModTime(), info.Size()}
	}
	return stamps, nil
}
