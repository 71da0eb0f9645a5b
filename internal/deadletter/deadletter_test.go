package deadletter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/deadletter"
	"github.com/tenurehq/tenure/job"
)

func TestPattern(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                                 "",
		"connection refused":                               "connection refused",
		"order 4711 not found":                             "order # not found",
		"order -4711.50 not found":                         "order -# not found",
		"order_4711 not found":                             "order_# not found",
		"dial tcp 127.0.0.1:5432: refused":                 "dial tcp #: refused",
		"dial tcp db7.example:5432: no":                    "dial tcp db#.example:#: no",
		"took 1m30.5s, not 10ms":                           "took #, not #",
		"at 2026-11-23T22:07:09.123Z: no":                  "at #: no",
		"at 2026-11-23 22:07:09+01: no":                    "at # #: no",
		`user "o'hara \"x\" 7" is gone`:                    `user "#" is gone`,
		`user 'eve' can't log in`:                          `user '#' can't log in`,
		"table `t_1` and \"cut off":                        "table `#` and \"#\"",
		"it's 'it":                                         "it's 'it",
		"job 4fd2c5a6-5e6b-4a91-9a53-0a1b2c3d4e5f lost":    "job # lost",
		"job a0d2c5a6-5e6b-4a91-9a53-0a1b2c3d4e5f: lost":   "job #: lost",
		"commit 9f86d081884c7d65 and deadbeef01":           "commit # and #",
		"deadbeef is a word, and facade too":               "deadbeef is a word, and facade too",
		"customer cus_9s6XKzkNRiz8i3 has no card":          "customer # has no card",
		"0x7ffd3c is no pointer":                           "# is no pointer",
		"x509: certificate has expired":                    "x#: certificate has expired",
		"one\n\ttwo   three \r\n":                          "one two three",
		"größe 12 zu groß":                                 "größe # zu groß",
		"ERROR: duplicate key (SQLSTATE 23505)":            "ERROR: duplicate key (SQLSTATE #)",
		strings.Repeat("é", 79) + "aéé":                    strings.Repeat("é", 79) + "a",
		strings.Repeat("long ", 100):                       strings.TrimRight(strings.Repeat("long ", 32), " "),
		"a file name like /tmp/x-1234/y-99.txt is changed": "a file name like /tmp/x-#/y-#.txt is changed",
	} {
		require.Equal(t, want, deadletter.Pattern(text), text)
	}
}

// What differs between two jobs does not part them, whatever its digits.
func TestPatternForgetsNumbers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{
			"order ", "no such row ", ": ", "'%d'", "%d", "\"%d\"", "id_%d", "10.0.%d.1", "%dms", "deadline exceeded ", "é", "\n",
		}), 1, 12).Draw(t, "parts")
		fill := func(name string) string {
			var b strings.Builder
			for i, p := range parts {
				if strings.Contains(p, "%d") {
					p = " " + fmt.Sprintf(p, rapid.IntRange(0, 1<<40).Draw(t, fmt.Sprint(name, i))) + " "
				}
				b.WriteString(p)
			}
			return b.String()
		}
		if a, b := fill("a"), fill("b"); deadletter.Pattern(a) != deadletter.Pattern(b) {
			t.Fatalf("%q and %q have the patterns %q and %q", a, b, deadletter.Pattern(a), deadletter.Pattern(b))
		}
	})
}

func FuzzPattern(f *testing.F) {
	for _, seed := range []string{"order 4711", "'", "\"\\", "a0d2c5a6-5e6b-4a91-9a53-0a1b2c3d4e5f", "\xff1\xff", strings.Repeat("é1", 200)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := deadletter.Pattern(text)
		require.LessOrEqual(t, len(got), 160)
		if utf8.ValidString(text) {
			require.True(t, utf8.ValidString(got), "%q", got)
		}
	})
}

func TestGroups(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Unix(0, 0).Add(time.Duration(minute) * time.Minute) }
	g := deadletter.NewGroups()
	add := func(id job.ID, kind, pattern string, died int) {
		g.Add(deadletter.Group{Kind: kind, Pattern: pattern, Count: 1, First: at(died), Last: at(died), Sample: id})
	}
	add(1, "a", "timeout", 3)
	add(2, "a", "timeout", 1)
	add(3, "b", "timeout", 2)
	g.Add(deadletter.Group{Kind: "a", Pattern: "timeout", Count: 5, First: at(0), Last: at(9), Sample: 7})
	require.Equal(t, []deadletter.Group{
		{ID: deadletter.GroupID("a", "timeout"), Kind: "a", Pattern: "timeout", Count: 7, First: at(0), Last: at(9), Sample: 7},
		{ID: deadletter.GroupID("b", "timeout"), Kind: "b", Pattern: "timeout", Count: 1, First: at(2), Last: at(2), Sample: 3},
	}, g.List())
	require.NotEqual(t, deadletter.GroupID("a", "b"), deadletter.GroupID("ab", ""))
}

// A million dead letters, each with an error of its own, take no more memory than the groups
// that are told apart, and none of them is left out.
func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	const n = 1_000_000
	text := []byte("cannot reach host           because of ids 4711 and 'x'")
	g := deadletter.NewGroups()
	for i := range n {
		for d, v := 18, i; d < 28; d, v = d+1, v/26 { // letters, which no pattern replaces
			text[d] = 'a' + byte(v%26)
		}
		g.Add(deadletter.Group{Kind: "k", Pattern: deadletter.Pattern(string(text)), Count: 1})
	}
	all := g.List()
	require.LessOrEqual(t, len(all), deadletter.MaxGroups+1)
	require.Equal(t, "", all[0].Pattern)
	sum := 0
	for _, one := range all {
		sum += one.Count
	}
	require.Equal(t, n, sum)
}

func BenchmarkPattern(b *testing.B) {
	text := "send invoice 4711 to 'eve@example.com': dial tcp 10.0.0.17:443: connect: connection refused (attempt 3 of 5, request 4fd2c5a6-5e6b-4a91-9a53-0a1b2c3d4e5f)"
	for b.Loop() {
		deadletter.Pattern(text)
	}
}
