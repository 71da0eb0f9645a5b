package mutant

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFix(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(file, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
	}
	write("lease/lease.go", "package lease\n\nfunc (l *Lease) renew() { l.trusted = true }\n")
	table := func(rest string) string {
		return "package lease\n\nvar _ = []mutant.Mutant{\n\t{\n\t\tPromise: \"P2\", Name: \"trust\",\n" + rest + "\t\tTest: \"TestTrust\",\n\t},\n}\n"
	}
	write("lease/"+TableFile, table("\t\tFile: \"acquisition/beat.go\", Func: \"(*keeper).renew\",\n\t\tOld:  `k.trusted = true`,\n\t\tNew:  `k.stop(\"\")`,\n"))
	n, err := Fix(root)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	have, err := os.ReadFile(filepath.Join(root, "lease", TableFile))
	require.NoError(t, err)
	require.Equal(t, table("\t\tFile: \"lease/lease.go\", Func: \"(*Lease).renew\",\n\t\tOld:  \"l.trusted = true\",\n\t\tNew:  `l.stop(\"\")`,\n"), string(have))
	n, err = Fix(root)
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{Promise: "P1", Name: "n", File: "f.go", Old: "o", Test: "T"}`:                "",
		`{"P1", "n", "f.go", "", "o", "", "T"}`:                                        "name the mutant's fields",
		`{Promise: "P1", Name: "n", File: "f.go", Old: old, Test: "T"}`:                "string literals",
		`{Promise: "P1", Name: "n", File: "f.go", Old: "o", Text: "T"}`:                "string literals",
		`{Promise: "P1", Name: "n", File: "f.go", Old: "", New: "", Test: "T"}`:        "no Old",
		`{Promise: "P1", Name: "n", File: "f.go", Old: "a" + "b", New: "", Test: "T"}`: "string literals",
	} {
		rows, err := Parse("a/"+TableFile, "package a\n\nvar _ = []mutant.Mutant{\n"+text+",\n}\n", "")
		if want != "" {
			require.ErrorContains(t, err, "a/mutants_test.go:4: ")
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Equal(t, "a", rows[0].Dir)
	}
}

func TestPackage(t *testing.T) {
	t.Parallel()
	c := module(t, map[string]string{
		"a/a_test.go": "package a\n\nfunc TestMoved(t *testing.T) {}\n\nfunc TestBoth(t *testing.T) {}\n",
		"b/b_test.go": "package b\n\nfunc TestBoth(t *testing.T) {}\n",
	})
	for test, want := range map[string]string{"TestMoved": "a", "TestBoth": "b", "TestNone": ""} {
		dir, err := c.Package(Row{Mutant: Mutant{Test: test}, Dir: "b"})
		require.Equal(t, want, dir)
		require.Equal(t, want == "", err != nil)
	}
}
