package fault

import (
	"slices"
	"strings"
)

// OneOf records a fault at path if value is none of the words.
func (l *List) OneOf(path, value string, words ...string) {
	if slices.Contains(words, value) {
		return
	}
	last := len(words) - 1
	l.Add(path, DidYouMean(value, words), "is not %s or %s", strings.Join(words[:last], ", "), words[last])
}

// DidYouMean is the fix for a word that is none of the candidates, "" when none is near.
func DidYouMean(word string, candidates []string) string {
	if near := Nearest(word, candidates); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// Nearest is the candidate that word was probably meant to be, "" when none is
// near. Ties go to the earlier candidate.
func Nearest(word string, candidates []string) string {
	w := fold(word)
	best, bestDistance := "", max(1, len(w)/3)+1
	for _, c := range candidates {
		if d := distance(w, fold(c)); d < bestDistance && d < len(w) {
			best, bestDistance = c, d
		}
	}
	if best != "" || len(w) < 3 {
		return best
	}
	// A word left out is many edits, yet clear: renew for renew_every.
	for _, c := range candidates {
		if f := fold(c); strings.HasPrefix(f, w) || strings.HasSuffix(f, w) {
			return c
		}
	}
	return ""
}

// fold makes maxConns, max-conns and max_conns one word.
func fold(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s))
}

// distance counts the letters to insert, delete, replace or swap with their
// neighbour (optimal string alignment).
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b)) // not a slip, and the table would be large
	}
	var before, above []int // the rows of the table above the one that is filled
	for i := range len(a) + 1 {
		row := make([]int, len(b)+1)
		for j := range row {
			switch {
			case i == 0 || j == 0:
				row[j] = i + j
				continue
			case a[i-1] == b[j-1]:
				row[j] = above[j-1]
			default:
				row[j] = 1 + min(above[j], row[j-1], above[j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above = above, row
	}
	return above[len(b)]
}
