package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenurehq/tenure/internal/mutant"
)

// pkg is what go list says of a package of this module.
type pkg struct {
	Dir        string
	ImportPath string
	Deps       []string // what it is built from

	folder string // relative to the module's root
}

// changedSince returns what tells whether a mutant has to be tried again: its row is new, its
// test's package has other tests since commit, or the package that it breaks has other code, or
// is built from one that has.
func changedSince(commit string) (func(attempt) bool, error) {
	if exec.Command("git", "rev-parse", "--quiet", "--verify", commit+"^{commit}").Run() != nil {
		fmt.Printf("git does not know %s: all mutants are tried\n", commit)
		return func(attempt) bool { return true }, nil
	}
	known, err := rowsAt(commit)
	if err != nil {
		return nil, err
	}
	out, err := exec.Command("git", "diff", "--name-only", "--relative", commit).Output() // and what is not committed yet
	if err != nil {
		return nil, fmt.Errorf("git diff %s: %w", commit, err)
	}
	packages, err := list()
	if err != nil {
		return nil, err
	}
	code, tests := touched(packages, strings.Fields(string(out)))
	return func(a attempt) bool {
		broken, ok := owner(packages, a.found.File)
		return !ok || !known(a.Mutant) || tests[a.pkg] || code[broken.ImportPath] ||
			slices.ContainsFunc(broken.Deps, func(dep string) bool { return code[dep] })
	}, nil
}

// rowsAt returns what tells whether a mutant stood in a table at commit as it does now.
func rowsAt(commit string) (func(mutant.Mutant) bool, error) {
	out, err := exec.Command("git", "ls-tree", "-r", "--name-only", commit).Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-tree %s: %w", commit, err)
	}
	rows := map[mutant.Mutant]bool{}
	for _, file := range strings.Fields(string(out)) {
		if path.Base(file) != mutant.TableFile {
			continue
		}
		text, err := exec.Command("git", "show", commit+":./"+file).Output()
		if err != nil {
			return nil, fmt.Errorf("git show %s:%s: %w", commit, file, err)
		}
		of, err := mutant.Parse(file, text, "")
		if err != nil {
			return nil, err
		}
		for _, r := range of {
			rows[r.Mutant] = true
		}
	}
	return func(m mutant.Mutant) bool { return rows[m] }, nil
}

// touched returns the packages whose code is among the files, by import path, and the folders
// of those whose tests are. A table is neither: its rows are compared one by one.
func touched(packages map[string]pkg, files []string) (code, tests map[string]bool) {
	code, tests = map[string]bool{}, map[string]bool{}
	for _, file := range files {
		p, ok := owner(packages, file)
		switch {
		case !ok, path.Base(file) == mutant.TableFile:
		case strings.HasSuffix(file, "_test.go"), strings.Contains("/"+file, "/testdata/"):
			tests[p.folder] = true
		default:
			code[p.ImportPath] = true
		}
	}
	return code, tests
}

// list is the packages of this module by their folder.
func list() (map[string]pkg, error) {
	out, err := exec.Command("go", "list", "-json=Dir,ImportPath,Deps", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	packages := map[string]pkg{}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		folder, err := filepath.Rel(root, p.Dir)
		if err != nil {
			return nil, err
		}
		p.folder = folder
		packages[folder] = p
	}
	return packages, nil
}

// owner is the package that a file belongs to: that of its folder, or of the nearest one
// above, as with embedded SQL. Documents at the module's root belong to none.
func owner(packages map[string]pkg, file string) (pkg, bool) {
	if !strings.Contains(file, "/") && !strings.HasSuffix(file, ".go") && !strings.HasPrefix(file, "go.") {
		return pkg{}, false
	}
	for folder := filepath.Dir(file); ; folder = filepath.Dir(folder) {
		if p, ok := packages[folder]; ok && (folder != "." || strings.Count(file, "/") == 0) {
			return p, true
		}
		if folder == "." {
			return pkg{}, false
		}
	}
}
