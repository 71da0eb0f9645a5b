package execution

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/job"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	code := func(c, severity string) error {
		return fmt.Errorf("do: %w", &pgconn.PgError{Code: c, Severity: "ОШИБКА", SeverityUnlocalized: severity})
	}
	for c, want := range map[string]error{"25006": errReadOnly, "53100": errUnavailable, "58030": errUnavailable} {
		require.False(t, refusesTenant(code(c, "ERROR")), c)
		require.ErrorIs(t, classify(code(c, "ERROR"), true), want)
	}
	require.NotErrorIs(t, classify(code("53100", "ERROR"), false), errUnavailable, "another database's")
	for _, c := range []string{"23505", "57014", "53200", "TN002", "42501"} {
		require.True(t, refusesTenant(code(c, "ERROR")), c)
		require.Equal(t, code(c, "ERROR"), classify(code(c, "ERROR"), true))
		require.False(t, refusesTenant(&noConnectionError{code(c, "ERROR")}), "there is no connection")
	}
	for _, err := range []error{errors.New("connection refused"), code("53300", "FATAL"), code("57P01", "FATAL"), context.DeadlineExceeded} {
		require.False(t, refusesTenant(err), "%v", err)
	}
}

func TestDeferrals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p deferrals
		for want := deferPolicy.First; want < deferPolicy.Longest; want *= 2 {
			d, _ := p.nextDelay(1, deferPolicy.Longest)
			require.GreaterOrEqual(t, d, want)
			require.Less(t, d, 2*want)
		}
		d, say := p.nextDelay(2, deferPolicy.Longest)
		require.Less(t, d, 2*deferPolicy.First, "another job")
		require.False(t, say)
		time.Sleep(logEvery)
		_, say = p.nextDelay(2, deferPolicy.Longest)
		require.True(t, say)
		for id := range job.ID(mostDeferred) {
			p.nextDelay(id, deferPolicy.Longest)
		}
		require.LessOrEqual(t, len(p.times), mostDeferred)
		time.Sleep(13 * deferPolicy.Longest)
		d, _ = p.nextDelay(1, deferPolicy.Longest)
		require.Less(t, d, 2*deferPolicy.First, "that was long ago")
	})
}

// One job that its database cannot run among others that it can waits ever longer. When
// none can be run, all of them go on soon after that is over.
func TestDeferAloneAndWithAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, err := New(DefaultConfig(), job.NewRegistry(), zap.NewNop())
		require.NoError(t, err)
		o := newFakeOwner()
		put := func(id job.ID, err error) (longest time.Duration) {
			c := &Claim{Owner: o, Record: job.Record{ID: id}}
			for i := range 15 {
				r := &run{workers: w, claim: c}
				if d := r.deferJob(c, err).Delay; i >= failuresInARow { // before, it may be the job's own doing
					longest = max(longest, d)
				}
				if id == 1 {
					w.pauses.forget(o) // another job's success
				}
			}
			return longest
		}
		require.GreaterOrEqual(t, put(1, errUnavailable), deferPolicy.Longest)
		longest := put(2, errUnavailable)
		require.GreaterOrEqual(t, longest, pausePolicy.Longest/2)
		require.Less(t, longest, pausePolicy.Longest)
		longest = put(3, errors.Join(errUnavailable, &noConnectionError{errUnavailable}))
		require.GreaterOrEqual(t, longest, noConnectionPolicy.Longest/2)
		require.Less(t, longest, noConnectionPolicy.Longest)
		time.Sleep(time.Minute) // for the timers
	})
}

// An owner whose database fails every job gets no slots for a while, and longer each
// time, until one succeeds; one job among others that are fine slows nobody down.
func TestPausesWhileNothingCanRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, err := New(DefaultConfig(), job.NewRegistry(), zap.NewNop())
		require.NoError(t, err)
		p, o, other := &w.pauses, newFakeOwner(), newFakeOwner()
		for range 10 * failuresInARow {
			p.noteFailure(o, pausePolicy)
			p.forget(o)
		}
		require.Positive(t, w.Reserve(o, 1))
		for pause := pausePolicy.First; pause <= 4*pausePolicy.First; pause *= 2 {
			for range 3 * failuresInARow { // those that were claimed already
				p.noteFailure(o, pausePolicy)
			}
			require.Zero(t, w.Reserve(o, 10))
			require.Positive(t, w.Reserve(other, 1))
			time.Sleep(pause - 1)
			require.Zero(t, w.Reserve(o, 10))
			require.Zero(t, o.available.Load())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			require.EqualValues(t, 1, o.available.Swap(0), "told")
			require.Positive(t, w.Reserve(o, 1))
		}
		for range failuresInARow {
			p.noteFailure(o, pausePolicy)
		}
		p.forget(o)
		require.Positive(t, w.Reserve(o, 1))
		require.False(t, p.any.Load())
		time.Sleep(time.Minute)
	})
}

// A job that finds the disk full is deferred, and not charged, also behind a savepoint; one
// whose error is only about another database's is, and one that says itself what is to
// become of it is heeded.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	full := &pgconn.PgError{Code: "53100", Severity: "ERROR", Message: "no space left"}
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "full", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			_, err := tx.Exec(ctx, addEffect+"; DO $$BEGIN RAISE 'no space left' USING ERRCODE = 'disk_full'; END$$")
			return err
		})
		const raise = "; DO $$BEGIN RAISE 'no space left' USING ERRCODE = 'disk_full'; END$$"
		inTx(r, "savepoint", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, addEffect+raise)
				return err
			})
		})
		inTx(r, "discard", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			_, err := tx.Exec(ctx, addEffect+raise)
			return job.Discard(err)
		})
		inTx(r, "elsewhere", func(context.Context, pgx.Tx, *job.Record) error { return full })
	})
	c.start()
	for _, kind := range []string{"full", "savepoint"} {
		o := c.run(t, kind, c.tenants["alpha"], "").outcome
		require.Equal(t, job.Snoozed, o.State, "%s: %v", kind, o.Err)
		require.GreaterOrEqual(t, o.Delay, deferPolicy.First)
		require.Less(t, o.Delay, 2*deferPolicy.First)
	}
	require.Zero(t, c.count(t, "SELECT count(*) FROM alpha.effect"))
	require.Equal(t, job.Dead, c.run(t, "discard", c.tenants["alpha"], "").outcome.State)
	o := c.run(t, "elsewhere", c.tenants["alpha"], "").outcome
	require.Equal(t, job.Retrying, o.State, "%v", o.Err)
}

// A job whose timeout ends while it waits for a connection has not begun.
func TestATimeoutBeforeTheTransactionIsOpen(t *testing.T) {
	t.Parallel()
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "tx", func(context.Context, pgx.Tx, *job.Record) error { return nil })
	})
	c.start()
	var held []*pgxpool.Conn
	for range c.owner.tenants.Stat().MaxConns() {
		conn, err := c.owner.tenants.Acquire(t.Context())
		require.NoError(t, err)
		held = append(held, conn)
	}
	claim := c.claim("tx")
	claim.Tenant, claim.Record.Tenant, claim.Record.Timeout = c.tenants["alpha"], "alpha", time.Second
	c.submitClaims([]Claim{claim})
	o := c.owner.next(t).outcome
	for _, conn := range held {
		conn.Release()
	}
	require.Equal(t, job.Snoozed, o.State, "%v", o.Err)
}
