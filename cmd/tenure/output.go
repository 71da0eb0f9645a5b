package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
)

// format is the -o flag.
type format string

const (
	asTable format = "table"
	asJSON  format = "json"
)

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "format" }
func (f *format) Set(s string) error {
	switch format(s) {
	case asTable, asJSON:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("choose table or json")
}

// outputFlag adds -o to a command that prints data.
func outputFlag(cmd *cobra.Command) *format {
	f := asTable
	cmd.Flags().VarP(&f, "output", "o", "table or json")
	return &f
}

// printJSON prints what programs read: indented, as people look at it, too. What a terminal would obey, or show as
// something else than it is, is escaped.
func printJSON(w io.Writer, v any) error {
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	if err == nil {
		_, err = escapedJSON.WriteString(w, text.String())
	}
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// escapedJSON escapes the controls that JSON leaves as they are: C1, and those that turn the direction of text.
var escapedJSON = func() *strings.Replacer {
	var pairs []string
	for r := rune(0x7f); r <= 0xffff; r++ {
		if unicode.In(r, unicode.Cc, unicode.Cf) {
			pairs = append(pairs, string(r), fmt.Sprintf(`\u%04x`, r))
		}
	}
	return strings.NewReplacer(pairs...)
}()

// say prints a line, unless there is nothing to say.
func say(a *app, text string) error {
	if text == "" {
		return nil
	}
	_, err := fmt.Fprintln(a.stdout, text)
	return err
}

// printTable prints rows in columns; what a cell holds cannot leave its place.
func printTable(w io.Writer, head []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			cell = cmp.Or(clean(cell), "-")
			if i < len(row)-1 {
				cell += "\t"
			}
			fmt.Fprint(t, cell) // Flush returns the error
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// clean replaces what a terminal would act on. Tenants, handlers and the servers
// they call choose what stands in a job and its errors.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// cleanLines is clean for a text of several lines.
func cleanLines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range lines {
		lines[i] = clean(strings.ReplaceAll(l, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// cut shortens a cell to n characters.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// clock tells the time now, and others in terms of it.
type clock func() time.Time

// stamp is a time for people: exact, and how far away.
func (now clock) stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339) + " (" + now.relative(t) + ")"
}

func (now clock) relative(t time.Time) string {
	d := t.Sub(now()) // which ends at 292 years
	switch years := t.Year() - now().Year(); {
	case years > 200:
		return fmt.Sprintf("in %d years", years)
	case d > 0 && d >= time.Second:
		return "in " + roughly(d)
	case d <= -time.Second:
		return roughly(-d) + " ago"
	}
	return "now"
}

// roughly is a duration in its largest unit.
func roughly(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
