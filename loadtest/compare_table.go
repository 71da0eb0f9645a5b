package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/tenurehq/tenure/loadtest/internal/report"
)

// The table stands between these lines of a file.
const tableBegin, tableEnd = "<!-- compare -->\n", "<!-- /compare -->\n"

// writeTable replaces what stands between the two lines.
func writeTable(path, text string) error {
	file, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, began := bytes.Cut(file, []byte(tableBegin))
	_, after, ended := bytes.Cut(rest, []byte(tableEnd))
	if !began || !ended {
		return errors.New(path + " has no place for the table: write a line " + strings.TrimSpace(tableBegin) + " and below it " + strings.TrimSpace(tableEnd))
	}
	return os.WriteFile(path, bytes.Join([][]byte{before, []byte(tableBegin + text + tableEnd), after}, nil), 0o644)
}

// table shows all results, and what they were measured on.
func table(results []compared) string {
	var b strings.Builder
	b.WriteString("| `compare` | work | River, tuned | River by default | DBOS | Tenure | prototype | Tenure to River | to the prototype |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		for _, s := range r.standings {
			c := s.contest
			ours, defaults := c.format(s.ours), "–"
			if c.late {
				ours += " [" + latestStart + "]"
			}
			if c.defaults != nil {
				defaults = c.format(s.defaults)
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s | %s | %s |\n", r.name, c.what, c.format(s.theirs), defaults, c.format(s.dbos), ours, c.format(s.limit),
				ratio(s.toTheirs, c.toReach), ratio(s.toLimit, c.toReachOfLimit))
		}
	}
	r := results[0]
	fmt.Fprintf(&b, "\nMedians of %d rounds, the ratios of each round's; targets in brackets; delays as median and 99th percentile. %s; Postgres %s, River %s, DBOS %s, Go %s.\n",
		r.rounds, machine(), r.Postgres, r.River, r.DBOS, r.Go)
	return b.String()
}

// format is a figure as it is read.
func (c contest) format(f figure) string {
	if c.late {
		return fmt.Sprintf("%.2f, %.1f", f.typical, f.p99)
	}
	var s string
	for n := int(report.Round(f.typical, 0)); ; n /= 1000 {
		if n < 1000 {
			return fmt.Sprint(n) + s
		}
		s = fmt.Sprintf(",%03d%s", n%1000, s)
	}
}

func ratio(is float64, target string) string {
	if target != "" {
		target = " [" + target + "]"
	}
	return fmt.Sprintf("%.2f%s", is, target)
}

// machine says what everything ran on, as far as Linux tells.
func machine() string {
	model := field("/proc/cpuinfo", "model name")
	if model == "" {
		model = runtime.GOARCH
	}
	var kilobytes int
	_, _ = fmt.Sscan(field("/proc/meminfo", "MemTotal"), &kilobytes) // 0 where nothing tells
	s := fmt.Sprintf("%d processors (%s)", runtime.NumCPU(), model)
	if kilobytes > 0 {
		s += fmt.Sprintf(", %d GB of memory", (kilobytes+1<<19)>>20)
	}
	return s + ", " + runtime.GOOS
}

// field is what stands behind a name and a colon in a file; "": nothing does.
func field(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if key, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
