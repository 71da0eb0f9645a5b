package handlers

import (
	"os"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

// The help and the page name every kind, and every argument that it takes.
func TestUsageNamesEveryArgument(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/built-in-handlers.md")
	require.NoError(t, err)
	for _, args := range []job.Args{HTTPRequest{}, SQLExec{}} {
		require.Contains(t, Usage, "  "+args.Kind()+" ")
		require.Contains(t, string(page), "## `"+args.Kind()+"`")
		for _, name := range argumentsOf(reflect.TypeOf(args)) {
			require.Contains(t, Usage, "\n    "+name+" ", args.Kind())
			require.Contains(t, string(page), "\n| `"+name+"` |", args.Kind())
		}
	}
}
