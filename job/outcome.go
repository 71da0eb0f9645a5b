package job

import (
	"errors"
	"fmt"
	"time"
)

// ErrClaimLost tells that a job was taken away from the run that reports on it,
// because its node was thought dead. What that run wrote in the job's
// transaction is rolled back. Work done elsewhere may happen a second time: use
// the job's ID as idempotency key.
var ErrClaimLost = errors.New("the claim on this job was lost")

// Causes with which a handler's context is cancelled; see context.Cause.
var (
	// ErrTimeout: the job ran longer than its timeout.
	ErrTimeout = errors.New("the job ran into its timeout")
	// ErrCancelled: somebody cancelled the job while it ran.
	ErrCancelled = errors.New("the job was cancelled")
	// ErrStopping: the node is stopping and the time to finish is over. The job
	// goes back to the queue without a charged attempt.
	ErrStopping = errors.New("the node is stopping")
)

// State is where an outcome sends a job.
type State int8

// The states an outcome can lead to.
const (
	Done      State = iota + 1 // finished
	Retrying                   // failed; runs again after Delay
	Snoozed                    // runs again after Delay, no attempt charged
	Dead                       // dead letter
	Cancelled                  // ended on purpose, without a dead letter
	Returned                   // interrupted by the node's stop; waits again, no attempt charged. It stays the last one: who counts states counts up to it
)

var stateNames = [Returned + 1]string{Done: "done", Retrying: "retrying", Snoozed: "snoozed", Dead: "dead", Cancelled: "cancelled", Returned: "returned"}

// String is the word used in logs, metrics and the ledger.
func (s State) String() string {
	if s < Done || s > Returned {
		return fmt.Sprintf("State(%d)", int8(s))
	}
	return stateNames[s]
}

// Outcome is what became of one run.
type Outcome struct {
	State State
	Delay time.Duration // Retrying, Snoozed; see [MinDelay]
	Err   error         // Retrying, Dead, Cancelled; safe to print, see Failure
	Stack string        // of a panic; at most MaxErrorText bytes
}

type snoozeError struct{ delay time.Duration }

func (e *snoozeError) Error() string { return "snooze for " + e.delay.String() }

// endError ends a job in a state, whatever attempts are left. Of several the lowest state counts.
type endError struct {
	state State
	verb  string
	err   error
}

func (e *endError) Error() string { return e.verb + ": " + e.err.Error() }
func (e *endError) Unwrap() error { return e.err }

type retryInError struct {
	delay time.Duration
	err   error
}

func (e *retryInError) Error() string { return e.err.Error() }
func (e *retryInError) Unwrap() error { return e.err }

// Snooze makes a handler's job run again after d, or after [MinDelay] if that is longer,
// without charging an attempt. A handler that runs in a transaction has it rolled back.
func Snooze(d time.Duration) error { return &snoozeError{max(d, 0)} }

// Discard sends a handler's job to the dead letters at once, whatever attempts
// are left. A nil err is reported as "no reason given".
func Discard(err error) error { return &endError{Dead, "discard", orUnsaid(err)} }

// Cancel ends a handler's job for good without a dead letter: the work has
// become unnecessary. A nil err is reported as "no reason given".
func Cancel(err error) error { return &endError{Cancelled, "cancel", orUnsaid(err)} }

// RetryIn is a failure like any other, but overrides the policy's delay: for a
// peer that says when to come back. The job waits [MinDelay] at least.
func RetryIn(d time.Duration, err error) error { return &retryInError{max(d, 0), orUnsaid(err)} }

func orUnsaid(err error) error {
	if err == nil {
		return errors.New("no reason given")
	}
	return err
}

// PanicError is a handler's panic as an error; it is charged like any failure.
type PanicError struct {
	Value any // a string, unless middleware made the error
	Stack string
}

func (e *PanicError) Error() string { return "panic: " + panicText(e.Value) }

// MinDelay is how long a job waits at least before it runs again, whatever its handler
// or its policy says. Each try costs the database some rows: without a minimum, one job
// that comes back at once would keep its tenant's pool busy with nothing else.
const MinDelay = time.Second

// Decide turns a handler's error into an outcome: nil is Done, the errors made
// by [Snooze], [Discard] and [Cancel] mean what they say wherever they stand in
// the chain, and anything else is charged as an attempt and retried by policy
// until maxAttempts are used up. A job that runs again waits [MinDelay] at least. The
// outcome's Err is what [ReadError] made of err.
func Decide(err error, attempt, maxAttempts int, p Policy) Outcome {
	if err == nil {
		return Outcome{State: Done}
	}
	f := ReadError(err)
	var stack string
	if f.panicked != nil {
		stack = f.panicked.Stack
	}
	switch {
	case f.snooze != nil:
		return Outcome{State: Snoozed, Delay: max(*f.snooze, MinDelay)}
	case f.end > Dead:
		return Outcome{State: f.end, Err: f}
	case f.end == Dead || attempt >= maxAttempts:
		return Outcome{State: Dead, Err: f, Stack: stack}
	}
	delay := p.Delay(attempt)
	if f.retryIn != nil {
		delay = *f.retryIn
	}
	return Outcome{State: Retrying, Delay: max(delay, MinDelay), Err: f, Stack: stack}
}
