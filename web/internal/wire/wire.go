// Package wire is what all that is read and answered over HTTP has in common: a body is what its sender wrote, or it is
// refused, and no answer repeats much of what was sent. Safe for concurrent use.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"
)

// MaxQuote is how much of what was sent an answer repeats, in bytes.
const MaxQuote = 1000

// Brief is as much of a text as an answer repeats.
func Brief(text string) string {
	if len(text) <= MaxQuote {
		return text
	}
	const left = "…"
	return strings.ToValidUTF8(text[:MaxQuote-len(left)], "") + left
}

// CheckText refuses what no database keeps as text.
func CheckText(text string) error {
	switch {
	case !utf8.ValidString(text):
		return errors.New("this is no UTF-8")
	case strings.ContainsRune(text, 0):
		return errors.New("this has the character U+0000, which no database keeps")
	}
	return nil
}

// CheckRequest refuses a path or parameters that no database keeps as text. A form counts once it has been parsed.
func CheckRequest(r *http.Request) error {
	if err := CheckText(r.URL.Path); err != nil {
		return fmt.Errorf("the path: %w", err)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fmt.Errorf("the parameters: %s", Brief(err.Error()))
	}
	for _, all := range []url.Values{query, r.PostForm} {
		for name, values := range all {
			for _, text := range append(values, name) {
				if err := CheckText(text); err != nil {
					return fmt.Errorf("the parameter %q: %w", Brief(name), err)
				}
			}
		}
	}
	return nil
}

// Report is text that says what has failed. It may have U+0000: who keeps it leaves that out, as a failure that could
// not be reported would be taken for a loss.
type Report string

// Nulls say what a field that is null means.
type Nulls int

const (
	// NullsRefused: a field that is meant to be left out is left out.
	NullsRefused Nulls = iota
	// NullsLeftOut: it is left out.
	NullsLeftOut
)

// Unmarshal is [json.Unmarshal] that takes a field by its exact name only, and once, and refuses text that no database
// keeps. Fields that into does not have are passed over, unless they are those of other ones in another spelling.
// What into takes as raw JSON, or under any name, may have what it likes but for that text.
func Unmarshal(data []byte, into any, nulls Nulls) error {
	if !utf8.Valid(data) {
		return errors.New("this is no UTF-8")
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return io.EOF
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil { // it also bounds how deep it is nested
		return err
	}
	w := walker{json.NewDecoder(bytes.NewReader(data)), nulls}
	w.UseNumber()
	if err := w.value(reflect.TypeOf(into), true); err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// misplaced is a fault of a value, and where that stands. The path is put together from the fault up, so that a body
// without one costs nothing for it.
type misplaced struct{ path, fault string }

func (e *misplaced) Error() string { return Brief(e.path) + e.fault }

// in is a fault in a field or an item.
func in(where string, err error) error {
	var e *misplaced
	if !errors.As(err, &e) {
		return &misplaced{Brief(where), ": " + err.Error()}
	}
	if len(e.path) < MaxQuote {
		if e.path != "" && e.path[0] != '[' {
			where += "."
		}
		e.path = Brief(where) + e.path
	}
	return e
}

// walker goes through JSON beside the type that it is for.
type walker struct {
	*json.Decoder
	nulls Nulls
}

// value walks over one value. t is its type; nil: anything.
func (w walker) value(t reflect.Type, whole bool) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t != nil && isFree(t) {
		t = nil
	}
	token, err := w.Token()
	if err != nil {
		return err
	}
	switch token := token.(type) {
	case nil:
		if t != nil && !whole && w.nulls == NullsRefused {
			return &misplaced{"", " is null: leave it out, or give it a value"}
		}
	case string:
		if t == reflect.TypeFor[Report]() {
			return nil
		}
		return CheckText(token)
	case json.Delim:
		return w.inside(token, t)
	}
	return nil
}

// inside walks over what is in an object or an array, and its end.
func (w walker) inside(open json.Delim, t reflect.Type) error {
	var item reflect.Type
	if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array || t.Kind() == reflect.Map) {
		item = t.Elem()
	}
	seen := map[string]bool{}
	for i := 0; w.More(); i++ {
		name, of := "", item
		if open == '{' {
			token, err := w.Token()
			if err != nil {
				return err
			}
			name, _ = token.(string)
			if err := CheckText(name); err != nil {
				return fmt.Errorf("the name of a field: %w", err)
			}
			if t != nil && t.Kind() == reflect.Struct {
				if of, err = fieldsOf(t).find(name); err == nil && seen[name] {
					err = errors.New("it is there twice")
				}
				if err != nil {
					return in(name, err)
				}
				seen[name] = true
			}
		}
		if err := w.value(of, false); err != nil {
			if open == '[' {
				name = fmt.Sprintf("[%d]", i)
			}
			return in(name, err)
		}
	}
	_, err := w.Token()
	return err
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// isFree says whether a type reads its JSON by itself, and may be given null.
func isFree(t reflect.Type) bool {
	return t.Kind() == reflect.Interface || t == reflect.TypeFor[json.RawMessage]()
}

// fields are those that a struct is read from, by their names.
type fields map[string]reflect.Type

var known sync.Map // reflect.Type to fields

// fieldsOf lists the fields of a struct as package json knows them: those of embedded structs are its own. What reads
// itself has none.
func fieldsOf(t reflect.Type) fields {
	if all, ok := known.Load(t); ok {
		return all.(fields)
	}
	all := fields{}
	if !reflect.PointerTo(t).Implements(unmarshaler) {
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous && name == "" || !f.IsExported() || name == "-" {
				continue
			}
			if name == "" {
				name = f.Name
			}
			all[name] = f.Type
		}
	}
	known.Store(t, all)
	return all
}

// find is the type of the field of that name, nil if there is none.
func (f fields) find(name string) (reflect.Type, error) {
	if t, ok := f[name]; ok {
		return t, nil
	}
	for other := range f {
		if strings.EqualFold(other, name) {
			return nil, fmt.Errorf("there is no such field; %s is one", other)
		}
	}
	return nil, nil
}
