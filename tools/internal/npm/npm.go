// Package npm downloads packages from the registry that NPM_CONFIG_REGISTRY or npm itself names. npm need not be
// installed.
package npm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Package is one version of a package.
type Package struct {
	Name    string // with its scope
	Version string
	SHA512  string // of its archive, as npm's "integrity" has it: npm view NAME@VERSION dist.integrity
}

// Keep fetches a package into a folder, unless it is there. unpack gets the archive, and an empty folder
// that takes the other's place once it is whole.
func (p Package) Keep(dir string, unpack func(archive []byte, dir string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	archive, err := p.download()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	beside, err := os.MkdirTemp(filepath.Dir(dir), "fetching-") // so that an interrupted one is not taken for whole
	if err != nil {
		return err
	}
	defer os.RemoveAll(beside)
	if err := unpack(archive, beside); err != nil {
		return fmt.Errorf("unpack %s %s: %w", p.Name, p.Version, err)
	}
	if err := os.Chmod(beside, 0o755); err != nil {
		return err
	}
	if err := os.Rename(beside, dir); err != nil {
		if _, there := os.Stat(dir); there != nil { // else another process was quicker
			return err
		}
	}
	return nil
}

// download returns the archive, and refuses another one than is known.
func (p Package) download() ([]byte, error) {
	from, err := registry()
	if err != nil {
		return nil, err
	}
	archive, err := get(from + p.Name + "/-/" + path.Base(p.Name) + "-" + p.Version + ".tgz")
	if err != nil {
		return nil, err
	}
	if sum := sha512.Sum512(archive); base64.StdEncoding.EncodeToString(sum[:]) != p.SHA512 {
		return nil, fmt.Errorf("what came is not the package %s %s that is known here (SHA-512 %x): nothing was unpacked; look at what answers at NPM_CONFIG_REGISTRY", p.Name, p.Version, sum[:8])
	}
	return archive, nil
}

// Unpack calls write with each file of an archive below a folder of the package; name is as seen from there.
func Unpack(archive []byte, folder string, write func(name string, mode os.FileMode, from io.Reader) error) error {
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	files := tar.NewReader(unzipped)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name, ok := strings.CutPrefix(h.Name, "package/"+folder)
		if !ok || h.Typeflag != tar.TypeReg {
			continue
		}
		if err := write(name, h.FileInfo().Mode(), files); err != nil {
			return err
		}
	}
}

// registry is npm's, with a slash at its end.
func registry() (string, error) {
	asked, _ := exec.Command("npm", "config", "get", "registry").Output() // it may not be installed
	for _, url := range []string{os.Getenv("NPM_CONFIG_REGISTRY"), os.Getenv("npm_config_registry"), strings.TrimSpace(string(asked))} {
		if strings.HasPrefix(url, "http") {
			return strings.TrimRight(url, "/") + "/", nil
		}
	}
	return "", errors.New("find npm's registry: npm does not say which; install npm, or set NPM_CONFIG_REGISTRY to its address")
}

const (
	downloadLimit = 5 * time.Minute
	downloadSize  = 200 << 20 // several times what a package has
)

func get(url string) ([]byte, error) {
	client := http.Client{Timeout: downloadLimit}
	resp, err := client.Get(url)
	if err != nil {
		return nil, fmt.Errorf("%w; NPM_CONFIG_REGISTRY names another registry", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s; NPM_CONFIG_REGISTRY names another registry", url, resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, downloadSize+1))
	if err == nil && len(b) > downloadSize {
		err = errors.New("it does not end")
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", url, err)
	}
	return b, nil
}
