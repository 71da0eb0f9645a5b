package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// What unfolds beyond the bound stays on the server, and so does what a page has no room
// for; the rest of the page is read.
func TestPageWithholdsWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	add := func(payload string) {
		_, err := b.owner.Exec(t.Context(), "INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT 'acme', 'default', 'k', "+payload)
		require.NoError(t, err)
	}
	const digits = 100_000
	unfolding := func(bytes int) string { // a few bytes for each number, as long as it is not printed
		return fmt.Sprintf("jsonb_agg('1e%d'::numeric) FROM generate_series(1, %d)", digits, bytes/digits)
	}
	add(unfolding(store.MaxJobBytes + digits))
	add(`'"small"'`)
	for range store.MaxPageBytes/(10*digits) + 1 {
		add(unfolding(10 * digits))
	}
	p := b.page(t, 0)
	require.True(t, p.Jobs[0].TooLarge)
	require.Nil(t, p.Jobs[0].Record.Payload)
	require.Greater(t, p.Jobs[0].Bytes, int64(store.MaxJobBytes))
	require.JSONEq(t, `"small"`, string(p.Jobs[1].Record.Payload))
	shown, left := int64(0), 0
	for _, j := range p.Jobs[1:] {
		require.False(t, j.TooLarge)
		require.Equal(t, j.Left, j.Record.Payload == nil)
		shown += int64(len(j.Record.Payload))
		if j.Left {
			left++
		}
	}
	require.LessOrEqual(t, shown, int64(store.MaxPageBytes))
	require.Equal(t, 1, left, "all but the last fit")
}
