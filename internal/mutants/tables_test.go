package main

import (
	"go/parser"
	"go/token"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tables follow the code: each text stands once where it is to be replaced, what replaces
// it is Go where that is, and the test that is to fail exists. Anyone who changes any of them is
// told at once, and not by a run of all mutants.
func TestTables(t *testing.T) {
	t.Parallel()
	all, _, err := attempts("../..")
	require.NoError(t, err)
	require.NotEmpty(t, all)
	names := map[string]bool{}
	for _, a := range all {
		require.False(t, names[a.Name], "%s:%d: another mutant has this name", a.Table, a.At)
		names[a.Name] = true
		require.NotEqual(t, a.Old, a.New, a.Name)
		broken, err := a.found.Broken()
		require.NoError(t, err, a.Name)
		if path.Ext(a.File) == ".go" {
			_, err := parser.ParseFile(token.NewFileSet(), a.found.File, broken, parser.SkipObjectResolution)
			require.NoError(t, err, a.Name)
		}
		if a.moved() {
			t.Logf("%s:%d: its code has changed, go run ./internal/mutants -fix: %s", a.Table, a.At, a.found)
		}
	}
}
