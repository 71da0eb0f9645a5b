package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

type sendMail struct {
	To    string `json:"to"`
	Count int    `json:"count"`
}

func (sendMail) Kind() string { return "mail.send" }

func nothing(context.Context, *job.Record) error { return nil }

func ignore[A job.Args](context.Context, *job.Job[A]) error { return nil }

func TestValidateKind(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "0", "mail.send", "v2/Mail_Send:now-1", strings.Repeat("k", 128)} {
		require.NoError(t, job.ValidateKind("kind", name), name)
	}
	for _, name := range []string{"", ".a", "-a", "_a", "/a", "a b", " a", "a\n", "a\x00", "é", "a,b", `a"`, strings.Repeat("k", 129)} {
		err := job.ValidateKind("queue", name)
		require.ErrorContains(t, err, "queue \"", name)
		require.ErrorContains(t, err, "1 to 128 letters, digits and . _ : / - are allowed")
	}
}

func TestRegistry_keepsWhatItWasGiven(t *testing.T) {
	t.Parallel()
	r := job.NewRegistry()
	require.Empty(t, r.Kinds())
	job.Handle(r, ignore[sendMail])
	r.Add(job.Spec{Kind: "b", Handle: nothing, InTx: true}, job.Timeout(time.Minute), job.Retry("R2/PT1S"), job.Queue("slow"))
	r.Add(job.Spec{Kind: "a", Handle: nothing, Queue: "own"})
	require.Equal(t, []string{"a", "b", "mail.send"}, r.Kinds())

	s, ok := r.Lookup("mail.send")
	require.True(t, ok)
	require.Equal(t, "mail.send", s.Kind)
	require.Equal(t, job.DefaultQueue, s.Queue)
	require.Zero(t, s.Timeout, "the node's default")
	require.Nil(t, s.Retry, "the node's default")
	require.False(t, s.InTx)

	s, ok = r.Lookup("b")
	require.True(t, ok)
	require.Equal(t, "slow", s.Queue)
	require.Equal(t, time.Minute, s.Timeout)
	require.Equal(t, "R2/PT1S", s.Retry.String())
	require.True(t, s.InTx)

	s, ok = r.Lookup("a")
	require.True(t, ok)
	require.Equal(t, "own", s.Queue)

	_, ok = r.Lookup("c")
	require.False(t, ok)
}

func TestRegistry_panicsOnAProgrammersMistake(t *testing.T) {
	t.Parallel()
	for want, mistake := range map[string]func(*job.Registry){
		`job.Registry.Add: kind "a" is registered twice`: func(r *job.Registry) {
			r.Add(job.Spec{Kind: "a", Handle: nothing})
			r.Add(job.Spec{Kind: "a", Handle: nothing})
		},
		`job.Registry.Add: kind "mail.send" is registered twice`: func(r *job.Registry) {
			job.Handle(r, ignore[sendMail])
			job.Handle(r, ignore[sendMail])
		},
		`job.Registry.Add: kind "a" has a nil handler`: func(r *job.Registry) { r.Add(job.Spec{Kind: "a"}) },
		`job.Handle: nil handler`:                      func(r *job.Registry) { job.Handle[sendMail](r, nil) },
		`job.HandleBatch: nil handler`:                 func(r *job.Registry) { job.HandleBatch[sendMail](r, nil) },
		`job.MaxBatch(0): 1 to 1000 are allowed`:       func(*job.Registry) { job.MaxBatch(0) },
		`job.MaxBatch(1001): 1 to 1000 are allowed`:    func(*job.Registry) { job.MaxBatch(1001) },
		`job.BatchWait(1µs): 1ms to 10s are allowed`:   func(*job.Registry) { job.BatchWait(time.Microsecond) },
		`job.BatchWait(1m0s): 1ms to 10s are allowed`:  func(*job.Registry) { job.BatchWait(time.Minute) },
		`job.Registry.Add: kind "mail.send" has job.MaxBatch or job.BatchWait, but its handler gets one job`: func(r *job.Registry) {
			job.Handle(r, ignore[sendMail], job.MaxBatch(2))
		},
		`job.Registry.Add: kind "a" has two handlers`: func(r *job.Registry) {
			r.Add(job.Spec{Kind: "a", Handle: nothing, HandleBatch: func(context.Context, []*job.Record, *job.Ends) error { return nil }})
		},
		`job.Registry.Use: nil middleware`:        func(r *job.Registry) { r.Use(nil) },
		`job.Registry.Add: kind "": 1 to 128`:     func(r *job.Registry) { r.Add(job.Spec{Handle: nothing}) },
		`job.Registry.Add: queue "a b": 1 to 128`: func(r *job.Registry) { r.Add(job.Spec{Kind: "a", Queue: "a b", Handle: nothing}) },
		`job.Timeout(999ms): at least 1s`:         func(*job.Registry) { job.Timeout(999 * time.Millisecond) },
		`job.Timeout(0s): at least 1s`:            func(*job.Registry) { job.Timeout(0) },
		`job.Retry: retry "5": "5" has no unit`:   func(*job.Registry) { job.Retry("5") },
		`job.UniqueBy: a period of 1ms: 1s to ten years are allowed`: func(*job.Registry) {
			job.UniqueBy(func(sendMail) string { return "" }, time.Millisecond)
		},
		`job.UniqueBy: nil function`:       func(r *job.Registry) { job.Handle(r, ignore[sendMail], job.UniqueBy[sendMail](nil, 0)) },
		`job.Queue: queue "a b": 1 to 128`: func(*job.Registry) { job.Queue("a b") },
		`job.Registry.Add: the registry belongs to a node; register before New, or by Node.Register`: func(r *job.Registry) {
			r.Freeze()
			r.Add(job.Spec{Kind: "a", Handle: nothing})
		},
		`job.Registry.Use: the registry belongs to a node; register before New, or by Node.Register`: func(r *job.Registry) {
			r.Freeze()
			r.Use(func(next job.HandlerFunc) job.HandlerFunc { return next })
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			defer func() {
				text, ok := recover().(string)
				require.True(t, ok, "it panics with a text")
				require.True(t, strings.HasPrefix(text, want), text)
			}()
			mistake(job.NewRegistry())
		})
	}
}

// around returns middleware that leaves its name in trace, before and after.
func around(trace *[]string, name string) job.Middleware {
	return func(next job.HandlerFunc) job.HandlerFunc {
		return func(ctx context.Context, r *job.Record) error {
			*trace = append(*trace, name+" in")
			err := next(ctx, r)
			*trace = append(*trace, name+" out")
			return err
		}
	}
}

func TestRegistry_middleware(t *testing.T) {
	t.Parallel()
	r := job.NewRegistry()
	var trace []string
	r.Use(around(&trace, "first"))
	job.Handle(r, func(_ context.Context, j *job.Job[sendMail]) error {
		trace = append(trace, "handle for "+j.Args.To)
		return errBroken
	})
	r.Use(around(&trace, "second")) // also of what was registered before
	r.Freeze()
	r.Freeze() // no second coat

	s, ok := r.Lookup("mail.send")
	require.True(t, ok)
	require.Equal(t, errBroken, s.Handle(t.Context(), &job.Record{Kind: "mail.send", Payload: []byte(`{"to":"a"}`)}))
	require.Equal(t, []string{"first in", "second in", "handle for a", "second out", "first out"}, trace)
}

func TestRegistry_middlewareSeesPanics(t *testing.T) {
	t.Parallel()
	r := job.NewRegistry()
	var seen error
	r.Use(func(next job.HandlerFunc) job.HandlerFunc {
		return func(ctx context.Context, rec *job.Record) error {
			seen = next(ctx, rec)
			return seen
		}
	})
	job.Handle(r, func(context.Context, *job.Job[sendMail]) error { panic("boom") })
	r.Freeze()
	s, _ := r.Lookup("mail.send")
	err := s.Handle(t.Context(), &job.Record{Kind: "mail.send", Payload: []byte(`{}`)})
	var panicked *job.PanicError
	require.ErrorAs(t, err, &panicked)
	require.Equal(t, "boom", panicked.Value)
	require.Contains(t, panicked.Stack, "registry_test.go")
	require.Equal(t, err, seen)
}

func TestRegistry_middlewareSeesWhatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	r := job.NewRegistry()
	var seen error
	r.Use(func(next job.HandlerFunc) job.HandlerFunc {
		return func(ctx context.Context, rec *job.Record) error {
			seen = next(ctx, rec)
			return seen
		}
	})
	job.Handle(r, func(context.Context, *job.Job[sendMail]) error { panic("not to be called") })
	r.Freeze()
	s, _ := r.Lookup("mail.send")
	err := s.Handle(t.Context(), &job.Record{Kind: "mail.send", Payload: []byte(`[]`)})
	require.Equal(t, job.Retrying, job.Decide(err, 1, 3, policy(t)).State)
	require.Equal(t, err, seen)
}

// Two nodes in one process may share a registry.
func TestRegistry_isWholeAfterEveryFreeze(t *testing.T) {
	t.Parallel()
	r := job.NewRegistry()
	wrapped := errors.New("wrapped")
	r.Use(func(job.HandlerFunc) job.HandlerFunc {
		return func(context.Context, *job.Record) error { return wrapped }
	})
	for i := range 100 {
		r.Add(job.Spec{Kind: "k" + job.ID(i).String(), Handle: nothing})
	}
	results := make([][]error, 8)
	var group sync.WaitGroup
	for i := range results {
		group.Go(func() {
			r.Freeze()
			for _, kind := range r.Kinds() {
				s, _ := r.Lookup(kind)
				results[i] = append(results[i], s.Handle(t.Context(), &job.Record{}))
			}
		})
	}
	group.Wait()
	for _, errs := range results {
		require.Len(t, errs, 100)
		for _, err := range errs {
			require.Equal(t, wrapped, err)
		}
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	rec := &job.Record{ID: 7, Tenant: "acme", Attempt: 2, Kind: "mail.send", Payload: []byte(`{"to":"a","count":3,"later":"unknown"}`)}
	j, err := job.Decode[sendMail](rec)
	require.NoError(t, err)
	require.Equal(t, sendMail{To: "a", Count: 3}, j.Args, "a field of a newer version is no reason to refuse the job")
	require.Equal(t, *rec, j.Record)

	for _, payload := range []string{``, `{`, `[]`, `"text"`, `{"count":"three"}`, `{"count":1.5}`, `{"count":1e30}`} {
		t.Run(payload, func(t *testing.T) {
			t.Parallel()
			j, err := job.Decode[sendMail](&job.Record{Kind: "mail.send", Payload: []byte(payload)})
			require.Nil(t, j)
			require.ErrorContains(t, err, `decode the arguments of kind "mail.send" into job_test.sendMail`)
			out := job.Decide(err, 1, 3, policy(t))
			require.Equal(t, job.Retrying, out.State, "a newer node may know how")
			require.EqualError(t, out.Err, err.Error())
		})
	}
}

type anyArgs struct{ V any }

func (anyArgs) Kind() string                   { return "any" }
func (a anyArgs) MarshalJSON() ([]byte, error) { return json.Marshal(a.V) }

func TestEncode(t *testing.T) {
	t.Parallel()
	b, err := job.Encode(sendMail{To: "İ <a&b>\n", Count: 3})
	require.NoError(t, err)
	j, err := job.Decode[sendMail](&job.Record{Payload: b})
	require.NoError(t, err)
	require.Equal(t, sendMail{To: "İ <a&b>\n", Count: 3}, j.Args)

	_, err = job.Encode(anyArgs{make(chan int)})
	require.ErrorContains(t, err, `encode the arguments of kind "any"`)
	_, err = job.Encode(anyArgs{"\x00"})
	require.ErrorContains(t, err, `arguments of kind "any": a string holds the character \u0000`)
	_, err = job.Encode(anyArgs{strings.Repeat("x", job.MaxPayload)})
	require.ErrorContains(t, err, `arguments of kind "any": 262146 bytes of JSON: 262144 are allowed`)
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	require.Equal(t, "mail.send", job.KindOf[sendMail]())
}
