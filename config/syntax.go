package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// maxDepth of nested values; the deepest setting stands at 4.
const maxDepth = 32

// syntaxFault is YAML that cannot be read.
type syntaxFault struct {
	place
	what, fix string
}

// parseYAML reads the one document of data, nil when there is none.
func parseYAML(data []byte) (*yaml.Node, *syntaxFault) {
	if f := badCharacter(data); f != nil {
		return nil, f
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data),
		yaml.WithUniqueKeys(false), // check names both lines
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		return nil, &syntaxFault{place{1, 1}, "is not YAML", ""}
	}
	var doc, second yaml.Node
	if err := loader.Load(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, explain(err, data)
	}
	if err := loader.Load(&second); err == nil {
		return nil, &syntaxFault{placeOf(&second), "a second document begins here", "keep one, and remove the line with the three dashes"}
	} else if !errors.Is(err, io.EOF) {
		return nil, explain(err, data)
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind == yaml.ScalarNode && doc.Content[0].Tag == "!!null" {
		return nil, nil
	}
	return doc.Content[0], nil
}

var lineBreak = regexp.MustCompile("\r\n|[\n\r\u0085\u2028\u2029]") // YAML counts them all

// badCharacter finds what the library would refuse without saying where.
func badCharacter(data []byte) *syntaxFault {
	at := bytes.IndexFunc(data, func(r rune) bool {
		return r == utf8.RuneError || unicode.IsControl(r) && !strings.ContainsRune("\t\n\r\u0085", r)
	})
	if at < 0 {
		return nil
	}
	above := lineBreak.Split(string(data[:at]), -1)
	f := &syntaxFault{place: place{len(above), utf8.RuneCountInString(above[len(above)-1]) + 1}}
	switch r, size := utf8.DecodeRune(data[at:]); {
	case r == utf8.RuneError && size == 1:
		f.what, f.fix = "the file is not UTF-8 text", "save it as UTF-8"
	default:
		f.what, f.fix = fmt.Sprintf("the character %U cannot stand in a YAML file", r), "in double quotes, write it as an escape such as \\x07"
	}
	return f
}

// explain puts the library's error into our words: its own may quote the file.
func explain(err error, data []byte) *syntaxFault {
	var load *yaml.LoadError
	if !errors.As(err, &load) || load.Mark.Line < 1 {
		return &syntaxFault{place{1, 1}, "is not YAML", ""}
	}
	at := place{load.Mark.Line, load.Mark.Column}
	begin := at
	if load.ContextMark.Line > 0 {
		begin = place{load.ContextMark.Line, load.ContextMark.Column}
	}
	line := ""
	if lines := lineBreak.Split(string(data), -1); at.line <= len(lines) {
		line = lines[at.line-1]
	}
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	is := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(load.Message, p) })
	}
	switch {
	case strings.Contains(indent, "\t"), is("tab character"):
		return &syntaxFault{at, "a tab indents this line", "use spaces"}
	case is("mapping values are not allowed"):
		return &syntaxFault{at, "a colon cannot stand here", "quote a value that holds a colon and a space, align keys of one section, and look for a key without a colon above"}
	case is("could not find expected ':'"):
		return &syntaxFault{begin, "a key without a colon", "write key: value"}
	case is("expected ',' or"):
		return &syntaxFault{begin, "this bracket is not closed", "close it, with commas between the entries; within brackets a reference needs quotes: \"${env:NAME}\""}
	case is("did not find expected key") && at.column > len(indent)+1:
		return &syntaxFault{at, "the value before this has ended already", "put the whole value in quotes, or remove what is left over"}
	case is("did not find expected key", "'-' indicator"):
		return &syntaxFault{at, "the indentation does not fit the lines above", "align keys of one section, and the dashes of one list"}
	case is("found unexpected end of stream"):
		return &syntaxFault{begin, "this quote is not closed", "close it"}
	case is("cannot start any token"):
		return &syntaxFault{at, "a value cannot begin with this character", "put the value in quotes"}
	case is("unknown anchor"):
		return &syntaxFault{at, "aliases (*name) are not supported", "write the value out, or quote a value that begins with *"}
	case is("depth"):
		return &syntaxFault{at, fmt.Sprintf("values are nested more than %d deep", maxDepth), ""}
	}
	return &syntaxFault{at, "this is not YAML", "put a value with other characters than letters and digits in quotes"}
}
