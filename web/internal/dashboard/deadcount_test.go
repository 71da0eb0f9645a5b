package dashboard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/operate"
)

// However many look, dead letters are counted once, and seldom if that takes long. Nobody waits for more than he has time
// for, and nobody is shown what was counted before somebody changed it.
func TestDeadLettersAreCountedForAllWhoLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		counts := 0
		d := newDeadCounts(nil)
		d.count = func(context.Context, scope) ([]operate.DeadGroup, error) {
			counts++
			groups := []operate.DeadGroup{{Count: counts}}
			time.Sleep(3 * time.Second)
			return groups, nil
		}
		look := func(shown int) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), readWithin)
			defer cancel()
			c := d.of(ctx, scope{})
			require.Equal(t, shown > 0, c.known())
			if shown > 0 {
				require.Equal(t, shown, c.found[0].Count)
			}
		}
		for range 50 {
			go look(0)
		}
		look(0)
		time.Sleep(3 * time.Second)
		for range 50 {
			look(1)
			time.Sleep(time.Second)
		}
		require.Equal(t, 1, counts)
		time.Sleep(11 * time.Second)
		look(1) // while it is counted again
		time.Sleep(3 * time.Second)
		look(2)
		d.expire()
		look(0)
		time.Sleep(3 * time.Second)
		look(3)

		for i := range 2 * countsKept {
			d.look(scope{tenant: string(rune('a' + i))})
			time.Sleep(4 * time.Second)
		}
		require.LessOrEqual(t, len(d.last), countsKept)
		require.Contains(t, d.last, scope{tenant: string(rune('a' + 2*countsKept - 1))})
	})
}
