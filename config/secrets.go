package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tenurehq/tenure/internal/fault"
)

// maxSecretFile bounds what ${file:…} reads; a certificate chain fits.
const maxSecretFile = 64 << 10

// reference is a value that was written as, or with, references.
type reference struct {
	source string // as it stands in the file
	value  string // what it became, in the form the value's type prints it
	parts  []part
}

// part is one ${…}, or another form of what it stood for.
type part struct{ token, secret string }

var (
	envToken  = regexp.MustCompile(`\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}`)
	anyToken  = regexp.MustCompile(`\$\{env:[A-Za-z_][A-Za-z0-9_]*\}|\$\{file:(?:\$\{env:[A-Za-z_][A-Za-z0-9_]*\}|[^${}])*\}`)
	shellForm = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)\}$`)
)

// resolve replaces every ${env:NAME} and ${file:/path} in text by what it stands
// for; $${ stands for ${ itself. What comes out is not looked at again. In a DSN of words, as in
// password=${file:/path}, it is quoted as that needs. No fault
// quotes more than a well-formed reference, for the rest may be a password.
func resolve(text string, isDSN bool) (value string, parts []part, f *fault.Fault) {
	var b strings.Builder
	for rest := text; ; {
		before, after, found := strings.Cut(rest, "${")
		if !found {
			b.WriteString(rest)
			return b.String(), parts, nil
		}
		if strings.HasSuffix(before, "$") {
			b.WriteString(strings.TrimSuffix(before, "$") + "${")
			rest = after
			continue
		}
		at := anyToken.FindStringIndex(rest[len(before):])
		if at == nil || at[0] != 0 {
			fix := "write $${ for the characters themselves"
			if m := shellForm.FindStringSubmatch(text); m != nil {
				fix = "did you mean ${env:" + m[1] + "}?"
			}
			return "", nil, &fault.Fault{What: "${ begins a reference, but neither ${env:NAME} nor ${file:/path} follows", Fix: fix}
		}
		token := rest[len(before) : len(before)+at[1]]
		secret, f := lookUp(token)
		if f != nil {
			return "", nil, f
		}
		b.WriteString(before)
		parts = append(parts, part{token, secret})
		rest = rest[len(before)+len(token):]
		if isDSN {
			if quoted := quoteWord(b.String(), secret, rest); quoted != secret {
				secret = quoted
				parts = append(parts, part{token, secret})
			}
		}
		b.WriteString(secret)
	}
}

var (
	wordBegins = regexp.MustCompile(`(?:^|\s)[A-Za-z_.]+\s*=\s*$`)
	inQuotes   = regexp.MustCompile(`(?:^|\s)[A-Za-z_.]+\s*=\s*'(?:[^'\\]|\\.)*$`)
	dsnEscapes = strings.NewReplacer(`\`, `\\`, `'`, `\'`)
)

// quoteWord is a secret as the value of a word in a DSN such as "host=db password=…", between what stands before
// and behind it there: libpq ends one at a space, and takes \ and ' for its own.
func quoteWord(before, secret, behind string) string {
	switch {
	case !strings.ContainsAny(secret, "\\' \t\r\n"):
	case inQuotes.MatchString(before):
		return dsnEscapes.Replace(secret)
	case wordBegins.MatchString(before) && (behind == "" || strings.ContainsAny(behind[:1], " \t\r\n")):
		return "'" + dsnEscapes.Replace(secret) + "'"
	}
	return secret
}

func lookUp(token string) (secret string, f *fault.Fault) {
	if m := envToken.FindStringSubmatch(token); m != nil && m[0] == token {
		return readEnv(m[1])
	}
	path := strings.TrimSuffix(strings.TrimPrefix(token, "${file:"), "}")
	path = envToken.ReplaceAllStringFunc(path, func(env string) string {
		value, envFault := readEnv(envToken.FindStringSubmatch(env)[1])
		if envFault != nil {
			f = envFault
		}
		return value
	})
	if f != nil {
		return "", f
	}
	secret, err := readSecretFile(path)
	if err != nil {
		return "", &fault.Fault{What: fmt.Sprintf("%s: %v", token, err)}
	}
	return secret, nil
}

func readEnv(name string) (string, *fault.Fault) {
	value, set := os.LookupEnv(name)
	switch {
	case !set:
		return "", &fault.Fault{What: "environment variable " + name + " is not set", Fix: "set it where the node is started, or read a file: ${file:/path}"}
	case value == "":
		return "", &fault.Fault{What: "environment variable " + name + " is empty", Fix: "set it where the node is started, or read a file: ${file:/path}"}
	case !utf8.ValidString(value):
		return "", &fault.Fault{What: "environment variable " + name + " is not UTF-8 text"}
	}
	return value, nil
}

// readSecretFile returns what path holds without its last line break, which most
// editors add and no secret has. Its errors do not name the path, parts of which
// may come from the environment.
func readSecretFile(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", errors.New("write the whole path, beginning with /")
	}
	info, err := os.Stat(path) // before opening: a FIFO would block
	if err == nil && !info.Mode().IsRegular() {
		return "", errors.New("not a file")
	}
	var data []byte
	if err == nil {
		data, err = readAtMost(path, maxSecretFile)
	}
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	if err != nil {
		return "", err
	}
	text, _ := strings.CutSuffix(string(data), "\n")
	text, _ = strings.CutSuffix(text, "\r")
	switch {
	case text == "":
		return "", errors.New("the file is empty")
	case !utf8.ValidString(text):
		return "", errors.New("the file is not UTF-8 text")
	}
	return text, nil
}

func readAtMost(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("the file is larger than %d KiB", limit>>10)
	}
	return data, err
}

// isLiteral says whether text holds more than references.
func isLiteral(text string) bool {
	return strings.TrimSpace(anyToken.ReplaceAllString(text, "")) != ""
}

// conceal takes what references stood for out of a fault.
func (c Config) conceal(f *fault.Fault) {
	var parts []part
	var others []string
	for _, path := range slices.Sorted(maps.Keys(c.references)) {
		if within(path, f.Path) || within(f.Path, path) || mentions(f.What, path) ||
			// Tenants are compared with one another.
			within(path, "tenants") && within(f.Path, "tenants") {
			parts = append(parts, c.references[path].parts...)
			others = append(others, path+" "+c.references[path].source)
		}
	}
	if len(parts) == 0 {
		return
	}
	// A package may quote a piece of a value, or another spelling of it. Fixes are
	// fixed texts, in which a short piece is there by chance.
	const whatPiece, fixPiece = 4, 6
	var ok bool
	if f.What, ok = hide(f.What, parts, whatPiece); !ok {
		f.What = "does not go with " + strings.Join(others, ", ")
		if r, own := c.references[f.Path]; own {
			f.What = "the value of " + r.source + " is not accepted"
		}
	}
	if f.Fix, ok = hide(f.Fix, parts, fixPiece); !ok {
		f.Fix = ""
	}
}

// hide puts tokens in the place of secrets. ok is false when as much as piece bytes
// of a secret are left.
func hide(text string, parts []part, piece int) (hidden string, ok bool) {
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b part) int { return len(b.secret) - len(a.secret) })
	for _, p := range parts {
		quoted := strconv.Quote(p.secret)
		for _, form := range []string{p.secret, quoted[1 : len(quoted)-1]} {
			if len(form) >= 4 {
				text = strings.ReplaceAll(text, form, p.token)
				continue
			}
			// Short ones are hidden as a word only: every text has an "a" or a "1".
			word := regexp.MustCompile(`(^|[^\w.])` + regexp.QuoteMeta(form) + `($|[^\w.])`)
			text = word.ReplaceAllString(text, "${1}"+strings.ReplaceAll(p.token, "$", "$$")+"${2}")
		}
	}
	rest := strings.ToLower(anyToken.ReplaceAllString(text, " "))
	for _, p := range parts {
		secret := strings.ToLower(p.secret)
		for i := 0; i+piece <= len(secret); i++ {
			if strings.Contains(rest, secret[i:i+piece]) {
				return "", false
			}
		}
	}
	return text, true
}
