package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenurehq/tenure/internal/fault"
)

// spec is a command of operators: what is typed, the API's request that it stands for, and how the answer is shown.
type spec struct {
	name         string // how it is called, such as jobs list
	args, hint   string // what its use has behind that: ID, [ID], ID...; and which flags it takes above all
	short, long  string
	example      string
	flags        []flag
	rules        func(*cobra.Command)                            // which flags go together
	check        func(*question) error                           // looks at what was typed as a whole, before the databases are opened
	forms        []form                                          // the first one that fits is sent
	limit        time.Duration                                   // how long it may take; 0: operateLimit
	columns      string                                          // of the table that the answer is shown as: HEAD=field, or both in one
	cells        map[string]cell                                 // what stands in some columns
	show         func(*answer) error                             // prints the answer, where it is no such table
	said         func(*answer) string                            // what is said of what was done, of each argument behind what that is
	absent       string                                          // why there may be no such thing, and what to do; %s is the argument
	over         string                                          // what a thing is called that had ended before, where that is no failure
	handled      bool                                            // its kind is one that some node should have a handler for
	output       bool                                            // it has -o, as those have that only look
	withoutStart bool                                            // it opens the databases by itself
	run          func(context.Context, *question, *server) error // in the place of a form
}

// cell is what stands in a column of a table for an item of a list.
type cell func(*app, json.RawMessage) string

// form is a request that a command may mean.
type form struct {
	method, path string // below /api/v1; {name} is an argument or a flag
	// args are what the command's arguments are, in order: names in the path, or fields of the body, NAME or NAME:TYPE.
	// Of a form that has one only, each argument is a request of its own.
	args string
	when string // the flag without which this form is not meant
	// flags are those that are sent, in the query of a GET or DELETE, and else in the body; *: all.
	flags string
	query string // the flags that are in the query all the same
	// fill completes what is sent by what the flags alone do not say.
	fill func(*question, map[string]any)
}

// flag is a flag, and what it becomes in a request.
type flag struct {
	name, field string // "": it is not sent
	value       any    // the default, of the type that it has
	help        string
	read        conversion
	local       bool // it is about the databases, and means nothing to a node
	always      bool // it is sent also if it is not given
	mayBeEmpty  bool // "" says something, and does not mean that the shell had a variable that is not set
}

// conversion makes what was typed for something what is sent.
type conversion func(q *question, what, text string) (any, error)

func (f flag) as(field string) flag    { f.field = field; return f }
func (f flag) by(read conversion) flag { f.read = read; return f }
func (f flag) here() flag              { f.local = true; return f }
func (f flag) sentAlways() flag        { f.always = true; return f }
func (f flag) orEmpty() flag           { f.mayBeEmpty = true; return f }
func flagOf(name string, value any, help string) flag {
	return flag{name: name, field: strings.ReplaceAll(name, "-", "_"), value: value, help: help}
}
func textFlag(name, help string) flag { return flagOf(name, "", help) }

func (f flag) add(flags *pflag.FlagSet) {
	switch v := f.value.(type) {
	case string:
		flags.String(f.name, v, f.help)
	case bool:
		flags.Bool(f.name, v, f.help)
	case int:
		flags.Int(f.name, v, f.help)
	case float64:
		flags.Float64(f.name, v, f.help)
	case time.Duration:
		flags.Duration(f.name, v, f.help)
	case []string:
		flags.StringSlice(f.name, v, f.help)
	}
}

// question is a command that was typed.
type question struct {
	*spec
	a    *app
	cmd  *cobra.Command
	args []string
}

// given says whether a flag was typed, and not to say that it is not meant.
func (q *question) given(name string) bool {
	f := q.cmd.Flags().Lookup(name)
	return f != nil && f.Changed && (f.Value.Type() != "bool" || f.Value.String() == "true")
}

func (q *question) givenAny(names []string) bool { return slices.ContainsFunc(names, q.given) }

// text is a flag's value.
func (q *question) text(name string) string {
	if f := q.cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

func (q *question) format() format { return format(q.text("output")) }

// elsewhere says whether a node is asked.
func (q *question) elsewhere() bool { return q.a.remote.address(q.a.config) != "" }

// build makes a command of cobra's of it.
func (c *spec) build(a *app) *cobra.Command {
	words := strings.Fields(c.name)
	cmd := &cobra.Command{
		Use: strings.Join(strings.Fields(words[len(words)-1]+" "+c.args+" "+c.hint), " "), Short: c.short, Long: c.long, Example: c.example, Args: countArgs(c.args),
		Annotations: map[string]string{asking: "yes"},
	}
	for _, f := range c.flags {
		f.add(cmd.Flags())
	}
	if c.output || len(c.forms) > 0 && c.forms[0].method == http.MethodGet {
		outputFlag(cmd)
	}
	if c.rules != nil {
		c.rules(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return (&question{spec: c, a: a, cmd: cmd, args: args}).answer()
	}
	return cmd
}

// countArgs is how many arguments there may be, as the use says.
func countArgs(use string) cobra.PositionalArgs {
	words := strings.Fields(use)
	least := 0
	for _, word := range words {
		if !strings.HasPrefix(word, "[") {
			least++
		}
	}
	switch {
	case len(words) == 0:
		return cobra.NoArgs
	case strings.Contains(use, "..."):
		return cobra.MinimumNArgs(least)
	case least == len(words):
		return cobra.ExactArgs(least)
	}
	return cobra.RangeArgs(least, len(words))
}

// answer carries the command out. All requests are made before the first is sent.
func (q *question) answer() error {
	for _, f := range q.flags {
		if f.local && q.elsewhere() && q.given(f.name) {
			return usagef("--%s cannot be had with --server: leave it out, or name a configuration of the databases with --config", f.name)
		}
	}
	if q.check != nil {
		if err := q.check(q); err != nil {
			return err
		}
	}
	if q.run != nil {
		return q.a.ask(q, q.spec.run)
	}
	f, err := q.choose()
	if err != nil {
		return err
	}
	sent, err := q.read(f)
	if err != nil {
		return err
	}
	return q.a.ask(q, func(ctx context.Context, q *question, s *server) error {
		var errs []error
		for _, one := range sent {
			err := one.send(ctx, q, s)
			if err != nil && q.elsewhere() && len(sent) > 1 {
				err = fmt.Errorf("%s %s: %w", f.args, one.arg, err)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// choose finds the form that arguments and flags mean.
func (q *question) choose() (*form, error) {
	var needed []string
	for i, f := range q.forms {
		switch {
		case (f.args == "") != (len(q.args) == 0):
		case f.when != "" && !q.given(f.when):
			needed = append(needed, "--"+f.when)
		default:
			return &q.forms[i], nil
		}
	}
	return nil, usagef("this needs %s", strings.Join(needed, " or "))
}

// sending is a request that is to be sent.
type sending struct {
	form  *form
	arg   string // the first argument that it is about
	path  string
	query url.Values
	body  map[string]any
	paged bool // what it lists comes in pages
}

// several are fields of a body that are typed as one.
type several map[string]any

// read makes the requests of what was typed.
func (q *question) read(f *form) (all []*sending, err error) {
	query, body := url.Values{}, map[string]any{}
	inBody := f.method != http.MethodGet && f.method != http.MethodDelete
	for _, flag := range q.flags {
		typed := q.cmd.Flags().Lookup(flag.name)
		sent := f.flags == "*" || slices.Contains(strings.Fields(f.flags), flag.name)
		if !sent || flag.local || flag.field == "" || !typed.Changed && !flag.always || flag.name == f.when && strings.Contains(f.path, "{"+f.when+"}") {
			continue
		}
		value, err := q.valueOf(flag, typed)
		if err != nil {
			return nil, err
		}
		if inBody && !slices.Contains(strings.Fields(f.query), flag.name) {
			body[flag.field] = value
			continue
		}
		for _, text := range textsOf(value) {
			query.Add(flag.field, text)
		}
	}
	if f.fill != nil {
		f.fill(q, body)
	}
	each := [][]string{q.args}
	names := strings.Fields(f.args)
	if len(names) == 1 {
		each = slices.Collect(slices.Chunk(q.args, 1))
	}
	for _, args := range each {
		one := &sending{form: f, path: f.path, query: query, paged: q.cmd.Flags().Lookup("after") != nil}
		if inBody {
			one.body = maps.Clone(body)
		}
		if f.when != "" && strings.Contains(f.path, "{"+f.when+"}") {
			if err := one.place(q, f.when, f.when, q.text(f.when)); err != nil {
				return nil, err
			}
		}
		for i, name := range names {
			if i == 0 {
				one.arg = args[0]
			}
			text := defaultArgs
			if i < len(args) {
				text = args[i]
			}
			name, kind, _ := strings.Cut(name, ":")
			if kind == "" {
				kind = name
			}
			if err := one.place(q, name, kind, text); err != nil {
				return nil, err
			}
		}
		if len(one.body) == 0 {
			one.body = nil
		}
		all = append(all, one)
	}
	return all, nil
}

// defaultArgs are the arguments of a job if none are typed where they may be left out.
const defaultArgs = "{}"

// place puts something that was typed where it belongs.
func (r *sending) place(q *question, name, kind, text string) error {
	value, err := any(text), error(nil)
	if read := arguments[kind]; read != nil {
		if value, err = read(q, name, text); err != nil {
			return err
		}
	}
	switch all, many := value.(several); {
	case many:
		maps.Copy(r.body, all)
		return nil
	case !strings.Contains(r.path, "{"+name+"}"):
		r.body[name] = value
		return nil
	}
	if text == "" || text == "." || text == ".." { // which would be another path
		return usagef("%s %q: there is none", name, text)
	}
	r.path = strings.Replace(r.path, "{"+name+"}", url.PathEscape(text), 1)
	return nil
}

// valueOf is a flag's value as it is sent. One that is given and empty would be taken for left out, and choose everything.
func (q *question) valueOf(f flag, typed *pflag.Flag) (any, error) {
	text := typed.Value.String()
	empty := typed.Changed && (text == "" || text == "[]") && !f.mayBeEmpty
	if empty && f.read != nil {
		if _, err := f.read(q, "--"+f.name, ""); err != nil {
			return nil, err // which says more
		}
	}
	if empty {
		return nil, usagef("--%s is empty: leave it out, or say which", f.name)
	}
	if f.read != nil {
		if list, is := typed.Value.(pflag.SliceValue); is {
			for _, one := range list.GetSlice() {
				if _, err := f.read(q, "--"+f.name, one); err != nil {
					return nil, err
				}
			}
			return list.GetSlice(), nil
		}
		return f.read(q, "--"+f.name, text)
	}
	switch list, isList := typed.Value.(pflag.SliceValue); {
	case isList:
		return list.GetSlice(), nil
	case typed.Value.Type() == "string":
		return text, nil
	}
	return json.RawMessage(text), nil // a number, or true or false
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

// send sends a request and prints the answer.
func (r *sending) send(ctx context.Context, q *question, s *server) error {
	body, err := s.pages(ctx, r)
	if late := (*problem)(nil); q.over != "" && errors.As(err, &late) && late.status == http.StatusConflict {
		return say(q.a, q.over+" "+r.arg+" had ended")
	}
	if err != nil {
		return explainAbsent(err, strings.ReplaceAll(q.absent, "%s", r.arg))
	}
	err = (&answer{question: q, looks: r.form.method == http.MethodGet, arg: r.arg, body: body, server: s}).print()
	if err == nil && q.handled {
		r.warnOfName(ctx, q.a, s)
	}
	return err
}

// warnOfName says that nothing knows the kind, or the queue, that was typed, so that the name may be wrong. Of what it does not
// learn in a moment it says nothing.
func (r *sending) warnOfName(ctx context.Context, a *app, s *server) {
	ctx, cancel := context.WithTimeout(ctx, namesLimit)
	defer cancel()
	kind, _ := r.body["kind"].(string)
	queue, _ := r.body["queue"].(string)
	switch {
	case strings.Contains(r.path, "/queues/"):
		warnOfQueue(ctx, a, s, r.arg)
	case strings.Contains(r.path, "/kinds/"):
		warnOfKind(ctx, a, s, r.arg)
	case kind != "" && r.body["external"] == nil:
		warnOfKind(ctx, a, s, kind)
	case queue != "" && r.path == "/limits":
		warnOfQueue(ctx, a, s, queue)
	}
}

// warnOfQueue says that a queue has no jobs, and is no kind's, although there are others.
func warnOfQueue(ctx context.Context, a *app, s *server, queue string) {
	var queues struct {
		Items      []shownQueue
		Incomplete bool
	}
	err := s.get(ctx, "/queues", nil, &queues)
	s.failed = nil
	var known []string
	for _, q := range queues.Items {
		if q.Waiting+q.Running > 0 || len(q.Kinds) > 0 {
			known = append(known, q.Queue)
		}
	}
	if err != nil || queues.Incomplete || len(known) == 0 || slices.Contains(known, queue) {
		return
	}
	a.complain(fmt.Errorf("note: queue %q has no jobs, and no kind's jobs wait there%s", queue, nearest(queue, known)))
}

// nearest is the name that was probably meant, behind a colon; "": none is near.
func nearest(name string, known []string) string {
	if near := fault.DidYouMean(name, known); near != "" {
		return ": " + near
	}
	return ""
}

// warnOfKind says that no live node has a handler for a kind, although some have handlers. One that works in no pool yet has said
// so by the queue of its kind, which stays known when no node has it any more.
func warnOfKind(ctx context.Context, a *app, s *server, kind string) {
	var nodes struct {
		Items      []shownSession
		Incomplete bool
	}
	var queues struct{ Items []shownQueue }
	err := cmp.Or(s.get(ctx, "/nodes", nil, &nodes), s.get(ctx, "/queues", nil, &queues))
	s.failed = nil
	var kinds []string
	for _, n := range nodes.Items {
		kinds = append(kinds, liveKinds(&n)...)
	}
	if err != nil || nodes.Incomplete || len(kinds) == 0 {
		return
	}
	for _, q := range queues.Items {
		kinds = append(kinds, q.Kinds...)
	}
	if slices.Contains(kinds, kind) {
		return
	}
	a.complain(fmt.Errorf("note: no live node has a handler for kind %q%s", kind, nearest(kind, kinds)))
}

// namesLimit is how long a command that is done asks which names there are.
const namesLimit = time.Second

// mostAtOnce is how many items the API lists in an answer.
const mostAtOnce = 1000

// pages sends a request, and, for a list that is asked for in more items than an answer has, those for the rest.
func (s *server) pages(ctx context.Context, r *sending) (json.RawMessage, error) {
	limit, err := strconv.Atoi(r.query.Get("limit"))
	if err != nil || limit <= mostAtOnce || !r.paged {
		return s.ask(ctx, r.form.method, r.path, r.query, r.body)
	}
	var all page
	var failed []error
	for left := limit; ; left = limit - len(all.Items) {
		query := maps.Clone(r.query)
		query.Set("limit", strconv.Itoa(min(left, mostAtOnce)))
		if all.Next != "" {
			query.Set("after", all.Next)
		}
		var one page
		if err := s.get(ctx, r.path, query, &one); err != nil {
			return nil, err
		}
		failed = append(failed, s.failed...)
		all = page{append(all.Items, one.Items...), all.Incomplete || one.Incomplete, append(all.Missing, one.Missing...), one.Next}
		if all.Next == "" || len(all.Items) >= limit {
			s.failed = failed
			return json.Marshal(all)
		}
	}
}

// page is a list, or a part of one, as the API has it.
type page struct {
	Items      []json.RawMessage `json:"items"`
	Incomplete bool              `json:"incomplete"`
	Missing    []struct {
		Pool  string `json:"pool"`
		State string `json:"state"`
	} `json:"missing,omitempty"`
	Next string `json:"next,omitempty"`
}

// ask has fn ask the API: a node's, or this process' own. What it does to the databases of pools that have nothing to
// do with others that are out of service is no failure: repeated, the command would do it twice.
func (a *app) ask(q *question, fn func(context.Context, *question, *server) error) error {
	limit := q.limit
	if limit == 0 || q.run == nil && (q.elsewhere() || len(q.args) > 0) { // a node does not work for longer on one request
		limit = operateLimit * time.Duration(max(1, len(q.args)))
	}
	if q.elsewhere() {
		s, err := a.remote.dial(a)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(q.cmd.Context(), limit)
		defer cancel()
		return fn(ctx, q, s)
	}
	return a.operate(q.cmd.Context(), limit, !q.withoutStart, func(ctx context.Context, o *operation) error {
		s := newHere(o, q.given("reveal"))
		return a.unconcerned(o, fn(ctx, q, s))
	})
}

// unconcerned says of pools that are out of service that they are, where a command that has not failed did not need them, and
// adds why they are where it has.
func (a *app) unconcerned(o *operation, err error) error {
	switch {
	case err == nil:
		for _, unfit := range o.unfit {
			a.complain(fmt.Errorf("note: %w", unfit))
		}
	case !errors.Is(err, errIncomplete) && !errors.As(err, new(*usageError)): // which says it, or has nothing to do with it
		err = errors.Join(o.unsaid(err), err)
	}
	return err
}
