package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// awkward is text that has to be quoted.
const awkward = `it's a \n "Ünï©ödé" 🙂 line`

func reported(rec *job.Record, done int64, lines ...string) store.Reported {
	r := store.Reported{Record: rec, Age: time.Minute, Report: job.Report{Done: done, Total: 10, Note: awkward}}
	for _, l := range lines {
		r.Lines = append(r.Lines, job.LogLine{After: 1500 * time.Millisecond, Text: l})
	}
	return r
}

// reports are what is kept of a job's runs.
func (b *bundle) reports(t *testing.T, id job.ID) []job.RunReport {
	all, err := store.Reports(t.Context(), b.db, id)
	require.NoError(t, err)
	return all
}

func TestReportsAreWrittenWhileTheClaimStands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{})
	b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	b.claim(t, p)
	one, other := &p.Jobs[0].Record, &p.Jobs[1].Record
	write := func(all ...store.Reported) {
		t.Helper()
		require.NoError(t, store.WriteReports(t.Context(), b.db, "a", all))
	}
	write()
	first := reported(one, 1, awkward)
	first.Output, first.LeftOut = []byte(`{"text": "🙂\u00e9", "n": 12345678901234567890}`), 3
	write(first, reported(other, 2))
	got := b.reports(t, one.ID)
	require.Len(t, got, 1)
	require.Equal(t, job.RunReport{Turn: one.Turn, Attempt: 1, Node: "a", StartedAt: got[0].StartedAt, WrittenAt: got[0].WrittenAt, Report: job.Report{
		Done: 1, Total: 10, Note: awkward, Output: got[0].Output, LeftOut: 3,
		Lines: []job.LogLine{{After: 1500 * time.Millisecond, Text: awkward}},
	}}, got[0])
	require.JSONEq(t, string(first.Output), string(got[0].Output))
	require.InDelta(t, 60, got[0].WrittenAt.Sub(got[0].StartedAt).Seconds(), 1)
	listed, err := store.List(t.Context(), b.db, store.Filter{ID: one.ID, Limit: 1})
	require.NoError(t, err)
	require.Equal(t, "running", listed[0].State)
	require.Equal(t, got[0].StartedAt, listed[0].StartedAt)

	// A later report replaces it, but for when the run began.
	write(reported(one, 5, "x", "y"))
	again := b.reports(t, one.ID)
	require.Len(t, again, 1)
	require.Equal(t, got[0].StartedAt, again[0].StartedAt)
	require.True(t, again[0].WrittenAt.After(got[0].WrittenAt))
	require.Len(t, again[0].Lines, 2)
	require.EqualValues(t, 5, again[0].Done)

	// A run whose claim was lost writes nothing, and keeps nobody else from it.
	_, err = b.db.Exec(t.Context(), "UPDATE tenure.job SET turn = turn + 1 WHERE id = $1", int64(one.ID))
	require.NoError(t, err)
	write(reported(one, 9), reported(other, 9))
	require.EqualValues(t, 5, b.reports(t, one.ID)[0].Done)
	require.EqualValues(t, 9, b.reports(t, other.ID)[0].Done)
}

// A run that loses its claim at this very moment writes nothing either.
func TestReportsWaitForWhoTakesAClaimAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	b.claim(t, p)
	rec := &p.Jobs[0].Record
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "UPDATE tenure.job SET turn = turn + 1 WHERE id = $1", int64(rec.ID))
	require.NoError(t, err)
	err = store.WriteReports(t.Context(), b.db, "a", []store.Reported{reported(rec, 1)})
	require.ErrorIs(t, err, store.ErrLocked)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, store.WriteReports(t.Context(), b.db, "a", []store.Reported{reported(rec, 1)}))
	require.Empty(t, b.reports(t, rec.ID))
}

// Of a job the last runs are kept, however many there were.
func TestReportsOfTheLastRunsAreKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue(t, store.NewJob{})
	rec := b.page(t, 0).Jobs[0].Record
	for run := range 13 {
		rec.Attempt = run + 1
		for range 2 {
			require.NoError(t, store.WriteReports(t.Context(), b.db, "a", []store.Reported{reported(&rec, int64(run))}))
		}
		require.NoError(t, b.db.QueryRow(t.Context(), "UPDATE tenure.job SET turn = turn + 1 WHERE id = $1 RETURNING turn", int64(id)).Scan(&rec.Turn))
	}
	all := b.reports(t, id)
	require.Len(t, all, 10)
	for i, r := range all {
		require.EqualValues(t, i+3, r.Done)
		require.Equal(t, i+4, r.Attempt)
	}
}

// Large reports go in several statements.
func TestManyLargeReports(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const jobs = 100
	for range jobs {
		b.enqueue(t, store.NewJob{})
	}
	p := b.page(t, 0)
	var all []store.Reported
	lines := make([]string, job.MaxLogLines)
	for i := range lines {
		lines[i] = strings.Repeat("x", job.MaxLogLine)
	}
	for i := range p.Jobs {
		r := reported(&p.Jobs[i].Record, 1, lines...)
		r.Output = fmt.Appendf(nil, "%q", strings.Repeat("y", job.MaxOutput-2))
		all = append(all, r)
	}
	require.NoError(t, store.WriteReports(t.Context(), b.db, "a", all))
	var n int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure.job_report WHERE jsonb_array_length(lines) = $1", job.MaxLogLines).Scan(&n))
	require.Equal(t, jobs, n)
}

// What a run says last commits with the job's end in the handler's transaction, or not at all,
// whatever the handler has made of the session's settings.
func TestReportsInTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 3 {
		b.enqueue(t, store.NewJob{})
	}
	p := b.page(t, 0)
	b.claim(t, p)
	finish := func(keep, commit bool, jobs ...store.Waiting) {
		t.Helper()
		e := store.EndInTx{Turn: jobs[0].Record.Turn, Keep: keep, Node: awkward, Took: 90 * time.Second}
		for i := range jobs {
			e.IDs = append(e.IDs, jobs[i].Record.ID)
			r := reported(&jobs[i].Record, 1, awkward)
			r.Output = []byte(`"🙂 it's \\ \"quoted\""`)
			e.Reports = append(e.Reports, r)
		}
		tx, err := b.db.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		conn := tx.Conn().PgConn()
		_, err = conn.Exec(t.Context(), "SET LOCAL standard_conforming_strings = off; SET LOCAL client_encoding = 'LATIN1'").ReadAll()
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), store.FinishInTx(e)).ReadAll()
		require.NoError(t, err)
		if commit {
			require.NoError(t, tx.Commit(t.Context()))
		}
	}
	finish(true, false, p.Jobs[0])
	require.Empty(t, b.reports(t, p.Jobs[0].Record.ID), "it was rolled back")
	finish(true, true, p.Jobs[0], p.Jobs[1])
	finish(false, true, p.Jobs[2])
	for _, w := range p.Jobs[:2] {
		got := b.reports(t, w.Record.ID)
		require.Len(t, got, 1)
		require.JSONEq(t, `"🙂 it's \\ \"quoted\""`, string(got[0].Output))
		require.Equal(t, awkward, got[0].Note)
		require.Equal(t, awkward, got[0].Lines[0].Text)
		require.Equal(t, awkward, got[0].Node)
		listed, err := store.List(t.Context(), b.db, store.Filter{ID: w.Record.ID, Limit: 1})
		require.NoError(t, err)
		require.Equal(t, "done", listed[0].State)
		require.Equal(t, awkward, listed[0].Node)
		require.Equal(t, 90*time.Second, listed[0].At.Sub(listed[0].StartedAt))
	}
	require.Empty(t, b.reports(t, p.Jobs[2].Record.ID), "its job is not kept")
}

// A report that cannot be written keeps no job from ending in its handler's transaction.
func TestJobsEndInTransactionWithoutTheirReport(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 2 {
		b.enqueue(t, store.NewJob{})
	}
	p := b.page(t, 0)
	b.claim(t, p)
	finish := func(w *store.Waiting, output string) {
		t.Helper()
		r := reported(&w.Record, 1)
		r.Output = []byte(output)
		tx, err := b.db.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		conn := tx.Conn().PgConn()
		_, err = conn.Exec(t.Context(), "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = '20s'").ReadAll()
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), store.FinishInTx(store.EndInTx{
			Turn: w.Record.Turn, IDs: []job.ID{w.Record.ID}, Keep: true, Node: "a", Reports: []store.Reported{r}})).ReadAll()
		require.NoError(t, err)
		var patience string
		require.NoError(t, tx.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&patience))
		require.Equal(t, "0", patience)
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, "done", b.state(t, w.Record.ID))
		require.Empty(t, b.reports(t, w.Record.ID))
	}
	finish(&p.Jobs[0], `"\u0000"`) // which Postgres refuses
	lock, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = lock.Rollback(context.Background()) }()
	_, err = lock.Exec(t.Context(), "LOCK TABLE tenure.job_report IN SHARE MODE")
	require.NoError(t, err)
	finish(&p.Jobs[1], `"fine"`)
}

// What runs said goes with their finished jobs, and never before: an unfinished job keeps it all.
func TestOldReportsAreRemoved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const retention = 48 * time.Hour
	for _, at := range []string{"job", "timer_job", "dead_letter_job", "suspended_job", "done", "lately done"} {
		id := b.enqueue(t, store.NewJob{Queue: strings.ReplaceAll(at, " ", "-")})
		execute(t, b.owner, fmt.Sprintf(`INSERT INTO tenure.job_report (job_id, turn, attempt, node, started_at, written_at)
			VALUES (%d, 1, 1, '%s', now(), now() - interval '73 hours'), (%[1]d, 2, 2, '%[2]s', now(), now() - interval '%d hours')`,
			id, at, map[bool]int{true: 71, false: 73}[at == "lately done"]))
		switch at {
		case "timer_job":
			execute(t, b.owner, fmt.Sprintf("INSERT INTO tenure.timer_job (id, tenant_id, queue, kind, payload, due_at) VALUES (%d, 'acme', 'q', 'k', '{}', now())", id))
		case "dead_letter_job":
			execute(t, b.owner, fmt.Sprintf("INSERT INTO tenure.dead_letter_job (id, tenant_id, queue, kind, payload, origin, error) VALUES (%d, 'acme', 'q', 'k', '{}', 'job', '')", id))
		case "suspended_job":
			execute(t, b.owner, fmt.Sprintf("INSERT INTO tenure.suspended_job (id, tenant_id, queue, kind, payload, origin) VALUES (%d, 'acme', 'q', 'k', '{}', 'job')", id))
		}
		if at != "job" {
			execute(t, b.owner, fmt.Sprintf("DELETE FROM tenure.job WHERE id = %d", id))
		}
	}
	n, err := store.TrimReports(t.Context(), b.db, retention, 1)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	n, err = store.TrimReports(t.Context(), b.db, retention, 100)
	require.NoError(t, err)
	require.Equal(t, 1, n, "there were two")
	var left []string
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT array_agg(node ORDER BY node) FROM tenure.job_report").Scan(&left))
	require.Equal(t, []string{"dead_letter_job", "dead_letter_job", "job", "job", "lately done", "lately done", "suspended_job", "suspended_job", "timer_job", "timer_job"}, left)
}

// Finished jobs say where they ran last, and for how long.
func TestFinishedJobsSayWhereTheyRan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	states := []job.State{job.Done, job.Done, job.Cancelled, job.Retrying, job.Returned, job.Done}
	for range states {
		b.enqueue(t, store.NewJob{})
	}
	p := b.page(t, 0)
	b.claim(t, p)
	var runs []store.Finished
	for i, state := range states {
		runs = append(runs, store.Finished{Record: &p.Jobs[i].Record, Outcome: job.Outcome{State: state, Err: job.ErrTimeout}, Took: time.Duration(i+1) * time.Second})
		if state == job.Done && i > 2 {
			runs[i].Took = 20 * time.Microsecond
		}
		if state == job.Retrying || state == job.Returned {
			execute(t, b.owner, fmt.Sprintf("INSERT INTO tenure.cancel_request (job_id) VALUES (%d)", p.Jobs[i].Record.ID))
		}
	}
	stale := *runs[0].Record
	stale.Turn++
	by := store.Runner{Session: b.fence.Session, Node: "n1"}
	lost, err := store.Finish(t.Context(), b.db, by, true, []store.Finished{{Record: &stale, Outcome: job.Outcome{State: job.Done}, Took: time.Hour}}, nil)
	require.NoError(t, err)
	require.Equal(t, 1, lost, "its claim was lost")
	lost, err = store.Finish(t.Context(), b.db, by, true, runs, nil)
	require.NoError(t, err)
	require.Zero(t, lost)
	for i := range runs {
		got, err := store.List(t.Context(), b.db, store.Filter{ID: runs[i].Record.ID, Limit: 1})
		require.NoError(t, err)
		require.Equal(t, "n1", got[0].Node)
		require.Equal(t, max(runs[i].Took, time.Millisecond), got[0].At.Sub(got[0].StartedAt), got[0].State)
		require.Equal(t, map[bool]string{true: "done", false: "cancelled"}[states[i] == job.Done], got[0].State)
	}
}

// A job that was assigned to a node is claimed, and running once that has taken it over.
func TestClaimedJobsAreNotRunningYet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	peer := openSession(t, b.db, "peer")
	b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	_, err := store.InsertClaims(t.Context(), b.db, b.fence, request(p, peer))
	require.NoError(t, err)
	states := func(state string) (n int) {
		got, err := store.List(t.Context(), b.db, store.Filter{State: state, Limit: 10})
		require.NoError(t, err)
		return len(got)
	}
	require.Equal(t, []int{0, 1, 0}, []int{states("waiting"), states("claimed"), states("running")})
	_, err = store.AcceptClaims(t.Context(), b.db, peer, nil)
	require.NoError(t, err)
	require.Equal(t, []int{0, 0, 1}, []int{states("waiting"), states("claimed"), states("running")})
}

// What runs said and where they ran moves with the tenant, and is left nowhere else.
func TestReportsMoveWithTheirTenant(t *testing.T) {
	t.Parallel()
	b, to := setup(t), second(t)
	b.enqueue(t, store.NewJob{})
	b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	claim := b.claim(t, p)[b.first()]
	waits, done := &p.Jobs[0].Record, &p.Jobs[1].Record
	require.NoError(t, store.WriteReports(t.Context(), b.db, "a", []store.Reported{reported(waits, 1, awkward), reported(done, 2, awkward)}))
	_, err := store.Finish(t.Context(), b.db, store.Runner{Session: b.fence.Session, Node: "n1"}, true, []store.Finished{
		{Record: waits, Outcome: job.Outcome{State: job.Returned}}, {Record: done, Outcome: job.Outcome{State: job.Done}, Took: time.Second},
	}, []int64{claim})
	require.NoError(t, err)
	before := append(b.reports(t, waits.ID), b.reports(t, done.ID)...)
	require.Len(t, before, 2)

	m, ends := closed(t, b.db, to), store.Ends{From: b.db, To: to}
	require.NoError(t, m.Jobs(t.Context(), ends, func(context.Context) error { return nil }, func(string, int) {}))
	require.NoError(t, m.Open(t.Context(), to))
	require.NoError(t, m.Finished(t.Context(), ends, func(int) {}))
	var after []job.RunReport
	for _, id := range []job.ID{waits.ID, done.ID} {
		there, err := store.Reports(t.Context(), to, id)
		require.NoError(t, err)
		after = append(after, there...)
		require.Empty(t, b.reports(t, id))
	}
	require.Equal(t, before, after)
	got, err := store.List(t.Context(), to, store.Filter{ID: done.ID, Limit: 1})
	require.NoError(t, err)
	require.Equal(t, "n1", got[0].Node)
	require.Equal(t, time.Second, got[0].At.Sub(got[0].StartedAt))
}

// weighed is a pool that knows the largest statement of its transactions.
type weighed struct {
	*pgxpool.Pool
	bytes, most int
}

type weighedTx struct {
	pgx.Tx
	w *weighed
}

func (w *weighed) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	tx, err := w.Pool.BeginTx(ctx, o)
	return weighedTx{tx, w}, err
}

func (tx weighedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	n := 0
	for _, a := range args {
		texts, _ := a.([]string)
		for _, t := range texts {
			n += len(t)
		}
	}
	tx.w.bytes, tx.w.most = tx.w.bytes+n, max(tx.w.most, n)
	return tx.Tx.Exec(ctx, sql, args...)
}

// However much its jobs have said, a tenant moves in statements of bounded size.
func TestMuchThatRunsSaidMovesInParts(t *testing.T) {
	t.Parallel()
	b, to := setup(t), &weighed{Pool: second(t)}
	for range 30 {
		b.enqueue(t, store.NewJob{})
	}
	execute(t, b.owner, `INSERT INTO tenure.job_report (job_id, turn, attempt, node, started_at, output)
		SELECT j.id, n, n, 'n', now(), to_jsonb(repeat('x', 80000)) FROM tenure.job j, generate_series(1, 10) n`)
	m, ends := closed(t, b.db, to.Pool), store.Ends{From: b.db, To: to}
	require.NoError(t, m.Jobs(t.Context(), ends, func(context.Context) error { return nil }, func(string, int) {}))
	var there int
	require.NoError(t, to.QueryRow(t.Context(), "SELECT count(*) FROM tenure.job_report WHERE length(output::text) = 80002").Scan(&there))
	require.Equal(t, 300, there)
	require.Greater(t, to.bytes, 300*80000)
	require.Less(t, to.most, 9<<20)
}
