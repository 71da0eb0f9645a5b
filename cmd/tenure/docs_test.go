package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/codeblocks"
)

// others are commands in documents that are other programs'. Those with a check are looked at.
var others = map[string]func(words []string) error{
	"apt-get": nil, "bash": nil, "cat": nil, "cd": nil, "createdb": nil, "docker": nil, "export": nil, "git": nil, "go": nil, "jq": nil, "kill": nil, "mkdir": nil,
	"openssl": nil, "pg_dump": nil, "pg_restore": nil, "printf": nil, "psql": nil, "sleep": nil, "wait": nil, "xargs": nil,
	"./shop": nil, // which the quick start builds
	"curl":   checkCurl,
	"make":   checkMake,
}

// Every command in a document is one that there is, with flags and arguments that it takes.
func TestDocumentsTypeCommandsThatExist(t *testing.T) {
	t.Parallel()
	paths, err := codeblocks.Documents("../..")
	require.NoError(t, err)
	typed := 0
	for _, path := range paths {
		blocks, err := codeblocks.Read(path)
		require.NoError(t, err)
		for _, b := range blocks {
			if b.Language != "console" && b.Language != "sh" {
				continue
			}
			for _, words := range readCommands(b.Text) {
				typed++
				if err := checkCommand(words, true); err != nil {
					t.Errorf("%s:%d: %s: %v", path, b.Line, strings.Join(words, " "), err)
				}
			}
		}
	}
	require.Greater(t, typed, 100)
}

// What a text names in passing, such as `tenure jobs dead`, is a command, too.
func TestDocumentsNameCommandsThatExist(t *testing.T) {
	t.Parallel()
	paths, err := codeblocks.Documents("../..")
	require.NoError(t, err)
	more, err := filepath.Glob("../../deploy/*.yaml")
	require.NoError(t, err)
	inline := regexp.MustCompile("`(tenure [a-z][^`\n]*)`")
	named := 0
	for _, path := range append(paths, more...) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range inline.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], " | ") { // a list of them
				continue
			}
			for _, words := range readCommands(m[1]) {
				named++
				if err := checkCommand(words, false); err != nil {
					t.Errorf("%s: `%s`: %v", path, m[1], err)
				}
			}
		}
	}
	require.Greater(t, named, 100)
}

// What commands advise to type is a command: in errors, in what the doctor mends, and on pages.
func TestProgramsNameCommandsThatExist(t *testing.T) {
	t.Parallel()
	literal := regexp.MustCompile("[\"` (](tenure (?:[a-z]+ ?){1,2})")
	groups := map[string]bool{}
	root := newRoot(&app{now: time.Now})
	for _, c := range root.Commands() {
		groups[c.Name()] = true
	}
	named := 0
	for _, pattern := range []string{"../../*.go", "*.go", "../../internal/doctor/*.go", "../../web/internal/dashboard/*.go", "../../routing/*.go", "../../acquisition/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, m := range literal.FindAllStringSubmatch(string(text), -1) {
				words := strings.Fields(m[1])
				if !groups[words[1]] {
					continue // prose
				}
				cmd, rest, err := root.Find(words[1:])
				if named++; err != nil || cmd.HasSubCommands() && len(rest) > 0 && !slices.Contains([]string{"and", "or", "of", "on", "has", "says", "shows", "is", "are", "for", "in", "to", "see"}, rest[0]) {
					t.Errorf("%s: %s: there is no such command", path, m[1])
				}
			}
		}
	}
	require.Greater(t, named, 50)
}

// readCommands reads what is typed in a block, command by command. In one whose commands stand behind a
// dollar sign the rest is what they print.
func readCommands(text string) (commands [][]string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	prompt, until := strings.HasPrefix(text, "$ "), ""
	for line := range strings.SplitSeq(text, "\n") {
		if until != "" {
			if line == until {
				until = ""
			}
			continue
		}
		if prompt {
			var typed bool
			if line, typed = strings.CutPrefix(line, "$ "); !typed {
				continue
			}
		}
		if _, end, here := strings.Cut(line, "<<'"); here {
			until, _, _ = strings.Cut(end, "'")
			line, _, _ = strings.Cut(line, "<<")
		}
		commands = append(commands, readLine(line)...)
	}
	return commands
}

// readLine takes a line of a shell apart, which a semicolon, && and | part into commands. What is
// expanded stays as it is.
func readLine(line string) (commands [][]string) {
	var words []string
	var word strings.Builder
	begun, quote := false, rune(0)
	endWord := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	endCommand := func() {
		endWord()
		for len(words) > 0 && strings.Contains(words[0], "=") { // a variable, for this command
			words = words[1:]
		}
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	runes := []rune(line)
	for i := 0; i < len(runes); i++ {
		switch r := runes[i]; {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == '#' && !begun:
			endCommand()
			return commands
		case r == ' ':
			endWord()
		case strings.ContainsRune(";|&()", r):
			endCommand()
		case r == '>' || r == '<': // to or from a file, which is the next word
			if _, isDigit := map[string]bool{"1": true, "2": true}[word.String()]; isDigit {
				word.Reset()
				begun = false
			}
			endWord()
			for i+1 < len(runes) && strings.ContainsRune(" >&", runes[i+1]) {
				i++
			}
			for i+1 < len(runes) && !strings.ContainsRune(" ;|&", runes[i+1]) {
				i++
			}
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	endCommand()
	return commands
}

// checkCommand says what is wrong with a command. whole: it is typed as it stands.
func checkCommand(words []string, whole bool) error {
	if words[0] != "tenure" && words[0] != "bin/tenure" {
		check, known := others[words[0]]
		switch {
		case !known:
			return fmt.Errorf("%s is no command that documents use so far: add it to others, or leave it out", words[0])
		case check != nil:
			return check(words[1:])
		}
		return nil
	}
	root := newRoot(&app{now: time.Now})
	root.InitDefaultCompletionCmd(words[1:]...)
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(words[1:])
	if err != nil {
		return err
	}
	if slices.Contains(rest, "--help") {
		return nil
	}
	if !whole { // flags may be named without a value
		for _, word := range rest {
			if name, isFlag := strings.CutPrefix(word, "--"); isFlag && cmd.Flag(strings.SplitN(name, "=", 2)[0]) == nil {
				return fmt.Errorf("%s has no flag %s", cmd.CommandPath(), word)
			}
		}
		if cmd.HasSubCommands() && len(rest) > 0 {
			return fmt.Errorf("%s has no command %s", cmd.CommandPath(), rest[0])
		}
		return nil
	}
	if cmd.HasSubCommands() && !cmd.Runnable() {
		return fmt.Errorf("a command is missing behind %s", cmd.CommandPath())
	}
	return checkFlags(cmd, rest)
}

func checkFlags(cmd *cobra.Command, rest []string) error {
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return err
	}
	if err := cmd.ValidateFlagGroups(); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// checkMake looks whether the targets exist.
func checkMake(words []string) error {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		return err
	}
	for _, word := range words {
		if !strings.Contains(word, "=") && !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(word)+`:`).Match(text) {
			return fmt.Errorf("the Makefile has no target %s", word)
		}
	}
	return nil
}

// checkCurl looks whether what is asked of a node is in the API's document, and JSON is.
func checkCurl(words []string) error {
	text, err := os.ReadFile("../../web/internal/api/openapi.json")
	if err != nil {
		return err
	}
	var document struct {
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return err
	}
	if !strings.Contains(strings.Join(words, " "), "/api/") {
		return nil // of the reader's own program
	}
	method := "get"
	for i, word := range words {
		if word == "-d" {
			method = "post"
			if !json.Valid([]byte(words[i+1])) {
				return fmt.Errorf("%s is not JSON", words[i+1])
			}
		}
	}
	for _, word := range words {
		_, path, ofNode := strings.Cut(word, "/api/")
		if !ofNode {
			continue
		}
		path, _, _ = strings.Cut("/api/"+path, "?")
		if document.Paths[path][method] == nil {
			return fmt.Errorf("the API has no %s %s", method, path)
		}
	}
	return nil
}

func TestReadCommands(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][][]string{
		"tenure jobs list --state dead   # also: show": {{"tenure", "jobs", "list", "--state", "dead"}},
		"tenure locks; tenure nodes # both":            {{"tenure", "locks"}, {"tenure", "nodes"}},
		"a 'b c' \"d # e\" f\\\n  g":                   {{"a", "b c", "d # e", "f", "g"}},
		"$ a b\nwhat it prints\n$ c":                   {{"a", "b"}, {"c"}},
		"cat > f <<'EOF'\nnot: typed\nEOF\na":          {{"cat"}, {"a"}},
		"X=1 a > out.log 2>&1 & b":                     {{"a"}, {"b"}},
		"(a 'x:'; b -c 32) > /run/f":                   {{"a", "x:"}, {"b", "-c", "32"}},
	} {
		require.Equal(t, want, readCommands(text), text)
	}
}
