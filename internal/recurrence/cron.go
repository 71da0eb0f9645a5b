package recurrence

import (
	"time"

	"github.com/netresearch/go-cron"
)

// parser reads cron as crontab(5) does: of the days of the month and of the week either will do
// if both are given. The library's own reckoning with time zones is not used: where a clock is set
// back it finds the hour twice.
var parser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom).WithMaxSearchYears(40)

func parseCron(rule, text string, loc *time.Location) (func(time.Time) time.Time, error) {
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
	return func(t time.Time) time.Time { return nextOnClocks(s, loc, t) }, nil
}

// nextOnClocks is the first time after t at which clocks in loc show what s asks for, each minute
// that they show once. What they show twice, because they are set back, counts the first time.
// What they skip, because they are put forward, counts as much later as they are put forward; if
// that is asked for, too, it is one time.
//
// Between two changes of the clocks, what they show is as far from UTC all the time: s is asked for
// what they show, as if that was UTC.
func nextOnClocks(s cron.Schedule, loc *time.Location, t time.Time) time.Time {
	for in := t.In(loc); ; in = in.In(loc) { // in tells between which two changes to look
		start, end := in.ZoneBounds()
		offset := offsetOf(in)
		shown := t.Add(offset).UTC()
		var skipped time.Time
		if !start.IsZero() {
			before := offsetOf(start.Add(-1))
			if changed := start.Add(before).UTC(); before > offset && shown.Before(changed) {
				shown = changed.Add(-1)
			}
			if next := s.Next(t.Add(before).UTC()); next.Before(start.Add(offset)) && !next.IsZero() {
				skipped = next.Add(-before)
			}
		}
		next := s.Next(shown)
		if next.IsZero() {
			return skipped
		}
		if next = next.Add(-offset); !skipped.IsZero() && skipped.Before(next) {
			next = skipped
		}
		if end.IsZero() || next.Before(end) {
			return next.In(loc)
		}
		t, in = end.Add(-1), end
	}
}

func offsetOf(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}
