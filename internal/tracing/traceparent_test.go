package tracing_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenurehq/tenure/internal/tracing"
)

const example = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParse(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		example: true,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00":      true,
		"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more": true, // of a later version
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more": false,
		"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":      false,
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01":      false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01":      false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01":      false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-zz":      false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1":       false,
		"0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":       false,
		"00-0af7651916cd43dd8448eb211c80319c0-b7ad6b7169203331-01":     false,
		"": false, "00": false, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331": false, "<script>": false,
	} {
		c, is := tracing.Parse(text)
		require.Equal(t, ok, is, text)
		require.Equal(t, ok, c.IsValid(), text)
	}
	c, _ := tracing.Parse(example)
	require.True(t, c.IsRemote())
	require.True(t, c.IsSampled())
	require.Equal(t, example, tracing.Format(c))
	require.Empty(t, tracing.Format(trace.SpanContext{}))
}

// Whatever somebody has written into a job's meta is read, or is not, and what is read is written the same.
func FuzzParse(f *testing.F) {
	f.Add(example)
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := tracing.Parse(text)
		if !ok {
			return
		}
		again, ok := tracing.Parse(tracing.Format(c))
		require.True(t, ok)
		require.True(t, c.Equal(again))
	})
}
