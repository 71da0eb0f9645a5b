package recurrence

import "time"

// Missed says what becomes of runs that were not fired when they were due: because no node was
// there to do it, the tenant was frozen, or the run before had not ended.
type Missed string

// What can become of missed runs.
const (
	Skip Missed = "skip" // they are left out, unless one can still start within [Late] of its time
	One  Missed = "one"  // one run stands for all of them
	All  Missed = "all"  // each is made up for, at most [MostMissed] at a time
)

const (
	// Late is how long after its time a run can start that must not be made up for: no longer
	// than it takes another node to notice that the one before is dead, several times over.
	Late = time.Minute
	// MostMissed bounds how many runs one schedule makes up for at a time. Those beyond are left out.
	MostMissed = 100
)

// Due works out which runs are to be made now of those that are due, of which at is the first, and
// when the schedule is due next; zero: never. The error is that of [Rule.Next]. inTurn: each is to wait for the one before to end, so
// that there can be one at a time.
func (r Rule) Due(at, now time.Time, missed Missed, inTurn bool) (runs []time.Time, next time.Time, err error) {
	switch {
	case missed == All && inTurn:
		next, err = r.Next(at)
		return []time.Time{at}, next, err
	case missed == All:
		for next = at; err == nil && !next.IsZero() && !next.After(now) && len(runs) < MostMissed; next, err = r.Next(next) {
			runs = append(runs, next)
		}
		if err != nil || next.IsZero() || next.After(now) {
			return runs, next, err
		}
	case missed == Skip && now.Sub(at) > Late:
		timely, err := r.Next(now.Add(-Late - 1))
		if err != nil || timely.IsZero() || timely.After(now) {
			return nil, timely, err
		}
		runs = []time.Time{timely}
	default:
		runs = []time.Time{at}
	}
	next, err = r.Next(now)
	return runs, next, err
}

// Delayed is the rule with every time that much later.
func (r Rule) Delayed(by time.Duration) Rule {
	if by == 0 || r.after == nil {
		return r
	}
	return Rule{after: func(t time.Time) (time.Time, error) {
		next, err := r.Next(t.Add(-by))
		if err != nil || next.IsZero() {
			return time.Time{}, err
		}
		return next.Add(by), nil
	}}
}
