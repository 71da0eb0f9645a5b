package traffic

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestParseFunctions(t *testing.T) {
	t.Parallel()
	calls, err := parse(strings.NewReader("app,func,end_timestamp,duration\na,f,10.5,0.5\nb,g,9,8.5\n"))
	require.NoError(t, err)
	require.Equal(t, []Call{
		{At: 0, Tenant: "b", Kind: "g", Took: 8500 * time.Millisecond},
		{At: 9500 * time.Millisecond, Tenant: "a", Kind: "f", Took: 500 * time.Millisecond},
	}, calls)
}

func TestParseLLM(t *testing.T) {
	t.Parallel()
	calls, err := parse(strings.NewReader("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,1000,10\n2023-11-16 18:17:04.9799600,0,0\n"))
	require.NoError(t, err)
	require.Equal(t, []Call{
		{Tenant: "llm", Kind: "completion", Took: 250 * time.Millisecond},
		{At: time.Second, Tenant: "llm", Kind: "completion"},
	}, calls)
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for input, says := range map[string]string{
		"":                                  "no header",
		"a,b":                               "line 1: columns",
		"app,func,end_timestamp,duration\n": "no calls",
		"app,func,end_timestamp,duration\na,f,1,x\n":     `line 2: "x" is not a number of seconds`,
		"app,func,end_timestamp,duration\na,f,1,NaN\n":   "not a number of seconds",
		"app,func,end_timestamp,duration\na,f,1,-2\n":    "a duration of -2 s",
		"app,func,end_timestamp,duration\na,f,1\n":       "wrong number of fields",
		"TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,1": `line 2: "x" is not a time`,
	} {
		_, err := parse(strings.NewReader(input))
		require.ErrorContains(t, err, says, input)
	}
}

func TestGenerateHasTheShape(t *testing.T) {
	t.Parallel()
	calls := Generate(1, 5000, 12)
	require.Len(t, calls, 5000)
	require.Equal(t, calls, Generate(1, 5000, 12), "the same seed, the same traffic")
	names := Tenants(calls)
	require.LessOrEqual(t, len(names), 12)
	loud := 0
	var slow int
	for _, c := range calls {
		if c.Tenant == names[0] {
			loud++
		}
		if c.Took > time.Second {
			slow++
		}
	}
	require.Greater(t, loud, 5000/4, "few loud tenants")
	require.Greater(t, slow, 20, "a heavy tail")
	require.Less(t, slow, 1500)
}

func TestFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		calls := Generate(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 300).Draw(t, "have"), 5)
		n := rapid.IntRange(1, 1000).Draw(t, "want")
		out := Fit(calls, n, 10*time.Second, time.Second)
		require.Len(t, out, n)
		require.Zero(t, out[0].At)
		for i, c := range out {
			require.LessOrEqual(t, c.At, 10*time.Second)
			require.LessOrEqual(t, c.Took, time.Second)
			if i > 0 {
				require.GreaterOrEqual(t, c.At, out[i-1].At)
			}
		}
	})
	require.Empty(t, Fit(nil, 10, time.Second, time.Second))
}
