// Command verify runs what takes too long, or wants too much quiet, to hold a change up, and
// writes what came of it to docs/verified.md, a row for each suite. It goes on after a failure.
//
//	make verify [SUITES="race mutants"]
//
// The rows of suites that are not run stay as they are, with the commit that they were run at, and with what somebody
// has written there of what became of a failure, in the place of "open".
// It must be run from the module's root. Exit code 1: something failed.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// suite is a command, and how its output is counted.
type suite struct {
	name    string
	command string         // of a shell, from the module's root
	counts  *regexp.Regexp // its first group counts things; each match counts one if it has none
	what    string         // that are counted
}

var (
	tests      = regexp.MustCompile(`(?m)^DONE (?:\d+ runs, )?(\d+) tests`)
	benchmarks = regexp.MustCompile(`(?m)^Benchmark`)
	failures   = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)|^=== FAIL: (\S+ \S*)|^failed: (.+)|^(panic: .+)|(WARNING: DATA RACE)|^make: \*\*\* \[[^]]*: (\S+)\]`)
	skipped    = regexp.MustCompile(`(?m)^=== SKIP: (\S+ \S+)`)
)

var suites = []suite{
	{"bare", "tools/verify/bare.sh", tests, "tests, behind the demo, on a Debian that has what the README names and no more"},
	{"race", "make race", tests, "tests, none left out, under the race detector"},
	{"mutants", "make mutants", regexp.MustCompile(`(?m)^(\d+) passed, \d+ of them`), "mutants caught"},
	{"postgres14", "make test-postgres VERSIONS=14", tests, "tests of what holds SQL, and of the promises"},
	{"postgres18", "make test-postgres VERSIONS=18", tests, "tests of what holds SQL, and of the promises"},
	{"simulation", "make sim SIMTIME=10m", regexp.MustCompile(`(?m)(\d+) seeds, .* virtual hours`), "simulated clusters"},
	{"fuzz", "make fuzz FUZZTIME=20s", regexp.MustCompile(`(?m)^github\.com/\S+ Fuzz\S+$`), "decoders fuzzed"},
	{"contract", "make contract", regexp.MustCompile(`(\d+) generated`), "requests as the API's document has them, and as it has them not"},
	{"benchmarks", "make bench", benchmarks, "benchmarks run once"},
	{"chaos", "go run ./loadtest chaos --minutes 3 --json", regexp.MustCompile(`"faults": ?(\d+)`), "faults, nothing lost or doubled"},
	{"failover", "go run ./loadtest failover --kills 6 --json", regexp.MustCompile(`"takeover_p99_seconds": ?([\d.]+)`), "s at most until a killed holder's lock is taken over, with up to five nodes dead before"},
	{"scale", "go run ./loadtest scale --pools 1,100 --per-node 1000 --json", regexp.MustCompile(`"of_the_first": ?([\d.]+)`), "of one pool's rate with a hundred of one server, nothing lost"},
}

func main() {
	only := os.Args[1:]
	for _, name := range only {
		if !slices.ContainsFunc(suites, func(s suite) bool { return s.name == name }) {
			fmt.Fprintf(os.Stderr, "verify: there is no suite %q\n", name)
			os.Exit(2)
		}
	}
	commit, err := exec.Command("git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "verify: git rev-parse HEAD:", err)
		os.Exit(2)
	}
	before, err := os.ReadFile(pageFile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "verify: not in the module's root:", err)
		os.Exit(2)
	}
	at := fmt.Sprintf("`%s`, %s", strings.TrimSpace(string(commit)), time.Now().UTC().Format("2006-01-02"))
	rows, bad := readRows(string(before)), false
	for _, s := range suites {
		if len(only) > 0 && !slices.Contains(only, s.name) {
			continue
		}
		row, failed := s.run()
		rows[s.name] = row + at + " |\n"
		bad = bad || failed
		if err := os.WriteFile(pageFile, []byte(writePage(rows)), 0o644); err != nil { // after each: they take hours
			fmt.Fprintln(os.Stderr, "verify:", err)
			bad = true
		}
	}
	fmt.Print("\n", writePage(rows))
	if bad {
		os.Exit(1)
	}
}

// pageFile is what is written.
const pageFile = "docs/verified.md"

// readRows finds the rows of suites on the page.
func readRows(page string) map[string]string {
	rows := map[string]string{}
	for line := range strings.Lines(page) {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok {
			rows[name] = line
		}
	}
	return rows
}

func writePage(rows map[string]string) string {
	page := &strings.Builder{}
	fmt.Fprint(page, "# What was verified last\n\n`make verify` writes this page. `.ci/run` has the rest: every other test, once. What became of a failure is written here by hand, and stays until the suite runs again.\n\n"+
		"| suite | how many | | took | failed | what became of it | skipped | at |\n|---|---|---|---|---|---|---|---|\n")
	for _, s := range suites {
		if row, ok := rows[s.name]; ok {
			page.WriteString(row)
		} else {
			fmt.Fprintf(page, "| %s | never | | | | | | |\n", s.name)
		}
	}
	return page.String()
}

// run runs a suite, prints what it prints, and returns the beginning of its row of the page.
func (s suite) run() (row string, failed bool) {
	fmt.Printf("\n== %s: %s\n", s.name, s.command)
	var out bytes.Buffer
	cmd := exec.Command("bash", "-c", s.command)
	cmd.Stdout = io.MultiWriter(os.Stdout, &out)
	cmd.Stderr = cmd.Stdout
	began := time.Now()
	err := cmd.Run()
	n := "0"
	all := s.counts.FindAllStringSubmatch(out.String(), -1)
	switch {
	case len(all) > 0 && len(all[0]) > 1:
		n = all[len(all)-1][1]
	case len(all) > 0:
		n = fmt.Sprint(len(all))
	}
	what := named(failures, out.String())
	failed = err != nil || n == "0"
	if failed && what == "" {
		what = fmt.Sprint("the command: ", err)
	}
	became := ""
	if failed {
		became = "open"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | ", s.name, n, s.what, time.Since(began).Round(time.Second), what, became, named(skipped, out.String())), failed
}

// named lists what a pattern finds, each once.
func named(pattern *regexp.Regexp, out string) string {
	var all []string
	for _, m := range pattern.FindAllStringSubmatch(out, -1) {
		if name := strings.TrimSpace(strings.Join(m[1:], "")); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return strings.ReplaceAll(strings.Join(all, ", "), "|", `\|`)
}
