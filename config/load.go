package config

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tenurehq/tenure/membership"
)

// maxFile bounds a configuration file.
const maxFile = 1 << 20

// Load reads the file at path, resolves its references, fills in defaults and
// validates. Mistakes in the file come as an [*Error], all in one go; a file that
// cannot be read as an error that wraps the system's. A file that spells out a
// password or a cluster key is refused when every user of the machine can read it.
func Load(path string) (Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	const othersRead = 0o004
	// Windows keeps access lists instead, of which Go shows none.
	exposed := runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&othersRead != 0
	c, err := parse(path, data, exposed)
	c.File = path
	return c, err
}

// Parse is [Load] for what is already in memory; name stands for the file in
// errors. References are resolved in this process's environment and file system.
func Parse(name string, data []byte) (Config, error) {
	return parse(name, data, false)
}

func parse(name string, data []byte, exposed bool) (Config, error) {
	d := newDocument(name)
	if len(data) > maxFile {
		d.reportAt(place{1, 1}, "", fmt.Sprintf("is larger than %d KiB", maxFile>>10), "")
		return Config{}, d.err.err()
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	root, syntax := parseYAML(data)
	switch {
	case syntax != nil:
		d.checkAbove(data, syntax.line)
		d.reportAt(syntax.place, "", syntax.what, syntax.fix)
		return Config{}, d.err.err()
	case root == nil:
		d.reportAt(place{1, 1}, "", "has no settings; a node needs a pool", "")
		d.err.Example = Minimal
		return Config{}, d.err.err()
	}
	c := d.decode(root)
	d.reportFaults(c)
	if exposed {
		for _, path := range d.secrets {
			d.reportAt(d.places[path], path, "has a secret in it, and every user of this machine can read the file",
				"chmod 600 "+name+", or write ${env:NAME} or ${file:/path} in its place")
		}
	}
	if err := d.err.err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// decode fills a Config with what is right of the file, and reports what is not.
func (d *document) decode(root *yaml.Node) Config {
	c, cluster := Default(), membership.DefaultConfig()
	c.Cluster = &cluster
	d.fill(root, reflect.ValueOf(&c).Elem(), "")
	if _, given := d.places["cluster"]; !given {
		c.Cluster = nil
	}
	for id := range c.Tenants.Static {
		// A tenant whose place is only half known could seem to collide with another.
		if d.isBad("tenants.static." + string(id)) {
			delete(c.Tenants.Static, id)
		}
	}
	full := c.Routing().WithDefaults()
	c.Pools, c.Tenants = full.Pools, full.Tenants
	c.references = d.references
	return c
}

var sectionLine = regexp.MustCompile(`^[a-z]`)

// checkAbove finds the mistakes in the sections above a line that is not YAML.
func (d *document) checkAbove(data []byte, line int) {
	lines := lineBreak.Split(string(data), -1)
	for i := min(line, len(lines)) - 1; i > 0; i-- {
		if !sectionLine.MatchString(lines[i]) {
			continue
		}
		if root, syntax := parseYAML([]byte(strings.Join(lines[:i], "\n"))); syntax == nil && root != nil {
			d.decode(root)
		}
		return
	}
}
