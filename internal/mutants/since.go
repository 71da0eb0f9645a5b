package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// pkg is what go list says of a package of this module.
type pkg struct {
	Dir        string
	ImportPath string
	Deps       []string // what it is built from
}

// changedSince returns what tells whether a mutant has to be tried again: it is new, the
// package that it breaks, or the one whose test is to fail, has changed since commit, or the former is
// built from one that has.
func changedSince(commit string) (func(mutant) bool, error) {
	if exec.Command("git", "rev-parse", "--quiet", "--verify", commit+"^{commit}").Run() != nil {
		fmt.Printf("git does not know %s: all mutants are tried\n", commit)
		return func(mutant) bool { return true }, nil
	}
	table, _ := exec.Command("git", "show", commit+":./internal/mutants/table.go").Output() // without one all are new
	out, err := exec.Command("git", "diff", "--name-only", "--relative", commit).Output()   // and what is not committed yet
	if err != nil {
		return nil, fmt.Errorf("git diff %s: %w", commit, err)
	}
	packages, err := list()
	if err != nil {
		return nil, err
	}
	touched := map[string]bool{} // by import path
	for _, file := range strings.Fields(string(out)) {
		if p, ok := owner(packages, file); ok {
			touched[p.ImportPath] = true
		}
	}
	return func(m mutant) bool {
		broken, ok := owner(packages, m.file)
		test, tested := packages[filepath.Clean(m.pkg)]
		if !ok || !tested || !strings.Contains(string(table), strconv.Quote(m.name)) || touched[broken.ImportPath] || touched[test.ImportPath] {
			return true
		}
		for _, dep := range broken.Deps {
			if touched[dep] {
				return true
			}
		}
		return false
	}, nil
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
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		folder, err := filepath.Rel(root, p.Dir)
		if err != nil {
			return nil, err
		}
		packages[folder] = p
	}
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
