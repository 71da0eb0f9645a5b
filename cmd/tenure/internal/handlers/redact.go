package handlers

import (
	"bytes"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
)

// hidden stands for what is not shown.
const hidden = "***"

// longSegment is from which length on a part of a URL's path is taken for a secret, as in
// the addresses of chat services' webhooks.
const longSegment = 16

var secretName = regexp.MustCompile(`(?i)pass(?:word|wd|phrase)?$|pwd|secret|token|api[-_]?key|authori[sz]ation|credential|private[-_]?key|signature|cookie`)

// Redact returns a job's payload to show without what may be a credential: of an
// http.request the values of all headers, and of its URL the user, the values of the query
// and long parts of the path; and every value below a name such as token, in the body,
// too. Payloads of other kinds are returned as they are, as their names are not known here.
func Redact(kind string, payload []byte) []byte {
	if kind != (HTTPRequest{}).Kind() {
		return payload
	}
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil {
		return []byte(`"` + hidden + `"`)
	}
	for name, value := range fields {
		switch strings.ToLower(name) { // as encoding/json takes them
		case "url":
			if text, ok := value.(string); ok {
				value = redactURL(text)
			}
		case "headers":
			value = hideAll(value)
		default:
			value = redactValue(name, value)
		}
		fields[name] = value
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(fields) // it was JSON a moment ago
	return bytes.TrimSpace(out.Bytes())
}

// redactValue hides what stands below names of secrets. A text may be JSON itself, or a
// form; then it is hidden if it names one.
func redactValue(name string, value any) any {
	if secretName.MatchString(name) {
		return hideAll(value)
	}
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			v[key] = redactValue(key, inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = redactValue("", inner)
		}
	case string:
		for word := range strings.FieldsFuncSeq(v, func(r rune) bool { return strings.ContainsRune("&=\"':,;{}[]() \t\r\n", r) }) {
			if secretName.MatchString(word) {
				return hidden
			}
		}
	}
	return value
}

// hideAll keeps the names.
func hideAll(value any) any {
	object, ok := value.(map[string]any)
	if !ok {
		return hidden
	}
	for key := range object {
		object[key] = hidden
	}
	return object
}

func redactURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return hidden
	}
	var b strings.Builder
	b.WriteString(u.Scheme + "://")
	if u.User != nil {
		b.WriteString(hidden + "@")
	}
	b.WriteString(u.Host)
	for i, segment := range strings.Split(u.EscapedPath(), "/") {
		if i > 0 {
			b.WriteByte('/')
		}
		if len(segment) >= longSegment {
			segment = hidden
		}
		b.WriteString(segment)
	}
	if u.RawQuery != "" {
		pairs := strings.Split(u.RawQuery, "&")
		for i, pair := range pairs {
			if key, _, found := strings.Cut(pair, "="); found {
				pairs[i] = key + "=" + hidden
			} else {
				pairs[i] = hidden
			}
		}
		b.WriteString("?" + strings.Join(pairs, "&"))
	}
	return b.String()
}
