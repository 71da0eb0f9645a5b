package main

import (
	"encoding/base64"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEncryptedArgumentsAreShownWhenAsked(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	file, err := os.ReadFile(b.path)
	require.NoError(t, err)
	plain := string(file)
	secret := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("s", 32)))
	require.NoError(t, os.WriteFile(b.path+".key", []byte("2026-11:"+secret+"\n"), 0o600))
	require.NoError(t, os.WriteFile(b.path, []byte(plain+"encryption: {kinds: [k], keys: ['${file:"+b.path+".key}']}\n"), 0o600))
	id := b.enqueue("k", `{"card": "4111"}`, "--tenant", "P1")
	other := b.enqueue("other", `{"card": "4112"}`, "--tenant", "P1")
	require.Contains(t, b.ok("jobs", "show", id), `"encrypted with key 2026-11"`)
	require.Contains(t, b.ok("jobs", "show", id, "--reveal"), `"card": "4111"`)
	require.Contains(t, b.ok("jobs", "show", other), `"card": "4112"`)
	require.NotContains(t, b.ok("jobs", "list", "-o", "json"), "4111")
	require.NotContains(t, b.ok("config", "show"), secret)

	require.NoError(t, os.WriteFile(b.path, []byte(plain+"encryption: {keys: ['2026-12:"+secret+"']}\n"), 0o600))
	require.NotContains(t, b.run("config", "show").out, secret)
	require.NoError(t, os.WriteFile(b.path, []byte(plain), 0o600))
	require.Contains(t, b.fails(exitFailed, "jobs", "show", id, "--reveal").errors, "there is no such key")
}
