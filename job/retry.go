package job

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Limits on what a policy or a caller may ask for.
const (
	MaxMaxAttempts = 1000
	MaxDelay       = 366 * 24 * time.Hour
)

// Policy says how often a job is tried and how long it waits in between.
// The zero value is not valid; see [ParsePolicy] and [DefaultPolicy].
type Policy struct {
	attempts int
	delays   []time.Duration // by attempt, the last one repeats; nil: exponential
	first    time.Duration
	max      time.Duration
	text     string
}

// DefaultPolicy is exponential(10, 10s, 6h): ten attempts over some fifteen
// hours, enough to outlast a night's outage.
func DefaultPolicy() Policy {
	return Policy{attempts: 10, first: 10 * time.Second, max: 6 * time.Hour, text: "exponential(10, 10s, 6h)"}
}

// backoffFactor multiplies the delay from one attempt to the next.
const backoffFactor = 3

var (
	cycleForm       = regexp.MustCompile(`^R(\d+)/(P.+)$`)
	exponentialForm = regexp.MustCompile(`^exponential\(\s*(\d+)\s*,\s*([^,\s]+)\s*,\s*([^,\s]+)\s*\)$`)
)

// ParsePolicy reads one of three forms:
//
//	R5/PT5M                    five attempts, five minutes apart (Flowable's cycle)
//	PT1M,PT5M,PT1H             four attempts with these delays between them (Camunda's list)
//	exponential(10, 10s, 6h)   ten attempts, 10 s after the first, each delay three
//	                           times the last up to 6 h, spread by a tenth either way
//
// A shorter delay than [MinDelay] is read, and comes to that.
func ParsePolicy(s string) (Policy, error) {
	s = strings.TrimSpace(s)
	p := Policy{text: s}
	if m := exponentialForm.FindStringSubmatch(s); m != nil {
		var err error
		if p.first, err = ParseDuration(m[2]); err != nil {
			return Policy{}, fmt.Errorf("retry %q: %w", s, err)
		}
		if p.max, err = ParseDuration(m[3]); err != nil {
			return Policy{}, fmt.Errorf("retry %q: %w", s, err)
		}
		if p.first <= 0 || p.max < p.first || p.max > MaxDelay {
			return Policy{}, fmt.Errorf("retry %q: the first delay must be positive, the longest not below it and at most 366 days", s)
		}
		return p.withAttempts(m[1])
	}
	if m := cycleForm.FindStringSubmatch(s); m != nil {
		d, err := ParseDuration(m[2])
		if err != nil {
			return Policy{}, fmt.Errorf("retry %q: %w", s, err)
		}
		p.delays = []time.Duration{d}
		return p.withAttempts(m[1])
	}
	for part := range strings.SplitSeq(s, ",") {
		d, err := ParseDuration(strings.TrimSpace(part))
		if err != nil {
			return Policy{}, fmt.Errorf("retry %q: %w; write a cycle such as R5/PT5M, a list such as PT1M,PT5M,PT1H, or exponential(10, 10s, 6h)", s, err)
		}
		p.delays = append(p.delays, d)
	}
	return p.withAttempts(strconv.Itoa(len(p.delays) + 1))
}

func (p Policy) withAttempts(s string) (Policy, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > MaxMaxAttempts {
		return Policy{}, fmt.Errorf("retry %q: %s attempts: 1 to %d are allowed", p.text, s, MaxMaxAttempts)
	}
	for _, d := range p.delays {
		if d < 0 || d > MaxDelay {
			return Policy{}, fmt.Errorf("retry %q: a delay of %v: 0 to 366 days are allowed", p.text, d)
		}
	}
	p.attempts = n
	return p, nil
}

// Attempts is how often a job is tried in all.
func (p Policy) Attempts() int { return p.attempts }

// Delay is how long the policy has a job wait after its attempt-th run (1 is the first)
// failed; see also [MinDelay].
func (p Policy) Delay(attempt int) time.Duration {
	if p.delays != nil {
		return p.delays[min(max(attempt, 1), len(p.delays))-1]
	}
	d := float64(p.first) * math.Pow(backoffFactor, float64(max(attempt, 1)-1))
	d = min(d, float64(p.max))
	// Spread, so that a thousand jobs that failed together do not return together.
	return time.Duration(d * (0.9 + 0.2*rand.Float64()))
}

// String is the form [ParsePolicy] reads.
func (p Policy) String() string { return p.text }

var (
	numberForm = regexp.MustCompile(`^[+-]?\d+(?:\.\d+)?$`)
	isoForm    = regexp.MustCompile(`^P(?:(\d+)W)?(?:(\d+)D)?(T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$`)
)

// longestDuration leaves callers room to calculate with what they got.
const longestDuration = time.Duration(math.MaxInt64 / 2)

// ParseDuration reads a duration in Go's form (90s, 1h30m) or in ISO 8601's
// (PT90S, P1DT12H). A day is 24 hours; years and months, whose length depends
// on the calendar, are refused. Written by hand because the parsers to be had
// accept "P", "PT" and units out of order.
func ParseDuration(s string) (time.Duration, error) {
	if !strings.HasPrefix(s, "P") {
		d, err := time.ParseDuration(s)
		switch {
		case err == nil:
			return d, nil
		case numberForm.MatchString(s):
			return 0, fmt.Errorf("%q has no unit: write %ss, %sm or %sh", s, s, s, s)
		}
		return 0, fmt.Errorf("%q is not a duration: write 90s, 5m, 1h30m or PT5M", s)
	}
	m := isoForm.FindStringSubmatch(s)
	if m == nil || s == "P" || m[3] == "T" {
		return 0, fmt.Errorf("%q is not a duration: write PT90S, PT5M or P1DT12H, without years and months", s)
	}
	errTooLong := fmt.Errorf("%q is too long a duration", s)
	var total time.Duration
	for i, unit := range map[int]time.Duration{1: 7 * 24 * time.Hour, 2: 24 * time.Hour, 4: time.Hour, 5: time.Minute} {
		if m[i] == "" {
			continue
		}
		n, err := strconv.ParseInt(m[i], 10, 64)
		if err != nil || n > int64((longestDuration-total)/unit) {
			return 0, errTooLong
		}
		total += time.Duration(n) * unit
	}
	if m[6] != "" {
		seconds, err := time.ParseDuration(m[6] + "s")
		if err != nil || seconds > longestDuration-total {
			return 0, errTooLong
		}
		total += seconds
	}
	return total, nil
}
