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
	"github.com/tenurehq/tenure/tenancy"
)

func TestRefusesTenant(t *testing.T) {
	t.Parallel()
	code := func(c, severity string) error {
		return fmt.Errorf("do: %w", &pgconn.PgError{Code: c, Severity: "ОШИБКА", SeverityUnlocalized: severity})
	}
	for _, c := range []string{"25006", "53100", "53200", "58030", "08006", "57P03", "40001", "40P01"} {
		require.False(t, refusesTenant(code(c, "ERROR")), c)
	}
	for _, c := range []string{"23505", "57014", "TN002", "42501"} {
		require.True(t, refusesTenant(code(c, "ERROR")), c)
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
		lacking := tenancy.Tenant{ID: "acme"}
		for range 8 {
			d, _ = p.nextDelay(lacking, deferPolicy.Longest)
			require.Less(t, d, 2*deferPolicy.First, "its jobs that come together wait alike")
		}
		time.Sleep(deferPolicy.First)
		d, _ = p.nextDelay(lacking, deferPolicy.Longest)
		require.GreaterOrEqual(t, d, 2*deferPolicy.First, "it still lacks that")
		for range 10_000 {
			time.Sleep(10 * time.Millisecond)
			d, _ = p.nextDelay(lacking, pausePolicy.Longest)
		}
		require.GreaterOrEqual(t, d, pausePolicy.Longest, "also while more of its jobs come all the time")
		require.Equal(t, []bool{true, false, true, true}, []bool{p.tellsNew(1, "a"), p.tellsNew(1, "a"), p.tellsNew(1, "b"), p.tellsNew(2, "b")})
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
		p.nextDelay(lacking, time.Second)
		time.Sleep(time.Minute)
		d, _ = p.nextDelay(lacking, time.Second)
		require.Less(t, d, 2*deferPolicy.First, "it had what it lacked meanwhile")
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
			c := &ClaimedJob{Owner: o, Record: job.Record{ID: id}}
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

// raised are the SQLSTATEs of what a server says when it is in need, and others that mean something to
// nodes, or that none but a server should have a reason for.
var raised = []string{"08000", "08003", "08006", "25006", "25P03", "53000", "53100", "53200", "53300", "53400", "55006", "55P03", "57000", "57014",
	"57P01", "57P02", "57P03", "57P04", "57P05", "58000", "58030", "XX000", "XX001", "XX002", "TN001", "TN002", "TN003", "TN004", "TN005", "TN006", "TN007", "TN008", "TN009"}

// faulty has kinds whose handlers end their transactions by what the payload says.
func faulty(t *testing.T) *city {
	raise := func(ctx context.Context, tx pgx.Tx, rec *job.Record) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("%s; DO $$BEGIN RAISE 'of its own' USING ERRCODE = '%s'; END$$", addEffect, rec.Payload))
		return err
	}
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "raise", raise)
		inTx(r, "savepoint", func(ctx context.Context, tx pgx.Tx, rec *job.Record) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return raise(ctx, tx, rec) })
		})
		inTx(r, "commit", func(ctx context.Context, tx pgx.Tx, rec *job.Record) error {
			_, err := tx.Exec(ctx, "INSERT INTO late VALUES ($1)", string(rec.Payload))
			return err
		})
		inTx(r, "made-up", func(ctx context.Context, tx pgx.Tx, rec *job.Record) error {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return &pgconn.PgError{Code: string(rec.Payload), Severity: "FATAL", SeverityUnlocalized: "FATAL", Message: "made up"}
		})
		inTx(r, "terminate", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			_, err := tx.Exec(ctx, "RESET ROLE; SELECT pg_terminate_backend(pg_backend_pid())")
			return err
		})
		inTx(r, "fine", func(context.Context, pgx.Tx, *job.Record) error { return nil })
		inTx(r, "discard", func(ctx context.Context, tx pgx.Tx, rec *job.Record) error { return job.Discard(raise(ctx, tx, rec)) })
		inTx(r, "elsewhere", func(_ context.Context, _ pgx.Tx, rec *job.Record) error {
			return &pgconn.PgError{Code: string(rec.Payload), Severity: "ERROR", Message: "no space left there"}
		})
	})
	c.asOwner(t, "alpha", `CREATE TABLE late (code text);
		CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'of its own' USING ERRCODE = NEW.code; END$$;
		CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()`)
	c.start()
	return c
}

// runOnce runs a job that has one attempt.
func (c *city) runOnce(t *testing.T, kind, payload string) job.Outcome {
	t.Helper()
	claim := c.claim(kind)
	claim.Tenant, claim.Record.Tenant, claim.Record.Payload, claim.Record.MaxAttempts = c.tenants["alpha"], "alpha", []byte(payload), 1
	c.submitClaims([]ClaimedJob{claim})
	return c.owner.next(t).outcome
}

// Whatever a tenant's SQL raises, and a handler makes up, is charged while the ledger works, and
// holds up nobody.
func TestWhatATenantRaisesIsItsOwn(t *testing.T) {
	t.Parallel()
	c := faulty(t)
	c.workers.pauses.noteFailure(newFakeOwner(), pausePolicy) // so that it is looked at
	for _, kind := range []string{"raise", "savepoint", "commit", "made-up"} {
		for _, code := range raised {
			o := c.runOnce(t, kind, code)
			require.Equal(t, job.Dead, o.State, "%s %s: %v", kind, code, o.Err)
		}
	}
	for range failuresInARow {
		o := c.runOnce(t, "terminate", "")
		require.Equal(t, job.Dead, o.State, "%v", o.Err)
	}
	require.NotContains(t, c.workers.pauses.all, Owner(c.owner), "failures of the database")
	require.Zero(t, c.count(t, "SELECT count(*) FROM alpha.effect"))
}

// What looks like an outage is not charged if the ledger meets one, too. It is if the ledger answers that
// something else is wrong, if it was another database's, and if the handler says what is to become of
// the job.
func TestAnOutageIsNotCharged(t *testing.T) {
	t.Parallel()
	c := faulty(t)
	pg := func(code, severity string) func(context.Context) error {
		return func(context.Context) error { return &pgconn.PgError{Code: code, Severity: severity} }
	}
	hangs := func(ctx context.Context) error {
		if _, bounded := ctx.Deadline(); !bounded {
			return pg("42601", "ERROR")(ctx)
		}
		return context.DeadlineExceeded
	}
	for name, tc := range map[string]struct {
		ledger func(context.Context) error
		outage bool
	}{
		"full":       {pg("53100", "ERROR"), true},
		"read-only":  {pg("25006", "ERROR"), true},
		"ending":     {pg("57P01", "FATAL"), true},
		"refuses":    {pg("28P01", "FATAL"), true},
		"is gone":    {func(context.Context) error { return errors.New("connection refused") }, true},
		"hangs":      {hangs, true},
		"lost claim": {pg("TN001", "ERROR"), false},
		"locked":     {pg("55P03", "ERROR"), false},
	} {
		c.owner.ledger = tc.ledger
		for kind, code := range map[string]string{"raise": "53100", "savepoint": "58030", "commit": "25006", "terminate": ""} {
			o := c.runOnce(t, kind, code)
			if !tc.outage {
				require.Equal(t, job.Dead, o.State, "%s, %s: %v", name, kind, o.Err)
				continue
			}
			require.Equal(t, job.Snoozed, o.State, "%s, %s: %v", name, kind, o.Err)
			require.GreaterOrEqual(t, o.Delay, deferPolicy.First)
			require.Less(t, o.Delay, 2*deferPolicy.First)
		}
		asked := c.owner.asked.Load()
		for kind, code := range map[string]string{"raise": "23505", "commit": "57014", "elsewhere": "53100"} {
			require.Equal(t, job.Dead, c.runOnce(t, kind, code).State, "%s, %s", name, kind)
		}
		require.Equal(t, asked, c.owner.asked.Load(), "nobody asks for that")
		require.Equal(t, job.Dead, c.runOnce(t, "discard", "53100").State)
	}

	// What the statement meets that ends the job in its transaction nobody need be asked about: it may be over by then.
	asked := c.owner.asked.Load()
	c.exec(t, `CREATE FUNCTION tenure.full() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no space left' USING ERRCODE = '53100'; END$$;
		CREATE TRIGGER full_disk BEFORE INSERT ON tenure.ended EXECUTE FUNCTION tenure.full()`)
	o := c.runOnce(t, "fine", "")
	require.Equal(t, job.Snoozed, o.State, "%v", o.Err)
	require.Equal(t, asked, c.owner.asked.Load())
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
	c.submitClaims([]ClaimedJob{claim})
	o := c.owner.next(t).outcome
	for _, conn := range held {
		conn.Release()
	}
	require.Equal(t, job.Snoozed, o.State, "%v", o.Err)
}
