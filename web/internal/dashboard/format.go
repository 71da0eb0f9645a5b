package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/tenurehq/tenure"
)

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
	if tenure.More(n) {
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
