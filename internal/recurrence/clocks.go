package recurrence

import (
	"fmt"
	"time"
)

// spell is a time in which clocks of a zone are as far from UTC all along. The next one may have the
// same offset.
type spell struct {
	start, end time.Time // zero: it has none
	offset     time.Duration
}

// spellAt is the spell that t belongs to, on the clocks of t's zone. Its end is behind t: where a zone
// goes by a rule for each year, as all do behind their tables, [time.Time.ZoneBounds] has every year
// end after 365 days, and so the last day of a leap year lies behind its own end.
func spellAt(t time.Time) spell {
	start, end := t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		end = time.Date(t.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	_, offset := t.Zone()
	return spell{start, end, time.Duration(offset) * time.Second}
}

// mostSpells is how many spells are looked at for one time. A zone has four a year at most, and cron
// is due within forty years.
const mostSpells = 1000

// errSpells: what the clocks of a zone do is more than can be looked through.
func errSpells(loc *time.Location) *Error {
	return &Error{"rule", "", fmt.Sprintf("its next time is not found among %d changes of the clocks in %s", mostSpells, loc), "write another rule, or choose another time zone"}
}

// firstShown is when clocks in loc show what shown is in UTC: for the first time, if they are set back
// and show it twice; as much later as they are put forward, if they skip it.
func firstShown(shown time.Time, loc *time.Location) (time.Time, error) {
	const farthest = 24 * time.Hour // from UTC is no clock
	in := shown.Add(-farthest).In(loc)
	last := spellAt(in).offset
	for range mostSpells {
		s := spellAt(in)
		at := shown.Add(-s.offset)
		if !s.start.IsZero() && at.Before(s.start) {
			return shown.Add(-last).In(loc), nil
		}
		if s.end.IsZero() || at.Before(s.end) {
			return at.In(loc), nil
		}
		in, last = s.end.In(loc), s.offset
	}
	return time.Time{}, errSpells(loc)
}
