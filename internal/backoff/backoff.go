// Package backoff spaces out tries of what fails: each wait is twice the one before, up to
// a longest, and a little longer at random, so that those who failed together do not come
// back together.
//
// It only computes durations. Waiting, and giving up, are left to the caller, as is the
// decision what counts as a success.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Policy says how waits grow. It is a value; its methods are safe for concurrent use.
type Policy struct {
	First   time.Duration // the wait after one failure; above 0
	Longest time.Duration // bounds every wait, jitter aside; not below First
}

// Wait returns how long to wait after so many failures in a row: 0 for none, then First,
// doubled with each further one up to Longest, and up to a quarter of that on top.
func (p Policy) Wait(failures int) time.Duration {
	d := p.Exactly(failures)
	if d < 4 {
		return d
	}
	return d + rand.N(d/4)
}

// Exactly is [Policy.Wait] without the jitter, for bounds and for what has jitter of its own.
func (p Policy) Exactly(failures int) time.Duration {
	if failures < 1 {
		return 0
	}
	d := p.First
	for ; failures > 1 && d < p.Longest; failures-- {
		d *= 2
	}
	return min(d, p.Longest)
}

// Backoff counts the failures in a row of one thing that is tried again and again. The zero
// value with a policy is ready. Not safe for concurrent use.
type Backoff struct {
	Policy
	failures int
}

// Next counts a failure and returns how long to wait before the next try.
func (b *Backoff) Next() time.Duration {
	b.failures++
	return b.Wait(b.failures)
}

// Reset notes a success.
func (b *Backoff) Reset() { b.failures = 0 }
