package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	conn, err := storetest.Pool(t).Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	files, err := filepath.Glob("queries/*.sql")
	require.NoError(t, err)
	require.Greater(t, len(files), 40)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), "-- "), "%s begins with a comment that says what it does", f)
		_, err = conn.Conn().Prepare(t.Context(), filepath.Base(f), string(text))
		require.NoError(t, err, f)
	}
}

// bundle is a pool with one session that holds the lock.
type bundle struct {
	db    *pgxpool.Pool
	fence store.Fence
}

const ttl = 10 * time.Second

func openSession(t *testing.T, db store.DB, member string) uuid.UUID {
	id := uuid.New()
	require.NoError(t, store.OpenSession(t.Context(), db, store.Session{ID: id, Node: member, Member: member, Kinds: []string{"k"}}, ttl))
	return id
}

func setup(t *testing.T) *bundle {
	db := storetest.Pool(t)
	id := openSession(t, db, "a")
	mine, l, err := store.TakeLock(t.Context(), db, store.Claimant{Session: id, Member: "a", SeenSeq: -1}, ttl)
	require.NoError(t, err)
	require.True(t, mine)
	return &bundle{db: db, fence: store.Fence{Session: id, Epoch: l.Epoch, Timeline: l.Timeline}}
}

func (b *bundle) enqueue(t *testing.T, j store.NewJob) job.ID {
	if j.Kind == "" {
		j.Kind = "k"
	}
	if j.Queue == "" {
		j.Queue = "default"
	}
	if j.Tenant == "" {
		j.Tenant = "acme"
	}
	if j.Payload == nil {
		j.Payload = []byte(`{"n": 1}`)
	}
	id, _, err := store.Enqueue(t.Context(), b.db.QueryRow, 1, &j)
	require.NoError(t, err)
	return id
}

func (b *bundle) page(t *testing.T, after int64) store.Page {
	lanes, err := store.Lanes(t.Context(), b.db, 100)
	require.NoError(t, err)
	var req store.PageRequest
	for _, l := range lanes {
		req.Add(l, after, 100)
	}
	p, err := store.ReadPage(t.Context(), b.db, &req, store.KindsOf([]string{"k"}), false)
	require.NoError(t, err)
	return p
}

func (b *bundle) claim(t *testing.T, p store.Page) map[int32]int64 {
	ids, turns := columns(p)
	claims, err := store.InsertClaim(t.Context(), b.db, b.fence, p.Removals, ids, turns)
	require.NoError(t, err)
	return claims
}

func columns(p store.Page) (ids []int64, turns []int32) {
	for _, j := range p.Jobs {
		ids = append(ids, int64(j.Record.ID))
		turns = append(turns, j.Record.Turn)
	}
	return ids, turns
}

func counts(t *testing.T, db store.DB) store.Counts {
	c, err := store.Count(t.Context(), db)
	require.NoError(t, err)
	return c
}

func TestPageShowsWhatWasEnqueued(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue(t, store.NewJob{Tenant: "globex", Queue: "mail", Priority: -3, MaxAttempts: 7, Meta: []byte(`{"m": true}`), CorrelationID: "c", UniqueKey: "u"})
	b.enqueue(t, store.NewJob{})
	b.enqueue(t, store.NewJob{Kind: "unknown"})
	require.Equal(t, 1, store.PoolOf(int64(id)))

	p := b.page(t, 0)
	require.Len(t, p.Jobs, 2)
	r := p.Jobs[1].Record
	require.Equal(t, id, r.ID)
	require.Equal(t, "globex", r.Tenant)
	require.Equal(t, "mail", r.Queue)
	require.EqualValues(t, -3, r.Priority)
	require.Equal(t, 1, r.Attempt)
	require.Equal(t, 7, r.MaxAttempts)
	require.JSONEq(t, `{"n": 1}`, string(r.Payload))
	require.JSONEq(t, `{"m": true}`, string(r.Meta))
	require.Equal(t, "c", r.CorrelationID)
	require.Equal(t, "u", r.UniqueKey)
	require.WithinDuration(t, time.Now(), r.CreatedAt, time.Minute)
	require.LessOrEqual(t, p.Jobs[1].Position, p.Position)
}

func TestCopyEqualsInsert(t *testing.T) {
	t.Parallel()
	b := setup(t)
	jobs := []store.NewJob{
		{Tenant: "a", Queue: "q", Kind: "k", Payload: []byte(`{"x":"é"}`), Meta: []byte(`{}`), Priority: 5, MaxAttempts: 3, CorrelationID: "c"},
		{Tenant: "b", Queue: "q", Kind: "k", Payload: []byte(`[1]`)},
		{Tenant: "b", Queue: "q", Kind: "k", Payload: []byte(`1`), DueIn: time.Hour},
		{Tenant: "b", Queue: "q", Kind: "k", Payload: []byte(`2`), DueAt: time.Date(2040, 1, 2, 3, 4, 5, 6000, time.UTC)},
		{Tenant: "b", Queue: "q", Kind: "k", Payload: []byte(`3`), UniqueKey: "u"},
		{Tenant: "b", Queue: "q", Kind: "k", Payload: []byte(`3`), UniqueKey: "u"},
	}
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		n, err := store.EnqueueMany(t.Context(), tx, 1, jobs)
		require.Equal(t, 5, n)
		return err
	})
	require.NoError(t, err)
	all, err := store.List(t.Context(), b.db, store.Filter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, all, 5)
	p := b.page(t, 0)
	require.Len(t, p.Jobs, 3)
	require.JSONEq(t, `{"x":"é"}`, string(p.Jobs[0].Record.Payload))
	require.EqualValues(t, 5, p.Jobs[0].Record.Priority)
	require.Equal(t, 3, p.Jobs[0].Record.MaxAttempts)
	later, err := store.List(t.Context(), b.db, store.Filter{State: "scheduled", Limit: 10})
	require.NoError(t, err)
	require.Len(t, later, 2)
	require.WithinDuration(t, time.Now().Add(time.Hour), later[1].At, time.Minute)
	require.True(t, later[0].At.Equal(jobs[3].DueAt), later[0].At)

	err = pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		_, err := store.EnqueueMany(t.Context(), tx, 2, jobs)
		return err
	})
	require.ErrorIs(t, err, store.ErrWrongPool)
	_, _, err = store.Enqueue(t.Context(), b.db.QueryRow, 2, &jobs[0])
	require.ErrorIs(t, err, store.ErrWrongPool)
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 6 {
		b.enqueue(t, store.NewJob{UniqueKey: uuid.NewString()})
	}
	p := b.page(t, 0)
	claims := b.claim(t, p)
	runs := []store.Finished{
		{Record: &p.Jobs[0].Record, Outcome: job.Outcome{State: job.Done}},
		{Record: &p.Jobs[1].Record, Outcome: job.Outcome{State: job.Retrying, Delay: time.Hour, Err: job.ErrTimeout, Stack: "s\x00\xff"}},
		{Record: &p.Jobs[2].Record, Outcome: job.Outcome{State: job.Snoozed, Delay: time.Hour}},
		{Record: &p.Jobs[3].Record, Outcome: job.Outcome{State: job.Dead, Err: job.ErrTimeout}},
		{Record: &p.Jobs[4].Record, Outcome: job.Outcome{State: job.Cancelled}},
		{Record: &p.Jobs[5].Record, Outcome: job.Outcome{State: job.Returned}},
	}
	lost, err := store.Finish(t.Context(), b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, runs, []int64{claims[0]})
	require.NoError(t, err)
	require.Zero(t, lost)
	require.Equal(t, store.Counts{Waiting: 1, Timers: 2, Dead: 1, Finished: 2}, counts(t, b.db))

	again, err := store.Finish(t.Context(), b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, runs, nil)
	require.NoError(t, err)
	require.Equal(t, 5, again, "all but the cancelled one, which is not counted")
	require.Equal(t, store.Counts{Waiting: 1, Timers: 2, Dead: 1, Finished: 2}, counts(t, b.db))

	for i, state := range []string{"done", "retrying", "scheduled", "dead", "cancelled", "waiting"} {
		got, err := store.List(t.Context(), b.db, store.Filter{ID: runs[i].Record.ID, Limit: 10})
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, state, got[0].State)
	}
	errs, err := store.Errors(t.Context(), b.db, runs[1].Record.ID)
	require.NoError(t, err)
	require.Len(t, errs, 1)
	require.Equal(t, job.ErrTimeout.Error(), errs[0].Error)

	var keys int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure.unique_job").Scan(&keys))
	require.Equal(t, 3, keys, "the unfinished ones keep their keys")

	var key string
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT unique_key FROM tenure.dead_letter_job").Scan(&key))
	taker := b.enqueue(t, store.NewJob{UniqueKey: key})
	_, err = store.Retry(t.Context(), b.db, runs[3].Record.ID)
	var taken *store.KeyTakenError
	require.ErrorAs(t, err, &taken)
	require.Equal(t, taker, taken.By)
	require.Equal(t, store.Counts{Waiting: 2, Timers: 2, Dead: 1, Finished: 2}, counts(t, b.db))
	_, err = store.Cancel(t.Context(), b.db, taker, false)
	require.NoError(t, err)

	lane, err := store.Retry(t.Context(), b.db, runs[3].Record.ID)
	require.NoError(t, err)
	require.Equal(t, "acme", lane.Tenant)
	_, err = store.Retry(t.Context(), b.db, runs[1].Record.ID)
	require.NoError(t, err)
	_, err = store.Retry(t.Context(), b.db, runs[0].Record.ID)
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Len(t, b.page(t, 0).Jobs, 3)
}

func TestClaimIsFenced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	ids, turns := columns(p)

	_, err := store.InsertClaim(t.Context(), b.db, store.Fence{Session: b.fence.Session, Epoch: b.fence.Epoch - 1, Timeline: b.fence.Timeline}, p.Removals, ids, turns)
	require.ErrorIs(t, err, store.ErrFenced, "another epoch")
	_, err = store.InsertClaim(t.Context(), b.db, store.Fence{Session: b.fence.Session, Epoch: b.fence.Epoch, Timeline: b.fence.Timeline + 1}, p.Removals, ids, turns)
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

func TestAnExpiredLockIsTakenAnew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	ids, turns := columns(p)
	_, err := b.db.Exec(t.Context(), "UPDATE tenure.acquire_lock SET expires_at = now() - interval '1 s'")
	require.NoError(t, err)
	_, err = store.RenewLock(t.Context(), b.db, b.fence, ttl, ttl)
	require.ErrorIs(t, err, store.ErrFenced, "also if nobody took it")
	_, err = store.InsertClaim(t.Context(), b.db, b.fence, p.Removals, ids, turns)
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

func TestFinishInTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{UniqueKey: "u"})
	p := b.page(t, 0)
	b.claim(t, p)
	rec := p.Jobs[0].Record
	finish := func() error {
		return pgx.BeginFunc(context.Background(), b.db, func(tx pgx.Tx) error {
			var batch pgx.Batch
			store.QueueFinishInTx(&batch, &rec, true)
			return store.TranslateFinish(tx.SendBatch(context.Background(), &batch).Close())
		})
	}
	require.NoError(t, finish())
	require.Equal(t, store.Counts{Claimed: 1, Finished: 1}, counts(t, b.db))
	require.ErrorIs(t, finish(), job.ErrClaimLost)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	waiting, claimed := b.enqueue(t, store.NewJob{Tenant: "b", UniqueKey: "u"}), b.enqueue(t, store.NewJob{})
	timer := b.enqueue(t, store.NewJob{DueIn: time.Hour})
	p := b.page(t, 0)
	_, err := store.InsertClaim(t.Context(), b.db, b.fence, p.Removals, []int64{int64(claimed)}, []int32{0})
	require.NoError(t, err)

	for _, id := range []job.ID{waiting, timer} {
		running, err := store.Cancel(t.Context(), b.db, id, true)
		require.NoError(t, err)
		require.False(t, running)
		_, err = store.Cancel(t.Context(), b.db, id, true)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	running, err := store.Cancel(t.Context(), b.db, claimed, true)
	require.NoError(t, err)
	require.True(t, running)
	asked, err := store.CancelRequests(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, []job.ID{claimed}, asked)
	require.Equal(t, store.Counts{Waiting: 1, Claimed: 1, Finished: 2}, counts(t, b.db))

	ids, turns := columns(p)
	_, err = store.InsertClaim(t.Context(), b.db, b.fence, p.Removals, ids, turns)
	require.ErrorIs(t, err, store.ErrFenced, "the page that still shows the cancelled job is void")
}

// A request ends with its job, and not before. Whoever has a job run again does not mean
// it to be cancelled.
func TestCancelRequestsEndWithTheirJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cancel := func(id job.ID, running bool) {
		t.Helper()
		was, err := store.Cancel(t.Context(), b.db, id, true)
		require.NoError(t, err)
		require.Equal(t, running, was)
	}
	asked := func(ids ...job.ID) {
		t.Helper()
		got, err := store.CancelRequests(t.Context(), b.db)
		require.NoError(t, err)
		require.ElementsMatch(t, ids, got)
	}
	forget := func() {
		t.Helper()
		require.NoError(t, store.ForgetCancelRequests(t.Context(), b.db))
	}
	running := map[job.State]job.ID{} // by how its run ends
	for _, how := range []job.State{job.Done, job.Dead, job.Retrying, job.Snoozed, job.Returned, job.Cancelled} {
		running[how] = b.enqueue(t, store.NewJob{})
	}
	goesOn := b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	b.claim(t, p)
	byID := map[job.ID]*job.Record{}
	for i := range p.Jobs {
		byID[p.Jobs[i].Record.ID] = &p.Jobs[i].Record
		cancel(p.Jobs[i].Record.ID, true)
	}
	var runs []store.Finished
	for how, id := range running {
		runs = append(runs, store.Finished{Record: byID[id], Outcome: job.Outcome{State: how, Delay: time.Hour, Err: context.Canceled}})
	}
	lost, err := store.Finish(t.Context(), b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, runs, nil)
	require.NoError(t, err)
	require.Zero(t, lost)
	asked(goesOn, running[job.Done], running[job.Dead], running[job.Retrying], running[job.Snoozed], running[job.Returned])

	for _, again := range []job.State{job.Dead, job.Retrying} {
		_, err := store.Retry(t.Context(), b.db, running[again])
		require.NoError(t, err)
	}
	asked(goesOn, running[job.Done], running[job.Snoozed], running[job.Returned])
	cancel(running[job.Snoozed], false)
	asked(goesOn, running[job.Done], running[job.Returned])
	forget()
	asked(goesOn, running[job.Returned])
	cancel(running[job.Returned], false)
	asked(goesOn)

	// Wherever an unfinished job may stand.
	var elsewhere []job.ID
	for table, more := range map[string][2]string{
		"timer_job": {", due_at", ", now()"}, "external_job": {}, "history_job": {}, "suspended_job": {", origin", ", 'job'"},
	} {
		var id job.ID
		require.NoError(t, b.db.QueryRow(t.Context(), "INSERT INTO tenure."+table+" (tenant_id, queue, kind, payload"+more[0]+") VALUES ('acme', 'default', 'k', '1'"+more[1]+") RETURNING id").Scan(&id))
		elsewhere = append(elsewhere, id)
	}
	_, err = b.db.Exec(t.Context(), "INSERT INTO tenure.cancel_request (job_id) SELECT unnest($1::bigint[])", elsewhere)
	require.NoError(t, err)
	forget()
	asked(append(elsewhere, goesOn)...)
}

func TestTimersFire(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{DueAt: time.Now().Add(-time.Hour)})
	b.enqueue(t, store.NewJob{DueIn: time.Hour})
	in, ok, err := store.NextTimer(t.Context(), b.db)
	require.NoError(t, err)
	require.True(t, ok)
	require.Zero(t, in)
	fired, err := store.FireTimers(t.Context(), b.db, b.fence, 10)
	require.NoError(t, err)
	require.Equal(t, []store.Fired{{Lane: store.Lane{Queue: "default", Tenant: "acme"}, Count: 1}}, fired)
	in, ok, err = store.NextTimer(t.Context(), b.db)
	require.NoError(t, err)
	require.True(t, ok)
	require.InDelta(t, time.Hour, in, float64(time.Minute))
	require.EqualValues(t, 1, b.page(t, 0).Jobs[0].Record.Turn)
}

func TestReturnAndReleaseClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.enqueue(t, store.NewJob{}), b.enqueue(t, store.NewJob{})
	claim := b.claim(t, b.page(t, 0))[0]
	require.NoError(t, store.ReturnUnstarted(t.Context(), b.db, b.fence.Session, []int64{claim}, []int64{int64(first)}))
	list, err := store.Claims(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, []store.Claim{{ID: claim, Session: b.fence.Session, Jobs: []job.ID{second}}}, list)

	made, err := store.ClaimsMade(t.Context(), b.db, b.fence.Session)
	require.NoError(t, err)
	require.Equal(t, []int64{claim}, made)
	require.NoError(t, store.ReleaseClaims(t.Context(), b.db, b.fence.Session, made))
	left, err := store.LeaveSession(t.Context(), b.db, b.fence.Session)
	require.NoError(t, err)
	require.True(t, left)
}

func TestKeepDays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, store.KeepDays(t.Context(), b.db, 24*time.Hour))
	require.NoError(t, store.KeepDays(t.Context(), b.db, 24*time.Hour))
	_, err := b.db.Exec(t.Context(), `CREATE TABLE tenure.completed_job_20200101 PARTITION OF tenure.completed_job
		FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')`)
	require.NoError(t, err)
	require.NoError(t, store.KeepDays(t.Context(), b.db, 24*time.Hour))
	var n int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM pg_inherits WHERE inhparent = 'tenure.completed_job'::regclass").Scan(&n))
	require.Equal(t, 4, n, "today, two days ahead and the default")
}

func TestVerify(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer db.Close(context.Background())
	_, err = store.Verify(t.Context(), db, "main")
	require.ErrorIs(t, err, store.ErrNotMigrated)
	var refused *store.PoolError
	require.ErrorAs(t, err, &refused)
	require.EqualError(t, err, "pool main: has no ledger: run: tenure migrate --pool main")
	require.NoError(t, store.CheckName(t.Context(), db, "main"))
	require.NoError(t, storetest.Prepare(t.Context(), dsn, "main", 7))
	n, err := store.Verify(t.Context(), db, "main")
	require.NoError(t, err)
	require.Equal(t, 7, n)
	_, err = store.Verify(t.Context(), db, "other")
	require.ErrorContains(t, err, `says that it is pool "main"`)
	require.ErrorContains(t, store.CheckName(t.Context(), db, "other"), `says that it is pool "main"`)
	require.NoError(t, store.CheckName(t.Context(), db, "main"))
	for change, says := range map[string]string{
		"ALTER TABLE tenure.acquire_lock SET UNLOGGED":                                "UNLOGGED",
		"ALTER TABLE tenure.acquire_lock DROP CONSTRAINT acquire_lock_name_epoch_key": "lost UNIQUE",
		"INSERT INTO tenure.migration (version_id, is_applied) VALUES (9999, true)":   "newer than this program",
		"UPDATE tenure.migration SET is_applied = false":                              "has no ledger",
	} {
		tx, err := db.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), change)
		require.NoError(t, err)
		_, err = store.Verify(t.Context(), tx, "main")
		require.ErrorContains(t, err, says)
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

// Servers that are not at hand to be tried.
func TestUsable(t *testing.T) {
	t.Parallel()
	fine := store.Identity{Version: 13_00_00, Encoding: "UTF8", StandardString: true, LockLogged: true, LockKeyed: true}
	require.NoError(t, fine.Usable("p"))
	for says, change := range map[string]func(*store.Identity){
		"pool p: PostgreSQL 12 is too old: 13 or newer is needed":                                               func(i *store.Identity) { i.Version = 12_22_00 },
		"pool p: the server is a standby: point the DSN at the primary, or add target_session_attrs=read-write": func(i *store.Identity) { i.Standby = true },
		"pool p: its encoding is LATIN1: use a database created with ENCODING 'UTF8'":                           func(i *store.Identity) { i.Encoding = "LATIN1" },
	} {
		i := fine
		change(&i)
		require.EqualError(t, i.Usable("p"), says)
	}
	for version, risky := range map[int]bool{130016: true, 130017: false, 150008: true, 150018: false, 170000: true, 170001: false, 180000: false} {
		require.Equal(t, risky, store.Risks{Version: version}.LosesRole(), version)
	}
}
