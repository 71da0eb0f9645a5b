package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

const (
	serverEnv = "TENURE_SERVER"
	tokenEnv  = "TENURE_TOKEN" // not a flag: those are seen by who lists processes
)

// remote asks a node's API in the place of the databases, for those who may not have their credentials.
type remote struct {
	server, tokenFile, caFile string // the flags
}

// add gives the commands below root the flags, and refuses them where they cannot be meant.
func (r *remote) add(a *app, root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&r.server, "server", "", "ask the API of the node at this `url` in the place of the databases (default: $"+serverEnv+", unless there is --config)")
	flags.StringVar(&r.tokenFile, "token-file", "", "with --server: the `file` that has the token's secret (default: $"+tokenEnv+")")
	flags.StringVar(&r.caFile, "ca-file", "", "with --server: certificates to trust besides the system's, in a PEM `file`")
	for _, cmd := range root.Commands() {
		r.wrap(a, cmd)
	}
}

// asking is the annotation of a command that asks the API.
const asking = "asks the API"

// alone are the commands that speak to nobody.
var alone = map[string]bool{"version": true, "token new": true}

func (r *remote) wrap(a *app, cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		r.wrap(a, sub)
	}
	if cmd.RunE == nil || cmd.Annotations[onlyHolds] != "" || alone[nameOf(cmd)] {
		return
	}
	own := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		elsewhere := r.address(a.config) != ""
		switch {
		case !elsewhere && (r.tokenFile != "" || r.caFile != ""):
			return usagef("--token-file and --ca-file go with --server, which is missing")
		case elsewhere && a.config != "":
			return usagef("--config names the databases, and --server a node to ask in their place: leave out one")
		case elsewhere && cmd.Annotations[asking] == "":
			return needsDatabases(cmd.CommandPath())
		}
		return own(cmd, args)
	}
}

// address is of the node to ask; "": the databases are. Who names a configuration means those, whatever
// the environment has.
func (r *remote) address(config string) string {
	if config != "" {
		return r.server
	}
	return cmp.Or(r.server, os.Getenv(serverEnv))
}

// nameOf is how a command is called, without the program's name.
func nameOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// needsDatabases is why a command cannot be had with --server.
func needsDatabases(what string) error {
	return &configError{fmt.Errorf("%s needs the databases' configuration, and cannot ask a node: leave out --server and $%s, and name a configuration with --config", what, serverEnv)}
}

// dial checks where the node is, and who asks. It does not connect.
func (r *remote) dial(a *app) (*server, error) {
	address := r.address(a.config)
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, usagef("--server is no address of a node: write one such as https://tenure.example, without a user, a password or a query")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return nil, usagef("--server %s: without TLS the token could be read on the way, so http is for this machine only: write https://", address)
	}
	s := &server{url: strings.TrimRight(address, "/")}
	if s.secret, err = r.secret(); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if r.caFile != "" {
		pem, err := os.ReadFile(r.caFile)
		if err != nil {
			return nil, usagef("--ca-file: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, usagef("--ca-file %s: there is no certificate in it, which begins with -----BEGIN CERTIFICATE-----", r.caFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	s.client = &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }} // who is there was not named, and may not have the token
	return s, nil
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// secret is the token's. No error tells it.
func (r *remote) secret() (string, error) {
	text, from := os.Getenv(tokenEnv), "$"+tokenEnv
	if r.tokenFile != "" {
		raw, err := os.ReadFile(r.tokenFile)
		if err != nil {
			return "", usagef("--token-file: %w", err)
		}
		text, from = string(raw), "--token-file "+r.tokenFile
		if strings.TrimSpace(text) == "" {
			return "", usagef("%s: it is empty: the secret belongs there that tenure token new has printed", from)
		}
	}
	text = strings.TrimSpace(text)
	if strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", usagef("%s: this is no secret of a token: those are one word, as tenure token new prints them", from)
	}
	return text, nil
}
