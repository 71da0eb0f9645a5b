package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxErrorText bounds what is kept of an error's text or of a stack, in bytes.
const MaxErrorText = 16 << 10

const cutMark = "… (cut)"

// TrimText makes text fit for logs and for Postgres: at most [MaxErrorText] bytes of
// valid UTF-8 without NUL. What it returns does not keep a longer s in memory.
func TrimText(s string) string { return trimTo(s, MaxErrorText) }

// trimTo is TrimText for so many bytes.
func trimTo(s string, most int) string {
	long := len(s) > most
	if long {
		s = s[:most] // first, so that what follows is cheap
	}
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", `\0`), "�")
	if !long && len(s) <= most {
		return strings.Clone(s)
	}
	end := min(len(s), most-len(cutMark)) // what was not UTF-8 may have become shorter
	for end > 0 && end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cutMark
}

// Failure is what a handler's error, or its panic, said when it was read: see
// [ReadError]. It holds plain text and values of this package, and none of its methods
// calls code of the handler's, so that it can be passed on, logged and written by
// anybody. It matches, by errors.Is, those errors of the handler's chain that were made
// by errors.New or are context.DeadlineExceeded, and, by errors.As, a [*PanicError].
type Failure struct {
	text      string
	panicked  *PanicError // nil: there was no panic in the chain
	snooze    *time.Duration
	end       State // 0: it asks for none
	retryIn   *time.Duration
	sqlState  string
	sentinels []error
}

// Error returns the text, of at most [MaxErrorText] bytes.
func (f *Failure) Error() string { return f.text }

// SQLState is the SQLSTATE of the first error in the chain that had one, or "".
func (f *Failure) SQLState() string { return f.sqlState }

// Is tells whether target was in the handler's chain; see [Failure].
func (f *Failure) Is(target error) bool {
	return slices.Contains(f.sentinels, target)
}

// As sets a **PanicError when the handler panicked.
func (f *Failure) As(target any) bool {
	p, ok := target.(**PanicError)
	if ok && f.panicked != nil {
		*p = f.panicked
		return true
	}
	return false
}

// ReadError reads a handler's error, which must not be nil. This is the only place where
// its methods are called: one that panics, as those of a nil pointer in an error mostly
// do, is told in the text. One that blocks keeps its caller, so call it where a handler
// may block, too. A chain is followed for a thousand errors, as it may lead into itself.
func ReadError(err error) *Failure {
	if f, ok := err.(*Failure); ok && f != nil {
		return f
	}
	f := &Failure{text: errorText(err)}
	left := maxChain
	f.note(err, &left)
	return f
}

// ReadPanic is ReadError for the value of a panic and its stack. A *PanicError is a panic
// of another goroutine that is passed on.
func ReadPanic(value any, stack []byte) *Failure {
	p, ok := value.(*PanicError)
	if !ok || p == nil {
		p = &PanicError{Value: value, Stack: string(stack)}
	}
	p = p.read()
	return &Failure{text: TrimText(p.Error()), panicked: p}
}

func (e *PanicError) read() *PanicError {
	return &PanicError{Value: panicText(e.Value), Stack: TrimText(e.Stack)}
}

// Bounds of what is looked at, and kept, of a chain of errors.
const (
	maxChain        = 1000
	maxSentinels    = 16
	maxSentinelText = 256
)

// note follows the chain of err as errors.Is does, for as many errors as are left.
func (f *Failure) note(err error, left *int) {
	for err != nil && *left > 0 {
		*left-- // before others look further down
		f.noteOne(err)
		var next error
		var all []error
		guard(func() {
			switch e := err.(type) {
			case interface{ Unwrap() error }:
				next = e.Unwrap()
			case interface{ Unwrap() []error }:
				all = e.Unwrap()
			}
		})
		for _, e := range all {
			f.note(e, left)
		}
		err = next
	}
}

// noteOne notes what one error of the chain means. Of several of a kind the first counts.
func (f *Failure) noteOne(err error) {
	switch e := err.(type) {
	case *Failure:
		f.join(e)
	case *snoozeError:
		f.snooze = cmp.Or(f.snooze, &e.delay)
	case *endError:
		f.endIn(e.state)
	case *retryInError:
		f.retryIn = cmp.Or(f.retryIn, &e.delay)
	case *PanicError:
		if e != nil && f.panicked == nil {
			f.panicked = e.read()
		}
	case interface{ SQLState() string }:
		if f.sqlState == "" {
			guard(func() { f.sqlState = TrimText(e.SQLState()) })
		}
	}
	if isSentinel(err) && len(f.sentinels) < maxSentinels {
		f.sentinels = append(f.sentinels, err)
	}
}

// endIn notes that the job is to end in a state; 0: in none.
func (f *Failure) endIn(s State) { f.end = cmp.Or(min(f.end, s), f.end, s) }

// join adds what was read before.
func (f *Failure) join(g *Failure) {
	if g == nil {
		return
	}
	f.panicked = cmp.Or(f.panicked, g.panicked)
	f.snooze, f.retryIn = cmp.Or(f.snooze, g.snooze), cmp.Or(f.retryIn, g.retryIn)
	f.endIn(g.end)
	f.sqlState = cmp.Or(f.sqlState, g.sqlState)
	f.sentinels = append(f.sentinels, g.sentinels[:min(len(g.sentinels), maxSentinels-len(f.sentinels))]...)
}

var plainError = reflect.TypeOf(errors.New(""))

// isSentinel tells whether err is of a type whose methods are known to be harmless.
func isSentinel(err error) bool {
	v := reflect.ValueOf(err)
	return err == context.DeadlineExceeded || v.Type() == plainError && !v.IsNil() && len(err.Error()) <= maxSentinelText
}

// guard calls fn and returns what it panicked with; nil: it did not.
func guard(fn func()) (panicked any) {
	defer func() { panicked = recover() }()
	fn()
	return nil
}

func errorText(err error) (text string) {
	panicked := guard(func() { text = TrimText(err.Error()) })
	switch v := reflect.ValueOf(err); {
	case panicked == nil:
		return text
	case v.Kind() == reflect.Pointer && v.IsNil():
		return fmt.Sprintf("a nil %T was returned as an error, and its Error method panics: return a plain nil instead", err)
	}
	return fmt.Sprintf("an error of type %T, whose Error method panics: %s", err, panicText(panicked))
}

// panicText says what was panicked with, as the Go runtime does: what is neither an error
// nor a fmt.Stringer nor of a basic type is told by its type only, as printing it may
// take for ever, or all memory.
func panicText(value any) (text string) {
	var panicked any
	switch v := value.(type) {
	case nil:
		return "<nil>"
	case error:
		panicked = guard(func() { text = TrimText(v.Error()) })
	case fmt.Stringer:
		panicked = guard(func() { text = TrimText(v.String()) })
	default:
		return basicText(reflect.ValueOf(value))
	}
	if panicked != nil {
		return fmt.Sprintf("a value of type %T, which panics when it is printed", value)
	}
	return text
}

func basicText(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.String:
		return TrimText(v.String())
	case v.Kind() == reflect.Bool:
		return fmt.Sprint(v.Bool())
	case v.CanInt():
		return fmt.Sprint(v.Int())
	case v.CanUint():
		return fmt.Sprint(v.Uint())
	case v.CanFloat():
		return fmt.Sprint(v.Float())
	case v.CanComplex():
		return fmt.Sprint(v.Complex())
	}
	return "a value of type " + v.Type().String()
}
