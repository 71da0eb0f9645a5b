package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// lockHistory is what befell the lock, the oldest first, as words.
func (b *bundle) lockHistory(t *testing.T) (words []string) {
	all, err := store.LockChanges(t.Context(), b.db, 20)
	require.NoError(t, err)
	for _, c := range all {
		word := c.Change + " " + c.Node
		if c.LostBy != "" {
			word += " from " + c.LostBy
		}
		words = append([]string{word}, words...)
	}
	return words
}

func TestLockChanges(t *testing.T) {
	t.Parallel()
	b := setup(t) // a has taken it
	take := func(member string) store.Fence {
		t.Helper()
		id := openSession(t, b.db, member)
		l, err := store.ReadLock(t.Context(), b.db)
		require.NoError(t, err)
		mine, l, err := store.TakeLock(t.Context(), b.db, store.Claimant{Session: id, Member: member, SeenSeq: l.RenewSeq, HolderGone: true}, ttl)
		require.NoError(t, err)
		require.True(t, mine)
		return store.Fence{Session: id, Epoch: l.Epoch}
	}
	require.NoError(t, store.OfferLock(t.Context(), b.db, b.fence, "b", 0))
	require.NoError(t, store.OfferLock(t.Context(), b.db, b.fence, "b", 0), "it is no longer its to release")
	take("b")
	f := take("c")
	mine, _, err := store.TakeLock(t.Context(), b.db, store.Claimant{Session: openSession(t, b.db, "d"), Member: "d", SeenSeq: -1}, ttl)
	require.NoError(t, err)
	require.False(t, mine, "c has it")
	_, _, err = store.TakeLock(t.Context(), b.db, store.Claimant{Session: f.Session, Member: "c", SeenSeq: -1}, ttl)
	require.NoError(t, err)
	var ended time.Time // c's term
	for range 2 {
		require.NoError(t, store.Freeze(t.Context(), b.db, true))
		require.NoError(t, store.Freeze(t.Context(), b.db, true))
		frozen, err := store.LockChanges(t.Context(), b.db, 1)
		require.NoError(t, err)
		require.Equal(t, store.LockFrozen, frozen[0].Change)
		if ended.IsZero() {
			ended = frozen[0].At
		}
		require.Equal(t, ended, frozen[0].At, "nobody has had the lock since the first freeze")
		require.NoError(t, store.Freeze(t.Context(), b.db, false))
	}
	take("e")
	require.Equal(t, []string{"taken a", "released a", "taken b", "taken c from b", "taken c from c", "frozen ", "thawed ", "taken e"}, b.lockHistory(t))

	all, err := store.LockChanges(t.Context(), b.db, 5)
	require.NoError(t, err)
	require.Len(t, all, 5)
	require.Equal(t, "b", all[4].LostBy, "what was before is read, too")
}

// The history does not grow for ever, and nobody who looks at it keeps the lock from being taken.
func TestLockHistoryIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.owner.Exec(t.Context(), `INSERT INTO tenure.lock_change (epoch, change, node)
		SELECT n, change, 'old' FROM generate_series(1, 700) n, unnest('{taken,released}'::text[]) AS change`)
	require.NoError(t, err)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), "SELECT FROM tenure.lock_change WHERE epoch = 7 FOR UPDATE")
	require.NoError(t, err)
	takeAgain := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		mine, _, err := store.TakeLock(ctx, b.db, store.Claimant{Session: b.fence.Session, Member: "a", SeenSeq: -1}, ttl)
		require.NoError(t, err)
		require.True(t, mine)
	}
	count := func(where string) (n int) {
		t.Helper()
		require.NoError(t, b.db.QueryRow(t.Context(), fmt.Sprintf("SELECT count(DISTINCT epoch) FROM tenure.lock_change WHERE %s", where)).Scan(&n))
		return n
	}
	takeAgain()
	require.Equal(t, 1, count("epoch < 200"), "a row that somebody else has locked is left")
	require.NoError(t, tx.Rollback(t.Context()))
	takeAgain()
	takeAgain()
	require.Equal(t, 500, count("true"))
	require.Zero(t, count("epoch < 200"))
}
