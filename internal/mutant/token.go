package mutant

import (
	"errors"
	"go/scanner"
	"go/token"
	"go/types"
	"regexp"
	"strings"
	"unicode"
)

// lexeme is a token of Go or SQL, and where it stands.
type lexeme struct {
	text     string
	name     bool // somebody gave it, and may give another one
	from, to int
}

// lex returns the tokens of a file's text, or of a part of it, by the kind of the file.
func lex(file, text string) ([]lexeme, error) {
	if strings.HasSuffix(file, ".sql") {
		return lexSQL(text), nil
	}
	return lexGo(text)
}

// lexGo leaves out comments, and the semicolons that end lines.
func lexGo(text string) ([]lexeme, error) {
	var out []lexeme
	var faults []error
	files := token.NewFileSet()
	f := files.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(f, []byte(text), func(_ token.Position, msg string) { faults = append(faults, errors.New(msg)) }, 0)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return out, errors.Join(faults...)
		}
		if tok == token.SEMICOLON && lit != ";" {
			continue
		}
		if lit == "" {
			lit = tok.String()
		}
		at := f.Offset(pos)
		free := tok == token.IDENT && lit != "_" && types.Universe.Lookup(lit) == nil
		out = append(out, lexeme{text: lit, name: free, from: at, to: at + len(lit)})
	}
}

var sqlToken = regexp.MustCompile(`--[^\n]*|\s+|'[^']*'|"[^"]*"|\$?\w+|::|.`)

// lexSQL leaves out comments. Keywords are known by their capitals.
func lexSQL(text string) []lexeme {
	var out []lexeme
	for _, at := range sqlToken.FindAllStringIndex(text, -1) {
		s := text[at[0]:at[1]]
		if strings.HasPrefix(s, "--") || strings.TrimSpace(s) == "" {
			continue
		}
		name := unicode.IsLetter(rune(s[0])) && s != strings.ToUpper(s)
		out = append(out, lexeme{text: s, name: name, from: at[0], to: at[1]})
	}
	return out
}

// rename gives the names of a part of a file their new form.
func rename(file, text string, names map[string]string) (string, error) {
	tokens, err := lex(file, text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	done := 0
	for _, t := range tokens {
		if to, ok := names[t.text]; ok && t.name {
			b.WriteString(text[done:t.from] + to)
			done = t.to
		}
	}
	return b.String() + text[done:], nil
}
