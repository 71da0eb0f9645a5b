package tenancy_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/tenancy"
)

func TestValidate_accepts(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]tenancy.ID{
		"one letter":         "a",
		"a UUID":             "8f14e45f-ceea-467f-a6d5-9f1a3c3d2b11",
		"space inside":       "acme corp",
		"quotes":             `a","public`,
		"an injection":       `x'; DROP SCHEMA public --`,
		"a path":             "../../etc/passwd",
		"a name of Postgres": "pg_catalog", // routing refuses it as a schema
		"$user":              "$user",
		"Turkish İ":          "İstanbul",
		"composed":           "Zürich",
		"Chinese":            "租户",
		"composed Hangul":    "한국",
		"emoji":              "😀",
		"128 bytes":          tenancy.ID(strings.Repeat("x", 128)),
		"128 bytes of é":     tenancy.ID(strings.Repeat("é", 64)),
		"U+FFFD itself":      "a\ufffdb",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, id.Validate())
		})
	}
}

func TestValidate_refuses(t *testing.T) {
	t.Parallel()
	const space = "begins or ends with white space"
	for name, tc := range map[string]struct {
		id   tenancy.ID
		want string
	}{
		"nothing":                {"", "tenant id is empty"},
		"129 bytes":              {tenancy.ID(strings.Repeat("x", 129)), "has 129 bytes: 128 are allowed"},
		"130 bytes of é":         {tenancy.ID(strings.Repeat("é", 65)), "has 130 bytes: 128 are allowed"},
		"a megabyte":             {tenancy.ID(strings.Repeat("x", 1<<20)), "has 1048576 bytes"},
		"a space":                {" ", space},
		"a leading space":        {" acme", space},
		"a trailing space":       {"acme ", space},
		"a trailing line break":  {"acme\n", space},
		"a no-break space ahead": {"\u00a0acme", space},
		"an ideographic space":   {"acme\u3000", space},
		"NUL":                    {"ac\x00me", "unprintable character U+0000"},
		"a line break inside":    {"ac\nme", "unprintable character U+000A"},
		"a tab inside":           {"ac\tme", "unprintable character U+0009"},
		"an escape":              {"ac\x1b[31mme", "unprintable character U+001B"},
		"DEL":                    {"ac\x7fme", "unprintable character U+007F"},
		"a C1 control":           {"ac\u0085me", "unprintable character U+0085"},
		"a no-break space":       {"ac\u00a0me", "unprintable character U+00A0"},
		"a line separator":       {"ac\u2028me", "unprintable character U+2028"},
		"a zero width space":     {"ac\u200bme", "unprintable character U+200B"},
		"a joiner in an emoji":   {"👩\u200d💻", "unprintable character U+200D"},
		"right to left":          {"ac\u202eme", "unprintable character U+202E"},
		"a byte order mark":      {"\ufeffacme", "unprintable character U+FEFF"},
		"private use":            {"ac\ue000me", "unprintable character U+E000"},
		"not a character":        {"ac\uffffme", "unprintable character U+FFFF"},
		"decomposed":             {"Zu\u0308rich", "combining character U+0308: write it in composed form (NFC)"},
		"decomposed İ":           {"I\u0307stanbul", "combining character U+0307"},
		"a mark alone":           {"\u0308", "combining character U+0308"},
		"a variation selector":   {"❤\ufe0f", "combining character U+FE0F"},
		"a byte":                 {"\xff", "is not UTF-8"},
		"half a character":       {"acm\xc3", "is not UTF-8"},
		"overlong":               {"\xc0\xaf", "is not UTF-8"},
		"half a surrogate pair":  {"\xed\xa0\x80", "is not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.id.Validate()
			require.ErrorContains(t, err, tc.want)
			text := err.Error()
			require.Less(t, len(text), 500)
			for _, r := range text { // it must not break the log line that reports it
				require.True(t, unicode.IsPrint(r), "%q", text)
			}
		})
	}
}

func requireTellable(t require.TestingT, id tenancy.ID) {
	if id.Validate() != nil {
		return
	}
	s := string(id)
	require.NotEmpty(t, s)
	require.LessOrEqual(t, len(s), tenancy.MaxIDLength)
	require.True(t, utf8.ValidString(s))
	require.Equal(t, strings.TrimSpace(s), s)
	for _, r := range s {
		require.False(t, unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Mn, r), "%q", s)
		require.True(t, r == ' ' || !unicode.IsSpace(r), "%q", s)
	}
}

func TestValidate_anyText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) { requireTellable(rt, tenancy.ID(rapid.String().Draw(rt, "id"))) })
}

func FuzzValidate(f *testing.F) {
	for _, s := range []string{"", "acme", "Zu\u0308rich", "\xff", " a", "a\x00", "😀"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { requireTellable(t, tenancy.ID(s)) })
}

func TestContext(t *testing.T) {
	t.Parallel()
	_, ok := tenancy.FromContext(t.Context())
	require.False(t, ok)

	full := tenancy.Tenant{ID: "acme", Pool: "eu", Schema: "t_acme", Role: "acme"}
	outer := tenancy.NewContext(t.Context(), full)
	inner := tenancy.For(outer, "globex")

	got, ok := tenancy.FromContext(outer)
	require.True(t, ok)
	require.Equal(t, full, got)
	require.Equal(t, full, tenancy.Must(outer))
	require.Equal(t, tenancy.Tenant{ID: "globex"}, tenancy.Must(inner), "nothing of the outer tenant shines through")
	require.Equal(t, full, tenancy.Must(outer), "and the outer context is as it was")

	full.Schema, got.Schema = "t_globex", "t_globex"
	require.Equal(t, "t_acme", tenancy.Must(outer).Schema, "a context keeps a copy, and gives copies")
}

func TestMust_panicsWithoutTenant(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, tenancy.ErrNoTenant, func() { tenancy.Must(t.Context()) })
}
