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
	claim := b.claim(t, b.page(t, 0))[b.first()]
	other := uuid.New()
	require.NoError(t, store.ReleaseClaims(t.Context(), b.db, other, []int64{claim}))
	require.NoError(t, store.ReturnUnstarted(t.Context(), b.db, other, []int64{claim}, []int64{int64(id)}))
	_, err := store.Finish(t.Context(), b.db, store.Runner{Session: other, Node: "x"}, true, nil, []int64{claim})
	require.NoError(t, err)
	standing, err := store.Claims(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, []store.Claim{{ID: claim, Session: b.fence.Session, Turn: b.first(), Jobs: []job.ID{id}}}, standing)
}
