package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
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
	InTx    bool          // the workers open the tenant's transaction before Handle and finish the job in it
	Handle  HandlerFunc   // middleware included once the registry is frozen
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

// Queue sets the queue that jobs of the kind wait in by default.
func Queue(name string) Option {
	if err := ValidateKind("queue", name); err != nil {
		panic("job.Queue: " + err.Error())
	}
	return func(s *Spec) { s.Queue = name }
}

// Registry holds the handlers of one process. Fill it before the node starts;
// a node freezes it, and registering afterwards panics.
type Registry struct {
	specs      map[string]*Spec
	middleware []Middleware
	frozen     atomic.Bool
	freeze     sync.Once
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{specs: map[string]*Spec{}} }

// Use adds middleware around every handler, the first added outermost.
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
	if s.Handle == nil {
		panic(fmt.Sprintf("job.Registry.Add: kind %q has a nil handler", s.Kind))
	}
	if _, dup := r.specs[s.Kind]; dup {
		panic(fmt.Sprintf("job.Registry.Add: kind %q is registered twice", s.Kind))
	}
	if s.Queue == "" {
		s.Queue = DefaultQueue
	}
	for _, o := range opts {
		o(&s)
	}
	if err := ValidateKind("queue", s.Queue); err != nil {
		panic("job.Registry.Add: " + err.Error())
	}
	r.specs[s.Kind] = &s
}

func (r *Registry) mustBeOpen(call string) {
	if r.frozen.Load() {
		panic("job.Registry." + call + ": the registry belongs to a running node; register before New")
	}
}

// Freeze ends registration and puts the middleware around the handlers. A node
// calls it; calling it again does nothing. Every call returns with the work done,
// also when two nodes share the registry and start at once.
func (r *Registry) Freeze() {
	r.freeze.Do(func() {
		r.frozen.Store(true)
		for _, s := range r.specs {
			for _, m := range slices.Backward(r.middleware) {
				s.Handle = m(s.Handle)
			}
		}
	})
}

// Lookup returns the spec of a kind; it must not be changed.
func (r *Registry) Lookup(kind string) (*Spec, bool) {
	s, ok := r.specs[kind]
	return s, ok
}

// Kinds lists what is registered, sorted.
func (r *Registry) Kinds() []string { return slices.Sorted(maps.Keys(r.specs)) }

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

// Decode gives a record's arguments their type. What cannot be decoded is
// discarded with the reason rather than retried: it will not mend itself.
func Decode[A Args](rec *Record) (*Job[A], error) {
	j := &Job[A]{Record: *rec}
	if err := json.Unmarshal(rec.Payload, &j.Args); err != nil {
		return nil, Discard(fmt.Errorf("decode the arguments of kind %q into %T: %w", rec.Kind, j.Args, err))
	}
	return j, nil
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
	b, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encode the arguments of kind %q: %w", a.Kind(), err)
	}
	if err := CheckPayload(b); err != nil {
		return nil, fmt.Errorf("arguments of kind %q: %w", a.Kind(), err)
	}
	return b, nil
}

// CheckPayload says why JSON text cannot be a payload; nil when it can.
func CheckPayload(b []byte) error {
	if len(b) > MaxPayload {
		return fmt.Errorf("%d bytes of JSON: %d are allowed; store the data elsewhere and pass its key", len(b), MaxPayload)
	}
	if !utf8.Valid(b) {
		return errors.New("not UTF-8, as JSON must be")
	}
	if !json.Valid(b) {
		return fmt.Errorf("not valid JSON: %.64q", b)
	}
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
	number := b[:len(b)-len(bytes.TrimLeft(b, "+-.0123456789eE"))]
	digits, exponent, _ := strings.Cut(strings.ToLower(string(number)), "e")
	if exponent != "" {
		e, err := strconv.Atoi(exponent)
		if err != nil || e < -maxExponent || e > maxExponent {
			return 0, 0, fmt.Errorf("the number %.32s has an exponent beyond %d: pass it as a string", number, maxExponent)
		}
		longer = max(e, -e)
	}
	if len(digits) > maxDigits {
		return 0, 0, fmt.Errorf("the number %.32s… has more than %d digits: pass it as a string", number, maxDigits)
	}
	return len(number), longer, nil
}
