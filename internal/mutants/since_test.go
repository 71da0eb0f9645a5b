package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOwner(t *testing.T) {
	t.Parallel()
	packages := map[string]pkg{".": {ImportPath: "root"}, "internal/store": {ImportPath: "store"}, "cmd/tenure": {ImportPath: "command"}}
	for file, want := range map[string]string{
		"client.go": "root", "go.mod": "root", "README.md": "", "docs/faults.md": "", ".ci/run": "",
		"internal/store/lock.go": "store", "internal/store/queries/lock_take.sql": "store", "cmd/tenure/main.go": "command",
	} {
		p, ok := owner(packages, file)
		require.Equal(t, want != "", ok, file)
		require.Equal(t, want, p.ImportPath, file)
	}
}
