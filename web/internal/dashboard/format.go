package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tenurehq/tenure/internal/jobstate"
	"github.com/tenurehq/tenure/operate"
)

// tones are those of the states of what is no job, by words that no job's state means otherwise.
var tones = map[string]string{
	"up": "good", "live": "live", "active": "live",
	"down": "bad", "unfit": "bad", "lost": "bad", "no holder": "bad",
	"frozen": "held", "paused": "held", "stray": "warn", "unknown": "warn",
	"left": "over", "idle": "over", "closed": "over",
}

// toneOf is how a state is shown: see [jobstate.State].
func toneOf(word string) string { return cmp.Or(jobstate.Of(word).Tone, tones[word]) }

// number writes thousands apart.
func number(n int64) string {
	if n < 0 {
		return "-" + number(-n)
	}
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return number(n/1000) + fmt.Sprintf(",%03d", n%1000)
}

// bounded is a number of jobs that were counted up to a bound.
func bounded(n int64) string {
	if operate.More(n) {
		return number(n-1) + "+"
	}
	return number(n)
}

// span is a duration as people say it, in its largest unit.
func span(d time.Duration) string {
	switch d = d.Abs(); {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	default:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
}

// lasted is how long something took, of which people want to know tenths of a second, too.
func lasted(d time.Duration) string {
	switch d = d.Abs(); {
	case d < time.Millisecond:
		return "less than 1 ms"
	case time.Second <= d && d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Truncate(100*time.Millisecond).Seconds())
	default:
		return span(d)
	}
}

// clock is a time in UTC, with its day where that is not today.
func clock(at, now time.Time) string {
	switch at, now = at.UTC(), now.UTC(); {
	case at.Format(time.DateOnly) == now.Format(time.DateOnly):
		return at.Format(time.TimeOnly)
	case at.Year() == now.Year():
		return at.Format("2 Jan 15:04:05")
	default:
		return at.Format(time.DateTime)
	}
}

// lineShown is how much of an error there is in a list, in characters.
const lineShown = 200

// firstLine is the beginning of a text: its first line, as far as that is shown in lists.
func firstLine(text string) string {
	line, _, more := strings.Cut(strings.TrimSpace(text), "\n")
	if runes := []rune(line); len(runes) > lineShown {
		line, more = string(runes[:lineShown]), true
	}
	if more {
		line = strings.TrimSpace(line) + " …"
	}
	return line
}

// percent is a share of something; "": there is nothing.
func percent(part, all float64) string {
	switch share := 100 * part / all; {
	case all <= 0:
		return ""
	case share > 0 && share < 1:
		return "less than 1 %"
	default:
		return fmt.Sprintf("%.0f %%", share)
	}
}

// relative says how far a time is from now.
func relative(at, now time.Time) string {
	switch d := now.Sub(at); {
	case at.Year()-now.Year() > 200: // as a duration ends at 292 years
		return fmt.Sprintf("in %d years", at.Year()-now.Year())
	case d.Abs() < time.Second:
		return "now"
	case d < 0:
		return "in " + span(d)
	default:
		return span(d) + " ago"
	}
}

// pretty indents JSON, and leaves anything else as it is.
func pretty(text []byte) string {
	var out bytes.Buffer
	if json.Indent(&out, text, "", "  ") != nil {
		return string(text)
	}
	return out.String()
}

// link is a path of the dashboard with parameters, in pairs; those without a value are left out.
func link(prefix, path string, pairs ...any) string {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if value := fmt.Sprint(pairs[i+1]); value != "" {
			query.Add(fmt.Sprint(pairs[i]), value)
		}
	}
	if len(query) == 0 {
		return prefix + path
	}
	return prefix + path + "?" + query.Encode()
}
