package config

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	prefixType   = reflect.TypeFor[netip.Prefix]()
	tenantType   = reflect.TypeFor[routing.TenantConfig]()
	scalarTypes  = []reflect.Type{durationType, prefixType}
)

func fieldsOf(t reflect.Type) iter.Seq[reflect.StructField] {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && keyOf(f) != "-" && !yield(f) {
				return
			}
		}
	}
}

func keyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return key
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// check walks a node beside the type it is to fill, reports what does not fit, and
// rewrites the node so that the YAML library can decode it without a fault:
// references resolved, durations in Go's form, short forms made long. It returns
// false when the value is of no use; the caller then takes it out.
func (d *document) check(n *yaml.Node, t reflect.Type, path string) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !d.plain(n, path) {
		return false
	}
	if t == tenantType && n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
		value := *n
		*n = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line, Column: n.Column,
			Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: "pool", Line: n.Line, Column: n.Column}, &value}}
	}
	switch {
	case slices.Contains(scalarTypes, t):
		return d.checkScalar(n, t, path)
	case t.Kind() == reflect.Struct:
		return d.checkSection(n, t, path)
	case t.Kind() == reflect.Map:
		return d.checkMap(n, t, path)
	case t.Kind() == reflect.Slice:
		return d.checkList(n, t, path)
	default:
		return d.checkScalar(n, t, path)
	}
}

// plain refuses the parts of YAML that a configuration is easier to read without.
func (d *document) plain(n *yaml.Node, path string) bool {
	switch {
	case n.Kind == yaml.AliasNode, n.Tag == "!!merge":
		d.report(n, path, "aliases (*name) and merge keys (<<) are not supported", "write the value out")
	case n.Anchor != "":
		d.report(n, path, "anchors (&name) are not supported", "write the value out where it is needed")
	case n.Style&yaml.TaggedStyle != 0:
		d.report(n, path, "tags (!name) are not supported", "leave it out; quotes make a text of anything")
	default:
		return true
	}
	return false
}

func (d *document) checkSection(n *yaml.Node, t reflect.Type, path string) bool {
	if n.Kind != yaml.MappingNode {
		d.report(n, path, cmp.Or(path, "the file")+" needs keys of its own, but is "+kindWord(n), "its keys are: "+strings.Join(keysOf(t), ", "))
		return false
	}
	fields := map[string]reflect.Type{}
	for f := range fieldsOf(t) {
		fields[keyOf(f)] = f.Type
	}
	var kept []*yaml.Node
	var above *yaml.Node // the section that was begun last, if nothing stands in it
	for key, value := range d.pairs(n, path) {
		at := join(path, key.Value)
		field, known := fields[key.Value]
		if !known {
			fix, meant := unknownKeyFix(key.Value, t)
			if above != nil {
				fix, meant = indentFix(above), ""
			}
			d.report(key, at, "unknown key "+d.quote(key.Value), fix)
			if meant != "" {
				d.bad = append(d.bad, join(path, meant))
			}
			continue
		}
		above = nil
		if value.Tag == "!!null" && value.Kind == yaml.ScalarNode {
			if isSection(field) {
				above = key
			}
			d.places[at] = placeOf(key)
			if field.Kind() == reflect.Pointer { // is it there or not? it matters here
				d.report(key, at, at+" is empty", "write "+key.Value+": {} to have it with its defaults, or remove the line")
			}
			continue // as if it were not there, so the default holds
		}
		if d.checkValue(key, value, field, at) {
			kept = append(kept, key, value)
		}
	}
	n.Content = kept
	return true
}

// checkMap keeps sections whose value is wrong, with an empty value, since others
// refer to them by name.
func (d *document) checkMap(n *yaml.Node, t reflect.Type, path string) bool {
	if n.Kind != yaml.MappingNode {
		d.report(n, path, path+" needs lines of the form name: value, but is "+kindWord(n), "")
		return false
	}
	var kept []*yaml.Node
	var above *yaml.Node // the entry that was begun last, if nothing stands in it
	sections := isSection(t.Elem())
	for key, value := range d.pairs(n, path) {
		if d.isMisplaced(key, value, t.Elem(), path, above) {
			continue
		}
		null := sections && value.Kind == yaml.ScalarNode && value.Tag == "!!null" && d.plain(value, join(path, key.Value))
		above = nil
		if null {
			above = key
			d.places[join(path, key.Value)] = placeOf(key)
		}
		if null || !d.checkValue(key, value, t.Elem(), join(path, key.Value)) {
			if !sections {
				continue
			}
			value = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: value.Line, Column: value.Column}
		}
		kept = append(kept, key, value)
	}
	n.Content = kept
	return true
}

// isMisplaced reports a setting, such as a DSN, that stands where the name of an entry
// belongs, such as a pool's: it is not indented, or the name is missing.
func (d *document) isMisplaced(key, value *yaml.Node, entry reflect.Type, path string, above *yaml.Node) bool {
	if !isSection(entry) || entry == tenantType || value.Kind != yaml.ScalarNode || value.Tag == "!!null" || !slices.Contains(keysOf(entry), key.Value) {
		return false
	}
	fix := "write a name above it, and indent it below that:  " + path + ": {main: {" + key.Value + ": …}}"
	if above != nil {
		fix = indentFix(above)
	}
	d.report(key, join(path, key.Value), d.quote(key.Value)+" stands where a name under "+path+" belongs", fix)
	d.bad = append(d.bad, path) // whatever refers to the names
	return true
}

func isSection(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Map || t.Kind() == reflect.Struct && !slices.Contains(scalarTypes, t)
}

func indentFix(above *yaml.Node) string {
	return "indent it by two spaces more, so that it stands below " + above.Value
}

func (d *document) checkList(n *yaml.Node, t reflect.Type, path string) bool {
	if n.Kind != yaml.SequenceNode {
		d.report(n, path, path+" needs a list, but is "+kindWord(n), "write each entry on a line of its own after a dash, or all in brackets: [a, b]")
		return false
	}
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.places[at] = placeOf(item)
		ok := d.check(item, t.Elem(), at)
		if !ok { // keeps its place, so that the others keep their numbers
			n.Content[i] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Line: item.Line, Column: item.Column}
		}
	}
	return true
}

// pairs yields keys with values, without duplicates and keys of a wrong form.
func (d *document) pairs(n *yaml.Node, path string) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		lines := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if !d.plain(key, path) {
				continue
			}
			if key.Kind != yaml.ScalarNode {
				d.report(key, path, "a key must be a single word, but is "+kindWord(key), "")
				continue
			}
			if d.hidden.covers(d.lines, placeOf(key)) {
				d.report(key, path, "a password has fallen apart here", "put the whole value in quotes")
				continue
			}
			at := join(path, key.Value)
			if maskText(key.Value, nil) != key.Value {
				d.report(key, at, "a name is no place for a connection string with a password", "a pool's stands in pools.<name>.dsn")
				continue
			}
			if strings.Contains(key.Value, "${") {
				d.report(key, at, "a key cannot be a reference", "write the name itself")
				continue
			}
			if line, dup := lines[key.Value]; dup {
				d.report(key, at, fmt.Sprintf("duplicate key %s: line %d has it already", d.quote(key.Value), line), "remove one of the two")
				continue
			}
			lines[key.Value] = key.Line
			key.Tag, key.Style = "!!str", yaml.DoubleQuotedStyle // 1 and null are names, too
			if !yield(key, value) {
				return
			}
		}
	}
}

// checkValue remembers where a setting stands: a single value by itself, anything
// longer by its key.
func (d *document) checkValue(key, value *yaml.Node, t reflect.Type, path string) bool {
	d.places[path] = placeOf(key)
	short := t == tenantType && value.Kind == yaml.ScalarNode
	if value.Kind == yaml.ScalarNode && !short {
		d.places[path] = placeOf(value)
	}
	return d.check(value, t, path)
}

// checkScalar resolves references and puts the value into the form that the
// library reads without a doubt.
func (d *document) checkScalar(n *yaml.Node, t reflect.Type, path string) bool {
	if n.Kind != yaml.ScalarNode {
		d.report(n, path, path+" needs a single value, but is "+kindWord(n), "")
		return false
	}
	if n.Tag == "!!null" { // only in a list; elsewhere the default holds
		d.report(n, path, path+" is empty", "")
		return false
	}
	text, parts, f := resolve(n.Value, holdsDSN(path))
	if f != nil {
		d.report(n, path, f.What, f.Fix)
		return false
	}
	source := n.Value
	if what, fix := misused(path, source, text); what != "" {
		d.report(n, path, what, fix)
		return false
	}
	value, err := canonical(text, t)
	if err != nil {
		shown, fix := d.quote(text), err.fix
		if len(parts) > 0 {
			shown, fix = source, "" // never what a reference stands for
		}
		d.report(n, path, shown+" "+err.what, fix)
		return false
	}
	n.Tag, n.Value, n.Style = "!!str", value, yaml.DoubleQuotedStyle
	if t.Kind() != reflect.String && !slices.Contains(scalarTypes, t) {
		n.Tag, n.Style = "", 0 // a number or a truth value in its own form
	}
	if len(parts) > 0 {
		if value != text {
			parts = append(parts, part{source, value})
		}
		d.references[path] = reference{source, value, parts}
	}
	if spellsOutSecret(path, source) {
		d.secrets = append(d.secrets, path)
	}
	return true
}

// A variable as a shell would write it.
var (
	bareVariable = regexp.MustCompile(`^\$([A-Za-z_][A-Za-z0-9_]*)$`)
	dsnVariable  = regexp.MustCompile(`[:/@=]\$([A-Z_][A-Z0-9_]{2,})(?:[@:/?&\s]|$)`)
)

// misused finds a value that is text of the right form, and yet no setting: a variable that
// nothing replaces, or a password where it would be shown. No fault quotes what a reference
// stands for.
func misused(path, source, text string) (what, fix string) {
	m := bareVariable.FindStringSubmatch(source)
	if m == nil && holdsDSN(path) {
		m = dsnVariable.FindStringSubmatch(source)
	}
	switch {
	case m != nil && inPassword(source, "$"+m[1]):
		fix := "put the DSN into a file and write ${file:/path}"
		if strings.Contains(source, "://") {
			fix = "write it as %24"
		}
		return "the password, or part of it, looks like a shell's variable, which nothing replaces",
			"write ${env:NAME} for a variable; if the $ is the password's own, " + fix
	case m != nil:
		return "$" + m[1] + " is not replaced by anything", "did you mean ${env:" + m[1] + "}?"
	case !holdsDSN(path) && !strings.HasPrefix(path, "tenants.table.") && maskText(text, nil) != text:
		return path + " is no place for a connection string with a password", "a pool's stands in pools.<name>.dsn"
	}
	return "", ""
}

// inPassword tells whether some of a connection string's text is its password, or part of it.
func inPassword(dsn, some string) bool {
	return strings.Count(maskText(dsn, nil), some) < strings.Count(dsn, some)
}

// holdsDSN tells whether a connection string belongs at path.
func holdsDSN(path string) bool {
	return strings.HasPrefix(path, "pools.") && (strings.HasSuffix(path, ".dsn") || strings.HasSuffix(path, ".tenant_dsn"))
}

// formFault says what is wrong with a text; fix may quote it.
type formFault struct{ what, fix string }

var (
	wholeNumber = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)$`)
	looseNumber = regexp.MustCompile(`^0*([0-9][0-9_,']*)$`)
	anyNumber   = regexp.MustCompile(`^-?[0-9]+(?:\.[0-9]+)?$`)
	days        = regexp.MustCompile(`^([0-9]+) ?d(?:ays?)?$`)
)

// canonical reads text as a t and returns its usual spelling.
func canonical(text string, t reflect.Type) (string, *formFault) {
	switch t {
	case durationType:
		v, err := job.ParseDuration(text)
		switch {
		case err == nil:
			return v.String(), nil
		case anyNumber.MatchString(text):
			return "", &formFault{"has no unit", "did you mean " + text + "s?"}
		case days.MatchString(text):
			return "", &formFault{"is not a duration", "did you mean P" + days.FindStringSubmatch(text)[1] + "D?"}
		}
		return "", &formFault{"is not a duration: write 90s, 5m, 1h30m or PT5M", ""}
	case prefixType:
		p, err := netip.ParsePrefix(text)
		if addr, addrErr := netip.ParseAddr(text); addrErr == nil && addr.Zone() == "" {
			return "", &formFault{"is not a network", "did you mean " + netip.PrefixFrom(addr, addr.BitLen()).String() + "?"}
		}
		switch {
		case err != nil:
			return "", &formFault{"is not a network: write one such as 10.20.0.0/16", ""}
		case p != p.Masked():
			return "", &formFault{"is not the beginning of a network", "did you mean " + p.Masked().String() + "?"}
		}
		return p.String(), nil
	}
	switch t.Kind() {
	case reflect.Int:
		if m := looseNumber.FindStringSubmatch(text); m != nil && !wholeNumber.MatchString(text) {
			return "", &formFault{"is not a whole number", "did you mean " + strings.NewReplacer("_", "", ",", "", "'", "").Replace(m[1]) + "?"}
		}
		if !wholeNumber.MatchString(text) {
			return "", &formFault{"is not a whole number", ""}
		}
		v, err := strconv.ParseInt(text, 10, 0)
		if errors.Is(err, strconv.ErrRange) {
			return "", &formFault{"is too large a number", ""}
		}
		return strconv.FormatInt(v, 10), nil
	case reflect.Bool:
		switch strings.ToLower(text) {
		case "true", "false":
			return strings.ToLower(text), nil
		case "yes", "y", "on", "1":
			return "", &formFault{"is neither true nor false", "did you mean true?"}
		case "no", "n", "off", "0":
			return "", &formFault{"is neither true nor false", "did you mean false?"}
		}
		return "", &formFault{"is neither true nor false", ""}
	default:
		return text, nil
	}
}

func kindWord(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a section with keys"
	case yaml.SequenceNode:
		return "a list"
	default:
		return "a single value"
	}
}
