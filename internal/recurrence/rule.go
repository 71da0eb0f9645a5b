package recurrence

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Spec is a rule as somebody wrote it.
type Spec struct {
	// Rule is one of
	//
	//	0 7 * * 1-5                       cron: minute, hour, day of month, month, day of week
	//	@daily                            also @hourly, @weekly, @monthly, @yearly
	//	@every 15m, PT15M, P1D            an interval, counted from Since
	//	R3/PT15M                          the same, three times
	//	R3/2026-12-01T08:00:00Z/P1D       three times, the first at that time
	//	R/2026-12-01T08:00:00Z/P1M/2027-06-01T00:00:00Z    until then
	Rule string
	// Zone is the time zone whose clocks count, such as Europe/Amsterdam. Empty: UTC.
	Zone string
	// End is the last time at which a run can be due. Zero: there is none.
	End time.Time
	// Since is when the schedule was made. Intervals without a start are counted from it.
	Since time.Time
}

// Error is a fault of a Spec.
type Error struct {
	Field string // rule, time_zone or end
	Value string // what the field says; it may be empty
	What  string // what is wrong with it; like Fix, it quotes nothing
	Fix   string
}

func (e *Error) Error() string {
	if e.Value == "" {
		return e.Field + ": " + e.What + ": " + e.Fix
	}
	return fmt.Sprintf("%s: %.80q %s: %s", e.Field, e.Value, e.What, e.Fix)
}

// Rule says when runs are due. It does not change; safe for concurrent use.
type Rule struct {
	after func(time.Time) (time.Time, error) // the first time after another one; zero: there is none
	end   time.Time
}

// Next is the first time after t at which a run is due, which is later than t; zero: there is none any
// more. The error, an [*Error], is that it takes too long to find out.
func (r Rule) Next(t time.Time) (time.Time, error) {
	next, err := r.after(t)
	if err != nil || next.IsZero() || !r.end.IsZero() && next.After(r.end) {
		return time.Time{}, err
	}
	if !next.After(t) { // or whoever goes from one time to the next would go on for ever
		return time.Time{}, &Error{"rule", "", fmt.Sprintf("what follows %v comes out as %v, which is no later", t, next), "write another rule"}
	}
	return next, nil
}

// maxRule is the longest rule, in bytes.
const maxRule = 256

// Parse reads a rule. The error is an [*Error].
func Parse(s Spec) (Rule, error) {
	text := strings.TrimSpace(s.Rule)
	if text == "" || len(text) > maxRule {
		return Rule{}, ruleError(s.Rule, "it has %d bytes: 1 to %d are allowed", len(text), maxRule)
	}
	if y := s.End.Year(); !s.End.IsZero() && (y < 1970 || y > 9999) {
		return Rule{}, &Error{"end", s.End.String(), "is not a time that can be", "years 1970 to 9999 are allowed"}
	}
	zone := s.Zone
	for _, prefix := range []string{"CRON_TZ=", "TZ="} {
		name, rest, found := strings.Cut(strings.TrimPrefix(text, prefix), " ")
		if !strings.HasPrefix(text, prefix) {
			continue
		}
		if !found || zone != "" && zone != name {
			return Rule{}, ruleError(s.Rule, "write the time zone into time_zone instead, and cron alone here")
		}
		zone, text = name, strings.TrimSpace(rest)
	}
	loc, err := loadZone(zone)
	if err != nil {
		return Rule{}, err
	}
	r := Rule{end: s.End}
	switch every, isEvery := strings.CutPrefix(text, "@every "); {
	case isEvery:
		r, err = parseEvery(s, strings.TrimSpace(every), loc)
	case text[0] == 'R' || text[0] == 'P':
		r, err = parseRepeat(s, text, loc)
	default:
		r.after, err = parseCron(s.Rule, text, loc)
	}
	return r, err
}

func ruleError(rule, fix string, args ...any) *Error {
	return &Error{"rule", rule, "cannot be read", fmt.Sprintf(fix, args...)}
}

// zones are the time zones that were read: a rule is read each time that its schedule fires.
var zones sync.Map

func loadZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if loc, ok := zones.Load(name); ok {
		return loc.(*time.Location), nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil || name == "Local" { // which is another one on every node
		return nil, &Error{"time_zone", name, "is not a time zone", "write a name of the IANA database, such as Europe/Amsterdam or UTC"}
	}
	zones.Store(name, loc)
	return loc, nil
}
