package config

import (
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

	"github.com/tenurehq/tenure/internal/fault"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	prefixType   = reflect.TypeFor[netip.Prefix]()
	tenantType   = reflect.TypeFor[routing.TenantConfig]()
)

// fieldsOf are the settings that a struct has, with their keys.
func fieldsOf(t reflect.Type) iter.Seq2[string, reflect.StructField] {
	return func(yield func(string, reflect.StructField) bool) {
		for i := range t.NumField() {
			f := t.Field(i)
			key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if f.IsExported() && key != "-" && !yield(key, f) {
				return
			}
		}
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// isSection says whether a value has keys of its own.
func isSection(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Map || t.Kind() == reflect.Struct && t != prefixType
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// fill reads a node into v and reports what does not fit. It returns false when the
// value is of no use.
func (d *document) fill(n *yaml.Node, v reflect.Value, path string) bool {
	if !d.plain(n, path) {
		return false
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	switch {
	case v.Type() == tenantType && n.Kind == yaml.ScalarNode && !isNull(n): // acme: main
		path += ".pool"
		d.places[path] = placeOf(n)
		return d.scalar(n, v.FieldByName("Pool"), path)
	case isSection(v.Type()):
		return d.section(n, v, path)
	case v.Kind() == reflect.Slice:
		return d.list(n, v, path)
	}
	return d.scalar(n, v, path)
}

// plain refuses the parts of YAML that a configuration is easier to read without.
func (d *document) plain(n *yaml.Node, path string) bool {
	switch {
	case n.Kind == yaml.AliasNode, n.Tag == "!!merge":
		d.report(n, path, "has an alias (*name) or a merge key (<<), which are not supported", "write the value out")
	case n.Anchor != "":
		d.report(n, path, "has an anchor (&name), which is not supported", "write the value out where it is needed")
	case n.Style&yaml.TaggedStyle != 0:
		d.report(n, path, "has a tag (!name), which is not supported", "leave it out; quotes make a text of anything")
	default:
		return true
	}
	return false
}

// section reads the keys of a struct or a map. An entry of a map whose value is wrong
// is kept as an empty section, since others refer to it by name.
func (d *document) section(n *yaml.Node, v reflect.Value, path string) bool {
	t := v.Type()
	isMap := t.Kind() == reflect.Map
	if n.Kind != yaml.MappingNode {
		what, fix := "needs lines of the form name: value, but is ", ""
		if !isMap {
			what, fix = "needs keys of its own, but is ", "its keys are: "+strings.Join(keysOf(t), ", ")
		}
		d.report(n, path, what+kindWord(n), fix)
		return false
	}
	if isMap && v.IsNil() {
		v.Set(reflect.MakeMap(t))
	}
	var above *yaml.Node // the section that was begun last, if nothing stands in it
	for key, value := range d.pairs(n, t, path) {
		at := join(path, key.Value)
		into := field(v, key.Value)
		if isMap {
			into = reflect.New(t.Elem()).Elem()
		}
		if !into.IsValid() || isMap && isMisplaced(key, value, t.Elem()) {
			d.reportUnknown(key, t, path, above, n.Style&yaml.FlowStyle != 0)
			continue
		}
		null, nested := isNull(value), isSection(into.Type())
		d.places[at] = placeOf(key)
		if value.Kind == yaml.ScalarNode && !null && into.Type() != tenantType {
			d.places[at] = placeOf(value)
		}
		above = nil
		if null && nested {
			above = key
		}
		switch {
		case null && into.Kind() == reflect.Pointer: // is it there or not? it matters here
			d.report(key, at, "is empty", "write "+key.Value+": {} to have it with its defaults, or remove the line")
		case null && (nested || !isMap): // as if it were not there, so the default holds
		case !d.fill(value, into, at) && !nested:
			continue
		}
		if isMap {
			v.SetMapIndex(reflect.ValueOf(key.Value).Convert(t.Key()), into)
		}
	}
	return true
}

// field is that of a key; the zero Value: there is none.
func field(v reflect.Value, key string) reflect.Value {
	if v.Kind() == reflect.Struct {
		for k, f := range fieldsOf(v.Type()) {
			if k == key {
				return v.FieldByIndex(f.Index)
			}
		}
	}
	return reflect.Value{}
}

// isMisplaced tells a setting, such as a DSN, that stands where the name of an entry
// belongs, such as a pool's: it is not indented, or the name is missing.
func isMisplaced(key, value *yaml.Node, entry reflect.Type) bool {
	return isSection(entry) && entry != tenantType && value.Kind == yaml.ScalarNode && !isNull(value) && slices.Contains(keysOf(entry), key.Value)
}

// reportUnknown says what a key that t does not have was meant to be: one of its keys,
// or the same key in another section, or below the section that was begun above. A key like
// none is not told unless it is a word on a line of its own: in braces it may be the rest of a
// value that ended at a comma.
func (d *document) reportUnknown(key *yaml.Node, t reflect.Type, path string, above *yaml.Node, braces bool) {
	at, what, fix := join(path, key.Value), "is an unknown key", ""
	var elsewhere []string
	for _, p := range keyPaths(reflect.TypeFor[Config](), "") {
		if strings.HasSuffix(p, "."+key.Value) || p == key.Value {
			elsewhere = append(elsewhere, p)
		}
	}
	switch near := fault.Nearest(key.Value, keysOf(t)); {
	case t.Kind() == reflect.Map:
		what = "is a setting where a name belongs"
		fix = "write a name above it, and indent it below that:  " + path + ": {main: {" + key.Value + ": …}}"
		d.bad = append(d.bad, path) // whatever refers to the names
	case slices.Contains(elsewhere, key.Value):
		fix = "it is a section of its own: begin it at the left margin"
	case near != "":
		fix = "did you mean " + near + "?"
		d.bad = append(d.bad, join(path, near))
	case len(elsewhere) == 1:
		fix = "did you mean " + elsewhere[0] + "?"
	default:
		fix = "the keys here are: " + strings.Join(keysOf(t), ", ")
		if braces || !word.MatchString(key.Value) {
			at, what, fix = path, "has an unknown key here", fix+"; a value with a comma in it needs quotes"
		}
	}
	if above != nil {
		fix = "indent it by two spaces more, so that it stands below " + above.Value
	}
	d.bad = append(d.bad, join(path, key.Value))
	d.reportAt(placeOf(key), at, what, fix)
}

var word = regexp.MustCompile(`^[\w-]+$`)

func (d *document) list(n *yaml.Node, v reflect.Value, path string) bool {
	if n.Kind != yaml.SequenceNode {
		d.report(n, path, "needs a list, but is "+kindWord(n), "write each entry on a line of its own after a dash, or all in brackets: [a, b]")
		return false
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))) // what is refused keeps its place
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.places[at] = placeOf(item)
		d.fill(item, v.Index(i), at)
	}
	return true
}

var (
	// What has a password: a URL, unless it is a port that follows the colon, and others.
	urlPassword   = regexp.MustCompile(`//[^\s:/@"']*:(\S*)@`)
	otherPassword = regexp.MustCompile(`(?i)(?:^|[\s"'=({\[,/])[\w.%+-]+:[^\s"'/@][^\s"'@]*@[\w.\[-]|password\s*=`)
	// nameOfDSN is a part of a connection string that stands where a name belongs.
	nameOfDSN = regexp.MustCompile(`(?i)://|:.*@|password\s*=`)
	// beginOfDSN is enough of one to tell that what follows a comma may belong to it, and beginOfPassword that it may
	// belong to its password.
	beginOfDSN      = regexp.MustCompile(`[:=]`)
	beginOfPassword = regexp.MustCompile(`(?i)//[^\s:/@"']*:[^@]*$|^[\w.%+-]+:[^\s@]*[^\s@0-9][^\s@]*$|password\s*=`)
)

// hasPassword tells whether a text holds a connection string with a password, wherever it stands.
func hasPassword(text string) bool {
	for _, m := range urlPassword.FindAllStringSubmatch(text, -1) {
		if !portThenPath.MatchString(m[1]) {
			return true
		}
	}
	return otherPassword.MatchString(text)
}

// pairs yields keys with values, without duplicates and keys of a wrong form. No fault names a
// key that may be a connection string, or the rest of one that ended at a comma.
func (d *document) pairs(n *yaml.Node, t reflect.Type, path string) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		lines := map[string]int{}
		torn, cut := false, false // at a comma, in a connection string, or in its password
		known := keysOf(t)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			refuse := func(what, fix string) {
				d.bad = append(d.bad, join(path, "?")) // whatever was meant
				d.reportAt(placeOf(key), path, what, fix)
			}
			line, dup := lines[key.Value]
			inBraces := n.Style&yaml.FlowStyle != 0
			switch {
			case !d.plain(key, path):
			case key.Kind != yaml.ScalarNode:
				refuse("needs keys of a single word, but this is "+kindWord(key), "")
			case torn && t.Kind() == reflect.Map, cut && !slices.Contains(known, key.Value):
				refuse("has a name here that may be the rest of a value which ended at a comma", "put the whole value in quotes")
			case hasPassword(key.Value), inBraces && key.Style == 0 && nameOfDSN.MatchString(key.Value):
				refuse("has a connection string where a name belongs", "a pool's stands in pools.<name>.dsn")
			case strings.Contains(key.Value, "${"):
				refuse("has a reference where a name belongs", "write the name itself")
			case dup:
				d.report(key, join(path, key.Value), fmt.Sprintf("is set in line %d already", line), "remove one of the two")
			default:
				lines[key.Value] = key.Line
				if !yield(key, value) {
					return
				}
			}
			torn = torn || inBraces && (value.Style == 0 && beginOfDSN.MatchString(value.Value) || key.Style == 0 && nameOfDSN.MatchString(key.Value))
			cut = cut || inBraces && value.Style == 0 && beginOfPassword.MatchString(value.Value)
		}
	}
}

// scalar resolves references and reads a single value.
func (d *document) scalar(n *yaml.Node, v reflect.Value, path string) bool {
	if n.Kind != yaml.ScalarNode {
		d.report(n, path, "needs a single value, but is "+kindWord(n), "")
		return false
	}
	if isNull(n) { // only in a list or a map; elsewhere the default holds
		d.report(n, path, "is empty", "")
		return false
	}
	source := n.Value
	text, referred, f := resolve(source, holdsDSN(path))
	if f == nil {
		f = misused(path, source, text)
	}
	if f == nil {
		f = parseValue(text, v)
		if f != nil && referred {
			f.Fix = "" // made of the value
		}
	}
	if f == nil && v.IsZero() && (strings.HasPrefix(path, "pools.") && strings.HasSuffix(path, ".max_conns") || path == "tenants.table.cache") {
		f = &fault.Fault{What: "is 0, which is too little", Fix: "write more, or remove the line to have the default"}
	}
	if f != nil {
		d.report(n, path, f.What, f.Fix)
		return false
	}
	if referred {
		d.references[path] = reference{source, fmt.Sprint(v.Interface())}
	}
	if holdsDSN(path) && maskDSN(source) != source || holdsKey(path) && isLiteral(source) {
		d.secrets = append(d.secrets, path)
	}
	return true
}

// A variable as a shell would write it, as the whole of a value or as a part of a DSN.
var (
	bareVariable = regexp.MustCompile(`^\$[A-Za-z_][A-Za-z0-9_]*$`)
	dsnVariable  = regexp.MustCompile(`[:/@=]\$[A-Z_][A-Z0-9_]{2,}(?:[@:/?&\s]|$)`)
)

// misused finds a value that is text of the right form, and yet no setting: a variable that
// nothing replaces, or a password where it would be shown.
func misused(path, source, text string) *fault.Fault {
	switch {
	case bareVariable.MatchString(source), holdsDSN(path) && dsnVariable.MatchString(source):
		return &fault.Fault{What: "has what looks like a shell's variable, which nothing replaces",
			Fix: "write ${env:NAME} for a variable; a $ of a password is written %24 in a URL, and elsewhere stands in a file: ${file:/path}"}
	case !holdsDSN(path) && !strings.HasPrefix(path, "tenants.table.") && hasPassword(text):
		return &fault.Fault{What: "is no place for a connection string with a password", Fix: "a pool's stands in pools.<name>.dsn"}
	}
	return nil
}

// holdsDSN tells whether a connection string belongs at path.
func holdsDSN(path string) bool {
	return strings.HasPrefix(path, "pools.") && (strings.HasSuffix(path, ".dsn") || strings.HasSuffix(path, ".tenant_dsn"))
}

// holdsKey tells whether a key belongs at path.
func holdsKey(path string) bool {
	return strings.HasPrefix(path, "cluster.keys[") || strings.HasPrefix(path, "encryption.") && strings.Contains(path, "keys[")
}

var (
	wholeNumber = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)$`)
	looseNumber = regexp.MustCompile(`^0*([0-9][0-9_,']*)$`)
	anyNumber   = regexp.MustCompile(`^-?[0-9]+(?:\.[0-9]+)?$`)
	days        = regexp.MustCompile(`^([0-9]+) ?d(?:ays?)?$`)
)

// parseValue reads text into v. A fix may have the text where it is nothing but a number or an address.
func parseValue(text string, v reflect.Value) *fault.Fault {
	bad := func(what, fix string) *fault.Fault { return &fault.Fault{What: what, Fix: fix} }
	meant := func(what, word string) *fault.Fault { return bad(what, "did you mean "+word+"?") }
	switch {
	case v.Type() == durationType:
		parsed, err := job.ParseDuration(text)
		switch {
		case err != nil && anyNumber.MatchString(text):
			return meant("has no unit", text+"s")
		case err != nil && days.MatchString(text):
			return meant("is not a duration", "P"+days.FindStringSubmatch(text)[1]+"D")
		case err != nil:
			return bad("is not a duration", "write 90s, 5m, 1h30m or PT5M")
		}
		v.SetInt(int64(parsed))
	case v.Type() == prefixType:
		parsed, err := netip.ParsePrefix(text)
		addr, addrErr := netip.ParseAddr(text)
		switch {
		case addrErr == nil && addr.Zone() == "":
			return meant("is not a network", netip.PrefixFrom(addr, addr.BitLen()).String())
		case err != nil:
			return bad("is not a network", "write one such as 10.20.0.0/16")
		case parsed != parsed.Masked():
			return meant("is not the beginning of a network", parsed.Masked().String())
		}
		v.Set(reflect.ValueOf(parsed))
	case v.Kind() == reflect.Int:
		parsed, err := strconv.ParseInt(text, 10, 0)
		switch m := looseNumber.FindStringSubmatch(text); {
		case wholeNumber.MatchString(text) && errors.Is(err, strconv.ErrRange):
			return bad("is too large a number", "")
		case wholeNumber.MatchString(text):
			v.SetInt(parsed)
		case m != nil:
			return meant("is not a whole number", strings.NewReplacer("_", "", ",", "", "'", "").Replace(m[1]))
		default:
			return bad("is not a whole number", "")
		}
	case v.Kind() == reflect.Bool:
		switch strings.ToLower(text) {
		case "true", "false":
			v.SetBool(strings.EqualFold(text, "true"))
		case "yes", "y", "on", "1":
			return meant("is neither true nor false", "true")
		case "no", "n", "off", "0":
			return meant("is neither true nor false", "false")
		default:
			return bad("is neither true nor false", "")
		}
	default:
		v.SetString(text)
	}
	return nil
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

// keysOf are the keys of a section, in the order of its struct; none for a map.
func keysOf(t reflect.Type) (keys []string) {
	if t.Kind() == reflect.Map {
		return nil
	}
	for key := range fieldsOf(t) {
		keys = append(keys, key)
	}
	return keys
}

// keyPaths are the paths of every key below t; <name> stands for a key that the
// user chooses.
func keyPaths(t reflect.Type, path string) (paths []string) {
	switch {
	case t.Kind() == reflect.Pointer:
		return keyPaths(t.Elem(), path)
	case t.Kind() == reflect.Map:
		return keyPaths(t.Elem(), path+".<name>")
	case isSection(t):
		for key, f := range fieldsOf(t) {
			p := join(path, key)
			paths = append(append(paths, p), keyPaths(f.Type, p)...)
		}
	}
	return paths
}
