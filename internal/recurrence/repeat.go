package recurrence

import (
	"cmp"
	"math"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"
)

// period is what lies between two runs. Years to days are those of a calendar and of its clocks:
// a day is as long as until the clocks show the same again. The rest is time that passes.
type period struct {
	months, days int
	passing      time.Duration
}

// Bounds of a period: shorter ones are no schedule's business, and longer ones could not be
// reckoned with.
const (
	shortest   = time.Second
	mostMonths = 1200
	mostDays   = 36600
	longest    = mostDays * 24 * time.Hour
)

var periodForm = regexp.MustCompile(`^P(?:(\d{1,6})Y)?(?:(\d{1,6})M)?(?:(\d{1,6})W)?(?:(\d{1,6})D)?(T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})S)?)?$`)

func parsePeriod(rule, text string) (period, error) {
	m := periodForm.FindStringSubmatch(text)
	if m == nil || text == "P" || m[5] == "T" {
		return period{}, ruleError(rule, "its period cannot be read: write one such as PT15M, P1D, P1M or P1DT12H")
	}
	n := func(i int) int {
		v, _ := strconv.Atoi("0" + m[i]) // digits, and few of them
		return v
	}
	p := period{months: 12*n(1) + n(2), days: 7*n(3) + n(4)}
	seconds := 3600*int64(n(6)) + 60*int64(n(7)) + int64(n(8))
	if p.months > mostMonths || p.days > mostDays || seconds > int64(longest/time.Second) {
		return period{}, ruleError(rule, "its period is too long: at most 100 years are allowed")
	}
	p.passing = time.Duration(seconds) * time.Second
	if p == (period{}) {
		return period{}, ruleError(rule, "its period is too short: at least a second is allowed")
	}
	return p, nil
}

// after is k periods after start. The last day of a month stands for those that it has not.
func (p period) after(start time.Time, k int) (time.Time, error) {
	t := start
	if k != 0 && (p.months != 0 || p.days != 0) { // else clocks may show what start is a second time
		year, month, day := start.Date()
		hour, minute, second := start.Clock()
		first := time.Date(year, month+time.Month(k*p.months), 1, 0, 0, 0, 0, time.UTC)
		day = min(day, first.AddDate(0, 1, -1).Day())
		shown := time.Date(first.Year(), first.Month(), day+k*p.days, hour, minute, second, start.Nanosecond(), time.UTC)
		var err error
		if t, err = firstShown(shown, start.Location()); err != nil {
			return time.Time{}, err
		}
	}
	return t.Add(time.Duration(k) * p.passing), nil
}

// least is not longer than the period ever is.
func (p period) least() time.Duration {
	const day = 22 * time.Hour // on which clocks are put forward
	return time.Duration(p.months)*28*day + time.Duration(p.days)*day + p.passing
}

// parseEvery reads what stands behind @every.
func parseEvery(s Spec, text string, loc *time.Location) (Rule, error) {
	p := period{}
	d, err := time.ParseDuration(text)
	switch {
	case strings.HasPrefix(text, "P"):
		if p, err = parsePeriod(s.Rule, text); err != nil {
			return Rule{}, err
		}
	case err != nil || d < shortest || d > longest:
		return Rule{}, ruleError(s.Rule, "write @every and a duration of a second to 100 years, such as @every 15m or @every PT15M")
	default:
		p.passing = d
	}
	return repeat(s.Since.In(loc), p, 1, math.MaxInt, s.End), nil
}

// parseRepeat reads a period, or ISO 8601's R[n]/[start/]period[/end].
func parseRepeat(s Spec, text string, loc *time.Location) (Rule, error) {
	if text[0] == 'P' {
		text = "R/" + text
	}
	parts := strings.Split(text, "/")
	times := math.MaxInt
	if n := parts[0][1:]; n != "" {
		var err error
		if times, err = strconv.Atoi(n); err != nil || times < 1 || times > 1_000_000_000 {
			return Rule{}, ruleError(s.Rule, "write how often behind the R, 1 to 1000000000 times, or nothing for without end")
		}
	}
	parts = parts[1:]
	start, first := s.Since.In(loc), 1
	if len(parts) > 1 && !strings.HasPrefix(parts[0], "P") {
		var err error
		if start, err = parseTime(s.Rule, parts[0], loc); err != nil {
			return Rule{}, err
		}
		first, parts = 0, parts[1:]
	}
	if len(parts) == 0 || len(parts) > 2 {
		return Rule{}, ruleError(s.Rule, "write R, how often, and behind a slash each the start, the period and the end, such as R3/2026-12-01T08:00:00Z/P1D; start, end and how often may be left out")
	}
	p, err := parsePeriod(s.Rule, parts[0])
	if err != nil {
		return Rule{}, err
	}
	end := s.End
	if len(parts) == 2 {
		t, err := parseTime(s.Rule, parts[1], loc)
		if err != nil {
			return Rule{}, err
		}
		if end.IsZero() || t.Before(end) {
			end = t
		}
	}
	last := math.MaxInt
	if times < math.MaxInt {
		last = first + times - 1
	}
	return repeat(start, p, first, last, end), nil
}

// repeat is due k periods after start, for k from first to last.
func repeat(start time.Time, p period, first, last int, end time.Time) Rule {
	return Rule{end: end, after: func(t time.Time) (next time.Time, err error) {
		most := first // is not before t
		if gone := t.Sub(start); gone >= 0 {
			most = max(first, int(gone/p.least())+2)
		}
		most = min(most, last)
		k := first + sort.Search(most-first+1, func(i int) bool {
			at, failed := p.after(start, first+i)
			err = cmp.Or(err, failed)
			return at.After(t)
		})
		if err != nil || k > most {
			return time.Time{}, err
		}
		return p.after(start, k)
	}}
}

// parseTime reads a time, which is on the clocks of loc if it does not say otherwise.
func parseTime(rule, text string, loc *time.Location) (time.Time, error) {
	for i, form := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		t, err := time.Parse(form, text)
		if err != nil || t.Year() < 1970 {
			continue
		}
		if saysOffset := i < 2; saysOffset {
			return t.In(loc), nil
		}
		return firstShown(t, loc)
	}
	return time.Time{}, ruleError(rule, "its start or end is not a time: write one such as 2026-12-01T08:00:00Z")
}
