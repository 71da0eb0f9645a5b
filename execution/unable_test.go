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

func TestUnable(t *testing.T) {
	t.Parallel()
	code := func(c, severity string) error {
		return fmt.Errorf("do: %w", &pgconn.PgError{Code: c, Severity: "ОШИБКА", SeverityUnlocalized: severity})
	}
	for c, want := range map[string]error{"25006": errReadOnly, "53100": errUnable, "58030": errUnable} {
		require.False(t, refusesTenant(code(c, "ERROR")), c)
		require.ErrorIs(t, blame(code(c, "ERROR"), true), want)
	}
	require.NotErrorIs(t, blame(code("53100", "ERROR"), false), errUnable, "another database's")
	for _, c := range []string{"23505", "57014", "53200", "TN002", "42501"} {
		require.True(t, refusesTenant(code(c, "ERROR")), c)
		require.Equal(t, code(c, "ERROR"), blame(code(c, "ERROR"), true))
		require.False(t, refusesTenant(&noConnectionError{code(c, "ERROR")}), "there is no connection")
	}
	for _, err := range []error{errors.New("connection refused"), code("53300", "FATAL"), code("57P01", "FATAL"), context.DeadlineExceeded} {
		require.False(t, refusesTenant(err), "%v", err)
	}
}

func TestPutOffs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p putOffs
		for want := firstPutOff; want < longestPutOff; want *= 2 {
			d, _ := p.next(1, longestPutOff)
			require.GreaterOrEqual(t, d, want)
			require.Less(t, d, 2*want)
		}
		d, say := p.next(2, longestPutOff)
		require.Less(t, d, 2*firstPutOff, "another job")
		require.False(t, say)
		time.Sleep(sayEvery)
		_, say = p.next(2, longestPutOff)
		require.True(t, say)
		for id := range job.ID(mostPutOff) {
			p.next(id, longestPutOff)
		}
		require.LessOrEqual(t, len(p.last), mostPutOff)
		time.Sleep(13 * longestPutOff)
		d, _ = p.next(1, longestPutOff)
		require.Less(t, d, 2*firstPutOff, "that was long ago")
	})
}

// One job that its database cannot run among others that it can waits ever longer. When
// none can be run, all of them go on soon after that is over.
func TestPutOffAloneAndWithAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, err := New(DefaultConfig(), job.NewRegistry(), zap.NewNop())
		require.NoError(t, err)
		o := newFakeOwner()
		put := func(id job.ID, err error) (longest time.Duration) {
			r := &run{workers: w, claim: &Claim{Owner: o, Record: job.Record{ID: id}}, err: err}
			for i := range 15 {
				if d := r.putOff().Delay; i >= unableInARow { // before, it may be the job's own doing
					longest = max(longest, d)
				}
				if id == 1 {
					w.room.able(o) // another job's success
				}
			}
			return longest
		}
		require.GreaterOrEqual(t, put(1, errUnable), longestPutOff)
		longest := put(2, errUnable)
		require.GreaterOrEqual(t, longest, longestForAll)
		require.Less(t, longest, 2*longestForAll)
		longest = put(3, errors.Join(errUnable, &noConnectionError{errUnable}))
		require.GreaterOrEqual(t, longest, longestWithout/2)
		require.Less(t, longest, longestWithout)
		time.Sleep(time.Minute) // for the timers
	})
}

// An owner whose database fails every job gets no places for a while, and longer each
// time, until one succeeds; one job among others that are fine slows nobody down.
func TestRoomPausesTheUnable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, o, other := newRoom(100), newFakeOwner(), newFakeOwner()
		for range 10 * unableInARow {
			r.unable(o, longestPause)
			r.able(o)
		}
		require.Positive(t, r.reserve(o, 1))
		for pause := firstPause; pause <= 4*firstPause; pause *= 2 {
			for range 3 * unableInARow { // those that were claimed already
				r.unable(o, longestPause)
			}
			require.Zero(t, r.reserve(o, 10))
			require.Positive(t, r.reserve(other, 1))
			time.Sleep(pause - 1)
			require.Zero(t, r.reserve(o, 10))
			require.Zero(t, o.roomy.Load())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			require.EqualValues(t, 1, o.roomy.Swap(0), "told")
			require.Positive(t, r.reserve(o, 1))
		}
		for range unableInARow {
			r.unable(o, longestPause)
		}
		r.able(o)
		require.Positive(t, r.reserve(o, 1))
		require.False(t, r.ables.Load())
		time.Sleep(time.Minute)
	})
}

// A job that finds the disk full is put off, and not charged, also behind a savepoint; one
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
		require.GreaterOrEqual(t, o.Delay, firstPutOff)
		require.Less(t, o.Delay, 2*firstPutOff)
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
	for range c.owner.tenants.Config().MaxConns {
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
