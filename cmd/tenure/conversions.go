package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// arguments are how arguments are read, by their names or types.
var arguments = map[string]conversion{
	"id":        checked(func(text string) error { _, err := job.ParseID(text); return err }),
	"operation": checked(checkOperation),
	"tenant":    checked(checkTenant),
	"queue":     checked(func(text string) error { return job.ValidateKind("queue", text) }),
	"kind":      checked(func(text string) error { return job.ValidateKind("kind", text) }),
	"name":      checked(func(text string) error { return job.ValidateKind("name", text) }),
	"topic":     checked(func(text string) error { return job.ValidateKind("topic", text) }),
	"pool":      knownPool,
	"args":      typedArgs,
	"lock":      typedLock,
	"weight":    between(1, 100),
}

// checked takes a text as it is, if nothing is wrong with it. Of a flag the error says which.
func checked(check func(string) error) conversion {
	return func(_ *question, what, text string) (any, error) {
		err := check(text)
		switch {
		case err != nil && strings.HasPrefix(what, "--"):
			err = usagef("%s: %w", what, err)
		case err != nil:
			err = &usageError{err}
		}
		return text, err
	}
}

func checkTenant(text string) error { return tenancy.ID(text).Validate() }

func checkOperation(text string) error {
	if _, err := uuid.Parse(text); err != nil {
		return fmt.Errorf("%q is no id of an operation: it looks like 0d3b2f7e-52f3-4e0e-9d0b-0d8c9f0a1b2c, as tenure operations list prints it", text)
	}
	return nil
}

// knownPool takes a pool that is in the configuration, if there is one.
func knownPool(q *question, _, text string) (any, error) {
	if q.elsewhere() {
		return text, nil
	}
	_, err := q.a.loadConfig(text)
	return text, err
}

// oneOf takes one of some words.
func oneOf(words []string) conversion {
	return func(_ *question, what, text string) (any, error) {
		if !slices.Contains(words, text) {
			return nil, usagef("%s %q is not one of %s", what, text, strings.Join(words, ", "))
		}
		return text, nil
	}
}

// typedArgs reads a job's arguments, also from standard input.
func typedArgs(q *question, _, text string) (any, error) {
	payload := []byte(text)
	if text == "-" {
		var err error
		if payload, err = io.ReadAll(io.LimitReader(q.a.stdin, job.MaxPayload+1)); err != nil {
			return nil, fmt.Errorf("read the arguments from standard input: %w", err)
		}
	}
	if err := job.CheckPayload(payload); err != nil {
		return nil, usagef("the arguments: %w", err)
	}
	return json.RawMessage(payload), nil
}

// typedObject takes a JSON object, whose numbers keep their digits.
func typedObject(_ *question, what, text string) (any, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil || object == nil {
		return nil, usagef("%s: %q is not a JSON object", what, cut(text, 64))
	}
	return object, nil
}

// typedLock reads the lock of an external worker, as tenure external acquire prints it.
func typedLock(_ *question, _, text string) (any, error) {
	id, turn, _ := strings.Cut(text, ":")
	_, err := job.ParseID(id)
	n, bad := strconv.ParseInt(turn, 10, 32)
	if err != nil || bad != nil {
		return nil, usagef("%q is not a lock: give it as tenure external acquire prints it, JOB:TURN", text)
	}
	return several{"job": id, "turn": n}, nil
}

func typedJSON(_ *question, what, text string) (any, error) {
	if !json.Valid([]byte(text)) {
		return nil, usagef("%s: %q is not JSON", what, cut(text, 64))
	}
	return json.RawMessage(text), nil
}

func typedKey(_ *question, what, text string) (any, error) {
	if text == "" {
		return nil, usagef("%s: the key is empty", what)
	}
	return text, nil
}

func typedTime(_ *question, what, text string) (any, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, usagef("%s: %q is not a time: write one such as 2027-01-31T09:00:00Z or 2027-01-31T09:00:00+01:00", what, text)
	}
	return t, nil
}

// future takes a time that has not passed.
func future(q *question, what, text string) (any, error) {
	t, err := typedTime(q, what, text)
	if err == nil && !t.(time.Time).After(q.a.now()) {
		err = usagef("%s %s: is in the past", what, text)
	}
	return t, err
}

// fromNow takes a duration for the time that is so far away.
func fromNow(q *question, what, text string) (any, error) {
	d, err := job.ParseDuration(text)
	if err != nil {
		return nil, usagef("%s: %w", what, err)
	}
	return q.a.now().Add(d), nil
}

// ago takes a duration for the time that was so long ago.
func ago(q *question, what, text string) (any, error) {
	d, err := job.ParseDuration(text)
	if err == nil && d < 0 {
		err = fmt.Errorf("%s is in the future", text)
	}
	if err != nil {
		return nil, usagef("%s: %w", what, err)
	}
	return q.a.now().Add(-d), nil
}

// timeOrAgo takes a time, or a duration for the time that was so long ago.
func timeOrAgo(q *question, what, text string) (any, error) {
	if t, err := typedTime(q, what, text); err == nil {
		return t, nil
	}
	t, err := ago(q, what, text)
	if err != nil {
		err = usagef("%s: %q is neither a time, such as 2027-01-31T09:00:00Z, nor a duration, such as 2h or P1D", what, text)
	}
	return t, err
}

// above0 refuses what the API takes for a number that was left out.
func above0(_ *question, what, text string) (any, error) {
	if n, err := strconv.ParseFloat(text, 64); err != nil || !(n > 0) || math.IsInf(n, 1) {
		return nil, usagef("%s %s: must be more than 0", what, text)
	}
	return json.RawMessage(text), nil
}

// between takes a whole number from least to most.
func between(least, most int) conversion {
	return func(_ *question, what, text string) (any, error) {
		n, err := strconv.Atoi(text)
		switch {
		case err != nil:
			return nil, usagef("%s %q: a whole number is needed, such as %d", what, text, least)
		case n < least || n > most:
			return nil, usagef("%s %s: %d to %d are allowed", what, text, least, most)
		}
		return n, nil
	}
}

// in counts a duration in units that the API has it in. It refuses what those cannot say, and less than least.
func in(unit, least time.Duration) conversion {
	return func(_ *question, what, text string) (any, error) {
		d, err := job.ParseDuration(text)
		switch {
		case err != nil:
			return nil, usagef("%s: %w", what, err)
		case d < 0 && least == 0:
			return nil, usagef("%s: %s is in the past", what, text)
		case d < least || d%unit != 0:
			return nil, usagef("%s %s: must be %v or more, a whole number of %[3]v", what, text, max(least, unit))
		}
		return int64(d / unit), nil
	}
}

// The limits of numbers that many commands take.
var (
	typedPriority    = between(job.MinPriority, job.MaxPriority)
	anyNumber        = between(0, 1_000_000)
	typedMaxAttempts = between(1, job.MaxMaxAttempts)
)

// Flags that many commands have.
var (
	poolFlag  = func(help string) flag { return textFlag("pool", help).by(knownPool) }
	limitFlag = func(most int, noun string) flag {
		return flagOf("limit", most, "at most this many "+noun).by(between(1, maxLimit)).sentAlways()
	}
	afterFlag = textFlag("after", "go on behind this `place`, which a list that has more prints")
	rateFlag  = flagOf("rate", 0.0, "at most so many `jobs` a second").as("per_second").by(above0)
)

// maxLimit bounds lists: all rows are held in memory, here and in the pools.
const maxLimit = 10_000

// upToADay takes what read takes, as far as it is no longer than a day.
func upToADay(read conversion) conversion {
	return func(q *question, what, text string) (any, error) {
		if d, err := job.ParseDuration(text); err == nil && d > 24*time.Hour {
			return nil, usagef("%s %s: up to 24h are allowed", what, text)
		}
		return read(q, what, text)
	}
}

func inMS(least int) conversion      { return in(time.Millisecond, time.Duration(least)*time.Millisecond) }
func inSeconds(least int) conversion { return in(time.Second, time.Duration(least)*time.Second) }
