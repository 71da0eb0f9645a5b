package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRender(t *testing.T) {
	t.Parallel()
	module := func(files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		return dir
	}
	text, err := render(map[string]string{
		"b v1": module(map[string]string{"LICENSE": "\nBe kind.  \r\n", "license.go": "package b", "README": "no"}),
		"a v1": module(map[string]string{"LICENSE.txt": "Be kind.", "NOTICE": "By A.", "main.go": ""}),
		"c v2": module(map[string]string{"COPYING": "Be kind.\n"}),
	})
	require.NoError(t, err)
	require.Contains(t, string(text), "\n* a v1\n\n````text\nBe kind.\nBy A.\n````\n\n* b v1\n* c v2\n\n````text\nBe kind.\n````\n")
	_, err = render(map[string]string{"d v1": module(map[string]string{"README": "no"})})
	require.EqualError(t, err, "d v1: it carries no license")
}
