package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tenurehq/tenure/internal/mutant"
)

// attempt is a mutant and what it takes to try it.
type attempt struct {
	mutant.Row
	found mutant.Found
	pkg   string // the folder of the package whose test must fail

	binary string // of pkg's tests, in which this mutant is one of many; none if it has to be compiled alone
	number int    // of it there
}

// attempts returns those of all tables below root, and the code; an error names every row whose
// text or test is not found.
func attempts(root string) ([]attempt, *mutant.Code, error) {
	rows, err := mutant.Read(root)
	if err != nil {
		return nil, nil, err
	}
	code, err := mutant.Load(root)
	if err != nil {
		return nil, nil, err
	}
	var all []attempt
	var faults []error
	for _, r := range rows {
		found, err := code.Find(r.Mutant)
		pkg, noTest := code.Package(r)
		if err = errors.Join(err, noTest); err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %w", r.Table, r.At, err))
		}
		all = append(all, attempt{Row: r, found: found, pkg: pkg})
	}
	return all, code, errors.Join(faults...)
}

// moved tells whether the code has changed since the row was written.
func (a attempt) moved() bool {
	return a.found.File != a.File || a.found.Func != a.Func || len(a.found.Renamed) > 0 || a.pkg != a.Dir
}

// try runs the mutant's test on the broken tree; an error says that it passed, or
// why it could not be run.
func (a attempt) try() error {
	cmd := exec.Command(a.binary, "-test.run=^"+a.Test+"$", "-test.timeout=180s")
	cmd.Dir = a.pkg
	if a.binary == "" {
		dir, err := os.MkdirTemp("", "tenure-mutant-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		broken, err := a.found.Broken()
		if err != nil {
			return err
		}
		overlay, err := overlay(dir, map[string]string{a.found.File: broken})
		if err != nil {
			return err
		}
		cmd = exec.Command("go", "test", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-count=1", "-timeout=180s", "-run", "^"+a.Test+"$", "./"+a.pkg)
	}
	cmd.Env = append(os.Environ(), "RAPID_NOFAILFILE=1") // a property that fails would leave its counterexample in the tree
	if a.binary != "" {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", mutant.SwitchEnv, a.number))
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return errors.New("the test passed")
	case !errors.As(err, &exit):
		return err
	case strings.Contains(string(out), "[build failed]"), strings.Contains(string(out), "[setup failed]"):
		return fmt.Errorf("it does not compile:\n%s", out)
	}
	if !strings.Contains(string(out), "--- FAIL: "+a.Test) {
		return fmt.Errorf("its test did not fail, it broke down:\n%s", out)
	}
	return nil
}

// overlay writes files, which are named as those of the tree that they stand for, into dir, and
// the JSON that puts them in the originals' place.
func overlay(dir string, files map[string]string) (string, error) {
	replace := map[string]string{}
	for file, text := range files {
		original, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		replace[original] = filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(file)))
		if err := os.WriteFile(replace[original], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, b, 0o600)
}

// compile builds into dir the tests of each package once, with all mutants in them that can be
// chosen while they run: to compile and link is four fifths of what one alone takes. Where that
// fails, as one of them does not compile, they are compiled alone, which says which it is.
func compile(dir string, code *mutant.Code, all []attempt) error {
	found := make([]mutant.Found, len(all))
	for i, a := range all {
		found[i] = a.found
	}
	files, has, err := code.Switches(found)
	if err != nil {
		return err
	}
	laid, err := overlay(dir, files)
	if err != nil {
		return err
	}
	binaries := map[string]string{} // by package
	for i := range all {
		a := &all[i]
		if !has[i] {
			continue
		}
		if _, built := binaries[a.pkg]; !built {
			binary := filepath.Join(dir, fmt.Sprintf("%d.test", len(binaries)))
			out, err := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", laid, "-o", binary, "./"+a.pkg).CombinedOutput()
			if err != nil {
				fmt.Printf("the mutants of ./%s are compiled one by one: %s\n", a.pkg, out)
				binary = ""
			}
			binaries[a.pkg] = binary
		}
		a.binary, a.number = binaries[a.pkg], i+1
	}
	return nil
}
