package handlers

import (
	"os"
	"reflect"
	"strings"
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
		of := reflect.TypeOf(args)
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			require.Contains(t, Usage, "\n    "+name+" ", args.Kind())
			require.Contains(t, string(page), "\n| `"+name+"` |", args.Kind())
		}
	}
}
