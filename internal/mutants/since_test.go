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

func TestTouched(t *testing.T) {
	t.Parallel()
	packages := map[string]pkg{"routing": {ImportPath: "routing", folder: "routing"}, "internal/store": {ImportPath: "store", folder: "internal/store"}, "job": {ImportPath: "job", folder: "job"}}
	code, tests := touched(packages, []string{"routing/gate.go", "internal/store/gate_test.go", "internal/store/testdata/ledger55/job_read.sql", "job/mutants_test.go", "docs/faults.md"})
	require.Equal(t, map[string]bool{"routing": true}, code)
	require.Equal(t, map[string]bool{"internal/store": true}, tests)
}
