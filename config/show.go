package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"go.yaml.in/yaml/v4"
)

// Show prints the effective configuration, defaults included, as YAML that [Parse]
// reads again. What came from a reference is shown as the reference. A password
// that a DSN spells out is shown as ***. A cluster key that the file spells out is
// shown as a reference to TENURE_CLUSTER_KEY_1 and so on, one of encryption's likewise, each by a
// name of its own: any stand-in that Parse takes would be a key that everybody knows.
func (c Config) Show() ([]byte, error) {
	full := c.Routing().WithDefaults()
	c.Pools, c.Tenants = full.Pools, full.Tenants
	var root yaml.Node
	if err := root.Encode(c); err != nil {
		return nil, fmt.Errorf("show configuration: %w", err)
	}
	c.show(&root, "")
	out, err := yaml.Dump(&root, yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("show configuration: %w", err)
	}
	return out, nil
}

// show masks secrets and drops what is not set.
func (c Config) show(n *yaml.Node, path string) {
	switch n.Kind {
	case yaml.DocumentNode:
		c.show(n.Content[0], path)
	case yaml.MappingNode:
		var kept []*yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if value.Tag == "!!null" {
				continue
			}
			c.show(value, join(path, key.Value))
			kept = append(kept, key, value)
		}
		n.Content = kept
	case yaml.SequenceNode:
		for i, item := range n.Content {
			c.show(item, path+"["+strconv.Itoa(i)+"]")
		}
	case yaml.ScalarNode:
		c.showScalar(n, path)
	}
}

func (c Config) showScalar(n *yaml.Node, path string) {
	r, referred := c.references[path]
	// A program may have set another value since the file was read.
	referred = referred && r.value == n.Value
	text := n.Value
	switch {
	case referred && holdsDSN(path):
		text = maskDSN(r.source)
	case referred && !(holdsKey(path) && isLiteral(r.source)):
		text = r.source
	case holdsKey(path):
		text = "${env:" + keyVariable(path) + "}"
	case holdsDSN(path):
		text = escape(maskDSN(n.Value))
		if _, err := pgconn.ParseConfig(n.Value); err != nil {
			text = mask // of what cannot be read nobody knows what is a password
		}
	case hasPassword(n.Value) && !strings.HasPrefix(path, "tenants.table."): // by a program
		text = mask
	case n.Tag == "!!str":
		text = escape(n.Value)
	}
	if text != n.Value {
		n.Style = 0 // that of the value; this may not need its quotes
		n.SetString(text)
	}
}

// keyVariable is the variable for the key at a path. In a tenant's id all that is neither a letter nor a
// digit is written as its code, so that no two tenants have one.
func keyVariable(path string) string {
	section, rest, _ := strings.Cut(path, ".")
	end := strings.LastIndexByte(path, '[')
	i, _ := strconv.Atoi(strings.TrimSuffix(path[end+1:], "]"))
	tenant := ""
	if id, ok := strings.CutPrefix(rest, "tenants."); ok {
		id = strings.TrimSuffix(id[:strings.LastIndexByte(id, '[')], ".keys")
		tenant = "_" + outsideNames.ReplaceAllStringFunc(id, func(s string) string { return fmt.Sprintf("_%x_", s) })
	}
	return "TENURE_" + strings.ToUpper(section) + "_KEY" + tenant + "_" + strconv.Itoa(i+1)
}

var outsideNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

// escape keeps text from being read as a reference.
func escape(text string) string { return strings.ReplaceAll(text, "${", "$${") }
