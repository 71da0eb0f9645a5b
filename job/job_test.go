package job_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/job"
)

func TestParseID(t *testing.T) {
	t.Parallel()
	t.Run("reads what String prints", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) {
			id := job.ID(rapid.Int64Range(1, math.MaxInt64).Draw(rt, "id"))
			got, err := job.ParseID(id.String())
			require.NoError(rt, err)
			require.Equal(rt, id, got)
		})
	})
	for _, s := range []string{"", "0", "-1", "-0", "1.0", "1e3", "0x10", " 1", "1\n", "١", "one", "9223372036854775808"} {
		t.Run("refuses "+strconv.Quote(s), func(t *testing.T) {
			t.Parallel()
			id, err := job.ParseID(s)
			require.ErrorContains(t, err, strconv.Quote(s))
			require.ErrorContains(t, err, "positive whole number")
			require.Zero(t, id)
		})
	}
}

func TestContext(t *testing.T) {
	t.Parallel()
	_, ok := job.FromContext(t.Context())
	require.False(t, ok)

	outer, inner := &job.Record{ID: 1}, &job.Record{ID: 2}
	ctx := job.NewContext(t.Context(), outer)
	got, ok := job.FromContext(job.NewContext(ctx, inner))
	require.True(t, ok)
	require.Same(t, inner, got, "the innermost job counts")
	got, ok = job.FromContext(ctx)
	require.True(t, ok)
	require.Same(t, outer, got, "and the outer context is as it was")
}
