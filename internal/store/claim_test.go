package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func TestClaimIsFenced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	_, err := store.InsertClaims(t.Context(), b.db, store.Fence{Session: b.fence.Session, Epoch: b.fence.Epoch - 1, Incarnation: b.fence.Incarnation}, request(p))
	require.ErrorIs(t, err, store.ErrFenced, "another epoch")
	_, err = store.InsertClaims(t.Context(), b.db, store.Fence{Session: b.fence.Session, Epoch: b.fence.Epoch, Incarnation: b.fence.Incarnation + 1}, request(p))
	require.ErrorIs(t, err, store.ErrFenced, "of another timeline")
	p.Removals++
	_, err = store.InsertClaims(t.Context(), b.db, b.fence, request(p))
	p.Removals--
	require.ErrorIs(t, err, store.ErrFenced, "somebody took jobs away")

	other := openSession(t, b.db, "b")
	mine, l, err := store.TakeLock(t.Context(), b.db, store.Claimant{Session: other, Member: "b", SeenSeq: 1}, ttl)
	require.NoError(t, err)
	require.False(t, mine)
	require.Equal(t, "a", l.Holder)
	mine, _, err = store.TakeLock(t.Context(), b.db, store.Claimant{Session: other, Member: "b", SeenSeq: l.RenewSeq, HolderGone: true}, ttl)
	require.NoError(t, err)
	require.True(t, mine, "gossip says the holder is gone, and its renewals stood still")
	_, err = store.InsertClaims(t.Context(), b.db, b.fence, request(p))
	require.ErrorIs(t, err, store.ErrFenced, "the lock was taken over")
	_, err = store.RenewLock(t.Context(), b.db, b.fence, ttl, ttl)
	require.ErrorIs(t, err, store.ErrFenced)
}

func TestReapRaisesTurnsAndDeadLettersCrashers(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "u"} { // with a key a run is ended by another statement
		t.Run(fmt.Sprintf("key %q", key), func(t *testing.T) {
			b := setup(t)
			id := b.enqueue(t, store.NewJob{UniqueKey: key})
			for loss := 1; loss <= 3; loss++ {
				p := b.page(t, 0)
				require.Len(t, p.Jobs, 1)
				require.Equal(t, loss-1, p.Jobs[0].Record.Losses)
				victim := openSession(t, b.db, "v")
				_, err := b.db.Exec(t.Context(), "INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) VALUES ($1, $2, $3, now())",
					victim, p.Jobs[0].Record.Turn, []int64{int64(id)})
				require.NoError(t, err)
				dead, err := store.DeclareDead(t.Context(), b.db, b.fence, victim, 0, false)
				require.NoError(t, err)
				require.False(t, dead, "it is not expired")
				_, err = b.db.Exec(t.Context(), "UPDATE tenure.node_session SET expires_at = now() - interval '1 s' WHERE session_id = $1", victim)
				require.NoError(t, err)
				dead, err = store.DeclareDead(t.Context(), b.db, b.fence, victim, 0, false)
				require.NoError(t, err)
				require.True(t, dead)
				_, err = store.BeatSession(t.Context(), b.db, victim, ttl)
				require.ErrorIs(t, err, store.ErrSessionLost)
				r, err := store.ReapClaims(t.Context(), b.db, b.fence, 3, 0, true)
				require.NoError(t, err)
				require.Equal(t, 1, r.Claims)
				if loss < 3 {
					require.Equal(t, 1, r.Back)
					for _, keep := range []bool{true, false} {
						lost, err := store.Finish(t.Context(), b.db, store.Runner{Session: victim, Node: "v"}, keep, []store.Finished{{Record: &p.Jobs[0].Record, Outcome: job.Outcome{State: job.Done}}}, nil)
						require.NoError(t, err)
						require.Equal(t, 1, lost, "the old run reports in vain")
					}
				} else {
					require.Equal(t, 1, r.Dead)
				}
			}
			require.Equal(t, store.Counts{Dead: 1}, counts(t, b.db))
			errs, err := store.Errors(t.Context(), b.db, id)
			require.NoError(t, err)
			require.Len(t, errs, 3)
		})
	}
}

// dies makes a session with a started claim on jobs of one turn, and declares it dead.
func (b *bundle) dies(t *testing.T, ids ...job.ID) (claim int64) {
	t.Helper()
	victim := openSession(t, b.db, "v")
	require.NoError(t, b.db.QueryRow(t.Context(), "INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) VALUES ($1, $2, $3, now()) RETURNING id", victim, b.first(), ids).Scan(&claim))
	dead, err := store.DeclareDead(t.Context(), b.db, b.fence, victim, 0, true)
	require.NoError(t, err)
	require.True(t, dead)
	return claim
}

// What a dead node ran and somebody wanted cancelled ends with its claim.
func TestReapingHeedsCancelRequests(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{true, false} {
		b := setup(t)
		unwanted, other := b.enqueue(t, store.NewJob{UniqueKey: "u"}), b.enqueue(t, store.NewJob{UniqueKey: "o"})
		crasher := b.enqueue(t, store.NewJob{})
		b.dies(t, unwanted, other, crasher)
		_, err := b.db.Exec(t.Context(), "UPDATE tenure.job SET losses = 2 WHERE id = $1", crasher)
		require.NoError(t, err)
		for _, id := range []job.ID{unwanted, crasher} {
			running, err := store.Cancel(t.Context(), b.db, id, keep)
			require.NoError(t, err)
			require.True(t, running)
		}
		r, err := store.ReapClaims(t.Context(), b.db, b.fence, 3, 0, keep)
		require.NoError(t, err)
		require.Equal(t, store.Reaped{Claims: 1, Last: r.Last, Back: 1, Cancelled: 2}, r)
		want := store.Counts{Waiting: 1}
		if keep {
			want.Finished = 2
			require.Equal(t, "cancelled", b.state(t, unwanted))
		}
		require.Equal(t, want, counts(t, b.db))
		asked := b.requests(t)
		require.Empty(t, asked)
		require.NotEqual(t, unwanted, b.enqueue(t, store.NewJob{UniqueKey: "u"}), "its key is free")
		require.Equal(t, other, b.enqueue(t, store.NewJob{UniqueKey: "o"}), "and that of the other is not")
	}
}

// Reaping waits for nobody's row: a job that somebody has locked stays in its claim, alone,
// and is taken back when it is free. Neither does declaring a session dead, nor withdrawing
// what was assigned.
func TestReapingWaitsForNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []job.ID
	for range 4 {
		ids = append(ids, b.enqueue(t, store.NewJob{}))
	}
	first, second, third := b.dies(t, ids[0], ids[1]), b.dies(t, ids[2]), b.dies(t, ids[3])
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // for as long as anybody holds anything
	defer cancel()
	reap := func(want store.Reaped) {
		t.Helper()
		r, err := store.ReapClaims(ctx, b.db, b.fence, 3, 0, true)
		require.NoError(t, err)
		require.Equal(t, want, r)
	}
	claims := func() (left map[int64][]job.ID) {
		list, err := store.Claims(ctx, b.db)
		require.NoError(t, err)
		left = map[int64][]job.ID{}
		for _, c := range list {
			left[c.ID] = c.Jobs
		}
		return left
	}
	unlockJob := b.locks(t, "SELECT FROM tenure.job WHERE id = $1 FOR UPDATE", ids[0])
	unlockClaim := b.locks(t, "SELECT FROM tenure.claim WHERE id = $1 FOR UPDATE", second)
	reap(store.Reaped{Claims: 2, Last: third, Back: 2, Held: 1})
	require.Equal(t, map[int64][]job.ID{first: {ids[0]}, second: {ids[2]}}, claims())
	reap(store.Reaped{Claims: 1, Last: first, Held: 1})
	r, err := store.ReapClaims(ctx, b.db, b.fence, 3, first, true)
	require.NoError(t, err)
	require.Zero(t, r.Claims, "what is held does not keep others from their turn")
	unlockClaim()
	reap(store.Reaped{Claims: 2, Last: second, Back: 1, Held: 1})
	unlockJob()
	reap(store.Reaped{Claims: 1, Last: first, Back: 1})
	require.Empty(t, claims())
	var raised int
	require.NoError(t, b.db.QueryRow(ctx, "SELECT count(*) FROM tenure.job WHERE turn = $1 + 1 AND losses = 1", b.first()).Scan(&raised))
	require.Equal(t, 4, raised, "each once")

	silent := openSession(t, b.db, "s")
	unlock := b.locks(t, "SELECT FROM tenure.node_session WHERE session_id = $1 FOR UPDATE", silent)
	dead, err := store.DeclareDead(ctx, b.db, b.fence, silent, 0, true)
	require.NoError(t, err)
	require.False(t, dead, "it may just be beating")
	unlock()
	var assigned int64
	require.NoError(t, b.db.QueryRow(ctx, "INSERT INTO tenure.claim (session_id, turn, job_ids, given, claimed_at) VALUES ($1, $3::integer + 1, $2, true, to_timestamp(0)) RETURNING id", silent, ids[:1], b.first()).Scan(&assigned))
	unlock = b.locks(t, "SELECT FROM tenure.claim WHERE id = $1 FOR UPDATE", assigned)
	withdrawn, err := store.WithdrawClaims(ctx, b.db, b.fence, time.Second)
	require.NoError(t, err)
	require.Empty(t, withdrawn, "it may just be accepted")
	unlock()
	withdrawn, err = store.WithdrawClaims(ctx, b.db, b.fence, time.Second)
	require.NoError(t, err)
	require.Equal(t, []int64{assigned}, withdrawn)
}

// A duty that would have to wait for more than rows gives up at once.
func TestDutiesGiveUpOnALockedTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{DueAt: time.Now().Add(-time.Hour)})
	try := func(what error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := store.FireTimers(ctx, b.db, b.fence, 0)
		require.ErrorIs(t, err, what)
		_, err = store.ReapClaims(ctx, b.db, b.fence, 3, 0, true)
		require.ErrorIs(t, err, what)
		require.ErrorIs(t, store.ForgetCancelRequests(ctx, b.db), what)
	}
	try(nil)
	unlock := b.locks(t, "LOCK TABLE tenure.timer_job, tenure.claim, tenure.cancel_request IN ACCESS EXCLUSIVE MODE")
	for range 2 {
		try(store.ErrLocked)
	}
	unlock()
	try(nil)
	for _, conn := range b.db.AcquireAllIdle(t.Context()) {
		var patience string
		require.NoError(t, conn.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&patience))
		require.Equal(t, "0", patience, "others may wait as long as ever")
		conn.Release()
	}
}

// That a heartbeat has stood still for very long counts for more than the database's clock.
func TestDeclareDead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	declare := func(id uuid.UUID, beat int64, anyway bool) bool {
		t.Helper()
		dead, err := store.DeclareDead(t.Context(), b.db, b.fence, id, beat, anyway)
		require.NoError(t, err)
		return dead
	}
	s := openSession(t, b.db, "s")
	require.False(t, declare(s, 0, false), "it has not expired")
	_, err := store.BeatSession(t.Context(), b.db, s, ttl)
	require.NoError(t, err)
	require.False(t, declare(s, 0, true), "its heartbeat has moved")
	require.True(t, declare(s, 1, true))
	sessions, err := store.Sessions(t.Context(), b.db)
	require.NoError(t, err)
	for _, s := range sessions {
		require.InDelta(t, ttl, s.TTL, float64(time.Second), "what it was told to live")
	}
}

// Anyone who outlived a session's end takes back what its jobs were charged, once for each run.
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
