package wire_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/web/internal/wire"
)

// A body of a mebibyte costs some more than that to read, whatever it is made of: where a fault stands is put together
// only if there is one.
func TestReadingCostsWhatWasSent(t *testing.T) {
	const long = 900_000
	deep := strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000)
	for name, body := range map[string]string{
		"nested too deeply":       strings.Repeat("[", long),
		"deep under a long name":  `{"` + strings.Repeat("k", long) + `":` + deep + `}`,
		"many under a long name":  `{"` + strings.Repeat("k", long/2) + `":[` + strings.Repeat("0,", long/4) + `0]}`,
		"a fault deep down there": `{"` + strings.Repeat("k", long) + `":` + strings.Replace(deep, "[]", `["\u0000"]`, 1) + `}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var into any
		err := wire.Unmarshal([]byte(body), &into, wire.NullsRefused)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20), name)
		if strings.Contains(name, "fault") {
			require.ErrorContains(t, err, "U+0000", name)
			require.Less(t, len(err.Error()), 2*wire.MaxQuote)
		}
	}
	var into struct {
		Jobs []struct {
			Tenant string `json:"tenant"`
		} `json:"jobs"`
	}
	require.EqualError(t, wire.Unmarshal([]byte(`{"jobs": [{}, {"tenant": null}]}`), &into, wire.NullsRefused), "jobs[1].tenant is null: leave it out, or give it a value")
	require.EqualError(t, wire.Unmarshal([]byte(`{"jobs": [{"TENANT": "acme"}]}`), &into, wire.NullsRefused), "jobs[0].TENANT: there is no such field; tenant is one")
}
