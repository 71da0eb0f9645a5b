package jobstate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/jobstate"
	"github.com/tenurehq/tenure/job"
)

// A job is listed in the state that its run's outcome led to, unless it waits again as if it had not run.
func TestOutcomesAreStates(t *testing.T) {
	t.Parallel()
	for s := job.Done; s <= job.Returned; s++ {
		again := s == job.Retrying || s == job.Snoozed || s == job.Returned
		require.Equal(t, !again, jobstate.Of(s.String()).Ended(), s)
		require.Equal(t, !again && s != job.Done, jobstate.Of(s.String()).Failed(), s)
	}
	require.Zero(t, jobstate.Of("no"))
}
