package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func TestCancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	waiting, claimed := b.enqueue(t, store.NewJob{Tenant: "b", UniqueKey: "u"}), b.enqueue(t, store.NewJob{})
	timer := b.enqueue(t, store.NewJob{DueIn: time.Hour})
	p := b.page(t, 0)
	_, err := store.InsertClaims(t.Context(), b.db, b.fence, onlyJob(p.Removals, claimed, b.first()))
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
	asked, err := store.CancelRequests(t.Context(), b.db, b.fence.Session)
	require.NoError(t, err)
	require.Equal(t, []job.ID{claimed}, asked)
	require.Equal(t, store.Counts{Waiting: 1, Claimed: 1, Finished: 2}, counts(t, b.db))

	_, err = store.InsertClaims(t.Context(), b.db, b.fence, request(p))
	require.ErrorIs(t, err, store.ErrFenced, "the page that still shows the cancelled job is void")
}

// A request ends with its job, and not before. Anyone who has a job run again does not mean
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
		got := b.requests(t)
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
	asked(goesOn, running[job.Done], running[job.Dead])
	for how, state := range map[job.State]string{job.Retrying: "cancelled", job.Snoozed: "cancelled", job.Returned: "cancelled", job.Cancelled: "cancelled", job.Done: "done", job.Dead: "dead"} {
		require.Equal(t, state, b.state(t, running[how]), "a run that was %v", how)
	}
	_, err = store.Retry(t.Context(), b.db, running[job.Dead])
	require.NoError(t, err)
	asked(goesOn, running[job.Done])
	forget()
	asked(goesOn)

	// A request that was made while the run's end was being written stays with the job,
	// until that is cancelled or retried, or about to run again.
	later := b.enqueue(t, store.NewJob{DueIn: time.Hour})
	retried := b.enqueue(t, store.NewJob{DueIn: time.Hour})
	for _, id := range []job.ID{later, retried} {
		b.request(t, id)
	}
	forget()
	asked(goesOn, later, retried)
	cancel(later, false)
	_, err = store.Retry(t.Context(), b.db, retried)
	require.NoError(t, err)
	asked(goesOn)

	// Wherever an unfinished job may stand.
	var elsewhere []job.ID
	for table, more := range map[string][2]string{
		"timer_job": {", due_at", ", now()"}, "external_job": {}, "suspended_job": {", origin", ", 'job'"},
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

// requests are the jobs that somebody wants ended.
func (b *bundle) requests(t *testing.T) []job.ID {
	t.Helper()
	rows, _ := b.db.Query(t.Context(), "SELECT job_id FROM tenure.cancel_request")
	asked, err := pgx.CollectRows(rows, pgx.RowTo[job.ID])
	require.NoError(t, err)
	return asked
}

// However many waiting jobs are to be cancelled, a session is told of its own only, and neither it
// nor a page reads all requests.
func TestVeryManyCancelRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mine, _ := b.enqueue(t, store.NewJob{}), b.enqueue(t, store.NewJob{})
	b.claim(t, b.page(t, 0))
	theirs, waiting := openSession(t, b.db, "b"), b.enqueue(t, store.NewJob{})
	for _, id := range []job.ID{mine, waiting} {
		b.request(t, id)
	}
	_, err := b.owner.Exec(t.Context(), "INSERT INTO tenure.cancel_request (job_id) SELECT generate_series(1000000, 1049999)")
	require.NoError(t, err)
	_, err = b.owner.Exec(t.Context(), "ANALYZE tenure.cancel_request")
	require.NoError(t, err)
	seen := &recorder{DB: b.db}
	for session, want := range map[uuid.UUID][]job.ID{b.fence.Session: {mine}, theirs: {}} {
		asked, err := store.CancelRequests(t.Context(), seen, session)
		require.NoError(t, err)
		require.Equal(t, want, asked)
	}
	var req store.PageRequest
	req.Add(store.Lane{Tenant: "acme", Queue: "default"}, 0, 1000)
	_, err = store.ReadPage(t.Context(), seen, &req, store.KindsOf([]string{"k"}), false)
	require.NoError(t, err)
	require.Len(t, seen.statements, 4)
	for i, sql := range seen.statements {
		rows, _ := b.db.Query(t.Context(), "EXPLAIN (ANALYZE) "+sql, seen.args[i]...)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.NotRegexp(t, `Seq Scan on cancel_request.*actual`, strings.Join(lines, "\n"), "it is planned for a small table, and not done")
	}
}

// recorder keeps the statements that are executed.
type recorder struct {
	store.DB
	statements []string
	args       [][]any
}

func (r *recorder) note(sql string, args []any) {
	r.statements, r.args = append(r.statements, sql), append(r.args, args)
}

func (r *recorder) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	r.note(sql, args)
	return r.DB.Query(ctx, sql, args...)
}

func (r *recorder) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		r.note(q.SQL, q.Arguments)
	}
	return r.DB.SendBatch(ctx, b)
}

// state is where a job stands, as an operator is told.
func (b *bundle) state(t *testing.T, id job.ID) string {
	t.Helper()
	got, err := store.List(t.Context(), b.db, store.Filter{ID: id, Limit: 2})
	require.NoError(t, err)
	require.Len(t, got, 1)
	return got[0].State
}

// request has a job cancelled that its run knows nothing of.
func (b *bundle) request(t *testing.T, id job.ID) {
	t.Helper()
	_, err := b.db.Exec(t.Context(), "INSERT INTO tenure.cancel_request (job_id) VALUES ($1)", id)
	require.NoError(t, err)
}

// Whatever lets an unwanted job wait again: anyone who reads it to claim it is told, and ends
// it. Nobody else may.
func TestCancelWaiting(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{true, false} {
		b := setup(t)
		unwanted, other := b.enqueue(t, store.NewJob{UniqueKey: "u"}), b.enqueue(t, store.NewJob{})
		b.request(t, unwanted)
		p := b.page(t, 0)
		ids, turns := columns(p)
		require.Len(t, ids, 2)
		for _, j := range p.Jobs {
			require.Equal(t, j.Record.ID == unwanted, j.Unwanted)
		}
		_, err := store.CancelWaiting(t.Context(), b.db, b.fence, store.Unwanted{Removals: p.Removals + 1, IDs: ids, Turns: turns}, keep)
		require.ErrorIs(t, err, store.ErrFenced, "somebody took jobs away")
		_, err = store.CancelWaiting(t.Context(), b.db, store.Fence{Session: b.fence.Session, Epoch: b.fence.Epoch - 1}, store.Unwanted{Removals: p.Removals, IDs: ids, Turns: turns}, keep)
		require.ErrorIs(t, err, store.ErrFenced, "another epoch")
		n, err := store.CancelWaiting(t.Context(), b.db, b.fence, store.Unwanted{Removals: p.Removals, IDs: ids, Turns: []int32{turns[0] + 1, turns[1] + 1}}, keep)
		require.NoError(t, err)
		require.Zero(t, n, "other turns")

		unlock := b.locks(t, "SELECT FROM tenure.job WHERE id = $1 FOR UPDATE", unwanted)
		n, err = store.CancelWaiting(t.Context(), b.db, b.fence, store.Unwanted{Removals: p.Removals, IDs: ids, Turns: turns}, keep)
		require.NoError(t, err)
		require.Zero(t, n, "somebody has locked it")
		unlock()
		n, err = store.CancelWaiting(t.Context(), b.db, b.fence, store.Unwanted{Removals: p.Removals, IDs: ids, Turns: turns}, keep)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		want := store.Counts{Waiting: 1}
		if keep {
			want.Finished = 1
			require.Equal(t, "cancelled", b.state(t, unwanted))
		}
		require.Equal(t, want, counts(t, b.db))
		require.Equal(t, "waiting", b.state(t, other))
		asked := b.requests(t)
		require.Empty(t, asked)
		require.NotEqual(t, unwanted, b.enqueue(t, store.NewJob{UniqueKey: "u"}), "its key is free")
	}
}

// locks runs a statement in a transaction that stays open until unlock is called.
func (b *bundle) locks(t *testing.T, sql string, args ...any) (unlock func()) {
	t.Helper()
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // unless it is over
	_, err = tx.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
	return func() {
		t.Helper()
		require.NoError(t, tx.Rollback(context.Background()))
	}
}

// What is to be cancelled is found whatever its kind and its tenant, unless it is claimed.
func TestFindUnwanted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	claimed := b.enqueue(t, store.NewJob{})
	b.claim(t, b.page(t, 0))
	foreign, frozen := b.enqueue(t, store.NewJob{Kind: "foreign"}), b.enqueue(t, store.NewJob{Tenant: "frozen"})
	between, timer := b.enqueue(t, store.NewJob{Tenant: "gone"}), b.enqueue(t, store.NewJob{DueIn: time.Hour})
	b.enqueue(t, store.NewJob{})
	require.NoError(t, store.FreezeTenant(t.Context(), b.db, "frozen", true))
	require.NoError(t, store.FreezeTenant(t.Context(), b.db, "acme", true))
	_, err := b.db.Exec(t.Context(), "INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('gone', 'moved', 'p9')")
	require.NoError(t, err)
	waits := func() bool {
		t.Helper()
		seen, _, err := store.RenewIdle(t.Context(), b.db, b.fence, ttl, ttl)
		require.NoError(t, err)
		return seen.Waiting
	}
	require.False(t, waits())
	for _, id := range []job.ID{claimed, foreign, frozen, between, timer} {
		b.request(t, id)
	}
	require.True(t, waits(), "a pool does not doze before that is done")
	found, err := store.FindUnwanted(t.Context(), b.db, store.BeforeAllJobs, 2)
	require.NoError(t, err)
	require.Equal(t, []int64{int64(foreign), int64(frozen)}, found.IDs)
	next, err := store.FindUnwanted(t.Context(), b.db, found.IDs[1], 2)
	require.NoError(t, err)
	require.Equal(t, []int64{int64(between)}, next.IDs)
	for _, u := range []store.Unwanted{found, next} {
		_, err = store.CancelWaiting(t.Context(), b.db, b.fence, u, true)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"cancelled", "cancelled", "waiting"}, []string{b.state(t, foreign), b.state(t, frozen), b.state(t, between)})
	require.ElementsMatch(t, []job.ID{claimed, between, timer}, b.requests(t))
}

// waits returns once a session of the test's database waits for a lock.
func (b *bundle) waits(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, b.owner.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n))
		return n > 0
	}, patience, time.Millisecond)
}

// TestLockingClaimsOutWaitsForNobody: somebody holds the row that an operator's command
// needs. The lock is renewed and jobs are claimed meanwhile; the command has its way when
// the row is free, or says why it could not.
func TestLockingClaimsOutWaitsForNobody(t *testing.T) {
	t.Parallel()
	const tenant = "SELECT FROM tenure.tenant WHERE tenant_id = 'acme' FOR UPDATE"
	move := store.Move{Tenant: "acme", Mover: uuid.New()}
	for name, command := range map[string]struct {
		locks string
		run   func(context.Context, *bundle, job.ID) error
	}{
		"cancel": {"SELECT FROM tenure.job ORDER BY id LIMIT 1 FOR UPDATE", func(ctx context.Context, b *bundle, id job.ID) error {
			_, err := store.Cancel(ctx, b.db, id, true)
			return err
		}},
		"suspend": {"SELECT FROM tenure.job ORDER BY id LIMIT 1 FOR UPDATE", func(ctx context.Context, b *bundle, id job.ID) error {
			return store.SuspendJob(ctx, b.db, id, time.Time{})
		}},
		"change": {"SELECT FROM tenure.job ORDER BY id LIMIT 1 FOR UPDATE", func(ctx context.Context, b *bundle, id job.ID) error {
			_, err := store.ChangeJob(ctx, b.db, id, store.Change{Priority: new(3)})
			return err
		}},
		"freeze a tenant": {tenant, func(ctx context.Context, b *bundle, _ job.ID) error {
			return store.FreezeTenant(ctx, b.db, "acme", true)
		}},
		"begin a move": {tenant, func(ctx context.Context, b *bundle, _ job.ID) error {
			_, err := move.Begin(ctx, b.db, "other")
			return err
		}},
		"arrive": {tenant, func(ctx context.Context, b *bundle, _ job.ID) error { return move.Arrive(ctx, b.db, "", false) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			id := b.enqueue(t, store.NewJob{})
			b.enqueue(t, store.NewJob{Tenant: "b"})
			_, err := b.db.Exec(t.Context(), "INSERT INTO tenure.tenant (tenant_id) VALUES ('acme')")
			require.NoError(t, err)
			unlock := b.locks(t, command.locks)

			short, giveUp := context.WithCancel(t.Context())
			gaveUp := make(chan error, 1)
			go func() { gaveUp <- command.run(short, b, id) }()
			done := make(chan error, 1)
			b.waits(t)
			go func() { done <- command.run(t.Context(), b, id) }()
			for range 3 {
				b.waits(t)
				soon, cancel := context.WithTimeout(t.Context(), patience/2)
				_, err := store.RenewLock(soon, b.db, b.fence, time.Minute, time.Minute)
				cancel()
				require.NoError(t, err, "a renewal waits for a moment")
			}
			p := b.page(t, 0)
			b.claim(t, store.Page{PageState: p.PageState, Jobs: p.Jobs[1:]})
			giveUp()
			err = <-gaveUp
			require.ErrorIs(t, err, store.ErrLocked)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorContains(t, err, "some session has kept what is needed locked for")
			require.Empty(t, done)
			unlock()
			require.NoError(t, <-done)
		})
	}
}
