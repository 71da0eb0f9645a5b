package recurrence

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"go/build"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	for t := next(r, from); !t.IsZero() && !t.After(until); t = next(r, t) {
		all = append(all, t)
	}
	return all
}

// next is what Next says, which must be later.
func next(r Rule, t time.Time) time.Time {
	at, err := r.Next(t)
	if err != nil || !at.IsZero() && !at.After(t) {
		panic(fmt.Sprint(t, " is followed by ", at, ": ", err))
	}
	return at
}

// minutes lists what clocks show from one time to another, minute by minute, each once: what they
// show a second time is left out, what they skip is added where it would have been.
func minutes(loc *time.Location, from, until time.Time) map[string]time.Time {
	seen := map[string]time.Time{}
	const form = "2006-01-02 15:04"
	last := from.In(loc)
	for t := from; t.Before(until); t = t.Add(time.Minute) {
		now := t.In(loc)
		_, was := last.Zone()
		_, is := now.Zone()
		if d := time.Duration(is-was) * time.Second; d > 0 {
			for skipped := time.Duration(0); skipped < d; skipped += time.Minute {
				seen[t.UTC().Add(time.Duration(was)*time.Second+skipped).Format(form)] = t.Add(skipped)
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
		zone, loc := drawZone(t)
		from := drawTime(t, loc)
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
		for _, at := range due(parse(t, Spec{Rule: text, Zone: zone}), from, last) {
			got = append(got, at.UTC())
		}
		require.Equal(t, want, got, "%s in %s from %v", text, zone, from)
	})
}

// embedded reads the zones that a program has which embeds them by time/tzdata: they have tables of
// what was, and rules for what is to come, where those of a system often have tables up to 2037.
var embedded = sync.OnceValue(func() map[string]*time.Location {
	all := map[string]*time.Location{}
	r, err := zip.OpenReader(filepath.Join(build.Default.GOROOT, "lib", "time", "zoneinfo.zip"))
	if err != nil {
		panic(err)
	}
	defer r.Close()
	for _, f := range r.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		in, err := f.Open()
		if err != nil {
			panic(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			panic(err)
		}
		if all[f.Name], err = time.LoadLocationFromTZData(f.Name, data); err != nil {
			panic(err)
		}
		zones.Store("embedded "+f.Name, all[f.Name]) // as a Spec may say
	}
	return all
})

// fromBoth is a zone of each source by its name in a Spec.
func fromBoth(t require.TestingT, name string) map[string]*time.Location {
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return map[string]*time.Location{name: loc, "embedded " + name: embedded()[name]}
}

// drawZone draws a zone and its name in a Spec, as often one of clocks as another one.
func drawZone(t *rapid.T) (string, *time.Location) {
	names := clocks
	if rapid.Bool().Draw(t, "any zone") {
		names = slices.Sorted(maps.Keys(embedded()))
	}
	both := fromBoth(t, rapid.SampledFrom(names).Draw(t, "zone"))
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(both))).Draw(t, "source")
	return name, both[name]
}

// drawTime draws a minute of a hundred years: shortly before clocks change, if they do within a year,
// or before the end of the year.
func drawTime(t *rapid.T, loc *time.Location) time.Time {
	anchor := time.Date(rapid.IntRange(2010, 2126).Draw(t, "year"), time.January, 1, 0, 0, 0, 0, time.UTC)
	if rapid.Bool().Draw(t, "at a change") {
		_, was := anchor.In(loc).Zone()
		for range 365 * 24 * 4 {
			if anchor = anchor.Add(time.Hour / 4); offsetAt(anchor, loc) != was {
				break
			}
		}
	}
	return anchor.Add(-time.Duration(rapid.IntRange(0, 3*24*60).Draw(t, "before")) * time.Minute)
}

func offsetAt(t time.Time, loc *time.Location) int {
	_, offset := t.In(loc).Zone()
	return offset
}

// From wherever one looks, also from the last day of a leap year, times go on; those of a hundred
// years are found, and they are the same with either source of zones.
func TestTimesGoOnForAHundredYears(t *testing.T) {
	t.Parallel()
	const years = 100
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range clocks {
		var all [][]time.Time
		for zone := range fromBoth(t, name) {
			yearly := due(parse(t, Spec{Rule: "0 12 1 7 *", Zone: zone}), start, start.AddDate(years, 0, 0))
			require.Len(t, yearly, years, zone)
			require.Len(t, due(parse(t, Spec{Rule: "R/2026-07-01T12:00:00/P1Y", Zone: zone}), start, start.AddDate(years, 0, 0)), years, zone)
			daily := parse(t, Spec{Rule: "@daily", Zone: zone})
			for year := range years {
				for end := start.AddDate(year+1, 0, -2); end.Before(start.AddDate(year+1, 0, 1)); end = end.Add(6 * time.Hour) {
					at := next(daily, end)
					require.WithinRange(t, at, end, end.Add(25*time.Hour), zone)
					yearly = append(yearly, at.UTC())
				}
			}
			all = append(all, yearly)
		}
		require.True(t, slices.EqualFunc(all[0], all[1], time.Time.Equal), name)
	}
}

// A repeat is due when cron is that asks for the same, whatever clocks do.
func TestRepeatsGoByClocksAsCronDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		zone, loc := drawZone(t)
		from := drawTime(t, loc)
		begin := from.In(loc).AddDate(0, 0, -3) // what is skipped or shown twice is then not the first
		hour, minute := rapid.IntRange(0, 23).Draw(t, "hour"), rapid.IntRange(0, 59).Draw(t, "minute")
		shown := time.Date(begin.Year(), begin.Month(), begin.Day(), hour, minute, 0, 0, time.UTC).Format("2006-01-02T15:04:05")
		until := from.AddDate(0, 0, 5)
		text := fmt.Sprintf("%d %d * * *", minute, hour)
		want := due(parse(t, Spec{Rule: text, Zone: zone}), from, until)
		require.NotEmpty(t, want)
		require.Equal(t, want, due(parse(t, Spec{Rule: "R/" + shown + "/P1D", Zone: zone}), from, until), "%s in %s", text, zone)
	})
}

// The same by example, of a start, and of what follows it.
func TestRepeatsWhereClocksChange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, rule, since, want string }{
		{"America/New_York", "R3/2027-03-14T02:30:00/P1D", "", "2027-03-14T07:30:00Z"},
		{"America/New_York", "R3/2027-03-13T02:30:00/P1D", "", "2027-03-13T07:30:00Z 2027-03-14T07:30:00Z 2027-03-15T06:30:00Z"},
		{"Europe/Berlin", "R3/2027-10-31T02:30:00/P1D", "", "2027-10-31T00:30:00Z 2027-11-01T01:30:00Z"},
		{"Europe/Berlin", "R3/2027-10-31T02:30:00+01:00/P1D", "", "2027-10-31T01:30:00Z 2027-11-01T01:30:00Z"},
		{"Europe/Berlin", "P1M", "2027-09-30T00:30:00Z", "2027-10-30T00:30:00Z 2027-11-30T01:30:00Z"},
		{"Europe/Berlin", "@every P1W", "2027-10-24T00:30:00Z", "2027-10-31T00:30:00Z 2027-11-07T01:30:00Z"},
		{"Europe/Berlin", "R/2027-10-30T02:30:00/P1D/2027-10-31T02:30:00", "", "2027-10-30T00:30:00Z 2027-10-31T00:30:00Z"},
	} {
		for zone := range fromBoth(t, c.zone) {
			spec := Spec{Rule: c.rule, Zone: zone, Since: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}
			if c.since != "" {
				spec.Since, _ = time.Parse(time.RFC3339, c.since)
			}
			var got []string
			for _, at := range due(parse(t, spec), spec.Since, spec.Since.AddDate(1, 0, 0)) {
				got = append(got, at.UTC().Format(time.RFC3339))
			}
			want := strings.Fields(c.want)
			require.GreaterOrEqual(t, len(got), len(want), c.rule)
			require.Equal(t, want, got[:len(want)], "%s in %s", c.rule, zone)
		}
	}
}

// What would take too long is refused, as where the clocks of a zone change every second.
func TestWhatTakesTooLongIsRefused(t *testing.T) {
	t.Parallel()
	const changes = 100_000
	data := append([]byte("TZif"), make([]byte, 16)...)
	for _, n := range []uint32{0, 0, 0, changes, 2, 4} { // no leap seconds, a table of changes, two offsets, four letters
		data = binary.BigEndian.AppendUint32(data, n)
	}
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range uint32(changes) {
		data = binary.BigEndian.AppendUint32(data, uint32(begin.Unix())+i)
	}
	for i := range changes {
		data = append(data, byte(i%2))
	}
	data = append(data, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0)
	data = append(data, "TOO\x00"...)
	loc, err := time.LoadLocationFromTZData("Test/Nervous", data)
	require.NoError(t, err)
	zones.Store("Test/Nervous", loc)
	for _, rule := range []string{"0 12 * * *", "P1D"} {
		r := parse(t, Spec{Rule: rule, Zone: "Test/Nervous", Since: begin.Add(5 * time.Hour)})
		for _, r := range []Rule{r, r.Delayed(time.Minute)} {
			var e *Error
			_, err := r.Next(begin.Add(6 * time.Hour))
			require.ErrorAs(t, err, &e, rule)
			require.ErrorContains(t, err, "another time zone")
			for _, missed := range []Missed{Skip, One, All} {
				_, _, err = r.Due(begin.Add(5*time.Hour), begin.Add(6*time.Hour), missed, missed == All)
				require.ErrorAs(t, err, &e, rule)
			}
		}
	}
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
		if next := next(r, all[at]); at < n-1 {
			require.True(t, next.Equal(all[at+1]), "it is found without what came before")
		} else {
			require.Zero(t, next)
		}
	})
}

func itoa(n int) string { return string(rune('0'+n/10)) + string(rune('0'+n%10)) }

func TestIntervals(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 23, 22, 0, 0, 0, time.UTC)
	first := func(rule, zone string) string {
		return next(parse(t, Spec{Rule: rule, Zone: zone, Since: since}), since).Format(time.RFC3339)
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
		"15m":                    "for an interval write @every 15m",
		"0 7 ? * 2-6":            "count days of the week from 0, which is Sunday",
		"0 0 7 ? * MON-FRI":      "leave out its seconds",
		"":                       "0 bytes",
		"61 * * * *":             "minute: 0 to 59",
		"* 24 * * *":             "hour: 0 to 23",
		"* * 0 * *":              "day of month: 1 to 31",
		"* * L * *":              "day of month: 1 to 31",
		"* * 15W * *":            "day of month: 1 to 31",
		"* * * FEV *":            "month: 1 to 12, or JAN to DEC",
		"* * * * FRI#1":          "day of week: 0 to 7, or SUN to SAT",
		"H * * * *":              "minute: ",
		"1,,2 * * * *":           "minute: ",
		",1 * * * *":             "minute: ",
		"* 1, * * *":             "hour: ",
		"* * +5 * *":             "day of month: ",
		"* * * 1-+5 *":           "month: ",
		"* * * * */+2":           "day of week: ",
		"*-5 * * * *":            "minute: ",
		"*/0 * * * *":            "minute: ",
		"0 7 1 * * 2026":         "6 fields",
		"* * * *":                "minute, hour",
		"0 0 30 2 *":             "no such day",
		"@reboot":                "minute, hour",
		"@every 1ms":             "a second",
		"@every":                 "minute, hour",
		"P":                      "its period cannot",
		"PT":                     "its period cannot",
		"PT5M3H":                 "its period cannot",
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
			if at = next(r, at); at.IsZero() {
				return
			}
		}
	})
}
