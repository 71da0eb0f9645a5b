package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// give claims what waits for a session, as one claim per turn.
func (b *bundle) give(t *testing.T, to ...uuid.UUID) []store.Given {
	p := b.page(t, 0)
	ids, turns := columns(p)
	whose := make([]int32, len(ids))
	for i := range whose {
		whose[i] = int32(i % len(to))
	}
	given, err := store.GiveClaims(t.Context(), b.db, b.fence, p.Removals, ids, turns, whose, to)
	require.NoError(t, err)
	return given
}

func (b *bundle) accept(t *testing.T, session uuid.UUID, known ...int64) []store.Accepted {
	got, err := store.AcceptClaims(t.Context(), b.db, session, known)
	require.NoError(t, err)
	return got
}

func TestGivenClaimsAreTakenOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := openSession(t, b.db, "b"), openSession(t, b.db, "c")
	var ids []job.ID
	for range 5 {
		ids = append(ids, b.enqueue(t, store.NewJob{Priority: 3, Meta: []byte(`{"a": "b"}`)}))
	}
	waiting := b.page(t, 0)
	given := b.give(t, first, second)
	require.Len(t, given, 2)
	var unstarted int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure.claim WHERE started_at IS NULL").Scan(&unstarted))
	require.Equal(t, 2, unstarted, "they start when they are taken over")

	got := b.accept(t, first)
	require.Len(t, got, 1)
	require.Len(t, got[0].Jobs, 3)
	require.Equal(t, waiting.Jobs[0].Record, got[0].Jobs[0], "a job looks the same to whoever runs it")
	require.Equal(t, []job.ID{ids[0], ids[2], ids[4]}, []job.ID{got[0].Jobs[0].ID, got[0].Jobs[1].ID, got[0].Jobs[2].ID})
	require.Equal(t, got, b.accept(t, first), "again, as after a lost answer")
	require.Empty(t, b.accept(t, first, got[0].ID), "what it knows is not returned")

	made, err := store.ClaimsMade(t.Context(), b.db, first)
	require.NoError(t, err)
	require.Equal(t, []int64{got[0].ID}, made, "it must know what it has taken over")
	made, err = store.ClaimsMade(t.Context(), b.db, second)
	require.NoError(t, err)
	require.Empty(t, made, "and not what it has not")
	withdrawn, err := store.WithdrawClaims(t.Context(), b.db, b.fence, time.Hour)
	require.NoError(t, err)
	require.Empty(t, withdrawn, "it is too early")
	withdrawn, err = store.WithdrawClaims(t.Context(), b.db, store.Fence{Session: b.fence.Session, Epoch: b.fence.Epoch - 1}, -time.Second)
	require.NoError(t, err)
	require.Empty(t, withdrawn, "under an old epoch")
	withdrawn, err = store.WithdrawClaims(t.Context(), b.db, b.fence, -time.Second)
	require.NoError(t, err)
	require.Len(t, withdrawn, 1)
	require.NotEqual(t, got[0].ID, withdrawn[0], "what has been taken over stays")
	require.Empty(t, b.accept(t, second))
	standing := []int64{got[0].ID}
	for listed, want := range map[int32][]job.ID{3: nil, 4: {ids[0], ids[2], ids[4]}} {
		claims, err := store.StandingClaims(t.Context(), b.db, []int64{standing[0] + 1, standing[0]}, []int32{1, listed})
		require.NoError(t, err)
		require.Equal(t, []store.Standing{{ID: standing[0], Jobs: want}}, claims)
	}
	claims, err := store.StandingClaims(t.Context(), b.db, nil, nil)
	require.NoError(t, err)
	require.Equal(t, []store.Standing{{ID: standing[0]}}, claims)

	left, err := store.LeaveSession(t.Context(), b.db, first)
	require.NoError(t, err)
	require.False(t, left, "it has claims")
	require.NoError(t, store.ReleaseClaims(t.Context(), b.db, first, standing))
	b.give(t, first)
	left, err = store.LeaveSession(t.Context(), b.db, first)
	require.NoError(t, err)
	require.True(t, left, "what it has not taken over goes back")
	require.Empty(t, b.give(t, first), "nothing is given to a session that has left")
	require.Len(t, b.give(t, first, second), 1, "the living get theirs all the same")
}

func TestGivingIsFenced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	peer := openSession(t, b.db, "b")
	b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	ids, turns := columns(p)
	for _, f := range []store.Fence{{b.fence.Session, b.fence.Epoch - 1, b.fence.Incarnation}, {uuid.New(), b.fence.Epoch, b.fence.Incarnation}, {b.fence.Session, b.fence.Epoch, b.fence.Incarnation + 1}} {
		given, err := store.GiveClaims(t.Context(), b.db, f, p.Removals, ids, turns, []int32{0}, []uuid.UUID{peer})
		require.NoError(t, err)
		require.Empty(t, given)
	}
	given, err := store.GiveClaims(t.Context(), b.db, b.fence, p.Removals+1, ids, turns, []int32{0}, []uuid.UUID{peer})
	require.NoError(t, err)
	require.Empty(t, given, "jobs were taken away since")
	require.Len(t, b.give(t, peer), 1)
}

// A claim on jobs that are gone comes all the same, so that it can be removed.
func TestAnEmptyClaimIsShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	peer := openSession(t, b.db, "b")
	b.enqueue(t, store.NewJob{})
	given := b.give(t, peer)
	_, err := b.db.Exec(t.Context(), "UPDATE tenure.job SET turn = turn + 1")
	require.NoError(t, err)
	require.Equal(t, []store.Accepted{{ID: given[0].ID}}, b.accept(t, peer))
}

// A reaped claim that had not been taken over is no loss.
func TestUnstartedClaimsAreNoLoss(t *testing.T) {
	t.Parallel()
	b := setup(t)
	peer := openSession(t, b.db, "b")
	started, unstarted := b.enqueue(t, store.NewJob{}), job.ID(0)
	b.give(t, peer)
	claim := b.accept(t, peer)[0].ID
	unstarted = b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	_, err := store.GiveClaims(t.Context(), b.db, b.fence, p.Removals, []int64{int64(unstarted)}, []int32{b.first()}, []int32{0}, []uuid.UUID{peer})
	require.NoError(t, err)
	_, err = b.db.Exec(t.Context(), "UPDATE tenure.node_session SET state = 'dead' WHERE session_id = $1", peer)
	require.NoError(t, err)
	r, err := store.ReapClaims(t.Context(), b.db, b.fence, 3, 0, true)
	require.NoError(t, err)
	r.Last = 0
	require.Equal(t, store.Reaped{Claims: 2, Back: 2}, r)
	losses := func(id job.ID) (n int) {
		require.NoError(t, b.db.QueryRow(t.Context(), "SELECT losses FROM tenure.job WHERE id = $1", id).Scan(&n))
		return n
	}
	require.Equal(t, 1, losses(started), "claim %d had started", claim)
	require.Zero(t, losses(unstarted))
}
