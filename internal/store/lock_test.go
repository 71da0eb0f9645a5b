package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

func TestAnExpiredLockIsTakenAnew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	_, err := b.db.Exec(t.Context(), "UPDATE tenure.acquire_lock SET expires_at = now() - interval '1 s'")
	require.NoError(t, err)
	_, err = store.RenewLock(t.Context(), b.db, b.fence, ttl, ttl)
	require.ErrorIs(t, err, store.ErrFenced, "also if nobody took it")
	_, err = store.InsertClaims(t.Context(), b.db, b.fence, request(p))
	require.ErrorIs(t, err, store.ErrFenced)

	other := openSession(t, b.db, "b")
	mine, l, err := store.TakeLock(t.Context(), b.db, store.Claimant{Session: other, Member: "b", SeenSeq: -1}, ttl)
	require.NoError(t, err)
	require.False(t, mine, "expired, but not seen to stand still: the clock may have jumped")
	mine, l, err = store.TakeLock(t.Context(), b.db, store.Claimant{Session: other, Member: "b", SeenSeq: l.RenewSeq}, ttl)
	require.NoError(t, err)
	require.True(t, mine)
	require.Greater(t, l.Epoch, b.fence.Epoch)
}

func TestOfferReservesTheLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb, sc := openSession(t, b.db, "b"), openSession(t, b.db, "c")
	_, err := store.RenewLock(t.Context(), b.db, b.fence, ttl, ttl)
	require.NoError(t, err)
	require.NoError(t, store.OfferLock(t.Context(), b.db, b.fence, "b", time.Hour))
	mine, l, err := store.TakeLock(t.Context(), b.db, store.Claimant{Session: sc, Member: "c", SeenSeq: -1}, ttl)
	require.NoError(t, err)
	require.False(t, mine)
	require.Equal(t, "b", l.Next)
	require.Greater(t, l.Remaining, time.Minute)
	mine, l, err = store.TakeLock(t.Context(), b.db, store.Claimant{Session: sb, Member: "b", SeenSeq: -1}, ttl)
	require.NoError(t, err)
	require.True(t, mine)
	require.Greater(t, l.Epoch, b.fence.Epoch)
}

// That a reserved lock has stood still for too long counts for more than the database's
// clock, which may have been set back; but not if it was taken meanwhile.
func TestAReservationIsOutlasted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sb, sc := openSession(t, b.db, "b"), openSession(t, b.db, "c")
	require.NoError(t, store.OfferLock(t.Context(), b.db, b.fence, "b", time.Hour))
	l, err := store.ReadLock(t.Context(), b.db)
	require.NoError(t, err)
	take := func(c store.Claimant) bool {
		t.Helper()
		mine, _, err := store.TakeLock(t.Context(), b.db, c, ttl)
		require.NoError(t, err)
		return mine
	}
	require.False(t, take(store.Claimant{Session: sc, Member: "c", SeenSeq: l.RenewSeq - 1, HolderGone: true}), "it was another one that stood still")
	require.True(t, take(store.Claimant{Session: sc, Member: "c", SeenSeq: l.RenewSeq, HolderGone: true}))
	require.False(t, take(store.Claimant{Session: sb, Member: "b", SeenSeq: l.RenewSeq, HolderGone: true}), "somebody was quicker")
	l, err = store.ReadLock(t.Context(), b.db)
	require.NoError(t, err)
	require.InDelta(t, ttl, l.TTL, float64(time.Second))
}
