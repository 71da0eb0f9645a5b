// Command mutants breaks Tenure on purpose, one promise at a time, and sees the
// test fail that proves the promise. A test that cannot fail proves nothing.
//
//	go run ./internal/mutants [-run REGEXP] [-since COMMIT] [-list | -fix]
//
// The mutants stand in mutants_test.go beside the tests that catch them; package mutant says
// how they are found in code that was moved or renamed, and -fix writes into the tables what
// has become of it. With -since only those are tried that a change since that commit could
// let survive; all, if git does not know the commit, as in a shallow clone.
//
// The tree is not touched: broken files are laid over their originals by `go test -overlay`,
// which holds for embedded SQL as well. The mutants that stand in functions are compiled all at
// once and chosen when a test runs; the others one by one. It must be run from the
// module's root. Exit code 1: some mutant survived twice, or was not found.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/tenurehq/tenure/internal/mutant"
)

func main() {
	only := flag.String("run", "", "only the mutants whose promise and name match")
	since := flag.String("since", "", "only the mutants that changes since this commit could let survive")
	list := flag.Bool("list", false, "print where the mutants stand, and try none")
	fix := flag.Bool("fix", false, "write into the tables what has become of their code, and try none")
	flag.Parse()
	if err := run(*only, *since, *list, *fix); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only, since string, list, fix bool) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if fix {
		n, err := mutant.Fix(".")
		fmt.Printf("%d rows changed\n", n)
		return err
	}
	all, code, err := attempts(".")
	if err != nil {
		return err
	}
	concerned := func(attempt) bool { return true }
	if since != "" {
		if concerned, err = changedSince(since); err != nil {
			return fmt.Errorf("-since: %w", err)
		}
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(a attempt) bool {
		return !pattern.MatchString(a.Promise+" "+a.Name) || !concerned(a)
	})
	for _, a := range chosen {
		if list || a.moved() {
			fmt.Printf("%-7s %-55s %s\n", a.Promise, a.Name, a.found)
		}
	}
	fmt.Printf("%d of %d mutants\n", len(chosen), len(all))
	if list {
		return nil
	}
	return report(code, chosen)
}

// report tries the mutants, and is an error if some survive. A mutant that survives is tried again
// when no other runs, and compiled alone: some tests wait for two things to meet, which a busy
// machine may keep apart. That it took two tries is told.
func report(code *mutant.Code, chosen []attempt) error {
	dir, err := os.MkdirTemp("", "tenure-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	if err := compile(dir, code, chosen); err != nil {
		return err
	}
	fmt.Printf("compiled in %.0f s\n", time.Since(began).Seconds())
	survived := tryAll(chosen, atATime)
	for i := range survived {
		survived[i].binary = ""
	}
	again := tryAll(survived, 1)
	fmt.Printf("%d passed, %d of them at the second try, %d failed\n", len(chosen)-len(again), len(survived)-len(again), len(again))
	for _, a := range again {
		fmt.Printf("failed: %s %s\n", a.Promise, a.Name)
	}
	if len(again) > 0 {
		return errors.New("some survived")
	}
	return nil
}

// tryAll tries each mutant, so many at a time, prints what became of it, and returns those
// that nothing caught.
func tryAll(chosen []attempt, atATime int) []attempt {
	var survived []attempt
	var mu sync.Mutex // of survived, and of the output
	next := make(chan attempt)
	var group sync.WaitGroup
	for range atATime {
		group.Go(func() {
			for a := range next {
				began := time.Now()
				err := a.try()
				verdict := "caught by " + a.Test
				mu.Lock()
				if err != nil {
					verdict = "SURVIVED: " + err.Error()
					survived = append(survived, a)
				}
				fmt.Printf("%-7s %-55s %s (%.1f s)\n", a.Promise, a.Name, verdict, time.Since(began).Seconds())
				mu.Unlock()
			}
		})
	}
	for _, a := range chosen {
		next <- a
	}
	close(next)
	group.Wait()
	return survived
}

// atATime is how many run side by side, on two processors: a test that fails mostly waits
// for what does not come.
const atATime = 8
