package config

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

const mask = "***"

var (
	// A mark stands for a reference while a DSN is taken apart: references hold
	// characters that mean something there.
	mark            = regexp.MustCompile(`tenure0reference([0-9]+)x`)
	keywordPassword = regexp.MustCompile(`(?i)(\b(?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)`)
	queryPassword   = regexp.MustCompile(`(?i)^(?:ssl)?password$`)
)

// maskDSN replaces the passwords that dsn spells out; references stay. The result
// is a connection string whenever dsn was one.
func maskDSN(dsn string) string {
	var tokens []string
	s := anyToken.ReplaceAllStringFunc(dsn, func(token string) string {
		tokens = append(tokens, token)
		return fmt.Sprintf("tenure0reference%dx", len(tokens)-1)
	})
	literal := func(password string) bool { return mark.ReplaceAllString(password, "") != "" }

	if scheme, rest, isURL := cutScheme(s); isURL {
		from, to := passwordIn(rest)
		tail := rest[to:]
		if literal(rest[from:to]) {
			rest = rest[:from] + mask
		} else {
			rest = rest[:to]
		}
		if path, query, found := strings.Cut(tail, "?"); found {
			pairs := strings.Split(query, "&")
			for i, pair := range pairs {
				key, value, _ := strings.Cut(pair, "=")
				if plain, err := url.QueryUnescape(key); err == nil && queryPassword.MatchString(plain) && literal(value) {
					pairs[i] = key + "=" + mask
				}
			}
			tail = path + "?" + strings.Join(pairs, "&")
		}
		s = scheme + "://" + rest + tail
	} else {
		s = keywordPassword.ReplaceAllStringFunc(s, func(pair string) string {
			m := keywordPassword.FindStringSubmatch(pair)
			if !literal(strings.Trim(m[2], "'")) {
				return pair
			}
			return m[1] + mask
		})
	}
	return mark.ReplaceAllStringFunc(s, func(m string) string {
		if i, err := strconv.Atoi(mark.FindStringSubmatch(m)[1]); err == nil && i < len(tokens) {
			return tokens[i]
		}
		return m
	})
}

var (
	portThenPath = regexp.MustCompile(`^[0-9]{1,5}(?:[/?#,]|$)`)
	queryBegin   = regexp.MustCompile(`[?&][A-Za-z_.]+=`)
)

var urlScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

func cutScheme(dsn string) (scheme, rest string, isURL bool) {
	scheme, rest, isURL = strings.Cut(dsn, "://")
	return scheme, rest, isURL && urlScheme.MatchString(scheme)
}

// passwordIn finds the password in what follows the :// of a URL; from equals to
// when there is none. It looks further than a URL's rules go, since people write
// passwords with / ? and # as they are.
func passwordIn(rest string) (from, to int) {
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	colon := strings.IndexAny(rest[:end], ":@[") // a host may be [::1]
	if colon < 0 || rest[colon] != ':' {
		return 0, 0
	}
	from = colon + 1
	query := len(rest)
	if at := queryBegin.FindStringIndex(rest[end:]); at != nil {
		query = end + at[0]
	}
	to = strings.LastIndexByte(rest[:query], '@')
	if to < 0 {
		to = strings.LastIndexByte(rest, '@')
	}
	if to < from || to > end && portThenPath.MatchString(rest[from:]) {
		return from, from
	}
	return from, to
}

// hiddenTexts are the literal secrets of a file, to be masked wherever the file is quoted.
type hiddenTexts []string

// find collects the literal texts below keys that usually hold secrets, wherever they
// stand: a misplaced secret is one, too.
// names says that the keys of n are names of the user's choice: a tenant may be
// called token.
func (h *hiddenTexts) find(n *yaml.Node, names bool) {
	for i, child := range n.Content {
		if n.Kind != yaml.MappingNode || i%2 == 0 {
			h.find(child, false)
			continue
		}
		key := n.Content[i-1].Value
		if !names && (namedSecret.MatchString(key+":") || soundsSecret(key)) {
			h.addAll(child)
		}
		h.find(child, key == "pools" || key == "static" || key == "tenants")
	}
}

func (h *hiddenTexts) addAll(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && len(n.Value) >= 4 && isLiteral(n.Value) {
		*h = append(*h, n.Value)
	}
	for _, child := range n.Content {
		h.addAll(child)
	}
}

var listEntry = regexp.MustCompile(`^\s*-\s+(.*\S)`)

// findByLook does the same for a file that may not be YAML, and for what YAML takes
// for a comment: it hides the entries of lists of keys, the one place where a line
// may hold nothing but a secret that looks like any text.
func (h *hiddenTexts) findByLook(lines []string) {
	inside := false
	for _, line := range lines {
		m := listEntry.FindStringSubmatch(line)
		if m == nil {
			inside = namedSecret.MatchString(line) || inside && strings.TrimSpace(line) == ""
			continue
		}
		entry, _, _ := strings.Cut(m[1], " # ")
		if inside && len(entry) >= 4 && isLiteral(entry) {
			*h = append(*h, entry)
		}
	}
}

// spellsOutSecret tells whether a setting holds a secret, and not a reference to it.
func spellsOutSecret(path, source string) bool {
	return holdsDSN(path) && maskDSN(source) != source || holdsKey(path) && isLiteral(source)
}

// holdsKey tells whether a key belongs at path.
func holdsKey(path string) bool {
	return strings.HasPrefix(path, "cluster.keys[") || strings.HasPrefix(path, "encryption.") && strings.Contains(path, "keys[")
}

// maskLine masks the secrets of a line of the file. The line may be broken YAML, so
// this goes by looks and rather hides too much.
func maskLine(line string, caret int, hidden []string) (string, int) {
	return maskSpans(line, caret, append(valueSpans(line, hidden), looseSpans(line)...))
}

// maskSpans masks parts of a line and moves caret, counted in characters, along
// with the text it pointed at.
func maskSpans(line string, caret int, spans [][2]int) (string, int) {
	slices.SortFunc(spans, func(a, b [2]int) int { return a[0] - b[0] })
	var b strings.Builder
	end, moved := 0, -1
	move := func(from, to int) { // where the caret lands when it stands in line[from:to]
		n := utf8.RuneCountInString(line[:from])
		if moved < 0 && caret < n+utf8.RuneCountInString(line[from:to]) {
			moved = utf8.RuneCountInString(b.String()) + max(0, caret-n)
		}
	}
	for _, span := range spans {
		if span[0] < end {
			end = max(end, span[1])
			continue
		}
		move(end, span[0])
		b.WriteString(line[end:span[0]])
		if moved < 0 && caret < utf8.RuneCountInString(line[:span[1]]) {
			moved = utf8.RuneCountInString(b.String())
		}
		b.WriteString(mask)
		end = span[1]
	}
	move(end, len(line))
	b.WriteString(line[end:])
	if moved < 0 {
		moved = utf8.RuneCountInString(b.String())
	}
	return b.String(), moved
}

// maskText masks the secrets in a sentence about the file.
func maskText(text string, hidden []string) string {
	text, _ = maskSpans(text, 0, valueSpans(text, hidden))
	return text
}

var (
	// A connection string that has lost its scheme.
	barePassword = regexp.MustCompile(`(?:^|[\s"'=({\[,/])[\w.%+-]+:([^\s@"'/][^\s@"']*)@[\w.\[-]`)

	urlPassword = regexp.MustCompile(`://[^\s:/@"']*:`)
	quotedURL   = regexp.MustCompile(`(["'])[A-Za-z][A-Za-z0-9+.-]*://[^\s"']*$`)
	namedSecret = regexp.MustCompile(`(?i)\b(?:ssl|pg)?(?:password|passwd|passphrase|pass|pwd|secret|credentials?|token|keys?)["']?\s*[:=]`)
	anyName     = regexp.MustCompile(`\b[A-Za-z_-]{5,16}["']?\s*[:=]`)
	unquoted    = regexp.MustCompile(`^[^\s"'\\](?:\\.|[^\s\\])*`)
	portOnly    = regexp.MustCompile(`^\d{1,5}(?:[/?].*|["'}\],]*)$`)
	// The Base64 of 16 bytes is the shortest that may be a key.
	base64Run = regexp.MustCompile(`[A-Za-z0-9+/]{22,}={0,2}`)
)

// valueSpans finds what is known to be a secret, and passwords in URLs.
func valueSpans(line string, hidden []string) [][2]int {
	var spans [][2]int
	for _, h := range hidden {
		for from := 0; h != ""; {
			i := strings.Index(line[from:], h)
			if i < 0 {
				break
			}
			spans = append(spans, [2]int{from + i, from + i + len(h)})
			from += i + len(h)
		}
	}
	for _, m := range urlPassword.FindAllStringIndex(line, -1) {
		rest := line[m[1]:]
		end := strings.LastIndexByte(rest, '@')
		run, _, _ := strings.Cut(rest, " ")
		beforeComment, _, _ := strings.Cut(rest, " #")
		switch {
		case !strings.Contains(beforeComment, "@") && portOnly.MatchString(run):
			continue
		case end < 0:
			end = len(rest)
		}
		if isLiteral(rest[:end]) {
			spans = append(spans, [2]int{m[1], m[1] + end})
		}
	}
	for _, m := range barePassword.FindAllStringSubmatchIndex(line, -1) {
		if isLiteral(line[m[2]:m[3]]) {
			spans = append(spans, [2]int{m[2], m[3]})
		}
	}
	for _, m := range keywordPassword.FindAllStringSubmatchIndex(line, -1) {
		if isLiteral(line[m[4]:m[5]]) {
			spans = append(spans, [2]int{m[4], m[5]})
		}
	}
	return spans
}

// covers says whether what stands at a place in the lines is part of a password: one
// with a comma, say, falls apart where it is not quoted.
func (h hiddenTexts) covers(lines []string, at place) bool {
	if at.line < 1 || at.line > len(lines) {
		return false
	}
	line := lines[at.line-1]
	return slices.ContainsFunc(valueSpans(line, h), func(s [2]int) bool {
		n := at.column - 1
		if m := quotedURL.FindStringSubmatchIndex(line[:s[0]]); m != nil { // which YAML has read to the end of its quotes
			if end := strings.Index(line[s[0]:], line[m[2]:m[3]]); end >= 0 {
				s[1] = min(s[1], s[0]+end)
			}
		}
		return utf8.RuneCountInString(line[:s[0]]) <= n && n < utf8.RuneCountInString(line[:s[1]])
	})
}

// looseSpans finds what looks like a key, and what follows a word that names a
// secret: to the end of the line, for broken quotes do not end where they seem to;
// or, as in password=abc without quotes, to the next space.
func looseSpans(line string) [][2]int {
	var spans [][2]int
	for _, m := range base64Run.FindAllStringIndex(line, -1) {
		run := line[m[0]:m[1]]
		random := strings.ContainsFunc(run, unicode.IsUpper) && strings.ContainsFunc(run, unicode.IsLower) && strings.ContainsFunc(run, unicode.IsDigit)
		if random && !inReference(line, m[0]) {
			spans = append(spans, [2]int{m[0], m[1]})
		}
	}
	for _, m := range secretNames(line) {
		if inReference(line, m[0]) {
			continue
		}
		rest := line[m[1]:]
		value, _, _ := strings.Cut(rest, " # ") // without a space behind, it may be a password that YAML takes for a comment
		if !strings.ContainsFunc(anyToken.ReplaceAllString(value, ""), func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			continue // references, or nothing
		}
		from, to := m[1]+len(rest)-len(strings.TrimLeft(rest, " \t")), len(line)
		if line[m[1]-1] == '=' {
			if run := unquoted.FindStringIndex(line[from:]); run != nil {
				to = from + run[1]
			}
			if !isLiteral(line[from:to]) {
				continue
			}
		}
		spans = append(spans, [2]int{from, to})
	}
	return spans
}

// secretNames finds the names of secrets in a line, with what divides each from its value; misspelt ones, too.
func secretNames(line string) [][]int {
	found := namedSecret.FindAllStringIndex(line, -1)
	for _, m := range anyName.FindAllStringIndex(line, -1) {
		if soundsSecret(strings.TrimRight(line[m[0]:m[1]], "\"' \t:=")) {
			found = append(found, m)
		}
	}
	return found
}

// soundsSecret tells whether a name was probably meant to be that of a secret.
func soundsSecret(name string) bool {
	word := fold(name)
	return slices.ContainsFunc([]string{"password", "passwd", "secret"}, func(s string) bool { return distance(word, s) <= len(s)/4 })
}

func inReference(line string, at int) bool {
	return slices.ContainsFunc(anyToken.FindAllStringIndex(line, -1), func(t []int) bool { return t[0] <= at && at < t[1] })
}
