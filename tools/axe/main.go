// Command axe fetches axe-core, which looks for what keeps people from using a page, and prints the path
// of its script. It is npm's package, fetched once, compared with the checksum that is written down here,
// and kept in the user's cache.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tenurehq/tenure/tools/internal/npm"
)

// axe is the version that tests use. To take a newer one, write down what
// `npm view axe-core@VERSION dist.integrity` prints, and see `make test-browser` pass.
var axe = npm.Package{Name: "axe-core", Version: "4.14.1", SHA512: "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="}

const script = "axe.min.js"

func main() {
	path, err := fetch()
	if err != nil {
		fmt.Fprintf(os.Stderr, "axe: fetch axe-core %s: %v\n", axe.Version, err)
		os.Exit(1)
	}
	fmt.Println(path)
}

func fetch() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache: %w; set XDG_CACHE_HOME", err)
	}
	dir := filepath.Join(cache, "tenure-axe", axe.Version)
	return filepath.Join(dir, script), axe.Keep(dir, unpack)
}

// unpack keeps the script, and the license that goes with it.
func unpack(archive []byte, dir string) error {
	return npm.Unpack(archive, "", func(name string, _ os.FileMode, from io.Reader) error {
		if name != script && name != "LICENSE" {
			return nil
		}
		text, err := io.ReadAll(from)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), text, 0o644)
	})
}
