// Command mutants breaks Tenure on purpose, one promise at a time, and sees the
// test fail that proves the promise. A test that cannot fail proves nothing.
//
//	go run ./internal/mutants [-run REGEXP] [-since COMMIT]
//
// With -since only those in packages that have changed since that commit, or import one that
// has, are tried; all, if git does not know the commit, as in a shallow clone.
//
// The tree is not touched: each broken file is laid over its original by
// `go test -overlay`, which holds for embedded SQL as well. It must be run from the
// module's root. Exit code 1: some mutant survived twice, or its text was not found.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

func main() {
	only := flag.String("run", "", "run only the mutants whose name or promise matches")
	since := flag.String("since", "", "run only the mutants of packages that have changed since this commit, or import one that has")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants: -run:", err)
		os.Exit(2)
	}
	changed := func(mutant) bool { return true }
	if *since != "" {
		if changed, err = changedSince(*since); err != nil {
			fmt.Fprintln(os.Stderr, "mutants: -since:", err)
			os.Exit(2)
		}
	}
	var chosen []mutant
	for _, m := range mutants {
		if pattern.MatchString(m.promise+" "+m.name) && changed(m) {
			chosen = append(chosen, m)
		}
	}
	// Whoever survives is tried again when no other runs: some tests wait for two things to
	// meet, which a busy machine may keep apart. That it took two tries is told.
	survived := tryAll(chosen, atATime)
	again := tryAll(survived, 1)
	fmt.Printf("%d passed, %d of them at the second try, %d failed\n", len(chosen)-len(again), len(survived)-len(again), len(again))
	for _, m := range again {
		fmt.Printf("failed: %s %s\n", m.promise, m.name)
	}
	if len(again) > 0 {
		os.Exit(1)
	}
}

// tryAll tries each mutant, so many at a time, prints what became of it, and returns those
// that nothing caught.
func tryAll(chosen []mutant, atATime int) []mutant {
	var survived []mutant
	var mu sync.Mutex // of survived, and of the output
	next := make(chan mutant)
	var group sync.WaitGroup
	for range atATime {
		group.Go(func() {
			for m := range next {
				began := time.Now()
				err := m.try()
				verdict := "caught by " + m.test
				mu.Lock()
				if err != nil {
					verdict = "SURVIVED: " + err.Error()
					survived = append(survived, m)
				}
				fmt.Printf("%-7s %-55s %s (%.1f s)\n", m.promise, m.name, verdict, time.Since(began).Seconds())
				mu.Unlock()
			}
		})
	}
	for _, m := range chosen {
		next <- m
	}
	close(next)
	group.Wait()
	return survived
}

// atATime is how many run side by side, on two processors: a test that fails mostly waits
// for what does not come.
const atATime = 4

// mutant is one deliberate fault.
type mutant struct {
	promise string
	name    string
	file    string // relative to the module's root
	old     string // stands exactly once in file
	new     string
	pkg     string
	test    string // the test of pkg that must fail
}

// try runs the mutant's test on the broken tree; an error says that it passed, or
// why it could not be run.
func (m mutant) try() error {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return fmt.Errorf("its text stands %d times in %s, not once: mend the table", n, m.file)
	}
	dir, err := os.MkdirTemp("", "tenure-mutant-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.overlay(dir, strings.Replace(string(text), m.old, m.new, 1))
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "test", "-vet=off", "-overlay", overlay, "-count=1", "-timeout=180s", "-run", "^"+m.test+"$", m.pkg)
	cmd.Env = append(os.Environ(), "RAPID_NOFAILFILE=1") // a property that fails would leave its counterexample in the tree
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return errors.New("the test passed")
	case !errors.As(err, &exit):
		return err
	case strings.Contains(string(out), "[build failed]"), strings.Contains(string(out), "[setup failed]"):
		return fmt.Errorf("it does not compile:\n%s", out)
	case strings.Contains(string(out), "no tests to run"):
		return fmt.Errorf("there is no test %s in %s", m.test, m.pkg)
	}
	if !strings.Contains(string(out), "--- FAIL: "+m.test) {
		return fmt.Errorf("its test did not fail, it broke down:\n%s", out)
	}
	return nil
}

// overlay writes the broken file and the JSON that puts it in the original's place.
func (m mutant) overlay(dir, broken string) (string, error) {
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	replacement := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(replacement, []byte(broken), 0o600); err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, b, 0o600)
}
