package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

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
		{Record: &p.Jobs[1].Record, Outcome: job.Outcome{State: job.Retrying, Delay: time.Hour, Err: job.ErrTimeout, Stack: "s\x00\xff"}, Took: 2 * time.Hour},
		{Record: &p.Jobs[2].Record, Outcome: job.Outcome{State: job.Snoozed, Delay: time.Hour}},
		{Record: &p.Jobs[3].Record, Outcome: job.Outcome{State: job.Dead, Err: job.ErrTimeout}, Took: 2 * time.Hour},
		{Record: &p.Jobs[4].Record, Outcome: job.Outcome{State: job.Cancelled}},
		{Record: &p.Jobs[5].Record, Outcome: job.Outcome{State: job.Returned}},
	}
	lost, err := store.Finish(t.Context(), b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, runs, []int64{claims[b.first()]})
	require.NoError(t, err)
	require.Zero(t, lost)
	require.Equal(t, store.Counts{Waiting: 1, Timers: 2, Dead: 1, Finished: 2}, counts(t, b.db))

	again, err := store.Finish(t.Context(), b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, runs, nil)
	require.NoError(t, err)
	require.Equal(t, len(runs), again)
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
	died, err := store.Errors(t.Context(), b.db, runs[3].Record.ID)
	require.NoError(t, err)
	for _, e := range append(errs, died...) {
		require.WithinDuration(t, e.At.Add(-2*time.Hour), e.Began, time.Hour, "how long a failed run took is known")
	}

	var keys int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure.unique_job").Scan(&keys))
	require.Equal(t, 3, keys, "the unfinished ones keep their keys")

	var key string
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT unique_key FROM tenure.dead_letter_job").Scan(&key))
	taker := b.enqueue(t, store.NewJob{UniqueKey: key})
	_, err = store.Retry(t.Context(), b.db, runs[3].Record.ID)
	var taken *job.KeyTakenError
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

func TestFinishInTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{UniqueKey: "u"})
	p := b.page(t, 0)
	b.claim(t, p)
	rec := p.Jobs[0].Record
	finish := func() error {
		return pgx.BeginFunc(context.Background(), b.db, func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), store.FinishInTx(store.EndInTx{Turn: rec.Turn, IDs: []job.ID{rec.ID}, Keep: true, Node: "a"}))
			return store.TranslateFinish(err)
		})
	}
	require.NoError(t, finish())
	require.Equal(t, store.Counts{Finished: 1}, counts(t, b.db))
	require.ErrorIs(t, finish(), job.ErrClaimLost)
}

// To try whether jobs can be finished changes nothing, and says what the server says.
func TestTryFinish(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{})
	b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	b.claim(t, p)
	before := counts(t, b.db)
	ids := []job.ID{p.Jobs[0].Record.ID, p.Jobs[1].Record.ID}
	try := func(turn int32) string {
		err := store.TryFinish(t.Context(), b.db, turn, ids, "a")
		var pg *pgconn.PgError
		if errors.As(err, &pg) {
			return pg.Code
		}
		require.NoError(t, err)
		return ""
	}
	require.Empty(t, try(p.Jobs[0].Record.Turn))
	require.Equal(t, "TN001", try(p.Jobs[0].Record.Turn+1), "it is lost")
	require.Equal(t, before, counts(t, b.db))

	_, err := b.owner.Exec(t.Context(), `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'full' USING ERRCODE = 'disk_full'; END$$;
		CREATE TRIGGER full_disk BEFORE INSERT ON tenure.completed_job FOR EACH ROW EXECUTE FUNCTION full_disk()`)
	require.NoError(t, err)
	require.Equal(t, "53100", try(p.Jobs[0].Record.Turn))

	locked, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer locked.Rollback(t.Context())
	_, err = locked.Exec(t.Context(), "SELECT FROM tenure.job FOR UPDATE")
	require.NoError(t, err)
	require.Equal(t, "55P03", try(p.Jobs[0].Record.Turn), "nobody waits for locks")
}

// Jobs of one transaction are finished together, or none of them.
func TestFinishBatchInTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const jobs = 4
	for i := range jobs {
		j := store.NewJob{}
		if i < 2 {
			j.UniqueKey = uuid.NewString()
		}
		b.enqueue(t, j)
	}
	p := b.page(t, 0)
	b.claim(t, p)
	turn := p.Jobs[0].Record.Turn
	ids := make([]job.ID, jobs)
	for i := range ids {
		ids[i] = p.Jobs[i].Record.ID
	}
	other := b.enqueue(t, store.NewJob{UniqueKey: "other"})
	finish := func(keep bool, turn int32, ids ...job.ID) error {
		return pgx.BeginFunc(context.Background(), b.db, func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), store.FinishInTx(store.EndInTx{Turn: turn, IDs: ids, Keep: keep, Node: "a"}))
			return store.TranslateFinish(err)
		})
	}
	require.ErrorIs(t, finish(true, turn+1, ids...), job.ErrClaimLost)
	require.ErrorIs(t, finish(true, turn, append([]job.ID{1 << 40}, ids...)...), job.ErrClaimLost)
	_, err := b.db.Exec(t.Context(), "UPDATE tenure.job SET turn = turn + 1 WHERE id = $1", int64(ids[1]))
	require.NoError(t, err)
	require.ErrorIs(t, finish(true, turn, ids...), job.ErrClaimLost, "one of them")
	require.Equal(t, store.Counts{Claimed: jobs - 1, Waiting: jobs + 1}, counts(t, b.db))
	_, err = b.db.Exec(t.Context(), "UPDATE tenure.job SET turn = turn - 1 WHERE id = $1", int64(ids[1]))
	require.NoError(t, err)
	require.NoError(t, finish(true, turn, ids[:2]...))
	require.NoError(t, finish(false, turn, ids[2:]...))
	require.Equal(t, store.Counts{Waiting: 1, Finished: 2}, counts(t, b.db))
	var keys []int64
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT array_agg(job_id) FROM tenure.unique_job").Scan(&keys))
	require.Equal(t, []int64{int64(other)}, keys)
	var kept int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure.completed_job WHERE id = ANY ($1) AND turn = $2 AND outcome = 'done' AND unique_key IS NOT NULL AND attempt = 1", ids[:2], turn).Scan(&kept))
	require.Equal(t, 2, kept)
}

// The plans that a session keeps of that go by indexes, though they were made while the tables were
// empty.
func TestFinishBatchInTransactionByIndexes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := tx.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	exec("ANALYZE tenure.job, tenure.unique_job")
	exec("SAVEPOINT s")
	for range 10 {
		_, err = tx.Exec(t.Context(), store.FinishInTx(store.EndInTx{Turn: 0, IDs: []job.ID{1, 2}, Keep: true, Node: "a"}))
		require.ErrorIs(t, store.TranslateFinish(err), job.ErrClaimLost)
		exec("ROLLBACK TO s")
	}
	const many = 20_000
	exec(`INSERT INTO tenure.job (tenant_id, queue, kind, payload, unique_key) SELECT 'acme', 'default', 'k', '{}', 'k' || n FROM generate_series(1, $1::int) n`, many)
	exec("INSERT INTO tenure.unique_job (tenant_id, key, job_id) SELECT tenant_id, unique_key, id FROM tenure.job")
	var ids []job.ID
	var turn int32
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT array_agg(id), min(turn) FROM (SELECT id, turn FROM tenure.job LIMIT 100) j").Scan(&ids, &turn))
	read := func() (n int) {
		t.Helper()
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT sum(pg_stat_get_xact_tuples_returned(c.oid)) FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
			WHERE coalesce(i.indrelid, c.oid) IN ('tenure.job'::regclass, 'tenure.unique_job'::regclass)`).Scan(&n))
		return n
	}
	before := read()
	exec(store.FinishInTx(store.EndInTx{Turn: turn, IDs: ids, Keep: true, Node: "a"}))
	require.Less(t, read()-before, many/10, "rows that were looked at")
}

// Of a batch of ended runs those whose row somebody has locked can be told, and the others
// be written meanwhile.
func TestFinishWaitsForNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 3 {
		b.enqueue(t, store.NewJob{})
	}
	p := b.page(t, 0)
	b.claim(t, p)
	runs := []store.Finished{
		{Record: &p.Jobs[0].Record, Outcome: job.Outcome{State: job.Done}},
		{Record: &p.Jobs[1].Record, Outcome: job.Outcome{State: job.Done}},
		{Record: &p.Jobs[2].Record, Outcome: job.Outcome{State: job.Retrying, Err: job.ErrTimeout}},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	finish := func(runs ...store.Finished) error {
		_, err := store.Finish(ctx, b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, runs, nil)
		return err
	}
	unlock := b.locks(t, "SELECT FROM tenure.job WHERE id = $1 FOR UPDATE", p.Jobs[1].Record.ID)
	require.ErrorIs(t, finish(runs...), store.ErrLocked)
	held := func(claims ...int64) store.Held {
		t.Helper()
		held, err := store.FindHeld(ctx, b.db, b.fence.Session, runs, claims)
		require.NoError(t, err)
		return held
	}
	require.Equal(t, store.Held{Jobs: map[job.ID]bool{p.Jobs[1].Record.ID: true}, Claims: map[int64]bool{}}, held())
	require.NoError(t, finish(runs[0], runs[2]))
	require.Equal(t, store.Counts{Claimed: 1, Waiting: 1, Timers: 1, Finished: 1}, counts(t, b.db))
	unlock()
	require.True(t, held().None())
	require.NoError(t, finish(runs[1]))
	require.Equal(t, store.Counts{Timers: 1, Finished: 2}, counts(t, b.db))
}

// Nor does it wait for what belongs to jobs: their unique keys, requests to cancel them, and
// the claims that are at their end. It can be told whose they are.
func TestFinishWaitsForNothingThatBelongsToJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	keyed, wanted := b.enqueue(t, store.NewJob{UniqueKey: "u"}), b.enqueue(t, store.NewJob{})
	b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	claim := b.claim(t, p)[b.first()]
	b.request(t, wanted)
	outcomes := []job.State{job.Done, job.Cancelled, job.Done}
	runs := make([]store.Finished, 3)
	for i := range runs {
		runs[i] = store.Finished{Record: &p.Jobs[i].Record, Outcome: job.Outcome{State: outcomes[i]}}
	}
	finish := func() error {
		_, err := store.Finish(t.Context(), b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, runs, []int64{claim})
		return err
	}
	for locks, held := range map[string]store.Held{
		"SELECT FROM tenure.unique_job FOR SHARE":     {Jobs: map[job.ID]bool{keyed: true}, Claims: map[int64]bool{}},
		"SELECT FROM tenure.cancel_request FOR SHARE": {Jobs: map[job.ID]bool{wanted: true}, Claims: map[int64]bool{}},
		"SELECT FROM tenure.claim FOR SHARE":          {Jobs: map[job.ID]bool{}, Claims: map[int64]bool{claim: true}},
	} {
		unlock := b.locks(t, locks)
		require.ErrorIs(t, finish(), store.ErrLocked, locks)
		got, err := store.FindHeld(t.Context(), b.db, b.fence.Session, runs, []int64{claim})
		require.NoError(t, err)
		require.Equal(t, held, got, locks)
		got, err = store.FindHeld(t.Context(), b.db, uuid.New(), nil, []int64{claim})
		require.NoError(t, err)
		require.True(t, got.None(), "another session's")
		unlock()
	}
	require.NoError(t, finish())
	require.Equal(t, store.Counts{Finished: 3}, counts(t, b.db))
}

// Why a run says that its job is cancelled is kept and shown; what it failed with before is no such reason, and
// neither is that somebody else wanted it cancelled.
func TestReasonsOfCancelledJobsAreShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reasons := map[job.ID]string{}
	for _, c := range []struct {
		err    error
		reason string
	}{{job.Cancel(errors.New("no such invoice")), "cancel: no such invoice"}, {fmt.Errorf("query: %w", context.Canceled), ""}, {job.ErrCancelled, ""}, {nil, ""}} {
		id := b.enqueue(t, store.NewJob{})
		reasons[id] = c.reason
		_, err := b.db.Exec(t.Context(), "INSERT INTO tenure.job_error (job_id, attempt, node, error) VALUES ($1, 1, 'n', 'failed before')", int64(id))
		require.NoError(t, err)
		p := b.page(t, 0)
		claims := b.claim(t, p)
		runs := []store.Finished{{Record: &p.Jobs[0].Record, Outcome: job.Outcome{State: job.Cancelled, Err: c.err}}}
		_, err = store.Finish(t.Context(), b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, runs, []int64{claims[b.first()]})
		require.NoError(t, err)
	}
	all, err := store.List(t.Context(), b.db, store.Filter{State: "cancelled", Limit: 10})
	require.NoError(t, err)
	shown := map[job.ID]string{}
	for _, j := range all {
		shown[j.ID] = j.Error
	}
	require.Equal(t, reasons, shown)
}

// The statements name the outcomes that they treat in a way of their own. Any other one is over, with its reason, and
// nothing that belongs to an unfinished job is left of it.
func TestAFurtherOutcomeEndsAJob(t *testing.T) {
	t.Parallel()
	b, ctx := awaited(t), t.Context()
	id := b.enqueue(t, store.NewJob{UniqueKey: "k"})
	next := b.after(t, "run", id)
	b.settle(t)
	p := b.page(t, 0)
	b.claim(t, p)
	text, err := store.QueryFiles.ReadFile("queries/finish.sql")
	require.NoError(t, err)
	var ended int
	require.NoError(t, b.db.QueryRow(ctx, store.Fill(string(text)), []int64{int64(id)}, []int32{p.Jobs[0].Record.Turn}, []string{"parked"},
		[]int64{0}, []string{"for now"}, []string{""}, []int64{0}, "a", true).Scan(&ended))
	require.Equal(t, 1, ended)
	shown, err := store.List(ctx, b.db, store.Filter{ID: id, Limit: 1})
	require.NoError(t, err)
	require.Len(t, shown, 1, "it is kept")
	require.Equal(t, []string{"parked", "for now"}, []string{shown[0].State, shown[0].Error})
	owner, err := store.JobWithKey(ctx, b.db, shown[0].Tenant, "k")
	require.NoError(t, err)
	require.Zero(t, owner)
	b.settle(t)
	require.Equal(t, []string{"cancelled"}, b.outcomes(t, next))
}
