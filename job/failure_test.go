package job_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/job"
)

func TestTrimText(t *testing.T) {
	t.Parallel()
	require.Equal(t, `ä\0`+"\ufffdb", job.TrimText("ä\x00\xff\xfeb"))
	long := strings.Repeat("€", job.MaxErrorText)
	require.True(t, strings.HasSuffix(job.TrimText(long), "€… (cut)"))
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SampledFrom([]string{"a", "ä", "€", "𝄞", "\x00", "\xff", "\xe2\x82"})
		s := strings.Join(rapid.SliceOfN(part, 0, 8).Draw(t, "head"), "") + strings.Repeat(part.Draw(t, "body"), rapid.IntRange(0, job.MaxErrorText+2).Draw(t, "times"))
		got := job.TrimText(s)
		require.LessOrEqual(t, len(got), job.MaxErrorText)
		require.True(t, utf8.ValidString(got))
		require.NotContains(t, got, "\x00")
		require.Equal(t, got, job.TrimText(got), "what fits stays as it is")
	})
}

// What was read of an error still tells what handlers' errors are told apart by.
func TestFailure(t *testing.T) {
	t.Parallel()
	pg := &pgconn.PgError{Code: "53100", Message: "no room"}
	f := job.ReadError(fmt.Errorf("write: %w", errors.Join(errBroken, io.ErrUnexpectedEOF, context.DeadlineExceeded, pg, &job.PanicError{Value: "boom", Stack: "main.go:1"})))
	for _, is := range []error{errBroken, io.ErrUnexpectedEOF, context.DeadlineExceeded} {
		require.ErrorIs(t, f, is)
	}
	require.NotErrorIs(t, f, job.ErrTimeout)
	require.Equal(t, "53100", f.SQLState())
	var p *job.PanicError
	require.ErrorAs(t, f, &p)
	require.Equal(t, &job.PanicError{Value: "boom", Stack: "main.go:1"}, p)
	require.Same(t, f, job.ReadError(f))

	around := job.ReadError(fmt.Errorf("%w: %w", job.ErrTimeout, f))
	require.ErrorIs(t, around, job.ErrTimeout)
	require.ErrorIs(t, around, errBroken)
	require.Equal(t, "53100", around.SQLState())
	require.ErrorAs(t, around, &p)

	passed := job.ReadPanic(&job.PanicError{Value: errBroken, Stack: "other.go:1"}, []byte("main.go:1"))
	require.EqualError(t, passed, "panic: broken")
	require.ErrorAs(t, passed, &p)
	require.Equal(t, "other.go:1", p.Stack)
}
