package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What operators type, and what they see then, is in testdata/scripts, one file for each database bed:
//
//	pools p1 p2!            the bed, as setup has it
//	sql p1 DELETE …         statements in a pool's database
//	x: tenure jobs list     a command; $x is what it prints from then on
//	  = text                a line that it prints, as it stands
//	  ~ REGEX               what it prints matches
//	  not REGEX             it does not
//	  rows 2                so many lines behind the table's head
//	  x ~ a(REGEX)b         $x is what is in the brackets, of what it prints or says to standard error
//	  ! 1 REGEX             it ends with this code, and its errors match; without, it ends with 0 and says nothing
func TestScripts(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/scripts/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			(&script{t: t, values: map[string]string{"me": regexp.QuoteMeta(whoAsks())}}).run(strings.Split(string(text), "\n"))
		})
	}
}

// script is one that runs.
type script struct {
	t      *testing.T
	b      *bed
	values map[string]string
}

var (
	named    = regexp.MustCompile(`^([a-z]+): (.*)$`)
	captured = regexp.MustCompile(`^([a-z]+) ~ (.*)$`)
	dollar   = regexp.MustCompile(`\$[a-z]+`)
)

func (s *script) run(lines []string) {
	for i := 0; i < len(lines); i++ {
		line := dollar.ReplaceAllStringFunc(lines[i], func(name string) string {
			if value, known := s.values[name[1:]]; known {
				return value
			}
			return name
		})
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case word == "" || word == "#":
		case word == "pools":
			s.b = setup(s.t, strings.Fields(rest)...)
		case word == "sql":
			pool, statements, _ := strings.Cut(rest, " ")
			s.b.sql(pool, statements)
		default:
			name := ""
			if m := named.FindStringSubmatch(line); m != nil {
				name, line = m[1], m[2]
			}
			r := s.b.run(readLine(line)[0][1:]...)
			s.values[name] = strings.TrimSpace(r.out)
			code, errors := 0, "^$"
			for ; i+1 < len(lines) && strings.HasPrefix(lines[i+1], "  "); i++ {
				want := dollar.ReplaceAllStringFunc(strings.TrimSpace(lines[i+1]), func(name string) string {
					if value, known := s.values[name[1:]]; known {
						return value
					}
					return name
				})
				if rest, fails := strings.CutPrefix(want, "! "); fails {
					var text string
					text, errors, _ = strings.Cut(rest, " ")
					code, _ = strconv.Atoi(text)
				} else {
					s.expect(line, want, r)
				}
			}
			require.Equal(s.t, code, r.code, "%s: %s%s", line, r.out, r.errors)
			require.Regexp(s.t, "(?m)"+errors, r.errors, line)
		}
	}
}

// expect sees whether a command printed what a line of the script wants.
func (s *script) expect(line, want string, r result) {
	s.t.Helper()
	how, text, _ := strings.Cut(want, " ")
	if m := captured.FindStringSubmatch(want); m != nil {
		found := regexp.MustCompile("(?m)" + m[2]).FindStringSubmatch(r.out + r.errors)
		require.NotNil(s.t, found, "%s: %s: %s", line, want, r.out+r.errors)
		s.values[m[1]] = found[1]
		return
	}
	switch how {
	case "=":
		require.Contains(s.t, strings.Split(r.out, "\n"), text, line)
	case "~":
		require.Regexp(s.t, "(?m)"+text, r.out, line)
	case "not":
		require.NotRegexp(s.t, "(?m)"+text, r.out, line)
	case "rows":
		require.Len(s.t, rows(r.out), func() int { n, _ := strconv.Atoi(text); return n }(), "%s: %s", line, r.out)
	default:
		require.Fail(s.t, "the script says "+want)
	}
}
