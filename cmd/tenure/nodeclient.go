package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"

	"github.com/tenurehq/tenure/config"
)

// nodeClient asks the node on this machine, which a configuration is for.
type nodeClient struct {
	url    string // without a path
	client *http.Client
}

// newNodeClient believes that it is the node if that shows the very certificate in node.tls_cert: the
// certificate's names are those that others know the node by, and seldom an address of this machine.
func newNodeClient(n config.Node) (*nodeClient, error) {
	if !n.TLS() {
		return &nodeClient{"http://" + n.Address(), http.DefaultClient}, nil
	}
	pair, err := tls.LoadX509KeyPair(n.TLSCert, n.TLSKey)
	if err != nil {
		return nil, &configError{fmt.Errorf("node.tls_cert and node.tls_key: %w", err)}
	}
	verify := func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 || !bytes.Equal(state.PeerCertificates[0].Raw, pair.Certificate[0]) {
			return errors.New("what answers there shows another certificate than node.tls_cert; is it the node? one whose file has just changed shows the new one within a second")
		}
		return nil
	}
	return &nodeClient{"https://" + n.Address(), &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, VerifyConnection: verify, MinVersion: tls.VersionTLS12}, // verify looks closer than names do
	}}}, nil
}
