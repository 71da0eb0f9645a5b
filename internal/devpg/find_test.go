package devpg

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func fakeServer(t *testing.T, dir string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, name := range []string{"initdb", "postgres"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o755))
	}
	return dir
}

func TestSearch_takesTheNewestOfTheFirstPlace(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	fakeServer(t, filepath.Join(root, "lib", "9.6", "bin"))
	newest := fakeServer(t, filepath.Join(root, "lib", "17", "bin"))
	fakeServer(t, filepath.Join(root, "lib", "15", "bin"))
	onPath := fakeServer(t, filepath.Join(root, "path"))
	places := []string{filepath.Join(root, "none-*"), filepath.Join(root, "lib", "*", "bin")}

	got, err := search("", places, onPath)
	require.NoError(t, err)
	require.Equal(t, newest, got)

	got, err = search("", nil, "relative"+string(filepath.ListSeparator)+onPath)
	require.NoError(t, err)
	require.Equal(t, onPath, got)

	got, err = search(onPath, places, "")
	require.NoError(t, err)
	require.Equal(t, onPath, got, "pg_config comes first")
}

func TestSearch_passesOverClientsOnly(t *testing.T) {
	t.Parallel()
	clients := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(clients, "psql"), nil, 0o755))
	_, err := search(clients, nil, clients)
	require.ErrorIs(t, err, ErrNotFound)
}

func TestErrNotFound_tellsTheWaysOut(t *testing.T) {
	t.Parallel()
	_, err := search("", nil, "")
	require.ErrorIs(t, err, ErrNotFound)
	for _, part := range append([]string{
		"$TENURE_PG_BIN", "pg_config", "$PATH",
		"apt-get install -y postgresql", "brew install postgresql@17", "--dsn", "TEST_DATABASE_URL",
	}, places...) {
		require.ErrorContains(t, err, part)
	}
}

func TestOverride_neverFallsBack(t *testing.T) {
	t.Parallel()
	_, err := override(t.TempDir())
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, BinEnv)

	dir := fakeServer(t, t.TempDir())
	got, err := override(dir)
	require.NoError(t, err)
	require.Equal(t, dir, got)
}

func TestPlaces_areWellFormed(t *testing.T) {
	t.Parallel()
	for _, p := range places {
		require.Equal(t, 1, strings.Count(p, "*"))
		_, err := filepath.Glob(p)
		require.NoError(t, err)
	}
}

// What tools/postgres keeps in the user's cache is found, the newest first.
func TestFetched(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the cache is elsewhere")
	}
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	platform := "linux-" + strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
	fakeServer(t, filepath.Join(cache, "tenure-postgres", platform+"-9.6.0-beta.17", "bin"))
	newest := fakeServer(t, filepath.Join(cache, "tenure-postgres", platform+"-18.4.0-beta.17", "bin"))
	fakeServer(t, filepath.Join(cache, "tenure-postgres", "plan9-x64-19.0.0", "bin"))
	got, err := search("", fetched(), "")
	require.NoError(t, err)
	require.Equal(t, newest, got)
	require.Equal(t, fetched()[1], places[len(places)-1], "it is looked for")
}
