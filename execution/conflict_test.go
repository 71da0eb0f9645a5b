package execution

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

// A transaction that conflicts with another one is run again at once, and then the job is put
// off, uncharged up to a bound. One whose conflict was another database's is charged, and one
// whose handler says what is to become of it is heeded.
func TestConflictsAreRunAgain(t *testing.T) {
	t.Parallel()
	var calls, until atomic.Int64
	conflict := func(ctx context.Context, tx pgx.Tx, code string) error {
		if calls.Add(1) > until.Load() {
			_, err := tx.Exec(ctx, addEffect)
			return err
		}
		_, err := tx.Exec(ctx, fmt.Sprintf("%s; DO $$BEGIN RAISE 'met another one' USING ERRCODE = '%s'; END$$", addEffect, code))
		return err
	}
	c := newCity(t, func(r *job.Registry) {
		for _, code := range []string{"40001", "40P01"} {
			inTx(r, code, func(ctx context.Context, tx pgx.Tx, _ *job.Record) error { return conflict(ctx, tx, code) })
		}
		inTx(r, "commit", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			_, err := tx.Exec(ctx, fmt.Sprintf("%s; INSERT INTO later VALUES (%d)", addEffect, calls.Add(1)))
			return err
		})
		inTx(r, "discard", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			return job.Discard(conflict(ctx, tx, "40001"))
		})
		inTx(r, "elsewhere", func(context.Context, pgx.Tx, *job.Record) error {
			calls.Add(1)
			return &pgconn.PgError{Code: "40001", Severity: "ERROR", Message: "another database's"}
		})
	})
	c.asOwner(t, "alpha", `CREATE TABLE later (n int);
		CREATE FUNCTION meet() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.n < 3 THEN RAISE 'met another one' USING ERRCODE = '40001'; END IF; RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER meet AFTER INSERT ON later DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION meet()`)
	c.start()
	run := func(kind string, conflicts int64) end {
		t.Helper()
		calls.Store(0)
		until.Store(conflicts)
		return c.run(t, kind, c.tenants["alpha"], "")
	}
	effects := 0
	for _, kind := range []string{"40001", "40P01", "commit"} {
		e := run(kind, 2)
		require.Equal(t, "in tx", e.how, "%s: %v", kind, e.outcome.Err)
		require.EqualValues(t, 3, calls.Load())
		effects++
		require.Equal(t, effects, c.count(t, "SELECT count(*) FROM alpha.effect"), "of the one that was committed")
	}

	putOff := run("40001", 1000)
	report, told := putOff.claim.Reporter().Take()
	require.True(t, told)
	require.Contains(t, report.Lines[0].Text, "put off: ", "nothing else says why it has not ended")
	o := putOff.outcome
	require.Equal(t, job.Snoozed, o.State, "%v", o.Err)
	require.EqualValues(t, mostTries, calls.Load())
	require.GreaterOrEqual(t, o.Delay, rerunPolicy.First)
	require.ErrorContains(t, o.Err, "met another one")

	registry := prometheus.NewRegistry()
	registry.MustRegister(c.workers.metrics.conflicts)
	families, err := registry.Gather()
	require.NoError(t, err)
	counted := 0.0
	for _, m := range families[0].GetMetric() {
		counted += m.GetCounter().GetValue()
	}
	require.EqualValues(t, 2+2+2+mostTries, counted, "each conflict once")

	o = run("discard", 1000).outcome
	require.Equal(t, job.Dead, o.State)
	require.EqualValues(t, 1, calls.Load())
	o = run("elsewhere", 1000).outcome
	require.Equal(t, job.Retrying, o.State, "%v", o.Err)
	require.EqualValues(t, 1, calls.Load())
}

// A job that never gets through is charged in the end.
func TestConflictsAreChargedInTheEnd(t *testing.T) {
	t.Parallel()
	var c conflicts
	for i := range mostUncharged {
		wait, ok := c.next(1)
		require.True(t, ok)
		require.GreaterOrEqual(t, wait, rerunPolicy.Exactly(i+1))
	}
	_, ok := c.next(1)
	require.False(t, ok)
	_, ok = c.next(1)
	require.True(t, ok, "the next attempt begins again")
	for id := range job.ID(mostDeferred) {
		c.next(id)
	}
	require.LessOrEqual(t, len(c.times), mostDeferred)
}
