package acquisition

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/internal/store"
)

// Somebody is told of what holds up the tidying for long, not of what ends in time, and
// again if it goes on.
func TestHoldupIsSaidNowAndThen(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var h oldTransaction
	one := store.Holdup{HoldupID: store.HoldupID{What: "session", ID: "17", XID: "800"}}
	look := func(o store.Holdup, after, held time.Duration, say bool) {
		t.Helper()
		now = now.Add(after)
		gotHeld, gotSay := h.observe(o, now)
		require.Equal(t, held, gotHeld)
		require.Equal(t, say, gotSay)
	}
	look(one, 0, 0, false)
	look(one, longTransaction-1, longTransaction-1, false)
	other := one
	other.XID = "900" // the same session's next transaction
	look(other, 1, 0, false)
	look(other, longTransaction, longTransaction, true)
	look(other, 6*longTransaction-1, longTransaction+6*longTransaction-1, false)
	look(other, 1, longTransaction+6*longTransaction, true)
	one.Open = time.Hour // it may be seen for how long
	look(one, time.Minute, time.Hour, true)
}

// The holder names the transaction that holds up the tidying, and how to end it.
func TestHoldupIsReported(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	a := b.acquirer(&fakeElector{})
	core, logged := observer.New(zap.WarnLevel)
	a.log = zap.New(core)
	a.readLock(t.Context())
	tm, err := a.takeLock(t.Context(), false)
	require.NoError(t, err)
	require.NotNil(t, tm)
	gauge := a.metrics.oldestTransaction.WithLabelValues("main")

	conn, err := pgx.Connect(t.Context(), b.proxy.DSN())
	require.NoError(t, err)
	defer conn.Close(t.Context())
	pid := strconv.Itoa(int(conn.PgConn().PID()))
	_, err = conn.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tenure.job")
	require.NoError(t, err)
	b.exec("SELECT pg_current_xact_id()") // it is older than this
	report := func() {
		use, err := tm.maintenance.reportOldTransaction(t.Context())
		require.NoError(t, err)
		use()
	}
	report()
	require.Empty(t, logged.All(), "it has only begun")
	require.Equal(t, pid, tm.maintenance.oldest.id.ID)
	tm.maintenance.oldest.since = time.Now().Add(-longTransaction)
	report()
	require.Equal(t, 1, logged.Len())
	require.Contains(t, logged.All()[0].Message, "SELECT pg_terminate_backend("+pid+")")
	require.GreaterOrEqual(t, counted(t, gauge), longTransaction.Seconds())

	_, err = conn.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	b.until(func() bool {
		report()
		return counted(t, gauge) < longTransaction.Seconds()
	})
	require.Equal(t, 1, logged.Len())
	b.keeper.Release(tm.lock.Lock)
}

// What is old is removed batch by batch until there is none, without taking all of the time, and nothing else is.
func TestWhatIsOldIsRemovedUntilNoneIsLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		insert string // row n, of so many days ago
		table  string
		duty   func(*maintenance) *duty
	}{
		"reports": {`INSERT INTO tenure.job_report (job_id, turn, attempt, node, started_at, written_at)
			SELECT n, 1, 1, 'n', now(), now() - old FROM generate_series($1::int, $2::int) n, make_interval(days => $3) old`, "tenure.job_report",
			func(m *maintenance) *duty { return &m.reportsDuty }},
		"dead letters": {`INSERT INTO tenure.dead_letter_job (id, tenant_id, queue, kind, payload, origin, error, died_at)
			SELECT n, 'acme', 'default', 'k', '{}', 'job', 'x', now() - old FROM generate_series($1::int, $2::int) n, make_interval(days => $3) old`, "tenure.dead_letter_job",
			func(m *maintenance) *duty { return &m.deadDuty }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil, nil).start()
			tm, _ := b.term(t.Context())
			for _, row := range [][]any{{1, maxSlice + 1, 1000}, {maxSlice + 2, maxSlice + 2, 0}} {
				_, err := b.db.Exec(t.Context(), c.insert, row...)
				require.NoError(t, err)
			}
			tm.planDuties(time.Now())
			trim := c.duty(tm.maintenance)
			planned := time.Now().Add(10 * sweepEvery)
			var asked time.Time
			remove := func() {
				trim.due = planned
				use, err := trim.query(t.Context())
				require.NoError(t, err)
				asked = time.Now()
				use()
			}
			began := time.Now()
			remove()
			took := time.Since(began)
			require.True(t, trim.due.After(asked), "other queries come first")
			require.True(t, trim.due.Before(time.Now().Add(dutyFactor*took)))
			remove()
			require.Equal(t, planned, trim.due, "there is no more")
			require.EqualValues(t, 1, b.count("SELECT count(*) FROM "+c.table))
		})
	}
}

// What is left of jobs is removed step by step until nothing is, without taking all of the time.
func TestWhatIsLeftOfJobsIsRemoved(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	tm, _ := b.term(t.Context())
	b.exec(`INSERT INTO tenure.job_tag (tenant_id, tag, job_id, gone_at)
		SELECT 'acme', 'a', n, now() - interval '1000 days' FROM generate_series(1, ` + strconv.Itoa(2*leftoversStep+1) + `) n`)
	b.exec(`INSERT INTO tenure.unique_period SELECT 'acme', n::text, n, now() FROM generate_series(1, ` + strconv.Itoa(maxSlice+1) + `) n`)
	tm.planDuties(time.Now())
	duty := &tm.maintenance.leftoversDuty
	planned := time.Now().Add(10 * sweepEvery)
	for range 5 {
		duty.due = planned
		use, err := duty.query(t.Context())
		require.NoError(t, err)
		asked := time.Now()
		use()
		if duty.due == planned {
			break
		}
		require.True(t, duty.due.After(asked), "other queries come first")
	}
	require.Equal(t, planned, duty.due, "there is no more")
	for _, table := range []string{"job_tag", "unique_period"} {
		var left int
		require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure."+table).Scan(&left))
		require.Zero(t, left, table)
	}
}

// Jobs that no page shows, as no node has a handler for them, end as soon as an operation has asked for that.
func TestWhatAnOperationCancelsEndsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	tm, _ := b.term(t.Context())
	b.enqueue("nobody.has")
	require.NoError(t, store.AddOperation(t.Context(), b.db, store.Operation{ID: uuid.New(), Action: store.CancelJobs, Filter: store.DeadFilter{Kind: "nobody.has"}, By: "me"}))
	later := time.Now().Add(sweepEvery)
	tm.claimer.canceller.findDuty.due, tm.claimer.canceller.cancelDuty.due = later, later
	for _, query := range []query{tm.operations.step, tm.claimer.canceller.findUnwanted} {
		use, err := query(t.Context())
		require.NoError(t, err)
		use()
	}
	require.False(t, tm.claimer.canceller.findDuty.due.After(time.Now()))
	require.False(t, tm.claimer.canceller.cancelDuty.due.After(time.Now()))
	require.NoError(t, tm.claimer.canceller.cancelFound(t.Context()))
	var ended int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'cancelled'").Scan(&ended))
	require.Equal(t, 1, ended)
}

// An operation whose rate somebody has set has half of the time, and one without a tenth.
func TestOperationsRest(t *testing.T) {
	t.Parallel()
	require.Equal(t, dutyFactor*time.Second, restAfter(time.Second, false))
	require.Equal(t, time.Second, restAfter(time.Second, true))
}
