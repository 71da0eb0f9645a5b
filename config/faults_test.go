package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The environment is set once, so that the tests can run in parallel.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{
		"DATABASE_URL": "postgres://app@dbexample:5432/app",
		"OTHER_URL":    "postgres://app@dbexample:5432/other",
		"HOSTNAME":     "node-1",
		"EMPTY":        "",
		"TEN":          "10",
		"TWO":          "2",
		"ADDRESS":      "hidden-host-name:7946",
		"PUBLIC":       "192.0.2.7:7946",
		"MONKEY":       "see-no-evil",
		"SHORT":        "PT5S",
		"YAML":         "x: [1, *y]\n# \"z\"",
		"KEY":          "AAECAwQFBgcICQoLDA0ODw==",

		"TENURE_CLUSTER_KEY_1": "AAECAwQFBgcICQoLDA0ODw==",
		"TENURE_CLUSTER_KEY_2": "AQIDBAUGBwgJCgsMDQ4PEA==",
		"TENURE_CLUSTER_KEY_3": "AgMEBQYHCAkKCwwNDg8QEQ==",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// ok is a part that every file needs and no case is about.
const ok = "pools: {main: {dsn: '${env:DATABASE_URL}'}}\n"

// testdata/faults.txt has the exact text for each class of mistake: after a line "== what it
// is" the file, and after a line "--" what is said of it.
func TestFaults(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/faults.txt")
	require.NoError(t, err)
	for _, c := range strings.Split("\n"+string(data), "\n== ")[1:] {
		name, rest, _ := strings.Cut(c, "\n")
		in, want, ok := strings.Cut(rest, "\n--\n")
		require.True(t, ok, name)
		_, err := Parse("node.yaml", []byte(in))
		require.Error(t, err, name)
		require.Equal(t, strings.TrimSuffix(want, "\n"), err.Error(), name)
	}
}

// What is no text.
func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"node: " + strings.Repeat("[", 40): "1:39: error: values are nested more than 32 deep\n",
		"node: {name: a\x1b[31m}\n":        "1:15: error: the character U+001B cannot stand in a YAML file\n      = in double quotes, write it as an escape such as \\x07\n",
		"node:\n  name: \xe9\n":            "2:9: error: the file is not UTF-8 text\n      = save it as UTF-8\n",
		strings.Repeat("#", maxFile+1):     "1:1: error: the file is larger than 1024 KiB\n",
	} {
		_, err := Parse("node.yaml", []byte(in))
		require.ErrorContains(t, err, "node.yaml:"+want)
	}
}

func TestFaultsAsJSON(t *testing.T) {
	t.Parallel()
	_, err := Parse("node.yaml", []byte("pools:\n  a: {dsn: '${env:DATABASE_URL}', max_con: 5}\n"))
	text, jsonErr := json.Marshal(err)
	require.NoError(t, jsonErr)
	require.JSONEq(t, `{"file":"node.yaml","faults":[{"file":"node.yaml","line":2,"column":35,"path":"pools.a.max_con",
		"what":"is an unknown key","fix":"did you mean max_conns?"}]}`, string(text))
}

// Reliability (b) 7: a file that everybody can read and that holds a secret.
func TestLoadRefusesExposedSecrets(t *testing.T) {
	t.Parallel()
	const literal = `pools:
  a:
    dsn: postgres://app:hunter2@db/x
  b:
    dsn: host=db dbname=y password='hunter2'
  c:
    dsn: postgres://app:${env:KEY}@db/z
cluster:
  keys:
    - ${env:KEY}
    - AQIDBAUGBwgJCgsMDQ4PEA==
`
	path := filepath.Join(t.TempDir(), "node.yaml")
	require.NoError(t, os.WriteFile(path, []byte(literal), 0o600))
	_, err := Load(path)
	require.NoError(t, err)

	require.NoError(t, os.Chmod(path, 0o640)) // a group is not everybody
	_, err = Load(path)
	require.NoError(t, err)

	require.NoError(t, os.Chmod(path, 0o644))
	_, err = Load(path)
	require.EqualError(t, err, strings.ReplaceAll(`FILE:3:10: error: pools.a.dsn has a secret in it, and every user of this machine can read the file
      = chmod 600 FILE, or write ${env:NAME} or ${file:/path} in its place
FILE:5:10: error: pools.b.dsn has a secret in it, and every user of this machine can read the file
      = chmod 600 FILE, or write ${env:NAME} or ${file:/path} in its place
FILE:11:7: error: cluster.keys[1] has a secret in it, and every user of this machine can read the file
      = chmod 600 FILE, or write ${env:NAME} or ${file:/path} in its place
3 problems in FILE`, "FILE", path))

	require.NoError(t, os.WriteFile(path, []byte(Minimal), 0o644)) // references only
	require.NoError(t, os.Chmod(path, 0o644))
	_, err = Load(path)
	require.NoError(t, err)
}

func TestLoadMissingFile(t *testing.T) {
	t.Parallel()
	_, err := Load(filepath.Join(t.TempDir(), "node.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
