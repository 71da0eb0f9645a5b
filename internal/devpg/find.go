package devpg

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// BinEnv names the environment variable that overrides the search of [Find].
const BinEnv = "TENURE_PG_BIN"

// ErrNotFound is returned when the machine has no PostgreSQL server binaries.
var ErrNotFound = errors.New("no PostgreSQL found (looked in $" + BinEnv + ", pg_config --bindir, " + strings.Join(places, ", ") + `, $PATH)
  Debian/Ubuntu   apt-get install -y postgresql
  macOS           brew install postgresql@17
  or point at one --dsn postgres://… for commands, TEST_DATABASE_URL=postgres://… for tests`)

// places are searched after pg_config; the star stands for the version, and the
// newest wins.
// Distributions keep the server off PATH, so PATH comes last: what is there may
// be a client's wrapper.
var places = append([]string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/libexec/postgresql*",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}, fetched()...)

// fetched are where tools/postgres keeps what it fetches.
func fetched() (patterns []string) {
	caches := []string{"/var/cache"} // root's
	if own, err := os.UserCacheDir(); err == nil {
		caches = append([]string{own}, caches...)
	}
	platform := runtime.GOOS + "-" + strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
	for _, cache := range caches {
		patterns = append(patterns, filepath.Join(cache, "tenure-postgres", platform+"-*", "bin"))
	}
	return patterns
}

// Find returns the directory of initdb and postgres. When TENURE_PG_BIN is set
// it is that or an error; otherwise pg_config, the usual places and PATH are
// searched, and the error is [ErrNotFound].
func Find() (binDir string, err error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		return override(dir)
	}
	return search(pgConfig(), places, os.Getenv("PATH"))
}

func override(dir string) (string, error) {
	if !hasServer(dir) {
		return "", fmt.Errorf("%s=%q has no initdb and postgres: %w", BinEnv, dir, ErrNotFound)
	}
	return dir, nil
}

func search(configured string, places []string, path string) (string, error) {
	dirs := []string{configured}
	for _, pattern := range places {
		found, _ := filepath.Glob(pattern) // the only error is a malformed pattern, and a test globs them all
		start := strings.Index(pattern, "*")
		slices.SortFunc(found, func(a, b string) int { return cmp.Compare(version(b[start:]), version(a[start:])) })
		dirs = append(dirs, found...)
	}
	for _, dir := range append(dirs, filepath.SplitList(path)...) {
		if filepath.IsAbs(dir) && hasServer(dir) {
			return dir, nil
		}
	}
	return "", ErrNotFound
}

func pgConfig() string {
	out, err := exec.Command("pg_config", "--bindir").Output()
	if err != nil {
		return "" // usually not installed: it belongs to the development files
	}
	return strings.TrimSpace(string(out))
}

var digits = regexp.MustCompile(`\d+(\.\d+)?`)

func version(s string) float64 {
	v, _ := strconv.ParseFloat(digits.FindString(s), 64) // without digits: oldest
	return v
}

func hasServer(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}
