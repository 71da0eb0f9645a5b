// Command verify runs what takes too long, or wants too much quiet, to hold a change up, and
// writes what came of it to docs/verified.md. It goes on after a failure.
//
//	make verify [SUITES="race mutants"]
//
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
	{"race", "make race", tests, "tests, none left out, under the race detector"},
	{"mutants", "make mutants", regexp.MustCompile(`(?m)^(\d+) passed, \d+ of them`), "mutants caught"},
	{"postgres14", "make test-postgres VERSIONS=14", tests, "tests of what holds SQL, and of the promises"},
	{"postgres18", "make test-postgres VERSIONS=18", tests, "tests of what holds SQL, and of the promises"},
	{"simulation", "make sim SIMTIME=10m", regexp.MustCompile(`(?m)(\d+) seeds, .* virtual hours`), "simulated clusters"},
	{"fuzz", "make fuzz FUZZTIME=20s", regexp.MustCompile(`(?m)^github\.com/\S+ Fuzz\S+$`), "decoders fuzzed"},
	{"benchmarks", "make bench", benchmarks, "benchmarks run once"},
	{"chaos", "go run ./loadtest chaos --minutes 3 --json", regexp.MustCompile(`"faults": ?(\d+)`), "faults, nothing lost or doubled"},
	{"failover", "go run ./loadtest failover --json", regexp.MustCompile(`(?m)"takeover[^"]*": ?([\d.]+)`), "s until a killed holder's lock is taken over"},
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
	page := &strings.Builder{}
	fmt.Fprintf(page, "# What was verified last\n\n`make verify` writes this page. `.ci/run` has the rest: every other test, once.\n\nCommit `%s`, %s.\n\n", strings.TrimSpace(string(commit)), time.Now().UTC().Format("2006-01-02"))
	fmt.Fprint(page, "| suite | how many | | took | failed | skipped |\n|---|---|---|---|---|---|\n")
	bad := false
	for _, s := range suites {
		if len(only) > 0 && !slices.Contains(only, s.name) {
			continue
		}
		failed := s.run(page)
		bad = bad || failed
	}
	if len(only) == 0 {
		err = os.WriteFile("docs/verified.md", []byte(page.String()), 0o644)
	}
	fmt.Printf("\n%s", page)
	if err != nil {
		fmt.Fprintln(os.Stderr, "verify:", err)
	}
	if bad || err != nil {
		os.Exit(1)
	}
}

// run runs a suite, prints what it prints, and adds a row to the page.
func (s suite) run(page io.Writer) (failed bool) {
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
	fmt.Fprintf(page, "| %s | %s | %s | %s | %s | %s |\n", s.name, n, s.what, time.Since(began).Round(time.Second), what, named(skipped, out.String()))
	return failed
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
