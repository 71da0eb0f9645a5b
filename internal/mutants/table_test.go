package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table follows the code: each text stands once where it is to be replaced, and the
// test that is to fail exists. Whoever changes either is told at once, and not by a run of
// all mutants.
func TestTable(t *testing.T) {
	t.Parallel()
	module := func(path string) string { return filepath.Join("..", "..", path) }
	tests := map[string]string{} // by folder: all of its test files
	for _, m := range mutants {
		text, err := os.ReadFile(module(m.file))
		require.NoError(t, err, m.name)
		require.Equal(t, 1, strings.Count(string(text), m.old), "%s: how often its text stands in %s", m.name, m.file)
		require.NotEqual(t, m.old, m.new, m.name)
		if tests[m.pkg] == "" {
			files, err := filepath.Glob(filepath.Join(module(m.pkg), "*_test.go"))
			require.NoError(t, err)
			for _, f := range files {
				text, err := os.ReadFile(f)
				require.NoError(t, err)
				tests[m.pkg] += string(text)
			}
		}
		test, _, _ := strings.Cut(m.test, "/")
		require.Contains(t, tests[m.pkg], "\nfunc "+test, m.name)
	}
}
