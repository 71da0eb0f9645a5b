package recurrence

import (
	"time"

	"github.com/netresearch/go-cron"
)

// parser reads cron as crontab(5) does: of the days of the month and of the week either will do
// if both are given. The library's own reckoning with time zones is not used: where a clock is set
// back it finds the hour twice.
var parser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom).WithMaxSearchYears(40)

func parseCron(rule, text string, loc *time.Location) (func(time.Time) (time.Time, error), error) {
	s, err := parser.Parse(text)
	if err != nil {
		return nil, ruleError(rule, "%v; write minute, hour, day of month, month and day of week, such as 0 7 * * 1-5", err)
	}
	if _, ok := s.(*cron.SpecSchedule); !ok {
		return nil, ruleError(rule, "write minute, hour, day of month, month and day of week, such as 0 7 * * 1-5")
	}
	if s.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, ruleError(rule, "there is no such day in any year")
	}
	return func(t time.Time) (time.Time, error) { return nextOnClocks(s, loc, t) }, nil
}

// nextOnClocks is the first time after t at which clocks in loc show what s asks for, each minute
// that they show once; zero: there is none. What they show twice, because they are set back, counts
// the first time. What they skip, because they are put forward, counts as much later as they are put
// forward; if that is asked for, too, it is one time.
//
// Within a spell, s is asked for what clocks show, as if that was UTC.
func nextOnClocks(s cron.Schedule, loc *time.Location, t time.Time) (time.Time, error) {
	in := t.In(loc) // tells in which spell to look
	for range mostSpells {
		now := spellAt(in)
		shown := t.Add(now.offset).UTC()
		var skipped time.Time
		if !now.start.IsZero() {
			before := spellAt(now.start.Add(-1).In(loc)).offset
			if changed := now.start.Add(before).UTC(); before > now.offset && shown.Before(changed) {
				shown = changed.Add(-1)
			}
			if next := s.Next(t.Add(before).UTC()); next.Before(now.start.Add(now.offset)) && !next.IsZero() {
				skipped = next.Add(-before)
			}
		}
		next := s.Next(shown)
		if next.IsZero() {
			return skipped, nil
		}
		if next = next.Add(-now.offset); !skipped.IsZero() && skipped.Before(next) {
			next = skipped
		}
		if now.end.IsZero() || next.Before(now.end) {
			return next.In(loc), nil
		}
		t, in = now.end.Add(-1), now.end.In(loc)
	}
	return time.Time{}, errSpells(loc)
}
