package job

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// DefaultQueue is where jobs wait when nothing else was said.
const DefaultQueue = "default"

var kindForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$`)

// ValidateKind refuses a kind or queue name that is empty, longer than 128
// bytes, or has characters other than letters, digits and . _ : / -.
func ValidateKind(what, name string) error {
	if !kindForm.MatchString(name) {
		return fmt.Errorf("%s %q: 1 to 128 letters, digits and . _ : / - are allowed, beginning with a letter or a digit", what, name)
	}
	return nil
}

// Spec is one registered kind.
type Spec struct {
	Kind    string
	Queue   string        // default queue of this kind
	Timeout time.Duration // 0: the node's default
	Retry   *Policy       // nil: the node's default
	InTx    bool          // the workers open the tenant's transaction before the handler and finish its jobs in it
	Handle  HandlerFunc   // middleware included once the registry is frozen

	HandleBatch BatchFunc     // instead of Handle, and likewise
	MaxBatch    int           // jobs of one of its calls; 0: it has none
	BatchWait   time.Duration // for more of them

	ExclusiveKey func(payload []byte) (string, error) // of a job that is enqueued without one; nil: none
	UniqueKey    func(payload []byte) (string, error) // likewise
	UniqueFor    time.Duration                        // how long that is taken, at least; 0: by unfinished jobs only
}

// Option changes how a kind is handled. An option with an impossible value
// panics, as registering is a programmer's act at start-up.
type Option func(*Spec)

// Timeout bounds each run of the kind; at least one second.
func Timeout(d time.Duration) Option {
	if d < time.Second {
		panic(fmt.Sprintf("job.Timeout(%v): at least 1s", d))
	}
	return func(s *Spec) { s.Timeout = d }
}

// Retry sets the kind's policy; see [ParsePolicy] for the forms.
func Retry(policy string) Option {
	p, err := ParsePolicy(policy)
	if err != nil {
		panic("job.Retry: " + err.Error())
	}
	return func(s *Spec) { s.Retry = &p }
}

// ExclusiveBy gives each job of the kind that is enqueued without tenure.Exclusive a key that is
// worked out from its arguments: at most one of the tenant's jobs with that key runs at a time.
// An empty key is none. It is worked out where the job is enqueued, by a process that has the
// kind's handler. A must be the kind's own type.
func ExclusiveBy[A Args](key func(args A) string) Option {
	return func(s *Spec) { s.ExclusiveKey = keyBy("ExclusiveBy", "exclusive", s.Kind, key) }
}

// UniqueBy gives each job of the kind that is enqueued without tenure.Unique, UniqueFor or UniqueArgs a unique key that is
// worked out from its arguments: while an unfinished job of the tenant has it no other is added. With a period, of 1 s to ten
// years, the key stays taken for that long from its enqueueing on, as tenure.UniqueFor has it; 0: without. An empty key is none. It
// is worked out where the job is enqueued, by a process that has the kind's handler; jobs of schedules have none. A must be the
// kind's own type.
func UniqueBy[A Args](key func(args A) string, period time.Duration) Option {
	if period != 0 {
		if err := ValidatePeriod(period); err != nil {
			panic("job.UniqueBy: " + err.Error())
		}
	}
	return func(s *Spec) { s.UniqueKey, s.UniqueFor = keyBy("UniqueBy", "unique", s.Kind, key), period }
}

// keyBy makes a key of a kind's encoded arguments.
func keyBy[A Args](option, what, of string, key func(args A) string) func(payload []byte) (string, error) {
	if key == nil {
		panic("job." + option + ": nil function")
	}
	if kind := KindOf[A](); kind != of {
		panic(fmt.Sprintf("job.%s: its arguments are those of kind %q, not %q", option, kind, of))
	}
	return func(payload []byte) (string, error) {
		var args A
		if err := json.Unmarshal(payload, &args); err != nil {
			return "", fmt.Errorf("decode the arguments of kind %q into %T for its %s key: %w", of, args, what, withoutValues(err))
		}
		return key(args), nil
	}
}

// Queue sets the queue that jobs of the kind wait in by default.
func Queue(name string) Option {
	if err := ValidateKind("queue", name); err != nil {
		panic("job.Queue: " + err.Error())
	}
	return func(s *Spec) { s.Queue = name }
}

// Registry holds the handlers of one process. Fill it before the node starts;
// a node freezes it, and registering afterwards panics: what comes and goes while the node
// runs goes through tenure's Node.Register and Node.Withdraw.
type Registry struct {
	middleware []Middleware
	frozen     atomic.Bool
	freeze     sync.Once

	changing sync.Mutex // held while kinds are replaced
	kinds    atomic.Pointer[kinds]
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	r := &Registry{}
	specs := map[string]*Spec{}
	r.kinds.Store(&kinds{known: specs, handled: specs})
	return r
}

// Use adds middleware around every handler, the first added outermost. A handler's panic is an error to it, by errors.As a
// [*PanicError]. What a job fails by once its handler has returned, such as a COMMIT, it does not see.
func (r *Registry) Use(m Middleware) {
	r.mustBeOpen("Use")
	if m == nil {
		panic("job.Registry.Use: nil middleware")
	}
	r.middleware = append(r.middleware, m)
}

// Add registers a kind. It panics on a nil handler, an impossible or repeated
// kind, and on a frozen registry. Most callers want [Handle].
func (r *Registry) Add(s Spec, opts ...Option) {
	r.mustBeOpen("Add")
	if err := ValidateKind("kind", s.Kind); err != nil {
		panic("job.Registry.Add: " + err.Error())
	}
	switch {
	case s.Handle == nil && s.HandleBatch == nil:
		panic(fmt.Sprintf("job.Registry.Add: kind %q has a nil handler", s.Kind))
	case s.Handle != nil && s.HandleBatch != nil:
		panic(fmt.Sprintf("job.Registry.Add: kind %q has two handlers: Handle or HandleBatch", s.Kind))
	}
	if _, dup := r.Find(s.Kind); dup {
		panic(fmt.Sprintf("job.Registry.Add: kind %q is registered twice", s.Kind))
	}
	if s.Queue == "" {
		s.Queue = DefaultQueue
	}
	for _, o := range opts {
		o(&s)
	}
	switch {
	case s.HandleBatch == nil && (s.MaxBatch != 0 || s.BatchWait != 0):
		panic(fmt.Sprintf("job.Registry.Add: kind %q has job.MaxBatch or job.BatchWait, but its handler gets one job: register it by HandleBatch or HandleBatchTx", s.Kind))
	case s.HandleBatch != nil && s.MaxBatch == 0:
		s.MaxBatch = DefaultMaxBatch
	}
	if err := ValidateKind("queue", s.Queue); err != nil {
		panic("job.Registry.Add: " + err.Error())
	}
	r.kinds.Load().known[s.Kind] = &s
}

func (r *Registry) mustBeOpen(call string) {
	if r.frozen.Load() {
		panic("job.Registry." + call + ": the registry belongs to a node; register before New, or by Node.Register")
	}
}

// Freeze ends registration and puts the middleware around the handlers. A node
// calls it; calling it again does nothing. Every call returns with the work done,
// also when two nodes share the registry and start at once.
func (r *Registry) Freeze() {
	r.freeze.Do(func() {
		r.frozen.Store(true)
		k := r.kinds.Load()
		for _, s := range k.known {
			r.wrapSpec(s)
		}
		r.kinds.Store(k.with(func(*kinds) {}))
	})
}

// wrapSpec puts the middleware around a kind's handler.
func (r *Registry) wrapSpec(s *Spec) {
	switch {
	case len(r.middleware) == 0:
	case s.HandleBatch == nil:
		s.Handle = r.wrap(tellPanics(s.Handle))
	default:
		s.HandleBatch = withMiddleware(r.wrap(callNext), s.HandleBatch)
	}
}

// tellPanics makes the handler's panics errors, so that middleware sees all that a job fails by.
func tellPanics(h HandlerFunc) HandlerFunc {
	return func(ctx context.Context, rec *Record) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = ReadPanic(v, debug.Stack())
			}
		}()
		return h(ctx, rec)
	}
}

// wrap puts the middleware around a handler.
func (r *Registry) wrap(h HandlerFunc) HandlerFunc {
	for _, m := range slices.Backward(r.middleware) {
		h = m(h)
	}
	return h
}

// Handle registers fn for the kind of A. The job is finished after fn has
// returned nil, so a node that dies in between runs it again: starts are
// at-least-once. For effects in the tenant's database that happen exactly once,
// see tenure.HandleTx.
func Handle[A Args](r *Registry, fn func(ctx context.Context, j *Job[A]) error, opts ...Option) {
	if fn == nil {
		panic("job.Handle: nil handler")
	}
	r.Add(Spec{Kind: KindOf[A](), Handle: func(ctx context.Context, rec *Record) error {
		j, err := Decode[A](rec)
		if err != nil {
			return err
		}
		return fn(ctx, j)
	}}, opts...)
}

// KindOf returns the kind of A from its zero value.
func KindOf[A Args]() string {
	var zero A
	return zero.Kind()
}

// Decode gives a record's arguments their type. An error is not of [Discard]: in the midst of a deploy a
// newer node may know how to decode them.
func Decode[A Args](rec *Record) (*Job[A], error) {
	j := &Job[A]{Record: *rec}
	if err := json.Unmarshal(rec.Payload, &j.Args); err != nil {
		if rec.Encrypted { // the error is stored, shown and logged as it is
			err = withoutValues(err)
		}
		return nil, fmt.Errorf("decode the arguments of kind %q into %T: %w", rec.Kind, j.Args, err)
	}
	return j, nil
}

// withoutValues is an error of decoding JSON that quotes nothing of it.
func withoutValues(err error) error {
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrong):
		what, _, _ := strings.Cut(wrong.Value, " ") // number 4111…
		return fmt.Errorf("%s cannot be a JSON %s, as it is a %s", cmp.Or(wrong.Field, "the whole"), what, wrong.Type)
	case errors.As(err, &syntax):
		return fmt.Errorf("they are no JSON from byte %d on", syntax.Offset)
	}
	return fmt.Errorf("a value is refused with a %T, whose text may quote it", err)
}

// MaxPayload is the most that a job's encoded arguments or meta may have, in bytes.
const MaxPayload = 256 << 10

// MaxPrinted is the most that Postgres may need to print them, in bytes: it keeps numbers
// exactly and prints them in full, so that six bytes such as 1e400, come back as 402.
const MaxPrinted = 1 << 20

// Limits within a payload. Postgres keeps numbers exactly and writes them out in
// full, so that 1e100000 would come back as 100,001 bytes; what a float64 holds
// passes.
const (
	maxDepth    = 100
	maxDigits   = 10_000
	maxExponent = 400
)

// Encode turns arguments into the JSON that the ledger keeps. It refuses what
// Postgres could not store or nobody could work with: over [MaxPayload] bytes,
// a NUL character or half a surrogate pair in a string, nesting deeper than 100,
// numbers far beyond a float64.
func Encode(a Args) ([]byte, error) {
	if raw, ok := a.(RawArgs); ok {
		if err := CheckPayload(raw.Payload); err != nil {
			return nil, fmt.Errorf("arguments of kind %q: %w", raw.Name, err)
		}
		return raw.Payload, nil
	}
	b, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encode the arguments of kind %q: %w", a.Kind(), err)
	}
	if err = checkText(b); err == nil {
		err = checkContent(b) // json.Marshal has seen to it that it is JSON, whatever made it
	}
	if err != nil {
		return nil, fmt.Errorf("arguments of kind %q: %w", a.Kind(), err)
	}
	return b, nil
}

// CheckPayload says why JSON text cannot be a payload; nil when it can.
func CheckPayload(b []byte) error {
	if err := checkText(b); err != nil {
		return err
	}
	if !json.Valid(b) {
		return fmt.Errorf("not valid JSON: %.64q", b)
	}
	return checkContent(b)
}

func checkText(b []byte) error {
	if len(b) > MaxPayload {
		return fmt.Errorf("%d bytes of JSON: %d are allowed; store the data elsewhere and pass its key", len(b), MaxPayload)
	}
	if !utf8.Valid(b) {
		return errors.New("not UTF-8, as JSON must be")
	}
	return nil
}

// checkContent looks at valid JSON text, such as json.Marshal makes.
func checkContent(b []byte) error {
	depth := 0
	printed := len(b)
	inString := false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			n, err := checkEscape(b[i:])
			if err != nil {
				return err
			}
			i += n - 1
		case c == '"':
			inString = !inString
		case inString:
		case c == '-' || c >= '0' && c <= '9':
			n, more, err := checkNumber(b[i:])
			if err != nil {
				return err
			}
			printed += more
			i += n - 1
		case c == ',' || c == ':':
			printed++ // a space follows
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("nested deeper than %d", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	if printed > MaxPrinted {
		return fmt.Errorf("%d bytes of JSON that Postgres prints as %d, with all digits of its numbers: %d are allowed; pass large numbers as strings",
			len(b), printed, MaxPrinted)
	}
	return nil
}

// checkEscape looks at the escape sequence that valid JSON text b begins with and
// returns its length; the two halves of a surrogate pair are one.
func checkEscape(b []byte) (length int, err error) {
	switch r := escapedRune(b); {
	case r == notEscaped:
		return 2, nil
	case r == 0:
		return 0, errors.New("a string holds the character \\u0000, which Postgres cannot store: remove it")
	case !utf16.IsSurrogate(r):
		return 6, nil
	case utf16.DecodeRune(r, escapedRune(b[6:])) == unicode.ReplacementChar:
		return 0, fmt.Errorf("a string holds %s, half of a surrogate pair, which Postgres cannot store: remove it, or send whole characters", b[:6])
	}
	return 12, nil
}

const notEscaped rune = -1

// escapedRune reads the escape that b begins with: \u and four hexadecimal digits.
func escapedRune(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return notEscaped
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return notEscaped
	}
	return rune(n)
}

// checkNumber looks at the number that valid JSON text b begins with and returns
// its length, and how much longer it is at most when Postgres prints it.
func checkNumber(b []byte) (length, longer int, err error) {
	digits := -1 // and what else stands in front of the exponent; -1: there is none
	for length < len(b) && strings.IndexByte("0123456789.+-eE", b[length]) >= 0 {
		if b[length] == 'e' || b[length] == 'E' {
			digits = length
		}
		length++
	}
	if digits < 0 {
		digits = length
	} else {
		e, err := strconv.Atoi(string(b[digits+1 : length]))
		if err != nil || e < -maxExponent || e > maxExponent {
			return 0, 0, fmt.Errorf("the number %.32s has an exponent beyond %d: pass it as a string", b[:length], maxExponent)
		}
		longer = max(e, -e)
	}
	if digits > maxDigits {
		return 0, 0, fmt.Errorf("the number %.32s… has more than %d digits: pass it as a string", b[:length], maxDigits)
	}
	return length, longer, nil
}

// RawArgs are arguments that are JSON already, of a kind named at run time: for
// tools that enqueue what somebody typed.
type RawArgs struct {
	Name    string // the kind
	Payload []byte // JSON
}

// Kind implements [Args].
func (r RawArgs) Kind() string { return r.Name }
