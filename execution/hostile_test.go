package execution

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/job"
)

// careless is an error as many write them: a nil one cannot say what it is.
type careless struct{ code int }

func (e *careless) Error() string { return fmt.Sprintf("code %d", e.code) }

// odd is an error whose methods do what the test says.
type odd struct {
	text   func() string
	unwrap func() error
	is, as func() bool
}

func (e *odd) Error() string {
	if e.text == nil {
		return "odd"
	}
	return e.text()
}

func (e *odd) Unwrap() error {
	if e.unwrap == nil {
		return nil
	}
	return e.unwrap()
}
func (e *odd) Is(error) bool { return e.is != nil && e.is() }
func (e *odd) As(any) bool   { return e.as != nil && e.as() }

// talker is a value to panic with that is no error.
type talker func() string

func (t talker) String() string { return t() }

func boom() string { panic("boom") }

// huge is as long as the text of an error may be that holds a whole answer.
var huge = strings.Repeat("ä", 50<<20)

// hostile are the ways in which handlers end that must not harm anybody but their job.
var hostile = []struct {
	name  string
	end   func() error
	state job.State
	says  string
}{
	{"a nil pointer as an error", func() error { var e *careless; return e }, job.Retrying, "a nil *execution.careless was returned as an error"},
	{"a nil panic as an error", func() error { var e *job.PanicError; return e }, job.Retrying, "a nil *job.PanicError was returned"},
	{"a nil pointer, joined", func() error { var e *careless; return errors.Join(errBroken, e) }, job.Retrying, "an error of type *errors.joinError"},
	{"a nil pointer, discarded", func() error { var e *careless; return job.Discard(e) }, job.Dead, "whose Error method panics: runtime error: invalid memory address"},
	{"a nil pointer beside one that is discarded", func() error { var e *careless; return errors.Join(e, job.Discard(errBroken)) }, job.Dead, "panics"},
	{"Error panics", func() error { return &odd{text: boom} }, job.Retrying, "an error of type *execution.odd, whose Error method panics: boom"},
	{"Error panics with an error whose Error panics", func() error {
		return &odd{text: func() string { panic(&odd{text: boom}) }}
	}, job.Retrying, "a value of type *execution.odd, which panics when it is printed"},
	{"Error ends its goroutine", func() error { return &odd{text: func() string { runtime.Goexit(); return "" }} }, job.Retrying, "runtime.Goexit"},
	{"Is panics", func() error { return &odd{is: func() bool { panic("boom") }} }, job.Retrying, "odd"},
	{"As panics", func() error { return &odd{as: func() bool { panic("boom") }} }, job.Retrying, "odd"},
	{"Is agrees to everything", func() error { return &odd{is: func() bool { return true }} }, job.Retrying, "odd"},
	{"As agrees to everything", func() error { return &odd{as: func() bool { return true }} }, job.Retrying, "odd"},
	{"Unwrap panics", func() error { return &odd{unwrap: func() error { panic("boom") }} }, job.Retrying, "odd"},
	{"a chain that leads into itself", func() error {
		e := &odd{}
		e.unwrap = func() error { return e }
		return e
	}, job.Retrying, "odd"},
	{"a chain that widens for ever", func() error { return fmt.Errorf("all: %w", &many{}) }, job.Retrying, "all: many"},
	{"a huge text", func() error { return &odd{text: func() string { return huge }} }, job.Retrying, "ä… (cut)"},
	{"a huge text of a dead letter", func() error { return job.Discard(&odd{text: func() string { return huge }}) }, job.Dead, "discard: ää"},
	{"what Postgres does not take", func() error { return errors.New("a\x00b\xffc" + strings.Repeat("\x00", job.MaxErrorText)) }, job.Retrying, `a\0b` + "\ufffdc"},
	{"a panic with a nil pointer", func() error { var e *careless; panic(e) }, job.Retrying, "a value of type *execution.careless, which panics when it is printed"},
	{"a panic with what panics when it is printed", func() error { panic(talker(boom)) }, job.Retrying, "a value of type execution.talker, which panics"},
	{"a panic with a huge text", func() error { panic(huge) }, job.Retrying, "ä… (cut)"},
	{"a panic with what holds itself", func() error {
		loop := make([]any, 1)
		loop[0] = loop
		panic(loop)
	}, job.Retrying, "panic: a value of type []interface {}"},
	{"a panic with a huge value", func() error { panic(make([]byte, 100<<20)) }, job.Retrying, "panic: a value of type []uint8"},
}

// many unwraps to ever more of itself.
type many struct{}

func (*many) Error() string   { return "many" }
func (*many) Unwrap() []error { return []error{&many{}, &many{}, &many{}} }

// What a handler's error says is read once, where the handler ran. What goes on to the
// ledger and to the log cannot panic, is short, and Postgres takes it.
func TestHostileErrors(t *testing.T) {
	t.Parallel()
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				core, logged := observer.New(zapcore.WarnLevel)
				b := newBundle(t, nil, func(r *job.Registry) {
					r.Add(job.Spec{Kind: "hostile", Handle: func(context.Context, *job.Record) error { return c.end() }})
				})
				b.workers.log = zap.New(core)
				b.start()
				b.submit("hostile", 5) // more often than there are workers
				for range 5 {
					e := b.owner.next(t)
					require.Equal(t, "finish", e.how)
					require.Equal(t, c.state, e.outcome.State)
					text := e.outcome.Err.Error()
					require.Contains(t, text, c.says)
					fits(t, text)
					fits(t, e.outcome.Stack)
				}
				for _, entry := range logged.All() {
					fits(t, fmt.Sprint(entry.ContextMap()["error"]))
				}
				b.submit("noop", 5)
				for range 5 {
					require.Equal(t, job.Done, b.owner.next(t).outcome.State)
				}
			})
		})
	}
}

func fits(t *testing.T, text string) {
	t.Helper()
	require.LessOrEqual(t, len(text), job.MaxErrorText)
	require.True(t, utf8.ValidString(text))
	require.NotContains(t, text, "\x00")
}

// An error that does not say what it is keeps its own worker only, until another stands
// in for it.
func TestAnErrorThatBlocks(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(block func()) error{
		"Error":   func(block func()) error { return &odd{text: func() string { block(); return "at last" }} },
		"Unwrap":  func(block func()) error { return &odd{unwrap: func() error { block(); return nil }} },
		"a panic": func(block func()) error { panic(talker(func() string { block(); return "at last" })) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				goOn := make(chan struct{})
				var reads atomic.Int64
				b := newBundle(t, func(c *Config) { c.Timeout = time.Minute }, func(r *job.Registry) {
					r.Add(job.Spec{Kind: "silent", Handle: func(context.Context, *job.Record) error {
						return end(func() {
							reads.Add(1)
							<-goOn
						})
					}})
				}).start()
				b.submit("silent", 2)
				time.Sleep(time.Minute + stuckAfter - time.Second)
				synctest.Wait()
				require.EqualValues(t, 2, reads.Load(), "both are being read, by all workers")
				require.Empty(t, b.owner.ends)
				b.submit("noop", 1)
				time.Sleep(3 * time.Second)
				require.Equal(t, job.Done, b.owner.next(t).outcome.State, "of the job that waited")
				close(goOn)
				for range 2 {
					e := b.owner.next(t)
					require.Equal(t, job.Retrying, e.outcome.State)
					require.ErrorIs(t, e.outcome.Err, job.ErrTimeout)
				}
				synctest.Wait()
				require.EqualValues(t, 2, reads.Load(), "each is read once")
			})
		})
	}
}
