package jobtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)

// Jobs with an exclusive key run with their arguments, in order, and wait for one of their key that
// is to be tried again; others do not.
func TestExclusiveKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ran []int
	failed := false
	b.ping = func(_ context.Context, j *job.Job[ping]) error {
		if j.Args.N == 1 && !failed {
			failed = true
			return errors.New("not yet")
		}
		ran = append(ran, j.Args.N)
		return nil
	}
	client := b.Client()
	for n, opts := range [][]tenure.Option{0: {tenure.Exclusive("k")}, 1: {tenure.Exclusive("k")}, 2: {tenure.Exclusive("k")}, 3: nil} {
		_, err := client.Enqueue(b.acme.Context, ping{n}, opts...)
		require.NoError(t, err)
	}
	b.Drain(t)
	require.Equal(t, []int{0, 3}, ran, "2 waits for 1")
	b.Advance(t, 6*time.Minute)
	b.Drain(t)
	require.Equal(t, []int{0, 3, 1, 2}, ran)
}
