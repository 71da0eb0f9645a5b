package flowable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenurehq/tenure/job"
)

// variable is a value with a name and, in Flowable's words, a type.
type variable struct {
	Name  string          `json:"name"`
	Type  string          `json:"type,omitempty"` // none, of null, and of what a client leaves to the value
	Value json.RawMessage `json:"value"`
}

// whole is what the arguments of a job are called that are no JSON object.
const whole = "payload"

// variablesOf are the arguments of a job: each member of the object is one.
func variablesOf(payload json.RawMessage) []variable {
	var members map[string]json.RawMessage
	if payload = bytes.TrimSpace(payload); json.Unmarshal(payload, &members) != nil || members == nil {
		return []variable{{whole, typeOf(payload), payload}}
	}
	out := make([]variable, 0, len(members))
	for name, value := range members {
		out = append(out, variable{name, typeOf(value), value})
	}
	slices.SortFunc(out, func(a, b variable) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// typeOf is what Flowable calls the type of a JSON value. A number that none of its types holds as it
// stands is JSON to it.
func typeOf(value json.RawMessage) string {
	text := string(bytes.TrimSpace(value))
	switch {
	case text == "" || text == "null":
		return ""
	case text[0] == '"':
		return "string"
	case text == "true" || text == "false":
		return "boolean"
	case text[0] == '{' || text[0] == '[':
		return "json"
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n == int64(int32(n)) {
			return "integer"
		}
		return "long"
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && strconv.FormatFloat(f, 'f', -1, 64) == trimZeros(text) {
		return "double"
	}
	return "json"
}

// trimZeros takes the zeros away that a decimal fraction ends with.
func trimZeros(number string) string {
	if strings.Contains(number, ".") {
		number = strings.TrimSuffix(strings.TrimRight(number, "0"), ".")
	}
	return number
}

// outputOf is what is kept of the variables of a job that has ended: an object with a member for each,
// in which dates are strings. None: nil. The last of those with one name counts.
func outputOf(variables []variable) (json.RawMessage, error) {
	if len(variables) == 0 {
		return nil, nil
	}
	members := make(map[string]json.RawMessage, len(variables))
	for _, v := range variables {
		if v.Name == "" {
			return nil, badRequest("Variable name is required.")
		}
		value, err := v.plain()
		if err != nil {
			return nil, err
		}
		members[v.Name] = value
	}
	out, err := json.Marshal(members)
	if err == nil {
		err = job.CheckPayload(out)
	}
	return out, check(err)
}

// plain is the value of a variable, if it is one of its type.
func (v *variable) plain() (json.RawMessage, error) {
	if len(v.Value) == 0 || string(v.Value) == "null" {
		return json.RawMessage("null"), nil
	}
	is, known := types[v.Type]
	switch {
	case !known:
		return nil, badRequest(fmt.Sprintf("Variable '%s' has unsupported type: '%s'.", v.Name, v.Type))
	case !is(v.Value):
		return nil, badRequest(fmt.Sprintf("Variable '%s' has a value that is no %s.", v.Name, v.Type))
	}
	return v.Value, nil
}

// types say of each type whether a JSON value, which is not null, is one of it.
var types = map[string]func(json.RawMessage) bool{
	"":              func(json.RawMessage) bool { return true },
	"json":          func(json.RawMessage) bool { return true },
	"string":        func(v json.RawMessage) bool { return v[0] == '"' },
	"boolean":       func(v json.RawMessage) bool { return v[0] == 't' || v[0] == 'f' },
	"short":         within(math.MinInt16, math.MaxInt16),
	"integer":       within(math.MinInt32, math.MaxInt32),
	"long":          within(math.MinInt64, math.MaxInt64),
	"double":        func(v json.RawMessage) bool { _, err := strconv.ParseFloat(string(v), 64); return err == nil },
	"bigInteger":    matching(`^"?[+-]?\d+"?$`), // these two are numbers, or strings of their digits
	"bigDecimal":    matching(`^"?[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"?$`),
	"date":          dated(time.RFC3339Nano, "2006-01-02T15:04:05.999Z0700", time.DateOnly),
	"instant":       dated(time.RFC3339Nano),
	"localDate":     dated(time.DateOnly),
	"localDateTime": dated("2006-01-02T15:04:05", "2006-01-02T15:04"),
}

// within is for integers of a range.
func within(least, most int64) func(json.RawMessage) bool {
	return func(v json.RawMessage) bool {
		n, err := strconv.ParseInt(string(v), 10, 64)
		return err == nil && least <= n && n <= most
	}
}

// dated is for strings of one of the forms.
func dated(forms ...string) func(json.RawMessage) bool {
	return func(v json.RawMessage) bool {
		var text string
		if json.Unmarshal(v, &text) != nil {
			return false
		}
		return slices.ContainsFunc(forms, func(form string) bool { _, err := time.Parse(form, text); return err == nil })
	}
}

// matching is for what is written like that.
func matching(pattern string) func(json.RawMessage) bool {
	form := regexp.MustCompile(pattern)
	return func(v json.RawMessage) bool { return form.Match(v) }
}
