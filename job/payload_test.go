package job_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/job"
)

func nested(open, inside, end string, depth int) string {
	return strings.Repeat(open, depth) + inside + strings.Repeat(end, depth)
}

// accepted and refused payloads; Postgres is asked about the accepted ones.
var accepted = map[string]string{
	"null":                        `null`,
	"object":                      `{"a": [1, -2.5e3, true, false, null], "b": {"": ""}}`,
	"space around":                " \t\r\n1 ",
	"twice the same key":          `{"a":1,"a":2}`,
	"escapes":                     `"\"\\\/\b\f\n\r\t\u0001\u00e9\uFFFF\ufffd"`,
	"plain unicode":               `"é İ 𝄞 😀 ` + "\u2028\u007f\uffff" + `"`,
	"a pair of surrogates":        `"\ud834\udd1e\uD834\uDD1E"`,
	"text about NUL":              `"\\u0000"`,
	"text about NUL, twice":       `"\\u0000 \\u0000"`,
	"backslash, then \\u0001":     `"\\\u0001"`,
	"text about half a pair":      `"\\ud834"`,
	"zeros behind another letter": `"\u00000"`[:5] + `10000"`,
	"brackets in a string":        `"` + nested("[{", "", "}]", 200) + `"`,
	"quotes and brackets":         `["\"[[[", "]]]\\"]`,
	"a hundred deep":              nested("[", "", "]", 100),
	"a hundred deep, mixed":       nested(`[{"a":`, "1", "}]", 50),
	"wide, not deep":              "[" + strings.Repeat("[],", 1000) + "[]]",
	"full":                        `"` + strings.Repeat("x", job.MaxPayload-2) + `"`,
	"the largest float64":         `1.7976931348623157e+308`,
	"the smallest float64":        `5e-324`,
	"a number of 4096 bits":       "-" + strings.Repeat("9", 1233),
	"zero with an exponent":       `[0e5, 0.0E-5, -0]`,
}

var refused = map[string]struct{ payload, want string }{
	"nothing":                        {``, `not valid JSON: ""`},
	"space":                          {` `, `not valid JSON`},
	"half":                           {`{"a":`, `not valid JSON`},
	"two":                            {`1 2`, `not valid JSON`},
	"a word":                         {`undefined`, `not valid JSON`},
	"not a number":                   {`NaN`, `not valid JSON`},
	"infinity":                       {`-Infinity`, `not valid JSON`},
	"single quotes":                  {`'a'`, `not valid JSON`},
	"a comma too many":               {`[1,]`, `not valid JSON`},
	"a raw line break":               {"\"a\nb\"", `not valid JSON`},
	"a raw NUL":                      {"\"\x00\"", `not valid JSON`},
	"a byte order mark":              {"\ufeff1", `not valid JSON`},
	"a bad escape":                   {`"\x41"`, `not valid JSON`},
	"half an escape":                 {`"\u12"`, `not valid JSON`},
	"not UTF-8":                      {"\"\xff\"", "not UTF-8"},
	"Latin-1":                        {"{\"name\":\"M\xfcller\"}", "not UTF-8"},
	"a surrogate in UTF-8":           {"\"\xed\xa0\x80\"", "not UTF-8"},
	"NUL":                            {`"\u0000"`, `a string holds the character \u0000, which Postgres cannot store`},
	"NUL in a key":                   {`{"a\u0000b":1}`, `\u0000`},
	"NUL behind a backslash":         {`"\\\u0000"`, `\u0000`},
	"NUL behind text about it":       {`"\\u0000 \u0000"`, `\u0000`},
	"NUL in the next string":         {`["\\u0000","\u0000"]`, `\u0000`},
	"a high surrogate alone":         {`"\ud834"`, "half of a surrogate pair"},
	"a low surrogate alone":          {`"\udd1e"`, "half of a surrogate pair"},
	"two high surrogates":            {`"\ud834\ud834"`, "half of a surrogate pair"},
	"a pair the wrong way round":     {`"\udd1e\ud834"`, "half of a surrogate pair"},
	"a pair torn apart":              {`"\ud834 \udd1e"`, "half of a surrogate pair"},
	"a high surrogate and text":      {`"\ud834\\udd1e"`, "half of a surrogate pair"},
	"a high surrogate in a key":      {`{"\ud834":1}`, "half of a surrogate pair"},
	"a high surrogate at the end":    {`"a\ud834"`, "half of a surrogate pair"},
	"too deep":                       {nested("[", "", "]", 101), "nested deeper than 100"},
	"too deep, mixed":                {nested(`[{"a":`, "[]", "}]", 50), "nested deeper than 100"},
	"too deep for encoding/json":     {nested("[", "", "]", 20_000), "not valid JSON"},
	"too large":                      {`"` + strings.Repeat("x", job.MaxPayload-1) + `"`, "262145 bytes of JSON: 262144 are allowed; store the data elsewhere"},
	"too large, of space":            {strings.Repeat(" ", job.MaxPayload) + "1", "262145 bytes of JSON"},
	"a number that Postgres has not": {`1e200000`, "the number 1e200000"},
	"an exponent that overflows":     {`[1E+99999999999999999999]`, "the number 1E+99999999999999999999"},
	"a number too fine":              {`{"a":-1e-20000}`, "the number -1e-20000"},
	"a number with too many digits":  {"0." + strings.Repeat("1", 20_000), "the number 0.111"},
	// Postgres could store it, and would write it out with all its zeros.
	"a number that grows when it is read": {`1e100000`, "the number 1e100000"},
}

func TestCheckPayload(t *testing.T) {
	t.Parallel()
	for name, payload := range accepted {
		t.Run("accepts "+name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, job.CheckPayload([]byte(payload)))
		})
	}
	for name, tc := range refused {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			err := job.CheckPayload([]byte(tc.payload))
			require.ErrorContains(t, err, tc.want)
			require.Less(t, len(err.Error()), 400, "an error quotes no whole payload")
		})
	}
}

// jsonb asks Postgres whether it would store a payload and how long it is when read.
type jsonb struct{ conn *pgx.Conn }

func openJSONB(t testing.TB) jsonb {
	conn, err := pgx.Connect(t.Context(), pgtest.Database(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return jsonb{conn}
}

func (j jsonb) store(ctx context.Context, payload []byte) (read string, err error) {
	err = j.conn.QueryRow(ctx, "SELECT $1::jsonb::text", payload).Scan(&read)
	return read, err
}

func requireStored(t require.TestingT, db jsonb, payload []byte) {
	read, err := db.store(context.Background(), payload)
	require.NoError(t, err, "Postgres refuses what CheckPayload accepts: %.200q", payload)
	require.True(t, json.Valid([]byte(read)))
	require.Less(t, len(read), job.MaxPrinted+1, "few bytes became many")
}

func TestCheckPayload_acceptsWhatPostgresStores(t *testing.T) {
	t.Parallel()
	db := openJSONB(t)
	for name, payload := range accepted {
		t.Log(name)
		requireStored(t, db, []byte(payload))
	}
	for _, number := range []string{"1e400,", "1e-400,", "9e400,"} { // the worst that may come back
		full := strings.Repeat(number, job.MaxPayload/len(number)-1)
		payload := []byte("[" + strings.TrimSuffix(full, ",") + "]")
		require.ErrorContains(t, job.CheckPayload(payload), "with all digits of its numbers: 1048576 are allowed")
		half := payload[:job.MaxPrinted/402*len(number)]
		half = append(half[:len(half)-1:len(half)-1], ']')
		for job.CheckPayload(half) != nil {
			half = append(half[:len(half)-1-len(number):len(half)-1-len(number)], ']')
		}
		require.Greater(t, len(half), 2000*len(number), "it is refused for what it prints as")
		requireStored(t, db, half)
	}
	pieces := rapid.SampledFrom([]string{
		`"`, `\`, `\\`, `\"`, `\n`, `\u`, `\u0000`, `\u0001`, `\u00e9`, `\ud834`, `\udd1e`, `\uDBFF`, `\uDFFF`, `u0000`, "0", "00", "é", "😀", "\x7f",
		"\xff", "\xed\xa0\x80", "\x00", "a", " ", "\n", "1", "-", "+", ".", "e", "E", "999", "e9999", "1e400", "1e-401", "{", "}", "[", "]", ":", ",", "null", "true",
	})
	valid := rapid.Custom(func(rt *rapid.T) []byte {
		inside := strings.Join(rapid.SliceOfN(pieces, 0, 12).Draw(rt, "pieces"), "")
		return []byte(rapid.SampledFrom([]string{"", `"`, `["a",`, `{"`}).Draw(rt, "before") + inside +
			rapid.SampledFrom([]string{"", `"`, `"]`, `]`, `":1}`}).Draw(rt, "after"))
	})
	rapid.Check(t, func(rt *rapid.T) {
		for range 20 {
			if payload := valid.Draw(rt, "payload"); job.CheckPayload(payload) == nil {
				requireStored(rt, db, payload)
			}
		}
	})
}

func TestEncode_isStoredAndReadBack(t *testing.T) {
	t.Parallel()
	db := openJSONB(t)
	rapid.Check(t, func(rt *rapid.T) {
		args := struct {
			anyArgs
			Text   string
			Number float64
			Bytes  []byte
			Map    map[string]int64
		}{
			Text:   rapid.String().Draw(rt, "text"),
			Number: rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64).Draw(rt, "number"),
			Bytes:  rapid.SliceOf(rapid.Byte()).Draw(rt, "bytes"),
			Map:    rapid.MapOf(rapid.String(), rapid.Int64()).Draw(rt, "map"),
		}
		args.V = map[string]any{"t": args.Text, "n": args.Number, "b": args.Bytes, "m": args.Map}
		payload, err := job.Encode(args)
		if err != nil {
			require.ErrorContains(rt, err, `\u0000`)
			return
		}
		requireStored(rt, db, payload)
	})
}

// FuzzCheckPayload knows what Postgres wants as well as it can without asking it.
func FuzzCheckPayload(f *testing.F) {
	for _, payload := range accepted {
		f.Add([]byte(payload))
	}
	for _, tc := range refused {
		f.Add([]byte(tc.payload))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		err := job.CheckPayload(b)
		require.Equal(t, before, b)
		if err != nil {
			require.Less(t, len(err.Error()), 400)
			return
		}
		require.True(t, json.Valid(b))
		// Decoded and encoded again nothing is lost: no half pair became U+FFFD, and no text holds NUL.
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber()
		var v any
		require.NoError(t, dec.Decode(&v))
		requireNoNUL(t, v)
		if !bytes.Contains(bytes.ToLower(b), []byte(`\ufffd`)) && !bytes.Contains(b, []byte("\ufffd")) {
			again, err := json.Marshal(v)
			require.NoError(t, err)
			require.NotContains(t, string(again), "\ufffd")
			require.NotContains(t, string(again), `\ufffd`)
		}
	})
}

func requireNoNUL(t *testing.T, v any) {
	switch v := v.(type) {
	case string:
		require.NotContains(t, v, "\x00")
	case []any:
		for _, e := range v {
			requireNoNUL(t, e)
		}
	case map[string]any:
		for k, e := range v {
			requireNoNUL(t, k)
			requireNoNUL(t, e)
		}
	}
}

// What Tenure tells handlers beside a job's arguments nobody else can say.
func TestMetaOfTenuresOwnIsRefused(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"tenure:tags", "tenure.awaited"} {
		_, err := job.EncodeMeta(map[string]any{key: map[string]any{"done": 7}})
		require.ErrorContains(t, err, key)
	}
	meta, err := job.EncodeMeta(map[string]any{"tenure": 1, "a.tenure.b": 2})
	require.NoError(t, err)
	require.JSONEq(t, `{"tenure": 1, "a.tenure.b": 2}`, string(meta))
}
