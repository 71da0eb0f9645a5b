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
	"github.com/tenurehq/tenure/tenancy"
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
	d := &document{err: Error{File: name}, places: map[string]place{}, references: map[string]reference{}}
	if len(data) > maxFile {
		d.err.add(Fault{File: name, Line: 1, Column: 1, What: fmt.Sprintf("the file is larger than %d KiB", maxFile>>10)})
		return Config{}, d.err.err()
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	d.lines = lineBreak.Split(string(data), -1)
	d.hidden.findByLook(d.lines)

	root, syntax := parseYAML(data)
	switch {
	case syntax != nil:
		d.checkAbove(syntax.line)
		d.reportAt(syntax.place, "", syntax.what, syntax.fix)
		return Config{}, d.err.err()
	case root == nil:
		d.err.add(Fault{File: name, Line: 1, Column: 1, What: "the file has no settings; a node needs a pool"})
		d.err.Example = Minimal
		return Config{}, d.err.err()
	}
	c := d.decode(root)
	d.reportFaults(c)
	if exposed {
		for _, path := range d.secrets {
			d.reportAt(d.locate(path, ""), path, path+" spells out a secret, and every user of this machine can read the file",
				"chmod 600 "+name+", or write ${env:NAME} or ${file:/path} in its place")
		}
	}
	if err := d.err.err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// decode checks the shape of the file and fills a Config with what is right of it.
func (d *document) decode(root *yaml.Node) Config {
	d.hidden.find(root, false)
	c := Default()
	if !d.check(root, reflect.TypeFor[Config](), "") {
		d.bad = append(d.bad, "")
		return c
	}
	if _, given := d.places["cluster"]; given {
		cluster := membership.DefaultConfig()
		c.Cluster = &cluster
	}
	if err := root.Decode(&c); err != nil {
		// check let something pass that the library refuses: a bug, yet no reason
		// to go on with half a configuration. The library may quote a secret.
		d.bad = append(d.bad, "")
		d.reportAt(place{1, 1}, "", "the file cannot be decoded, which is a mistake in Tenure: please report it with the file", "")
	}
	for id := range c.Tenants.Static {
		// A tenant whose place is only half known could seem to collide with another.
		if d.isBad("tenants.static." + string(id)) {
			delete(c.Tenants.Static, tenancy.ID(id))
		}
	}
	d.zeroes(c)
	full := c.Routing().WithDefaults()
	c.Pools, c.Tenants = full.Pools, full.Tenants
	c.references = d.references
	return c
}

var sectionLine = regexp.MustCompile(`^[a-z]`)

// checkAbove finds the mistakes in the sections above a line that is not YAML.
func (d *document) checkAbove(line int) {
	for i := min(line, len(d.lines)) - 1; i > 0; i-- {
		if !sectionLine.MatchString(d.lines[i]) {
			continue
		}
		root, syntax := parseYAML([]byte(strings.Join(d.lines[:i], "\n")))
		if syntax == nil && root != nil {
			d.decode(root)
		}
		return
	}
}

// zeroes refuses a 0 where the package would read it as left out.
func (d *document) zeroes(c Config) {
	for name, p := range c.Pools {
		path := "pools." + name + ".max_conns"
		if at, given := d.places[path]; given && p.MaxConns == 0 && !d.isBad(path) {
			d.reportAt(at, path, "0 connections are too few", "remove the line to have the default")
		}
	}
	const path = "tenants.table.cache"
	if at, given := d.places[path]; given && c.Tenants.Table != nil && c.Tenants.Table.Cache == 0 && !d.isBad(path) {
		d.reportAt(at, path, "0 would ask the table for every job", "write 1s or more, or remove the line to have the default")
	}
}
