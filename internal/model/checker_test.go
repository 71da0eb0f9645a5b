package model

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// jugs is a puzzle: jugs of 3 and 5 litres, to be filled, emptied and poured from one
// into the other. That there are never 4 litres in the larger one is its "invariant".
type jugs struct{ broken bool }

var _ System[[2]int, string] = jugs{}

var sizes = [2]int{3, 5}

func (jugs) Start() [2]int { return [2]int{} }

func (jugs) Next(s *[2]int, yield func(string, *[2]int)) {
	for i := range s {
		full, empty, poured := *s, *s, *s
		full[i], empty[i] = sizes[i], 0
		n := min(s[i], sizes[1-i]-s[1-i])
		poured[i] -= n
		poured[1-i] += n
		yield(fmt.Sprintf("fill %d", sizes[i]), &full)
		yield(fmt.Sprintf("empty %d", sizes[i]), &empty)
		yield(fmt.Sprintf("pour %d", sizes[i]), &poured)
	}
}

func (j jugs) Broken(s *[2]int) string {
	if j.broken && s[1] == 4 {
		return "4 litres"
	}
	return ""
}

func (jugs) Canonical(s *[2]int) [2]int { return *s }

func (jugs) Tell(step string, next *[2]int) string { return fmt.Sprintf("%s: %v", step, *next) }

func TestCheckExploresEverything(t *testing.T) {
	t.Parallel()
	r := Check(jugs{}, 1000)
	require.Equal(t, 16, r.States) // all that have one jug empty or full
	require.Empty(t, r.Broken)
	require.False(t, r.Partial)

	require.True(t, Check(jugs{}, 5).Partial)
}

func TestCheckFindsAShortestHistory(t *testing.T) {
	t.Parallel()
	r := Check(jugs{broken: true}, 1000)
	require.Equal(t, "4 litres", r.Broken)
	require.Equal(t, []string{
		"fill 5: [0 5]", "pour 5: [3 2]", "empty 3: [0 2]", "pour 5: [2 0]", "fill 5: [2 5]", "pour 5: [3 4]",
	}, r.Trace)
}

// twins are two counters that only their names distinguish.
type twins struct{ symmetric bool }

func (twins) Start() [2]int { return [2]int{} }

func (twins) Next(s *[2]int, yield func(string, *[2]int)) {
	for i := range s {
		if next := *s; next[i] < 9 {
			next[i]++
			yield(string(rune('A'+i)), &next)
		}
	}
}

func (twins) Broken(s *[2]int) string {
	if s[0] == 1 && s[1] == 3 || s[0] == 3 && s[1] == 1 {
		return "one and three"
	}
	return ""
}

func (w twins) Canonical(s *[2]int) [2]int {
	if w.symmetric && s[0] > s[1] {
		return [2]int{s[1], s[0]}
	}
	return *s
}

func (twins) Tell(step string, next *[2]int) string { return fmt.Sprint(step, *next) }

// A counterexample is told in the names that its first step gave, although the
// states that were explored had others.
func TestSymmetryKeepsNames(t *testing.T) {
	t.Parallel()
	plain, reduced := Check(twins{}, 1000), Check(twins{symmetric: true}, 1000)
	require.Less(t, reduced.States, plain.States)
	require.Equal(t, "one and three", reduced.Broken)
	require.Len(t, reduced.Trace, 4)
	require.Equal(t, len(plain.Trace), len(reduced.Trace))
	require.Contains(t, []string{"A[3 1]", "B[3 1]", "A[1 3]", "B[1 3]"}, reduced.Trace[3])
}
