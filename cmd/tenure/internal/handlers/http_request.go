package handlers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/tenurehq/tenure/internal/tracing"
	"github.com/tenurehq/tenure/job"
)

// Limits on one request.
const (
	defaultRequestTimeout = 30 * time.Second
	dialTimeout           = 10 * time.Second
	maxResponse           = 64 << 10 // more of a body is not read
	maxHeader             = 64 << 10
	maxRedirects          = 10
	idleConns             = 100
	idleTimeout           = 30 * time.Second
)

// HTTPRequest asks for one HTTP request: a webhook.
type HTTPRequest struct {
	URL     string            `json:"url"`
	Method  string            `json:"method,omitempty"` // POST if empty
	Headers map[string]string `json:"headers,omitempty"`
	// Body is sent as it is if it is a string, and as JSON otherwise.
	Body json.RawMessage `json:"body,omitempty"`
	// Timeout of the whole exchange, such as "10s" or "PT10S"; 30 s if empty.
	Timeout string `json:"timeout,omitempty"`

	fault error // of the arguments; the handler says it, as what cannot be decoded is tried again
}

func (HTTPRequest) Kind() string { return "http.request" }

// UnmarshalJSON leaves it to the handler to say what is wrong.
func (r *HTTPRequest) UnmarshalJSON(text []byte) error {
	type plain HTTPRequest
	r.fault = readArguments(r.Kind(), text, (*plain)(r))
	return nil
}

// caller sends requests.
type caller struct {
	client *http.Client
	now    func() time.Time
}

func newCaller(allow []netip.Prefix) *caller {
	dialer := &net.Dialer{Timeout: dialTimeout, Control: guard{allow}.control}
	return &caller{now: time.Now, client: &http.Client{
		Transport: &http.Transport{
			Proxy:       nil, // with one, the guard would see the proxy's address instead of the target's
			DialContext: dialer.DialContext, TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true,
			MaxIdleConns: idleConns, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: maxHeader,
			DisableCompression: true, // so that maxResponse bounds what is held
		},
	}}
}

// checkRedirect follows what keeps the request the same. A POST that a 301 turns
// into a GET without body would be answered, and the job be done, with nothing
// delivered; and https that leads to http would show headers to everybody.
func checkRedirect(next *http.Request, via []*http.Request) error {
	last := via[len(via)-1]
	if next.Method != last.Method || last.URL.Scheme == "https" && next.URL.Scheme != "https" ||
		checkURL(next.URL) != nil || len(via) > maxRedirects {
		return http.ErrUseLastResponse
	}
	return nil
}

// keepHeaders follows what [checkRedirect] follows. The headers that the job gives may hold its secrets for the host
// that it names: elsewhere, and back from there, a request has our own ones only. It has no Referer but the job's: Go's
// would show the URL and its query.
func keepHeaders(first *http.Request, own http.Header) func(next *http.Request, via []*http.Request) error {
	return func(next *http.Request, via []*http.Request) error {
		if err := checkRedirect(next, via); err != nil {
			return err
		}
		next.Header = first.Header.Clone()
		for _, r := range append(via[1:len(via):len(via)], next) {
			if hostOf(r.URL) != hostOf(first.URL) {
				next.Header = own.Clone()
			}
		}
		return nil
	}
}

// hostOf is where a URL leads to: its scheme, host and port.
func hostOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// handle sends the request and turns the answer into an outcome.
func (c *caller) handle(ctx context.Context, j *job.Job[HTTPRequest]) error {
	if j.Args.fault != nil {
		return job.Discard(j.Args.fault)
	}
	timeout := defaultRequestTimeout
	if j.Args.Timeout != "" {
		var err error
		if timeout, err = job.ParseDuration(j.Args.Timeout); err != nil || timeout <= 0 {
			return job.Discard(fmt.Errorf("timeout %q: write a duration such as 10s", j.Args.Timeout))
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	request, own, err := newRequest(ctx, j)
	if err != nil {
		return job.Discard(err)
	}
	client := *c.client
	client.CheckRedirect = keepHeaders(request, own)
	target := request.Method + " " + request.URL.Host // not the whole URL, whose query may hold a token
	response, err := client.Do(request)
	if err != nil {
		return c.noAnswer(ctx, target, err)
	}
	defer response.Body.Close()
	// What is cut off here, by its length or by the network, does not change what
	// the status said. Reading on keeps the connection usable for the next request.
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	return c.outcome(target, response, body)
}

// newRequest builds the request, and the headers that it has on another host; an error is the enqueuer's mistake.
func newRequest(ctx context.Context, j *job.Job[HTTPRequest]) (r *http.Request, own http.Header, err error) {
	u, err := url.Parse(j.Args.URL)
	if err != nil {
		return nil, nil, errors.New("url cannot be read") // err quotes it
	}
	if err := checkURL(u); err != nil {
		return nil, nil, err
	}
	method := strings.ToUpper(cmp.Or(j.Args.Method, http.MethodPost))
	body, contentType, err := encodeBody(j.Args.Body)
	if err != nil {
		return nil, nil, err
	}
	r, err = http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, fmt.Errorf("method %q is not one of HTTP", method)
	}
	r.Header.Set("User-Agent", "tenure")
	r.Header.Set("Idempotency-Key", j.ID.String())
	tracing.Inject(ctx, r.Header.Set)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	const ofBody = "Content-Type" // goes wherever the body goes
	own = r.Header.Clone()
	for name, value := range j.Args.Headers {
		if err := checkHeader(name, value); err != nil {
			return nil, nil, err
		}
		r.Header.Set(name, value)
	}
	if given := r.Header.Get(ofBody); given != "" {
		own.Set(ofBody, given)
	}
	for _, h := range []http.Header{r.Header, own} {
		h.Set("X-Tenure-Job", j.ID.String())
		h.Set("X-Tenure-Attempt", strconv.Itoa(j.Attempt))
		h.Set("X-Tenure-Tenant", j.Tenant)
	}
	return r, own, nil
}

func checkURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("url has the scheme %q: http and https are allowed", u.Scheme)
	case u.Hostname() == "":
		return errors.New("url has no host")
	}
	return nil
}

// encodeBody returns the bytes to send and what they are.
func encodeBody(raw json.RawMessage) (body []byte, contentType string, err error) {
	var text string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, "", nil
	case raw[0] != '"':
		return raw, "application/json", nil
	}
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, "", fmt.Errorf("body: %w", err)
	}
	return []byte(text), "text/plain; charset=utf-8", nil
}

// checkHeader refuses what Go would refuse only while sending, as a network error
// that is retried, and the headers that are about the connection rather than the
// request: some of them it would ignore without a word.
func checkHeader(name, value string) error {
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return fmt.Errorf("header %q is not a name", name)
	case !httpguts.ValidHeaderFieldValue(value):
		return fmt.Errorf("header %s has a line break or another control character", name)
	}
	switch canonical := http.CanonicalHeaderKey(name); canonical {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Trailer", "Te", "Expect":
		return fmt.Errorf("header %s cannot be set", canonical)
	}
	return nil
}

// noAnswer tells failures of the network from addresses that are forbidden.
func (c *caller) noAnswer(ctx context.Context, target string, err error) error {
	if e := new(url.Error); errors.As(err, &e) {
		err = e.Err // without the URL
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx) // the job's end, or the timeout here
	}
	err = fmt.Errorf("%s: %w", target, err)
	if errors.As(err, new(*refusedError)) {
		return job.Discard(err)
	}
	return err
}

// outcome is what the answer means for the job.
func (c *caller) outcome(target string, r *http.Response, body []byte) error {
	if r.StatusCode >= 200 && r.StatusCode < 300 {
		return nil
	}
	err := fmt.Errorf("%s: %s%s", target, r.Status, excerpt(body))
	switch code := r.StatusCode; {
	case code >= 500 && code < 600, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code == http.StatusTooEarly:
		if d := retryAfter(r.Header.Get("Retry-After"), c.now()); d > 0 {
			return job.RetryIn(d, err)
		}
		return err
	case code >= 300 && code < 400:
		return job.Discard(fmt.Errorf("%w: it leads to %.200q, which is not followed: redirects must keep the method (307, 308) and https, and be no more than %d", err, r.Header.Get("Location"), maxRedirects))
	}
	return job.Discard(err)
}

// maxExcerpt is how much of a refusing body is reported, in bytes.
const maxExcerpt = 512

func excerpt(body []byte) string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(body[:min(len(body), maxExcerpt)]), ""))
	if text == "" {
		return ""
	}
	return ": " + text
}

// maxRetryAfter is how long a server may put a job off.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads a Retry-After header: seconds, or a date. 0: there is none that
// can be read, or it asks for no wait, for which the policy's back-off is better.
func retryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if seconds, err := strconv.ParseUint(header, 10, 63); err == nil {
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	if t, err := http.ParseTime(header); err == nil {
		return min(max(t.Sub(now), 0), maxRetryAfter)
	}
	return 0
}
