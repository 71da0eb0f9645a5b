package config

import (
	"reflect"
	"slices"
	"strings"
)

// nearest is the candidate that word was probably meant to be, "" when none is
// near. Ties go to the earlier candidate.
func nearest(word string, candidates []string) string {
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
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// choice is the fix for a value that is none of a few words.
func choice(word string, words ...string) string {
	if near := nearest(word, words); near != "" {
		return "did you mean " + near + "?"
	}
	last := len(words) - 1
	return "choose " + strings.Join(words[:last], ", ") + " or " + words[last]
}

// unknownKeyFix tells what a key that t does not have was meant to be: one of its
// keys, or the same key in another section. meant is "" when it is not one of t's.
func unknownKeyFix(key string, t reflect.Type) (fix, meant string) {
	keys := keysOf(t)
	var elsewhere []string
	for _, path := range keyPaths(reflect.TypeFor[Config](), "") {
		if strings.HasSuffix(path, "."+key) || path == key {
			elsewhere = append(elsewhere, path)
		}
	}
	if slices.Contains(elsewhere, key) {
		return "it is a section of its own: begin it at the left margin", ""
	}
	if near := nearest(key, keys); near != "" {
		return "did you mean " + near + "?", near
	}
	if len(elsewhere) == 1 {
		return "did you mean " + elsewhere[0] + "?", ""
	}
	return "the keys here are: " + strings.Join(keys, ", "), ""
}

// keysOf are the keys of a section, in the order of its struct.
func keysOf(t reflect.Type) []string {
	var keys []string
	for f := range fieldsOf(t) {
		keys = append(keys, keyOf(f))
	}
	return keys
}

// keyPaths are the paths of every key below t; <name> stands for a key that the
// user chooses.
func keyPaths(t reflect.Type, path string) []string {
	var paths []string
	switch {
	case t.Kind() == reflect.Pointer:
		return keyPaths(t.Elem(), path)
	case t.Kind() == reflect.Map:
		return keyPaths(t.Elem(), path+".<name>")
	case t.Kind() == reflect.Struct && !slices.Contains(scalarTypes, t):
		for f := range fieldsOf(t) {
			p := join(path, keyOf(f))
			paths = append(append(paths, p), keyPaths(f.Type, p)...)
		}
	}
	return paths
}
