package store_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// After a fail-over that lost commits, a number can name another session's claim: what
// a node still reports must leave it alone.
func TestANumberOfAnotherSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue(t, store.NewJob{})
	claim := b.claim(t, b.page(t, 0))[0]
	other := uuid.New()
	require.NoError(t, store.ReleaseClaims(t.Context(), b.db, other, []int64{claim}))
	require.NoError(t, store.ReturnUnstarted(t.Context(), b.db, other, []int64{claim}, []int64{int64(id)}))
	_, err := store.Finish(t.Context(), b.db, store.Runner{Session: other, Node: "x"}, true, nil, []int64{claim})
	require.NoError(t, err)
	standing, err := store.Claims(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, []store.Claim{{ID: claim, Session: b.fence.Session, Jobs: []job.ID{id}}}, standing)
}

// A sweep that reaches the server late removes nothing that was claimed since it was
// decided on.
func TestALateSweep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{})
	forgotten := b.claim(t, b.page(t, 0))[0]
	var claimed int64
	n, err := store.SweepClaims(t.Context(), b.db, b.fence.Session, func() []int64 {
		// Between the look and the removal, as if the removal were held up.
		b.enqueue(t, store.NewJob{})
		p := b.page(t, 0)
		byTurn, err := store.InsertClaim(t.Context(), b.db, b.fence, p.Removals, []int64{int64(p.Jobs[1].Record.ID)}, []int32{0})
		require.NoError(t, err)
		claimed = byTurn[0]
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	standing, err := store.ClaimIDs(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, []int64{claimed}, standing, "claim %d was forgotten", forgotten)
}
