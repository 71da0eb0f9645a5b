package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/web"
)

// maxAnswer bounds what an API may answer, as it is held in memory.
const maxAnswer = 64 << 20

// server is the API that is asked: a node's, or that of this process on the databases of the configuration.
type server struct {
	url    string // without a slash at the end
	secret string // of the token; "": none
	client *http.Client

	here   *operation // the databases; nil: a node is asked
	failed []error    // what this process' own API failed of in the last request, or why its answer lacks something
}

// newHere asks the API in this process. open: arguments are shown as they are.
func newHere(o *operation, open bool) *server {
	s := &server{url: "http://this.process", here: o}
	l := web.Local{Who: whoAsks(), Look: operateLimit, Open: open, Failed: func(err error) { s.failed = append(s.failed, err) }}
	if !open {
		l.Redact = redact
	}
	s.client = &http.Client{Transport: inProcess{web.InProcess(o.client, l)}}
	return s
}

// inProcess has a handler answer requests, also by streams.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	body, out := io.Pipe()
	w := &pipeWriter{header: http.Header{}, begun: make(chan struct{}), out: out}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	go func() {
		t.handler.ServeHTTP(w, r)
		w.WriteHeader(http.StatusOK)
		_ = out.Close() // never fails
	}()
	<-w.begun // also if the time is up: the answer says what it was up for
	return &http.Response{StatusCode: w.status, Header: w.header, Body: body, Request: r, ContentLength: -1}, nil
}

// pipeWriter passes on what a handler writes.
type pipeWriter struct {
	header http.Header
	status int
	begun  chan struct{}
	out    *io.PipeWriter
}

// Header implements http.ResponseWriter.
func (w *pipeWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *pipeWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		close(w.begun)
	}
}

// Write implements http.ResponseWriter.
func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if _, err := w.out.Write(p); err != nil && !errors.Is(err, io.ErrClosedPipe) { // nobody reads on, and a stream ends with its context
		return 0, err
	}
	return len(p), nil
}

// Flush implements http.Flusher: nothing is kept back.
func (w *pipeWriter) Flush() {}

// request makes a request of the API; body nil: it has none.
func (s *server) request(method, path string, query url.Values, body map[string]any) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("make the request: %w", err)
		}
		content = bytes.NewReader(text)
	}
	address := s.url + "/api/v1" + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	r, err := http.NewRequest(method, address, content)
	if err != nil {
		return nil, usagef("--server: %w", err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.secret != "" {
		r.Header.Set("Authorization", "Bearer "+s.secret)
	}
	r.Header.Set("User-Agent", "tenure/"+buildVersion())
	return r, nil
}

// ask makes and sends a request.
func (s *server) ask(ctx context.Context, method, path string, query url.Values, body map[string]any) (json.RawMessage, error) {
	r, err := s.request(method, path, query, body)
	if err != nil {
		return nil, err
	}
	return s.do(ctx, r)
}

// get reads what the API answers to a GET into something.
func (s *server) get(ctx context.Context, path string, query url.Values, into any) error {
	answer, err := s.ask(ctx, http.MethodGet, path, query, nil)
	if err == nil {
		err = readAnswer(answer, into)
	}
	return err
}

func readAnswer(answer json.RawMessage, into any) error {
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}

// do sends a request, and returns what is answered; nil: nothing but that it is done.
func (s *server) do(ctx context.Context, r *http.Request) (json.RawMessage, error) {
	answer, err := s.open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, s.unanswered(r, err)
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("%s answers with more than %d MiB: ask for less, such as by --limit", s.url, maxAnswer>>20)
	case answer.StatusCode == http.StatusNoContent:
		return nil, nil
	case !json.Valid(text):
		return nil, s.problem(answer, text)
	}
	return text, nil
}

// open sends a request, and returns an answer that is no problem.
func (s *server) open(ctx context.Context, r *http.Request) (*http.Response, error) {
	s.failed = nil
	answer, err := s.client.Do(r.WithContext(ctx))
	if err != nil {
		return nil, s.unanswered(r, err)
	}
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusNoContent {
		defer answer.Body.Close()
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
		if err != nil {
			return nil, s.unanswered(r, err)
		}
		if failed := errors.Join(s.failed...); failed != nil {
			s.failed = nil
			return nil, failed
		}
		return nil, s.problem(answer, text)
	}
	return answer, nil
}

// unanswered says where nobody answers, and what may have become of the request.
func (s *server) unanswered(r *http.Request, err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err // whose text has the address
	}
	if errors.Is(err, context.Canceled) || s.here != nil {
		return errors.Join(errors.Join(s.failed...), err)
	}
	var dial *net.OpError
	advice := "it may have been done all the same: look before you run this again"
	switch {
	case errors.As(err, new(*tls.CertificateVerificationError)):
		advice = "check the address, or name the authority that has signed the node's certificate by --ca-file"
	case r.Method == http.MethodGet, errors.As(err, &dial) && dial.Op == "dial":
		advice = "check the address, and that the node runs and listens there"
	}
	return &advised{fmt.Errorf("%s does not answer: %w", s.url, err), advice}
}

// problem is why the API did not do what was asked (RFC 9457).
type problem struct {
	status int
	text   string
}

func (p *problem) Error() string { return p.text }

// Is makes one of what is not there ErrNotFound.
func (p *problem) Is(target error) bool {
	return p.status == http.StatusNotFound && target == tenure.ErrNotFound
}

func (s *server) problem(answer *http.Response, text []byte) error {
	status := fmt.Sprintf("%d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	var p struct {
		Detail string
		Errors []struct{ Location, Message string }
	}
	if json.Unmarshal(text, &p) != nil || p.Detail == "" {
		return &advised{fmt.Errorf("%s answers with %s, and not as a node's API does", s.url, status), "name a node of Tenure, or the place where its dashboard is; redirects are not followed"}
	}
	for _, e := range p.Errors {
		if p.Detail == strings.TrimSpace("validation failed: "+e.Location+": "+e.Message) {
			continue // it is the first one
		}
		p.Detail += "; " + strings.TrimSpace(e.Location+" "+e.Message)
	}
	if s.here == nil {
		p.Detail += " (" + status + ")"
	}
	err := &problem{answer.StatusCode, p.Detail}
	switch answer.StatusCode {
	case http.StatusUnauthorized:
		return &advised{err, "give the secret of a token that the node knows, by --token-file or $" + tokenEnv}
	case http.StatusForbidden:
		return &advised{err, "ask whoever runs the node for a token with the role that this needs"}
	case http.StatusUnprocessableEntity, http.StatusBadRequest:
		return &usageError{err}
	}
	return err
}
