package dashboard

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// chart is a drawing of some lines over time.
type chart struct {
	Title string
	Note  string // what is measured
	Lines []line
	Over  string // how long it goes back
	Ticks []tick
	Empty bool // there are too few points to be drawn
}

// line is one of a chart's, with its latest value for people.
type line struct {
	Name, Class, Now string
	Path             string // of SVG
	Area             string // below the line; "": it is not filled
}

// tick is a value at the side of a chart.
type tick struct {
	Y    float64
	Text string
}

// The drawing's size and margins, in its own units.
const (
	chartWidth, chartHeight = 360.0, 130.0
	chartLeft, chartTop     = 58.0, 10.0
	chartRight, chartBottom = 4.0, 18.0
	// gapAfter is how far apart two points are between which nobody has looked.
	gapAfter = 5 * noteEvery
)

// drawn is a line that is to be drawn.
type drawn struct {
	name, class string
	fill        bool
	of          func(point) float64 // less than 0: not known
}

// newChart draws lines; unit writes a value.
func newChart(s series, title, note string, unit func(float64) string, lines ...drawn) chart {
	c := chart{Title: title, Note: note, Empty: len(s) < 2}
	top := 0.0
	for _, l := range lines {
		for _, p := range s {
			top = max(top, l.of(p))
		}
	}
	top = roundUp(top)
	for _, share := range []float64{0, 0.5, 1} {
		c.Ticks = append(c.Ticks, tick{yOf(top*share, top), unit(top * share)})
	}
	if len(s) > 0 {
		c.Over = span(max(s[len(s)-1].at.Sub(s[0].at), time.Second))
	}
	for _, l := range lines {
		out := line{Name: l.name, Class: l.class, Now: "–"}
		if n := len(s); n > 0 && l.of(s[n-1]) >= 0 {
			out.Now = unit(l.of(s[n-1]))
		}
		if !c.Empty {
			out.Path, out.Area = draw(s, top, l)
		}
		c.Lines = append(c.Lines, out)
	}
	return c
}

// draw is the path of a line, broken where nothing is known, and of the area below it.
func draw(s series, top float64, l drawn) (path, area string) {
	first, last := s[0].at, s[len(s)-1].at
	x := func(at time.Time) float64 {
		return chartLeft + (chartWidth-chartLeft-chartRight)*at.Sub(first).Seconds()/last.Sub(first).Seconds()
	}
	var b, below strings.Builder
	var before *point
	var from float64
	base := yOf(0, top)
	end := func() {
		if before != nil && l.fill {
			fmt.Fprintf(&below, "L%.1f %.1fL%.1f %.1fZ", x(before.at), base, from, base)
		}
		before = nil
	}
	for i := range s {
		p := &s[i]
		if l.of(*p) < 0 || before != nil && p.at.Sub(before.at) > gapAfter {
			end()
		}
		if l.of(*p) < 0 {
			continue
		}
		verb := "L"
		if before == nil {
			verb, from = "M", x(p.at)
		}
		step := fmt.Sprintf("%s%.1f %.1f", verb, x(p.at), yOf(l.of(*p), top))
		b.WriteString(step)
		below.WriteString(step)
		before = p
	}
	end()
	if !l.fill {
		return b.String(), ""
	}
	return b.String(), below.String()
}

func yOf(value, top float64) float64 {
	return chartTop + (chartHeight-chartTop-chartBottom)*(1-value/top)
}

// roundUp is the next 1, 2 or 5 with zeros behind it.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 5} {
		if v <= step*power {
			return step * power
		}
	}
	return 10 * power
}

// short writes a number in few characters.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return trim(v/1e6) + "M"
	case v >= 1e3:
		return trim(v/1e3) + "k"
	default:
		return trim(v)
	}
}

func trim(v float64) string {
	digits := 0
	switch {
	case v < 1:
		digits = 2
	case v < 10:
		digits = 1
	}
	text := fmt.Sprintf("%.*f", digits, v)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// milliseconds writes a time that was measured in them.
func milliseconds(ms float64) string {
	switch {
	case ms >= 120_000:
		return trim(ms/60_000) + " min"
	case ms >= 1000:
		return trim(ms/1000) + " s"
	default:
		return trim(ms) + " ms"
	}
}

// newCharts are the overview's.
func newCharts(s series) []chart {
	return []chart{
		newChart(s, "Runs per second", "by what became of them", short,
			drawn{"finished", "good", true, func(p point) float64 { return p.done }},
			drawn{"retrying", "warn", false, func(p point) float64 { return p.retrying }},
			drawn{"dead", "bad", false, func(p point) float64 { return p.died }}),
		newChart(s, "Jobs", "in all pools", short,
			drawn{"waiting", "first", true, func(p point) float64 { return p.waiting }},
			drawn{"in flight, with workers", "second", false, func(p point) float64 { return p.running }}),
		newChart(s, "Time to run", "in the last minute", milliseconds,
			drawn{"median", "first", true, func(p point) float64 { return p.run }},
			drawn{"95th percentile", "second", false, func(p point) float64 { return p.runMost }}),
		newChart(s, "Time to start", "since jobs were added, in the last minute", milliseconds,
			drawn{"median", "first", true, func(p point) float64 { return p.waitedHalf }},
			drawn{"95th percentile", "second", false, func(p point) float64 { return p.waitedMost }}),
	}
}
