package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func TestClaimIsFenced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	ids, turns := columns(p)

	_, err := store.InsertClaim(t.Context(), b.db, store.Fence{Session: b.fence.Session, Epoch: b.fence.Epoch - 1, Incarnation: b.fence.Incarnation}, p.Removals, ids, turns)
	require.ErrorIs(t, err, store.ErrFenced, "another epoch")
	_, err = store.InsertClaim(t.Context(), b.db, store.Fence{Session: b.fence.Session, Epoch: b.fence.Epoch, Incarnation: b.fence.Incarnation + 1}, p.Removals, ids, turns)
	require.ErrorIs(t, err, store.ErrFenced, "of another timeline")
	_, err = store.InsertClaim(t.Context(), b.db, b.fence, p.Removals+1, ids, turns)
	require.ErrorIs(t, err, store.ErrFenced, "somebody took jobs away")

	other := openSession(t, b.db, "b")
	mine, l, err := store.TakeLock(t.Context(), b.db, store.Claimant{Session: other, Member: "b", SeenSeq: 1}, ttl)
	require.NoError(t, err)
	require.False(t, mine)
	require.Equal(t, "a", l.Holder)
	mine, _, err = store.TakeLock(t.Context(), b.db, store.Claimant{Session: other, Member: "b", SeenSeq: l.RenewSeq, HolderGone: true}, ttl)
	require.NoError(t, err)
	require.True(t, mine, "gossip says the holder is gone, and its renewals stood still")
	_, err = store.InsertClaim(t.Context(), b.db, b.fence, p.Removals, ids, turns)
	require.ErrorIs(t, err, store.ErrFenced, "the lock was taken over")
	_, err = store.RenewLock(t.Context(), b.db, b.fence, ttl, ttl)
	require.ErrorIs(t, err, store.ErrFenced)
}

func TestReapRaisesTurnsAndBuriesKillers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue(t, store.NewJob{UniqueKey: "u"})
	for loss := 1; loss <= 3; loss++ {
		p := b.page(t, 0)
		require.Len(t, p.Jobs, 1)
		require.Equal(t, loss-1, p.Jobs[0].Record.Losses)
		victim := openSession(t, b.db, "v")
		_, err := b.db.Exec(t.Context(), "INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) VALUES ($1, $2, $3, now())",
			victim, p.Jobs[0].Record.Turn, []int64{int64(id)})
		require.NoError(t, err)
		dead, err := store.DeclareDead(t.Context(), b.db, b.fence, victim, 0)
		require.NoError(t, err)
		require.False(t, dead, "it is not expired")
		_, err = b.db.Exec(t.Context(), "UPDATE tenure.node_session SET expires_at = now() - interval '1 s' WHERE session_id = $1", victim)
		require.NoError(t, err)
		dead, err = store.DeclareDead(t.Context(), b.db, b.fence, victim, 0)
		require.NoError(t, err)
		require.True(t, dead)
		_, err = store.BeatSession(t.Context(), b.db, victim, ttl)
		require.ErrorIs(t, err, store.ErrSessionLost)
		r, err := store.ReapClaims(t.Context(), b.db, b.fence, 3)
		require.NoError(t, err)
		require.Equal(t, 1, r.Claims)
		if loss < 3 {
			require.Equal(t, 1, r.Back)
			lost, err := store.Finish(t.Context(), b.db, store.Runner{Session: victim, Node: "v"}, true, []store.Finished{{Record: &p.Jobs[0].Record, Outcome: job.Outcome{State: job.Done}}}, nil)
			require.NoError(t, err)
			require.Equal(t, 1, lost, "the old run reports in vain")
		} else {
			require.Equal(t, 1, r.Dead)
		}
	}
	require.Equal(t, store.Counts{Dead: 1}, counts(t, b.db))
	errs, err := store.Errors(t.Context(), b.db, id)
	require.NoError(t, err)
	require.Len(t, errs, 3)
}

// Whoever outlived a session's end takes back what its jobs were charged, once for each run.
func TestSpare(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue(t, store.NewJob{})
	turn := b.page(t, 0).Jobs[0].Record.Turn
	losses := func() (n int) {
		require.NoError(t, b.db.QueryRow(t.Context(), "SELECT losses FROM tenure.job").Scan(&n))
		return n
	}
	spare := func(turn int32) {
		require.NoError(t, store.Spare(t.Context(), b.db, []int64{int64(id), 99}, []int32{turn, turn}))
	}
	_, err := b.db.Exec(t.Context(), "UPDATE tenure.job SET losses = 2, turn = turn + 2") // twice
	require.NoError(t, err)
	spare(turn)
	require.Equal(t, 2, losses(), "it was lost again since")
	spare(turn + 2)
	require.Equal(t, 2, losses(), "that run goes on")
	spare(turn + 1)
	require.Equal(t, 1, losses())
	const again = "UPDATE tenure.job SET losses = %d; INSERT INTO tenure.job_error (job_id, attempt, node, error) SELECT id, 1, 'n', 'lost' FROM tenure.job, generate_series(1, %d)"
	_, err = b.db.Exec(t.Context(), fmt.Sprintf(again, 0, 9))
	require.NoError(t, err)
	spare(turn + 1)
	require.Zero(t, losses())
	_, err = b.db.Exec(t.Context(), fmt.Sprintf(again, 1, 0))
	require.NoError(t, err)
	spare(turn + 1)
	require.Zero(t, losses())
	_, err = b.db.Exec(t.Context(), fmt.Sprintf(again, 1, 1))
	require.NoError(t, err)
	spare(turn + 1)
	require.Equal(t, 1, losses(), "that was the tenth time")
}

func TestReturnAndReleaseClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.enqueue(t, store.NewJob{}), b.enqueue(t, store.NewJob{})
	claim := b.claim(t, b.page(t, 0))[b.first()]
	require.NoError(t, store.ReturnUnstarted(t.Context(), b.db, b.fence.Session, []int64{claim}, []int64{int64(first)}))
	list, err := store.Claims(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, []store.Claim{{ID: claim, Session: b.fence.Session, Turn: b.first(), Jobs: []job.ID{second}}}, list)

	made, err := store.ClaimsMade(t.Context(), b.db, b.fence.Session)
	require.NoError(t, err)
	require.Equal(t, []int64{claim}, made)
	require.NoError(t, store.ReleaseClaims(t.Context(), b.db, b.fence.Session, made))
	left, err := store.LeaveSession(t.Context(), b.db, b.fence.Session)
	require.NoError(t, err)
	require.True(t, left)
}
