package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Widest excerpt, in characters; longer lines are cut on both sides of the caret.
const excerptWidth = 120

var lineBreak = regexp.MustCompile("\r\n|[\n\r\u0085\u2028\u2029]") // YAML counts them all

// excerpt shows a line with its number and a caret under column, both from 1.
// hidden are literal secrets to mask besides what looks like one.
func excerpt(lines []string, line, column int, hidden []string) string {
	if line < 1 || line > len(lines) {
		return ""
	}
	text, caret := maskLine(lines[line-1], column-1, hidden)
	shown := []rune(text)
	for i, r := range shown {
		if !unicode.IsPrint(r) { // a tab would move the caret, an escape the terminal's cursor
			shown[i] = ' '
		}
	}
	caret = max(0, min(caret, len(shown)))
	if len(shown) > excerptWidth {
		from := max(0, min(caret-excerptWidth/2, len(shown)-excerptWidth))
		to := from + excerptWidth
		cut := slices.Clone(shown[from:to])
		if from > 0 {
			cut[0] = '…'
		}
		if to < len(shown) {
			cut[len(cut)-1] = '…'
		}
		shown, caret = cut, caret-from
	}
	return fmt.Sprintf("%5d | %s\n      | %s^\n", line, strings.TrimRight(string(shown), " "), strings.Repeat(" ", caret))
}
