package deadletter

import (
	"strings"
	"unicode/utf8"
)

// MaxText is how many characters of an error are to be passed to [Pattern]: enough to fill a
// pattern from errors whose ids are of different lengths.
const MaxText = 1000

// maxPattern is the length of a pattern in bytes. What distinguishes causes stands at the
// beginning of an error, as each caller adds what it was doing.
const maxPattern = 160

// varies stands for what was replaced.
const varies = '#'

// minID is the length from which a word of letters and digits is an id, or hexadecimal.
const minID = 8

// Pattern is an error without what differs between two jobs that die of the same cause. White
// space counts as one space. Quoted text becomes "#" in its quotes; a number becomes #, with
// what is attached to it: a unit, the rest of a time, of an address or of a UUID. So does a word
// that looks like an id: one in hexadecimal, or one of eight or more characters in which a
// letter follows a digit.
func Pattern(text string) string {
	var b strings.Builder
	for i := 0; i < len(text) && b.Len() < maxPattern; {
		c := text[i]
		switch {
		case isSpace(c):
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			for i < len(text) && isSpace(text[i]) {
				i++
			}
		case c == '"' || c == '`' || c == '\'' && (i == 0 || !isWord(text[i-1])):
			n := quoted(text[i:])
			if n == 0 {
				b.WriteByte(c)
				i++
				continue
			}
			b.Write([]byte{c, varies, c})
			i += n
		case isWord(c):
			n, shown := word(text[i:])
			b.WriteString(shown)
			i += n
		default:
			_, n := utf8.DecodeRuneInString(text[i:])
			b.WriteString(text[i : i+n])
			i += n
		}
	}
	out := b.String()
	if len(out) > maxPattern {
		out = out[:maxPattern]
		for range utf8.UTFMax - 1 { // what is left of a character that was cut
			if r, n := utf8.DecodeLastRuneInString(out); r == utf8.RuneError && n == 1 {
				out = out[:len(out)-1]
			}
		}
	}
	return strings.TrimRight(out, " ")
}

// quoted is the length of the quotation that text begins with, its quotes included. Without an
// end it goes on to that of the text, unless the quote may be an apostrophe: then 0.
func quoted(text string) int {
	quote := text[0]
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote == '"':
			i++
		case text[i] == quote && (quote != '\'' || i+1 == len(text) || !isWord(text[i+1])):
			return i + 1
		}
	}
	if quote == '\'' {
		return 0
	}
	return len(text)
}

// word is the length of the word that text begins with, and what is shown of it.
func word(text string) (n int, shown string) {
	if n = uuidLength(text); n > 0 {
		return n, string(varies)
	}
	if isDigit(text[0]) {
		return number(text), string(varies)
	}
	digits, backAndForth, hex := false, false, true
	for n < len(text) && isWord(text[n]) {
		c := text[n]
		backAndForth = backAndForth || digits && !isDigit(c) && c != '_' && isDigit(text[n-1])
		digits = digits || isDigit(c)
		hex = hex && isHex(c)
		n++
	}
	switch {
	case !digits:
		return n, text[:n]
	case n >= minID && (hex || backAndForth):
		return n, string(varies)
	}
	var b strings.Builder
	for i := range n {
		switch {
		case !isDigit(text[i]):
			b.WriteByte(text[i])
		case !isDigit(text[i-1]):
			b.WriteByte(varies)
		}
	}
	return n, b.String()
}

// number is the length of a word that begins with a digit, with the numbers that are attached to
// it, as in 1.5e3, 10:42:07.3, 2027-01-31T09:00:00Z and 127.0.0.1:5432.
func number(text string) int {
	n := 0
	for n < len(text) {
		switch {
		case isWord(text[n]):
		case strings.IndexByte(".,:-+/", text[n]) >= 0 && n+1 < len(text) && isDigit(text[n+1]):
		default:
			return n
		}
		n++
	}
	return n
}

// uuidLength is 36 if text begins with a UUID, else 0.
func uuidLength(text string) int {
	const length = 36
	if len(text) < length || len(text) > length && isWord(text[length]) {
		return 0
	}
	for i := range length {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (text[i] == '-') || !dash && !isHex(text[i]) {
			return 0
		}
	}
	return length
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isHex(c byte) bool   { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }
func isWord(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}
