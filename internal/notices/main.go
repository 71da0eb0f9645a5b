// Command notices writes THIRD_PARTY_NOTICES.md: the licenses of all modules that a program
// inherits which imports a package of this module, and of the tenure command. With -check
// it fails instead when the file is not what it would write.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const file = "THIRD_PARTY_NOTICES.md"

// systems are those that programs are built for; some modules are for one only.
var systems = []string{"linux", "darwin", "windows"}

// legal are the files of a module that have to go with it.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

func main() {
	check := flag.Bool("check", false, "fail if "+file+" is out of date, and write nothing")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func run(check bool) error {
	modules, err := inherited()
	if err != nil {
		return err
	}
	text, err := render(modules)
	if err != nil {
		return err
	}
	if !check {
		return os.WriteFile(file, text, 0o644)
	}
	have, err := os.ReadFile(file)
	if err == nil && !bytes.Equal(have, text) {
		err = errors.New(file + " is out of date: run: make notices")
	}
	return err
}

// inherited are the directories of the modules, by their name and version.
func inherited() (map[string]string, error) {
	modules := map[string]string{}
	for _, system := range systems {
		cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}\t{{.Dir}}{{end}}{{end}}", "./...")
		cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("list modules for %s: %w", system, err)
		}
		for line := range strings.Lines(string(out)) {
			if name, dir, found := strings.Cut(strings.TrimSpace(line), "\t"); found {
				modules[name] = dir
			}
		}
	}
	return modules, nil
}

// render prints each text once, below the modules that it is for.
func render(modules map[string]string) ([]byte, error) {
	users := map[string][]string{} // by text
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		text, err := legalText(modules[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		users[text] = append(users[text], name)
	}
	texts := slices.SortedFunc(maps.Keys(users), func(a, b string) int { return strings.Compare(users[a][0], users[b][0]) })
	var b bytes.Buffer
	b.WriteString("# Third-party notices\n\nThe licenses of the modules that programs with Tenure in them inherit, as those carry them. Made by `make notices`.\n")
	for _, text := range texts {
		b.WriteString("\n")
		for _, name := range users[text] {
			b.WriteString("* " + name + "\n")
		}
		b.WriteString("\n````text\n" + text + "````\n")
	}
	return b.Bytes(), nil
}

// legalText is what a module's legal files say.
func legalText(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, e := range entries {
		if e.IsDir() || !legal.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(strings.Trim(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")) {
			b.WriteString(strings.TrimRight(line, " \t\n") + "\n")
		}
	}
	if b.Len() == 0 {
		return "", errors.New("it carries no license")
	}
	return b.String(), nil
}
