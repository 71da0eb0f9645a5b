package recurrence

import (
	"regexp"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

// parser reads cron as crontab(5) does: of the days of the month and of the week either will do
// if both are given. The library's own reckoning with time zones is not used: where a clock is set
// back it finds the hour twice.
var parser = cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom).WithMaxSearchYears(40)

// field is one of cron's, for the words of a refusal.
type field struct {
	name, allowed string
}

var fields = []field{
	{"minute", "0 to 59"},
	{"hour", "0 to 23"},
	{"day of month", "1 to 31"},
	{"month", "1 to 12, or JAN to DEC,"},
	{"day of week", "0 to 7, or SUN to SAT,"},
}

// fieldForm is what a field can be. The parser takes more: it leaves out what is empty between commas,
// and what follows a star.
var fieldForm = func() *regexp.Regexp {
	const value = `(?:[0-9]{1,2}|[A-Za-z]{3})`
	const item = `(?:\*|` + value + `(?:-` + value + `)?)(?:/[0-9]{1,2})?`
	return regexp.MustCompile(`^` + item + `(?:,` + item + `)*$`)
}()

func parseCron(rule, text string, loc *time.Location) (func(time.Time) (time.Time, error), error) {
	s, err := parser.Parse(text)
	if text[0] != '@' {
		if err := checkFields(rule, strings.Fields(text)); err != nil {
			return nil, err
		}
	}
	if _, ok := s.(*cron.SpecSchedule); err != nil || !ok {
		return nil, ruleError(rule, "write minute, hour, day of month, month and day of week, such as 0 7 * * 1-5, or one of @hourly, @daily, @weekly, @monthly and @yearly")
	}
	if s.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, ruleError(rule, "there is no such day in any year: write one that there is")
	}
	return func(t time.Time) (time.Time, error) { return nextOnClocks(s, loc, t) }, nil
}

// checkFields says which field cannot be read, and what it can be.
func checkFields(rule string, texts []string) error {
	if _, err := time.ParseDuration(texts[0]); err == nil && len(texts) == 1 {
		return ruleError(rule, "for an interval write @every %s", texts[0])
	}
	if strings.Contains(rule, "?") {
		return ruleError(rule, "a ? is Quartz's: leave out its seconds, write * for ?, and count days of the week from 0, which is Sunday, or write MON-FRI")
	}
	if len(texts) != len(fields) {
		return ruleError(rule, "it has %d fields: write five, minute, hour, day of month, month and day of week, such as 0 7 * * 1-5", len(texts))
	}
	for i, text := range texts {
		alone := []string{"*", "*", "*", "*", "*"}
		alone[i] = text
		_, err := parser.Parse(strings.Join(alone, " "))
		if err != nil || !fieldForm.MatchString(text) {
			f := fields[i]
			return ruleError(rule, "%s: %s are allowed, and * for all of them; a range is written 1-5, every third 1-9/3 or */3, and several are parted by one comma each", f.name, f.allowed)
		}
	}
	return nil
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
