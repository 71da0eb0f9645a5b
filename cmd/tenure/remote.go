package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	serverEnv = "TENURE_SERVER"
	tokenEnv  = "TENURE_TOKEN" // not a flag: those are seen by who lists processes
)

// maxAnswer bounds what a node may answer, as it is held in memory.
const maxAnswer = 64 << 20

// remote asks a node's API in the place of the databases, for those who may not have their credentials.
type remote struct {
	server, tokenFile, caFile string // the flags
}

// add gives the commands below root the flags, and has them ask a node when one is named.
func (r *remote) add(a *app, root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&r.server, "server", "", "ask the API of the node at this `url` in the place of the databases (default: $"+serverEnv+", unless there is --config)")
	flags.StringVar(&r.tokenFile, "token-file", "", "with --server: the `file` that has the token's secret (default: $"+tokenEnv+")")
	flags.StringVar(&r.caFile, "ca-file", "", "with --server: certificates to trust besides the system's, in a PEM `file`")
	for _, cmd := range root.Commands() {
		r.wrap(a, cmd)
	}
}

func (r *remote) wrap(a *app, cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		r.wrap(a, sub)
	}
	if cmd.RunE == nil || cmd.Annotations[onlyHolds] != "" || alone[nameOf(cmd)] {
		return
	}
	before, own := cmd.PreRunE, cmd.RunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if before == nil || r.address(a.config) != "" { // it asks the configuration, and the API refuses what it would
			return nil
		}
		return before(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case r.address(a.config) != "":
			return r.run(a, cmd, args)
		case r.tokenFile != "" || r.caFile != "":
			return usagef("--token-file and --ca-file go with --server, which is missing")
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

// run carries out a command by requests. All are made before the first is sent.
func (r *remote) run(a *app, cmd *cobra.Command, args []string) error {
	if a.config != "" {
		return usagef("--config names the databases, and --server a node to ask in their place: leave out one")
	}
	forms := calls[nameOf(cmd)]
	if forms == nil {
		return needsDatabases(cmd.CommandPath())
	}
	c, err := choose(forms, cmd, args)
	if err != nil {
		return err
	}
	s, err := r.dial(a)
	if err != nil {
		return err
	}
	each := [][]string{args}
	if len(strings.Fields(c.args)) == 1 {
		each = slices.Collect(slices.Chunk(args, 1))
	}
	var requests []*http.Request
	for _, args := range each {
		request, err := s.newRequest(a, c, cmd.Flags(), args)
		if err != nil {
			return err
		}
		requests = append(requests, request)
	}
	var errs []error
	for i, request := range requests {
		var subject []string // what the request is about, name and value
		if c.args != "" {
			subject = []string{strings.Fields(c.args)[0], each[i][0]}
		}
		answer, err := s.do(cmd.Context(), request)
		if err == nil {
			err = printAnswer(a, cmd, c, subject, answer)
		} else if len(requests) > 1 {
			err = fmt.Errorf("%s: %w", strings.Join(subject, " "), err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// choose finds the form of a command that arguments and flags mean, and refuses flags that it cannot send.
func choose(forms []call, cmd *cobra.Command, args []string) (*call, error) {
	flags := cmd.Flags()
	given := func(name string) bool {
		f := flags.Lookup(name)
		return f.Changed && (f.Value.Type() != "bool" || f.Value.String() == "true")
	}
	var needed []string
	for i, c := range forms {
		switch {
		case (c.args == "") != (len(args) == 0):
		case c.when != "" && !given(c.when):
			needed = append(needed, "--"+c.when)
		default:
			return &forms[i], c.check(flags)
		}
	}
	return nil, usagef("with --server this needs %s", cmp.Or(strings.Join(needed, " or "), "arguments"))
}

// check refuses flags that are no part of the request, and those that are given and empty: the API
// would take them for left out, and choose everything.
func (c *call) check(flags *pflag.FlagSet) (err error) {
	query, body := fieldsOf(c.query), fieldsOf(c.body)
	flags.Visit(func(f *pflag.Flag) {
		_, asked := query[f.Name]
		_, sent := body[f.Name]
		text := f.Value.String()
		switch {
		case err != nil:
		case !asked && !sent && !slices.Contains([]string{c.when, "output", "server", "token-file", "ca-file"}, f.Name):
			err = usagef("--%s cannot be had with --server: leave it out, or name a configuration of the databases with --config", f.Name)
		case text == "" || text == "[]":
			err = usagef("--%s is empty: leave it out, or say which", f.Name)
		}
	})
	return err
}

// fieldsOf reads which flag becomes which field.
func fieldsOf(list string) map[string]string {
	fields := map[string]string{}
	for _, word := range strings.Fields(list) {
		flag, field, named := strings.Cut(word, "=")
		if !named {
			field = strings.ReplaceAll(flag, "-", "_")
		}
		fields[flag] = field
	}
	return fields
}

// valueOf is a flag's value as it stands in JSON.
func valueOf(a *app, f *pflag.Flag, field string) (any, error) {
	text := f.Value.String()
	if convert := conversions[field]; convert != nil {
		return convert(a, "--"+f.Name, text)
	}
	switch list, isList := f.Value.(pflag.SliceValue); {
	case isList:
		return list.GetSlice(), nil
	case f.Value.Type() == "string":
		return text, nil
	}
	return json.RawMessage(text), nil // a number, or true or false
}

// node is a node that is asked.
type node struct {
	url    string // without a slash at the end
	secret string // of the token; "": none
	client *http.Client
}

// dial checks where the node is, and who asks. It does not connect.
func (r *remote) dial(a *app) (*node, error) {
	address := r.address(a.config)
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, usagef("--server is no address of a node: write one such as https://tenure.example, without a user, a password or a query")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return nil, usagef("--server %s: without TLS the token could be read on the way, so http is for this machine only: write https://", address)
	}
	s := &node{url: strings.TrimRight(address, "/")}
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
	s.client = &http.Client{Transport: transport, Timeout: operateLimit,
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

// newRequest makes the request that stands for a command with these arguments.
func (s *node) newRequest(a *app, c *call, flags *pflag.FlagSet, args []string) (*http.Request, error) {
	path, query, body := c.path, url.Values{}, map[string]any{}
	place := func(name, text string) error {
		if text == "" || text == "." || text == ".." { // which would be another path
			return usagef("%s %q: there is none", name, text)
		}
		path = strings.Replace(path, "{"+name+"}", url.PathEscape(text), 1)
		return nil
	}
	var errs []error
	for i, name := range strings.Fields(c.args) {
		value, err := any(args[i]), error(nil)
		if convert := conversions[name]; convert != nil {
			value, err = convert(a, name, args[i])
		} else if strings.Contains(c.path, "{"+name+"}") {
			errs = append(errs, place(name, args[i]))
			continue
		}
		body[name] = value
		errs = append(errs, err)
	}
	if c.when != "" && strings.Contains(c.path, "{"+c.when+"}") {
		errs = append(errs, place(c.when, flags.Lookup(c.when).Value.String()))
	}
	asked, sent := fieldsOf(c.query), fieldsOf(c.body)
	flags.Visit(func(f *pflag.Flag) {
		if field := asked[f.Name]; field != "" {
			value, err := valueOf(a, f, field)
			errs = append(errs, err)
			for _, text := range textsOf(value) {
				query.Add(field, text)
			}
		} else if field := sent[f.Name]; field != "" {
			value, err := valueOf(a, f, field)
			body[field] = value
			errs = append(errs, err)
		}
	})
	for _, err := range errs {
		if err != nil {
			return nil, err // one at a time, as cobra has them
		}
	}
	address := s.url + "/api/v1" + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	return s.request(c.method, address, len(body) > 0 || c.body != "", body)
}

// textsOf is a value as parameters of a query have it.
func textsOf(value any) []string {
	switch v := value.(type) {
	case []string:
		return v
	case json.RawMessage:
		return []string{string(v)}
	case time.Time:
		return []string{v.Format(time.RFC3339Nano)}
	}
	return []string{fmt.Sprint(value)}
}

func (s *node) request(method, address string, hasBody bool, body map[string]any) (*http.Request, error) {
	var content io.Reader
	if hasBody {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("make the request: %w", err)
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequest(method, address, content)
	if err != nil {
		return nil, usagef("--server: %w", err)
	}
	if hasBody {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.secret != "" {
		r.Header.Set("Authorization", "Bearer "+s.secret)
	}
	r.Header.Set("User-Agent", "tenure/"+buildVersion())
	return r, nil
}

// do sends a request, and returns what the node answers; nil: nothing but that it is done.
func (s *node) do(ctx context.Context, r *http.Request) (json.RawMessage, error) {
	answer, err := s.client.Do(r.WithContext(ctx))
	if err != nil {
		return nil, s.unanswered(r, err)
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
	case answer.StatusCode == http.StatusOK && json.Valid(text):
		return text, nil
	}
	return nil, s.problem(answer, text)
}

// unanswered says where nobody answers, and what may have become of the request.
func (s *node) unanswered(r *http.Request, err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err // whose text has the address
	}
	if errors.Is(err, context.Canceled) {
		return err
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

// problem is why a node did not do what was asked (RFC 9457).
func (s *node) problem(answer *http.Response, text []byte) error {
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
	err := fmt.Errorf("%s (%s)", p.Detail, status)
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

// printAnswer prints what a node has answered to a request about subject, if there is one.
func printAnswer(a *app, cmd *cobra.Command, c *call, subject []string, answer json.RawMessage) error {
	f := asTable
	if flag := cmd.Flags().Lookup("output"); flag != nil {
		f = format(flag.Value.String())
	}
	if answer == nil {
		if f == asJSON {
			return nil
		}
		return say(a, clean(cmp.Or(strings.Join(subject, " "), nameOf(cmd))+": done"))
	}
	var err error
	switch {
	case c.show != nil:
		err = c.show(a, f, answer)
	case f == asJSON:
		err = printJSON(a.stdout, answer)
	default:
		err = printGeneric(a, c, subject, answer)
	}
	return errors.Join(err, isWhole(a, c, answer))
}

// isWhole says what an answer lacks.
func isWhole(a *app, c *call, answer json.RawMessage) error {
	var said struct {
		Next       string
		Incomplete bool
		Complete   *bool
		Items      []struct{ Answers *bool } // of locks, whose list has all pools
	}
	_ = json.Unmarshal(answer, &said)       // it says nothing of the kind then
	if said.Next != "" && c.columns != "" { // schedules have one, too
		fmt.Fprintf(a.stderr, "tenure: there are more: go on with --after %s, or see --limit\n", oneLine(said.Next))
	}
	for _, item := range said.Items {
		said.Incomplete = said.Incomplete || item.Answers != nil && !*item.Answers
	}
	switch {
	case said.Incomplete:
		return errors.New("the output is incomplete, as some pools did not answer in time; run this again once they do")
	case said.Complete != nil && !*said.Complete:
		return errors.New("there are more, as time was up or a pool did not answer; run this again")
	}
	return nil
}

// member is a field of a JSON object, in the place that it has there.
type member struct {
	name  string
	value json.RawMessage
}

func membersOf(object json.RawMessage) (all []member, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf("the answer is no JSON object: %s", cut(string(object), maxDetail))
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("read the answer: %w", err)
		}
		m := member{name: name.(string)}
		if err := d.Decode(&m.value); err != nil {
			return nil, fmt.Errorf("read the answer: %w", err)
		}
		all = append(all, m)
	}
	return all, nil
}

// printGeneric prints a list as a table, and anything else by name and value.
func printGeneric(a *app, c *call, subject []string, answer json.RawMessage) error {
	members, err := membersOf(answer)
	if err != nil {
		return err
	}
	var list struct{ Items []json.RawMessage }
	if c.columns != "" {
		if err := json.Unmarshal(answer, &list); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		return printItems(a, strings.Fields(c.columns), list.Items)
	}
	var rows [][]string
	if c.method != http.MethodGet && subject != nil {
		rows = append(rows, subject)
	}
	for _, m := range members {
		rows = append(rows, []string{nameFor(m.name), cellOf(a, m.value)})
	}
	if len(rows) == 0 {
		return nil
	}
	return printTable(a.stdout, rows[0], rows[1:])
}

func printItems(a *app, columns []string, items []json.RawMessage) error {
	var head []string
	for _, name := range columns {
		head = append(head, strings.ToUpper(nameFor(name)))
	}
	var rows [][]string
	for _, item := range items {
		members, err := membersOf(item)
		if err != nil {
			return err
		}
		row := make([]string, len(columns))
		for _, m := range members {
			if i := slices.Index(columns, m.name); i >= 0 {
				row[i] = cut(cellOf(a, m.value), maxDetail)
			}
		}
		rows = append(rows, row)
	}
	return printTable(a.stdout, head, rows)
}

func nameFor(field string) string { return strings.ReplaceAll(field, "_", " ") }

// cellOf is a value for people.
func cellOf(a *app, value json.RawMessage) string {
	var v any
	if json.Unmarshal(value, &v) != nil || v == nil {
		return ""
	}
	if text, ok := v.(string); ok {
		if t, err := time.Parse(time.RFC3339, text); err == nil {
			return a.now.stamp(t)
		}
		return text
	}
	var texts []string
	if json.Unmarshal(value, &texts) == nil {
		return strings.Join(texts, ", ")
	}
	return string(value) // as it came: large numbers keep their digits
}
