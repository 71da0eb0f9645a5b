package execution

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

var errRingDown = errors.New("the service of the keys does not answer")

// What keeps arguments from being read for a while is no job's fault: it is deferred, not for too long, and
// not charged, alone and in a batch. What is for good makes a dead letter.
func TestArgumentsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &batches{}
		b := newBundle(t, nil, h.register())
		b.workers.OpenWith(func(_ context.Context, r *job.Record) error {
			switch r.ID {
			case 1, 4:
				return errRingDown
			case 2:
				return job.Discard(errBroken)
			}
			return nil
		})
		b.submit("batch", 3)
		b.submit("noop", 1)
		b.start()
		all := b.owner.outcomes(t, 4)
		require.Equal(t, []job.ID{3}, <-h.calls)
		for _, id := range []job.ID{1, 4} {
			o := all[id].outcome
			require.Equal(t, job.Snoozed, o.State)
			require.ErrorIs(t, o.Err, errRingDown)
			require.Less(t, o.Delay, 2*deferPolicy.First)
		}
		require.Equal(t, job.Dead, all[2].outcome.State)
		require.Equal(t, job.Done, all[3].outcome.State)
		r := &run{workers: b.workers}
		for range 30 {
			o := r.outcome(all[4].claim, errors.Join(errUnopened, errRingDown), nil)
			require.Equal(t, job.Snoozed, o.State)
			require.Less(t, o.Delay, 2*pausePolicy.Longest)
		}
	})
}

// Keys are asked for before a job's transaction begins, and once for all of its tries. An outage of theirs takes
// no connection.
func TestArgumentsAreReadBeforeTheTransaction(t *testing.T) {
	t.Parallel()
	var opened, within, calls atomic.Int64
	var down atomic.Bool
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "write", func(ctx context.Context, tx pgx.Tx, rec *job.Record) error {
			if string(rec.Payload) != "plain" {
				return job.Discard(fmt.Errorf("it got %q", rec.Payload))
			}
			if calls.Add(1) < 3 {
				return conflictIn(ctx, tx)
			}
			_, err := tx.Exec(ctx, addEffect)
			return err
		})
	})
	c.workers.OpenWith(func(ctx context.Context, r *job.Record) error {
		opened.Add(1)
		if ctx.Value(txKey{}) != nil {
			within.Add(1)
		}
		if down.Load() {
			return errRingDown
		}
		r.Payload = []byte("plain")
		return nil
	})
	c.start()
	e := c.run(t, "write", c.tenants["alpha"], "")
	require.Equal(t, "in tx", e.how, "%v", e.outcome.Err)
	require.EqualValues(t, 3, calls.Load())
	require.EqualValues(t, 1, opened.Load())
	down.Store(true)
	e = c.run(t, "write", c.tenants["alpha"], "")
	require.Equal(t, job.Snoozed, e.outcome.State)
	require.EqualValues(t, 3, calls.Load())
	require.Zero(t, within.Load())
}

// conflictIn has a transaction lose to another one.
func conflictIn(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "DO $$BEGIN RAISE 'met another one' USING ERRCODE = '40001'; END$$")
	return err
}
