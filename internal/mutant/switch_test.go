package mutant

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSwitches(t *testing.T) {
	t.Parallel()
	const jump = "package acquisition\n\nfunc jump() {\nagain:\n\tif retry() {\n\t\tgoto again\n\t}\n}\n"
	c := module(t, map[string]string{"acquisition/beat.go": beat, "acquisition/jump.go": jump, "store/take.sql": take})
	var found []Found
	for _, m := range []Mutant{
		{File: "acquisition/beat.go", Func: "idle", Old: "n == 0", New: "n > 0"},
		{File: "acquisition/beat.go", Func: "idle", Old: "n == 0", New: "true"},
		{File: "acquisition/beat.go", Func: "(*keeper).pause", Old: "!k.ended", New: "k.ended"},
		{File: "acquisition/beat.go", Func: "idle", Old: "idle(n int)", New: "idle(_ int)"},
		{File: "acquisition/beat.go", Old: "factor = 3", New: "factor = 1"},
		{File: "acquisition/jump.go", Func: "jump", Old: "retry()", New: "!retry()"},
		{File: "store/take.sql", Old: "AND epoch = $3"},
	} {
		f, err := c.Find(m)
		require.NoError(t, err)
		found = append(found, f)
	}
	files, has, err := c.Switches(found)
	require.NoError(t, err)
	require.Equal(t, []bool{true, true, true, false, false, false, false}, has)
	require.Len(t, files, 2)
	require.Contains(t, files["acquisition/beat.go"], "func idle(n int) bool {\nswitch tenureMutant {\ncase 1:\n return n > 0 \n\ncase 2:\n return true \n\n}\n return n == 0 }")
	for file, text := range files {
		_, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		require.NoError(t, err, text)
	}
	require.Contains(t, files["acquisition/tenure_mutant.go"], "package acquisition\n")
}
