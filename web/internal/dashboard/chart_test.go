package dashboard

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/operate"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestChartsAreDrawn(t *testing.T) {
	t.Parallel()
	var s series
	require.True(t, newCharts(s)[0].Empty)
	for i := range 5 {
		at := noon.Add(time.Duration(i) * noteEvery)
		if i > 2 { // nobody has looked for a while
			at = at.Add(time.Minute)
		}
		s.note(point{at: at, done: float64(100 * i), waiting: 12_000, run: -1, runMost: -1})
		s.note(point{at: at.Add(time.Millisecond), done: 1e6}) // too soon
	}
	require.Len(t, s, 5)
	c := newCharts(s)
	require.False(t, c[0].Empty)
	done := c[0].Lines[0]
	require.Equal(t, "400", done.Now)
	require.Equal(t, 2, strings.Count(done.Path, "M"), "broken where nobody has looked")
	require.Equal(t, 2, strings.Count(done.Area, "Z"))
	require.True(t, strings.HasPrefix(done.Path, "M58.0 112.0L"), done.Path)
	require.True(t, strings.HasSuffix(done.Path, "L356.0 30.4"), done.Path) // 400 of 500
	require.Equal(t, []string{"0", "250", "500"}, []string{c[0].Ticks[0].Text, c[0].Ticks[1].Text, c[0].Ticks[2].Text})
	require.Equal(t, "12k", c[1].Lines[0].Now)
	require.Equal(t, "–", c[2].Lines[0].Now)
	require.Empty(t, c[2].Lines[0].Path, "nothing has run")
	s.note(point{at: noon.Add(time.Hour)})
	require.Len(t, s, 1, "the others are too old")
}

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.25: "0.25", 1: "1", 2.5: "2.5", 99: "99", 1500: "1.5k", 2e6: "2M"} {
		require.Equal(t, want, short(v))
	}
	for v, want := range map[float64]string{0.5: "0.5 ms", 20: "20 ms", 1500: "1.5 s", 600_000: "10 min"} {
		require.Equal(t, want, milliseconds(v))
	}
	for v, want := range map[float64]float64{0: 1, 0.3: 0.5, 1: 1, 1.1: 2, 37: 50, 99: 100, 501: 1000} {
		require.InDelta(t, want, roundUp(v), 1e-9)
	}
}

// Rates are of what was counted within the last seconds, and do not fall below 0 when Postgres begins
// to count anew.
func TestRates(t *testing.T) {
	t.Parallel()
	g := glance{counts: []counted{{noon, 100, 10, 1}, {noon.Add(5 * time.Second), 150, 5, 2}}}
	done, failed, died := g.perSecond()
	require.Equal(t, []float64{10, 0, 0.2}, []float64{done, failed, died})
	p := newPoint(noon, map[string]glance{"p": {seen: &operate.PoolOverview{Runs: []operate.RunTime{{Ran: time.Second}, {Ran: time.Millisecond}, {Ran: 2 * time.Second}}}}})
	require.Equal(t, []float64{1000, 1000, 0}, []float64{p.run, p.runMost, p.waitedMost})
}

func TestTimelines(t *testing.T) {
	t.Parallel()
	change := func(epoch int64, what, node, lostBy string, ago time.Duration) (c operate.LockChange) {
		c.Pool, c.Epoch, c.Change, c.Node, c.LostBy, c.At = "p", epoch, what, node, lostBy, noon.Add(-ago)
		return c
	}
	p := poolRow{Name: "p", Changes: []operate.LockChange{
		change(4, operate.LockTaken, "c", "", 30*time.Second),
		change(3, operate.LockThawed, "", "", 60*time.Second),
		change(3, operate.LockFrozen, "", "", 90*time.Second),
		change(3, operate.LockTaken, "b", "b", 2*time.Minute),
		change(2, operate.LockTaken, "b", "a", 3*time.Minute),
		change(1, operate.LockTaken, "a", "", time.Hour),
	}}
	p.Lock.Remaining, p.Lock.Quiet = 0, 6*time.Second // it has expired
	session := operate.SessionStatus{}
	held := operate.LockStatus{}
	held.Holder, held.Remaining = "c", time.Second
	require.True(t, (&poolRow{Lock: held}).holds(&session))
	require.Equal(t, "c", holderOf(&operate.PoolOverview{Lock: held}))
	held.Frozen = true
	require.False(t, (&poolRow{Lock: held}).holds(&session), "it is frozen")
	require.Empty(t, holderOf(&operate.PoolOverview{Lock: held}))
	h := newHistory([]poolRow{p, {Name: "quiet"}}, []string{"a", "b", "c"}, noon)
	require.Len(t, h.Lines, 1)
	require.Equal(t, "2 h", h.Over)
	require.Len(t, h.Changes, 6)
	terms := termsOf(p, []string{"a", "b", "c"}, noon.Add(-5*time.Minute), noon)
	var texts []string
	for _, term := range terms {
		texts = append(texts, term.Text+" at "+term.From+" wide "+term.Width)
	}
	require.Equal(t, []string{"a for 57 min at 0.00% wide 40.00%", "b for 90 s at 40.00% wide 30.00%", "c for 24 s at 90.00% wide 8.00%"}, texts)
	require.Equal(t, []int{0, 1, 2}, []int{terms[0].Colour, terms[1].Colour, terms[2].Colour})
	require.Equal(t, "c", terms[2].Label)
	require.True(t, terms[2].Narrow)
}

// People read how long something took, its clock, and of a long error what it begins with.
func TestFormats(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "less than 1 ms", 20 * time.Millisecond: "20 ms", 1420 * time.Millisecond: "1.4 s", 9999 * time.Millisecond: "9.9 s", 61 * time.Second: "61 s", 3 * time.Hour: "3 h"} {
		require.Equal(t, want, lasted(d))
	}
	now := time.Date(2026, 11, 27, 0, 0, 10, 0, time.UTC)
	for at, want := range map[time.Time]string{now.Add(-3 * time.Second): "00:00:07", now.Add(-time.Minute): "26 Nov 23:59:10", now.AddDate(-1, 0, 0): "2025-11-27 00:00:10"} {
		require.Equal(t, want, clock(at.In(time.FixedZone("", 3600)), now))
	}
	for share, want := range map[[2]float64]string{{0, 0}: "", {0, 5}: "0 %", {1, 500}: "less than 1 %", {1, 3}: "33 %", {5, 5}: "100 %"} {
		require.Equal(t, want, percent(share[0], share[1]))
	}
	for text, want := range map[string]string{"no": "no", "row 17: no\nDETAIL: x": "row 17: no …", strings.Repeat("é", 201): strings.Repeat("é", 200) + " …", "\n only\n": "only"} {
		require.Equal(t, want, firstLine(text))
	}
}

// What colours a state is named by one side and painted by the other.
func TestTonesHaveColours(t *testing.T) {
	t.Parallel()
	style, err := staticFiles.ReadFile("static/style.css")
	require.NoError(t, err)
	painted, named := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`\[data-tone=(\w+)\]`).FindAllStringSubmatch(string(style), -1) {
		painted[m[1]] = true
	}
	for _, word := range slices.Concat(operate.States, slices.Collect(maps.Keys(tones))) {
		if tone := toneOf(word); tone != "" {
			named[tone] = true
		}
	}
	require.Equal(t, painted, named)
}
