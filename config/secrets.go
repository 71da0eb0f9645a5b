package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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
}

var (
	envToken = regexp.MustCompile(`\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}`)
	anyToken = regexp.MustCompile(`\$\{env:[A-Za-z_][A-Za-z0-9_]*\}|\$\{file:(?:\$\{env:[A-Za-z_][A-Za-z0-9_]*\}|[^${}])*\}`)
)

// resolve replaces every ${env:NAME} and ${file:/path} in text by what it stands
// for; $${ stands for ${ itself. What comes out is not looked at again. In a DSN of words, as in
// password=${file:/path}, it is quoted as that needs. A fault names
// a variable or a file, and nothing else of the text.
func resolve(text string, isDSN bool) (value string, referred bool, f *fault.Fault) {
	var b strings.Builder
	for rest := text; ; {
		before, after, found := strings.Cut(rest, "${")
		if !found {
			b.WriteString(rest)
			return b.String(), referred, nil
		}
		if strings.HasSuffix(before, "$") {
			b.WriteString(strings.TrimSuffix(before, "$") + "${")
			rest = after
			continue
		}
		at := anyToken.FindStringIndex(rest[len(before):])
		if at == nil || at[0] != 0 {
			return "", false, &fault.Fault{What: "has ${, but neither ${env:NAME} nor ${file:/path}", Fix: "write ${env:NAME} for a variable, and $${ for the characters themselves"}
		}
		token := rest[len(before) : len(before)+at[1]]
		secret, f := lookUp(token)
		if f != nil {
			return "", false, f
		}
		b.WriteString(before)
		referred = true
		rest = rest[len(before)+len(token):]
		if isDSN {
			secret = quoteWord(b.String(), secret, rest)
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
	if f == nil && !filepath.IsAbs(path) {
		f = &fault.Fault{What: "refers to a file by a part of its path", Fix: "write the whole path, beginning with /"}
	}
	if f != nil {
		return "", f
	}
	secret, err := readSecretFile(path)
	if err != nil {
		return "", &fault.Fault{What: fmt.Sprintf("refers to %s: %v", token, err)}
	}
	return secret, nil
}

func readEnv(name string) (string, *fault.Fault) {
	value, set := os.LookupEnv(name)
	refused := func(why string) (string, *fault.Fault) {
		return "", &fault.Fault{What: "refers to the environment variable " + name + ", which is " + why,
			Fix: "set it where the node is started, or read a file: ${file:/path}"}
	}
	switch {
	case !set:
		return refused("not set")
	case value == "":
		return refused("empty")
	case !utf8.ValidString(value):
		return refused("not UTF-8 text")
	}
	return value, nil
}

// readSecretFile returns what path holds without its last line break, which most
// editors add and no secret has. Its errors do not name the path, parts of which
// may come from the environment.
func readSecretFile(path string) (string, error) {
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
