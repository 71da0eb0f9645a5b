package recurrence

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// clocks are those of zones whose changes differ: by an hour, by half an hour, at midnight, in
// the other half of the year, by a whole day, and not at all.
var clocks = []string{"Europe/Amsterdam", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Beirut", "America/Santiago",
	"Pacific/Auckland", "Africa/Cairo", "Pacific/Apia", "Asia/Kathmandu", "UTC"}

func parse(t require.TestingT, s Spec) Rule {
	r, err := Parse(s)
	require.NoError(t, err)
	return r
}

// due lists when runs are due after from, up to until.
func due(r Rule, from, until time.Time) (all []time.Time) {
	for t, ok := r.Next(from); ok && !t.After(until); t, ok = r.Next(t) {
		all = append(all, t)
	}
	return all
}

// minutes lists what clocks show from one time to another, minute by minute, each once: what they
// show a second time is left out, what they skip is added where it would have been.
func minutes(loc *time.Location, from, until time.Time) map[string]time.Time {
	seen := map[string]time.Time{}
	const form = "2006-01-02 15:04"
	last := from.In(loc)
	for t := from; t.Before(until); t = t.Add(time.Minute) {
		now := t.In(loc)
		if d := offsetOf(now) - offsetOf(last); d > 0 {
			for skipped := time.Duration(0); skipped < d; skipped += time.Minute {
				seen[t.UTC().Add(offsetOf(last)+skipped).Format(form)] = t.Add(skipped)
			}
		}
		if _, again := seen[now.Format(form)]; !again {
			seen[now.Format(form)] = t
		}
		last = now
	}
	return seen
}

// Cron against a clock that is looked at every minute: what it asks for is due once, and nothing
// else is, whatever the clock does.
func TestCronIsDueOncePerMinuteOfTheClock(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		loc, err := time.LoadLocation(rapid.SampledFrom(clocks).Draw(t, "zone"))
		require.NoError(t, err)
		// Around a change of the clocks, if there is one.
		from := time.Unix(rapid.Int64Range(1262304000, 2208988800).Draw(t, "from"), 0).Truncate(time.Minute)
		if _, end := from.In(loc).ZoneBounds(); !end.IsZero() && end.Year() < 2040 {
			from = end.Add(-time.Duration(rapid.IntRange(0, 3*24*60).Draw(t, "before")) * time.Minute).Truncate(time.Minute)
		}
		until := from.Add(time.Duration(rapid.IntRange(60, 4*24*60).Draw(t, "minutes")) * time.Minute)
		minute := rapid.SampledFrom([]string{"*", "0", "30", "*/15", "10,50", "59"}).Draw(t, "minute")
		hour := rapid.SampledFrom([]string{"*", "0", "1", "2", "3", "*/2", "1-3", "23"}).Draw(t, "hour")
		rest := rapid.SampledFrom([]string{"* * *", "* * 0", "30 12 *", "1-7 * 1"}).Draw(t, "days")
		text := minute + " " + hour + " " + rest
		s, err := parser.Parse(text)
		require.NoError(t, err)

		want, got := []time.Time{}, []time.Time{}
		last := until.Add(-time.Minute)
		early := from.Add(-50 * time.Hour) // what was shown before does not count again; once it was a day
		for shown, at := range minutes(loc, early, until) {
			asked, err := time.Parse("2006-01-02 15:04", shown)
			require.NoError(t, err)
			if at.After(from) && !at.After(last) && s.Next(asked.Add(-time.Minute)).Equal(asked) {
				want = append(want, at.UTC())
			}
		}
		slices.SortFunc(want, time.Time.Compare)
		want = slices.CompactFunc(want, time.Time.Equal)
		for _, at := range due(parse(t, Spec{Rule: text, Zone: loc.String()}), from, last) {
			got = append(got, at.UTC())
		}
		require.Equal(t, want, got, "%s in %s from %v", text, loc, from)
	})
}

func TestCronWhereClocksChange(t *testing.T) {
	t.Parallel()
	day := func(zone, rule, from string) (all []string) {
		start, err := time.Parse(time.RFC3339, from)
		require.NoError(t, err)
		for _, at := range due(parse(t, Spec{Rule: rule, Zone: zone}), start, start.Add(24*time.Hour)) {
			all = append(all, at.Format("15:04 -07"))
		}
		return all
	}
	require.Equal(t, []string{"03:30 +02"}, day("Europe/Amsterdam", "30 2 * * *", "2026-03-28T12:00:00Z"), "it is not skipped with its minute")
	require.Equal(t, []string{"02:30 +02"}, day("Europe/Amsterdam", "30 2 * * *", "2026-10-24T12:00:00Z"), "nor is it due twice")
	require.Len(t, day("Europe/Amsterdam", "0 * * * *", "2026-03-28T12:00:00Z"), 24)
	require.Len(t, day("Europe/Amsterdam", "0 * * * *", "2026-10-24T12:00:00Z"), 23, "02:00 is shown twice, and due once")
	require.Equal(t, []string{"00:00 +01"}, day("Europe/Amsterdam", "CRON_TZ=Europe/Amsterdam @daily", "2026-12-01T12:00:00Z"), "and the prefix is understood")
	require.Len(t, due(parse(t, Spec{Rule: "0 0 13 * 5"}), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)), 4, "either day will do, as in crontab(5)")
}

// Repeats come in order, as often as they say, and never after their end.
func TestRepeatsComeInOrderAndEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		loc, err := time.LoadLocation(rapid.SampledFrom(clocks).Draw(t, "zone"))
		require.NoError(t, err)
		start := time.Unix(rapid.Int64Range(1262304000, 2208988800).Draw(t, "start"), 0).In(loc)
		p := rapid.SampledFrom([]string{"P1M", "P1D", "PT90M", "P1Y", "P1W", "P1DT12H", "PT1S", "P1MT1H"}).Draw(t, "period")
		n := rapid.IntRange(1, 60).Draw(t, "times")
		r := parse(t, Spec{Rule: "R" + itoa(n) + "/" + start.Format(time.RFC3339) + "/" + p, Zone: loc.String()})
		all := due(r, start.Add(-time.Hour), start.AddDate(200, 0, 0))
		require.Len(t, all, n)
		require.True(t, all[0].Equal(start))
		for i := 1; i < n; i++ {
			require.True(t, all[i].After(all[i-1]))
		}
		if p == "P1M" {
			for i, at := range all {
				require.Equal(t, time.Date(start.Year(), start.Month()+time.Month(i), 1, 0, 0, 0, 0, time.UTC).Month(), at.Month(), "no month is left out, and none has two")
			}
		}
		ends := all[rapid.IntRange(0, n-1).Draw(t, "end")]
		bounded := parse(t, Spec{Rule: "R" + itoa(n) + "/" + start.Format(time.RFC3339) + "/" + p, Zone: loc.String(), End: ends})
		got := due(bounded, start.Add(-time.Hour), start.AddDate(200, 0, 0))
		require.True(t, got[len(got)-1].Equal(ends), "the end belongs to it")
		at := rapid.IntRange(0, n-1).Draw(t, "at")
		next, ok := r.Next(all[at])
		require.Equal(t, at < n-1, ok)
		if ok {
			require.True(t, next.Equal(all[at+1]), "it is found without what came before")
		}
	})
}

func itoa(n int) string { return string(rune('0'+n/10)) + string(rune('0'+n%10)) }

func TestIntervals(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 23, 22, 0, 0, 0, time.UTC)
	first := func(rule, zone string) string {
		next, ok := parse(t, Spec{Rule: rule, Zone: zone, Since: since}).Next(since)
		require.True(t, ok)
		return next.Format(time.RFC3339)
	}
	require.Equal(t, "2026-11-23T22:15:00Z", first("@every 15m", ""))
	require.Equal(t, "2026-11-23T22:15:00Z", first("PT15M", ""))
	require.Equal(t, "2026-11-24T22:00:00Z", first("R3/P1D", ""))
	require.Equal(t, "2026-12-01T08:00:00+01:00", first("R3/2026-12-01T08:00:00/P1D", "Europe/Amsterdam"), "on the clocks of the zone")
	require.Len(t, due(parse(t, Spec{Rule: "R3/PT10H", Since: since}), since, since.AddDate(1, 0, 0)), 3)
	require.Len(t, due(parse(t, Spec{Rule: "R/2026-12-01T08:00:00Z/P1D/2026-12-04T08:00:00Z"}), since, since.AddDate(1, 0, 0)), 4)
}

func TestBadRules(t *testing.T) {
	t.Parallel()
	for rule, says := range map[string]string{
		"":                       "0 bytes",
		"61 * * * *":             "61",
		"* * * *":                "minute, hour",
		"0 0 30 2 *":             "no such day",
		"@reboot":                "minute, hour",
		"@every 1ms":             "a second",
		"@every":                 "minute, hour",
		"P":                      "not a period",
		"PT":                     "not a period",
		"PT5M3H":                 "not a period",
		"PT0S":                   "too short",
		"P200Y":                  "too long",
		"R0/PT1H":                "how often",
		"Rx/PT1H":                "how often",
		"R3":                     "slash",
		"R3/yesterday/P1D":       "not a time",
		"R3/PT1H/PT1H":           "not a time",
		"R/P1D/x/y/z":            "slash",
		"CRON_TZ=UTC":            "time_zone",
		"0 7 * * * Europe/Paris": "minute, hour",
	} {
		_, err := Parse(Spec{Rule: rule})
		var e *Error
		require.ErrorAs(t, err, &e, rule)
		require.Equal(t, "rule", e.Field)
		require.ErrorContains(t, err, says, rule)
	}
	for _, zone := range []string{"Europe/Amsterdm", "Local", "../etc/passwd", "CET+1"} {
		_, err := Parse(Spec{Rule: "@daily", Zone: zone})
		require.ErrorContains(t, err, "time_zone", zone)
		require.ErrorContains(t, err, "Europe/Amsterdam", zone)
	}
	_, err := Parse(Spec{Rule: "CRON_TZ=UTC 0 7 * * *", Zone: "Europe/Amsterdam"})
	require.ErrorContains(t, err, "time_zone")
}

// Whatever is written, reading it neither panics nor goes on for ever, and what is read goes on
// from one time to a later one.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"0 7 * * 1-5", "R3/2026-12-01T08:00:00Z/P1D", "@every 5m", "PT1S", "CRON_TZ=UTC @daily", "R/P1M/2030-01-01"} {
		f.Add(s, "Europe/Amsterdam")
	}
	f.Fuzz(func(t *testing.T, rule, zone string) {
		r, err := Parse(Spec{Rule: rule, Zone: zone, Since: time.Unix(1_790_000_000, 0)})
		if err != nil {
			return
		}
		at := time.Unix(1_800_000_000, 0)
		for range 3 {
			next, ok := r.Next(at)
			if !ok {
				return
			}
			require.True(t, next.After(at))
			at = next
		}
	})
}
