package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// assign claims what waits for sessions, in one claim for each and turn.
func (b *bundle) assign(t *testing.T, to ...uuid.UUID) []store.Claimed {
	assigned, err := store.InsertClaims(t.Context(), b.db, b.fence, request(b.page(t, 0), to...))
	require.NoError(t, err)
	return assigned
}

func (b *bundle) accept(t *testing.T, session uuid.UUID, known ...int64) []store.Accepted {
	got, err := store.AcceptClaims(t.Context(), b.db, session, known)
	require.NoError(t, err)
	for i := range got { // it is counted from the answer on, and so never the same
		require.Len(t, got[i].Ready, len(got[i].Jobs))
		got[i].Ready = nil
	}
	return got
}

func TestAssignedClaimsAreAccepted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := openSession(t, b.db, "b"), openSession(t, b.db, "c")
	var ids []job.ID
	for range 5 {
		ids = append(ids, b.enqueue(t, store.NewJob{Priority: 3, Meta: []byte(`{"a": "b"}`)}))
	}
	waiting := b.page(t, 0)
	assigned := b.assign(t, first, second)
	require.Len(t, assigned, 2)
	var unstarted int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure.claim WHERE started_at IS NULL").Scan(&unstarted))
	require.Equal(t, 2, unstarted, "they start when they are accepted")

	got := b.accept(t, first)
	require.Len(t, got, 1)
	require.Len(t, got[0].Jobs, 3)
	require.Equal(t, waiting.Jobs[0].Record, got[0].Jobs[0], "a job looks the same to anyone who runs it")
	require.Equal(t, []job.ID{ids[0], ids[2], ids[4]}, []job.ID{got[0].Jobs[0].ID, got[0].Jobs[1].ID, got[0].Jobs[2].ID})
	require.Equal(t, got, b.accept(t, first), "again, as after a lost answer")
	require.Empty(t, b.accept(t, first, got[0].ID), "what it knows is not returned")

	made, err := store.ClaimsMade(t.Context(), b.db, first)
	require.NoError(t, err)
	require.Equal(t, []int64{got[0].ID}, made, "it must know what it has accepted")
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
	require.NotEqual(t, got[0].ID, withdrawn[0], "what has been accepted stays")
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
	b.assign(t, first)
	left, err = store.LeaveSession(t.Context(), b.db, first)
	require.NoError(t, err)
	require.True(t, left, "what it has not accepted goes back")
	_, err = store.InsertClaims(t.Context(), b.db, b.fence, request(b.page(t, 0), first))
	require.ErrorIs(t, err, store.ErrFenced, "nothing is assigned to a session that has left")
	require.Len(t, b.assign(t, first, second), 1, "the living get theirs all the same")
}

func TestAssigningIsFenced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	peer := openSession(t, b.db, "b")
	b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	for _, f := range []store.Fence{{b.fence.Session, b.fence.Epoch - 1, b.fence.Incarnation}, {uuid.New(), b.fence.Epoch, b.fence.Incarnation}, {b.fence.Session, b.fence.Epoch, b.fence.Incarnation + 1}} {
		_, err := store.InsertClaims(t.Context(), b.db, f, request(p, peer))
		require.ErrorIs(t, err, store.ErrFenced)
	}
	now := p.Removals
	p.Removals++
	_, err := store.InsertClaims(t.Context(), b.db, b.fence, request(p, peer))
	require.ErrorIs(t, err, store.ErrFenced, "jobs were taken away since")
	p.Removals = now
	require.Len(t, b.assign(t, peer), 1)
}

// One transaction claims for the holder, whose jobs begin at once, and for peers, whose jobs begin
// when they are accepted. A session that has ended gets none, and costs the others nothing.
func TestClaimsForHolderAndPeers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	peer := openSession(t, b.db, "b")
	r := store.NewClaimRequest(b.page(t, 0).Removals, 3)
	var ids []job.ID
	for i := range 3 {
		ids = append(ids, b.enqueue(t, store.NewJob{}))
		if i > 0 {
			r.AddPeer([]uuid.UUID{uuid.New(), peer}[i-1])
		}
		r.Add(ids[i], b.first())
	}
	made, err := store.InsertClaims(t.Context(), b.db, b.fence, r)
	require.NoError(t, err)
	require.Len(t, made, 2)
	for _, c := range made {
		var assigned, begun bool
		var jobs []job.ID
		require.NoError(t, b.db.QueryRow(t.Context(), "SELECT given, started_at IS NOT NULL, job_ids FROM tenure.claim WHERE id = $1", c.ID).Scan(&assigned, &begun, &jobs))
		require.Equal(t, c.Session == peer, assigned)
		require.Equal(t, c.Session == b.fence.Session, begun)
		require.Equal(t, map[bool][]job.ID{true: ids[2:], false: ids[:1]}[assigned], jobs)
	}
}

// A claim on jobs that are gone comes all the same, so that it can be removed.
func TestAnEmptyClaimIsShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	peer := openSession(t, b.db, "b")
	b.enqueue(t, store.NewJob{})
	assigned := b.assign(t, peer)
	_, err := b.db.Exec(t.Context(), "UPDATE tenure.job SET turn = turn + 1")
	require.NoError(t, err)
	require.Equal(t, []store.Accepted{{ID: assigned[0].ID}}, b.accept(t, peer))
}

// A reaped claim that had not been accepted is no loss.
func TestUnstartedClaimsAreNoLoss(t *testing.T) {
	t.Parallel()
	b := setup(t)
	peer := openSession(t, b.db, "b")
	started, unstarted := b.enqueue(t, store.NewJob{}), job.ID(0)
	b.assign(t, peer)
	claim := b.accept(t, peer)[0].ID
	unstarted = b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	req := store.NewClaimRequest(p.Removals, 1)
	req.AddPeer(peer)
	req.Add(unstarted, b.first())
	_, err := store.InsertClaims(t.Context(), b.db, b.fence, req)
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
