package execution

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

func TestUnable(t *testing.T) {
	t.Parallel()
	code := func(c, severity string) error {
		return fmt.Errorf("do: %w", &pgconn.PgError{Code: c, Severity: severity})
	}
	for _, c := range []string{"25006", "53100", "58030"} {
		require.False(t, refusesTenant(code(c, "ERROR")), c)
		want := errUnable
		if c == "25006" {
			want = errReadOnly
		}
		require.ErrorIs(t, blame(code(c, "ERROR")), want)
	}
	for _, c := range []string{"23505", "57014", "53200", "TN002", "42501"} {
		require.True(t, refusesTenant(code(c, "ERROR")), c)
		require.Equal(t, code(c, "ERROR"), blame(code(c, "ERROR")))
	}
	for _, err := range []error{errors.New("connection refused"), code("53300", "FATAL"), code("57P03", "FATAL"), context.DeadlineExceeded} {
		require.False(t, refusesTenant(err), "%v", err)
	}
}

func TestSeldom(t *testing.T) {
	t.Parallel()
	var s seldom
	require.True(t, s.now())
	require.False(t, s.now())
	s.last.Add(-int64(sayEvery) - int64(time.Second))
	require.True(t, s.now())
}

// A job that finds the disk full is put off, and not charged; one whose error is only
// about another database's is.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	full := &pgconn.PgError{Code: "53100", Severity: "ERROR", Message: "no space left"}
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "full", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			_, err := tx.Exec(ctx, addEffect+"; DO $$BEGIN RAISE 'no space left' USING ERRCODE = 'disk_full'; END$$")
			return err
		})
		inTx(r, "elsewhere", func(context.Context, pgx.Tx, *job.Record) error { return full })
	})
	c.start()
	o := c.run(t, "full", c.tenants["alpha"], "").outcome
	require.Equal(t, job.Snoozed, o.State, "%v", o.Err)
	require.GreaterOrEqual(t, o.Delay, putOff)
	require.Less(t, o.Delay, 2*putOff)
	require.Zero(t, c.count(t, "SELECT count(*) FROM alpha.effect"))
	o = c.run(t, "elsewhere", c.tenants["alpha"], "").outcome
	require.Equal(t, job.Retrying, o.State, "%v", o.Err)
}
