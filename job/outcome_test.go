package job_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

var errBroken = errors.New("broken")

// fiveMinutes apart, three attempts.
func policy(t *testing.T) job.Policy {
	p, err := job.ParsePolicy("R3/PT5M")
	require.NoError(t, err)
	return p
}

// chains puts an error where handlers' code may leave it.
var chains = map[string]func(error) error{
	"bare":         func(err error) error { return err },
	"wrapped":      func(err error) error { return fmt.Errorf("send: %w", err) },
	"wrapped deep": func(err error) error { return fmt.Errorf("a: %w", fmt.Errorf("b: %w", fmt.Errorf("c: %w", err))) },
	"joined first": func(err error) error { return errors.Join(err, errBroken) },
	"joined last":  func(err error) error { return errors.Join(errBroken, err) },
	"two verbs":    func(err error) error { return fmt.Errorf("%w while %w", errBroken, err) },
	"joined in a wrapped join": func(err error) error {
		return fmt.Errorf("all: %w", errors.Join(errBroken, fmt.Errorf("one: %w", errors.Join(errBroken, err))))
	},
	"inside RetryIn": func(err error) error { return job.RetryIn(time.Hour, err) },
}

// requireOutcome compares outcomes by what their errors say.
func requireOutcome(t *testing.T, want, got job.Outcome, msg ...any) {
	t.Helper()
	if want.Err != nil {
		require.EqualError(t, got.Err, want.Err.Error(), msg...)
		want.Err = got.Err
	}
	require.Equal(t, want, got, msg...)
}

func TestDecide(t *testing.T) {
	t.Parallel()
	p := policy(t)
	requireOutcome(t, job.Outcome{State: job.Done}, job.Decide(nil, 3, 3, p))

	for chain, in := range chains {
		t.Run(chain, func(t *testing.T) {
			t.Parallel()
			for _, attempt := range []int{1, 2, 3, 4} { // of three
				err := in(job.Snooze(7 * time.Minute))
				requireOutcome(t, job.Outcome{State: job.Snoozed, Delay: 7 * time.Minute}, job.Decide(err, attempt, 3, p))

				err = in(job.Discard(errBroken))
				requireOutcome(t, job.Outcome{State: job.Dead, Err: err}, job.Decide(err, attempt, 3, p))

				err = in(job.Cancel(errBroken))
				requireOutcome(t, job.Outcome{State: job.Cancelled, Err: err}, job.Decide(err, attempt, 3, p))

				delay := 5 * time.Minute // by policy
				if chain == "inside RetryIn" {
					delay = time.Hour
				}
				err = in(errBroken)
				want := job.Outcome{State: job.Retrying, Delay: delay, Err: err}
				if attempt >= 3 {
					want = job.Outcome{State: job.Dead, Err: err}
				}
				requireOutcome(t, want, job.Decide(err, attempt, 3, p))

				if chain == "inside RetryIn" {
					continue // the outer one counts
				}
				err = in(job.RetryIn(9*time.Second, errBroken))
				want.Err = err
				if attempt < 3 {
					want.Delay = 9 * time.Second
				}
				requireOutcome(t, want, job.Decide(err, attempt, 3, p), "RetryIn is a failure like any other")

				err = in(&job.PanicError{Value: "boom", Stack: "main.go:1"})
				want = job.Outcome{State: job.Retrying, Delay: 5 * time.Minute, Err: err, Stack: "main.go:1"}
				if attempt >= 3 {
					want.State, want.Delay = job.Dead, 0
				}
				requireOutcome(t, want, job.Decide(err, attempt, 3, p), "a panic is charged like any failure")
			}
		})
	}
}

func TestDecide_ofSeveral(t *testing.T) {
	t.Parallel()
	p := policy(t)
	snooze, discard, cancel, retry := job.Snooze(time.Minute), job.Discard(errBroken), job.Cancel(errBroken), job.RetryIn(time.Hour, errBroken)
	for name, tc := range map[string]struct {
		err  error
		want job.State
	}{
		// What is undone by nothing yields to what may still be undone.
		"snooze before discard": {errors.Join(discard, snooze), job.Snoozed},
		"snooze before cancel":  {errors.Join(cancel, snooze), job.Snoozed},
		"discard before cancel": {errors.Join(cancel, discard), job.Dead},
		"discard before retry":  {errors.Join(retry, discard), job.Dead},
		"cancel before retry":   {errors.Join(retry, cancel), job.Cancelled},
		"cancel around discard": {job.Cancel(discard), job.Dead},
		"cancel, read before":   {fmt.Errorf("again: %w", job.ReadError(cancel)), job.Cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, job.Decide(tc.err, 1, 3, p).State)
		})
	}
	t.Run("the outer RetryIn", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, time.Second, job.Decide(job.RetryIn(time.Second, retry), 1, 3, p).Delay)
	})
	t.Run("a discarded panic keeps its stack", func(t *testing.T) {
		t.Parallel()
		err := job.Discard(&job.PanicError{Value: 1, Stack: "main.go:1"})
		requireOutcome(t, job.Outcome{State: job.Dead, Err: err, Stack: "main.go:1"}, job.Decide(err, 1, 3, p))
	})
}

func TestErrors_sayWhy(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"snooze for 1m0s":          job.Snooze(time.Minute),
		"snooze for 0s":            job.Snooze(-time.Minute),
		"discard: broken":          job.Discard(errBroken),
		"discard: no reason given": job.Discard(nil),
		"cancel: broken":           job.Cancel(errBroken),
		"cancel: no reason given":  job.Cancel(nil),
		"broken":                   job.RetryIn(time.Hour, errBroken),
		"no reason given":          job.RetryIn(time.Hour, nil),
		"panic: boom":              &job.PanicError{Value: "boom"},
		"panic: <nil>":             &job.PanicError{},
	} {
		require.EqualError(t, err, want)
	}
	for _, err := range []error{job.Discard(errBroken), job.Cancel(errBroken), job.RetryIn(0, errBroken)} {
		require.ErrorIs(t, err, errBroken)
	}
}

// Whatever puts a job off, it does not come back at once: 82,000 tries in ten seconds were
// seen of a handler that returned RetryIn(0).
func TestDecide_waitsASecondAtLeast(t *testing.T) {
	t.Parallel()
	hasty, err := job.ParsePolicy("R5/PT0S")
	require.NoError(t, err)
	list, err := job.ParsePolicy("PT0.2S,PT5S")
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		err    error
		policy job.Policy
		want   time.Duration
	}{
		"retry at once":              {job.RetryIn(0, errBroken), policy(t), time.Second},
		"retry in the past":          {job.RetryIn(-time.Hour, errBroken), policy(t), time.Second},
		"retry in a second and more": {job.RetryIn(1100*time.Millisecond, errBroken), policy(t), 1100 * time.Millisecond},
		"snooze for nothing":         {job.Snooze(0), policy(t), time.Second},
		"snooze into the past":       {job.Snooze(-time.Hour), policy(t), time.Second},
		"snooze for longer":          {job.Snooze(2 * time.Second), policy(t), 2 * time.Second},
		"a cycle without a delay":    {errBroken, hasty, time.Second},
		"a list that begins soon":    {errBroken, list, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, job.Decide(tc.err, 1, 3, tc.policy).Delay)
		})
	}
}

func TestState_String(t *testing.T) {
	t.Parallel()
	var words []string
	for s := job.State(0); s <= job.Returned+1; s++ {
		words = append(words, s.String())
	}
	require.Equal(t, []string{"State(0)", "done", "retrying", "snoozed", "dead", "cancelled", "returned", "State(7)"}, words)
}
