package acquisition

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/job"
)

// When tenants are resolved again, jobs in quarantine are read again at once.
func TestUnresolvedQuarantineIsReadAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	tm := idleTerm(b.acquirer(&fakeElector{}))
	l := tm.lanes.See(laneOf("acme", 0))
	l.MarkRead(100, false)
	tm.lanes.DropInactive()
	for _, position := range []int64{70, 40} {
		q := schedule.Quarantined{Lane: l}
		q.Record.ID, q.Position = job.ID(position), position
		tm.quarantine.Add(q)
	}
	tm.homes.forgetAll()
	require.True(t, tm.quarantine.Empty())
	require.EqualValues(t, 39, l.Cursor())
	require.True(t, tm.lanes.HasWork())
}

// Tenants that nobody routes are named once each, and so many at most: SQL can make up any number.
func TestFewUnroutableTenantsAreNamed(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	tm := idleTerm(b.acquirer(&fakeElector{}))
	core, logged := observer.New(zap.WarnLevel)
	tm.homes.log = zap.New(core)
	for i := range mostNamed + 10 {
		for range 2 {
			require.Nil(t, tm.homes.resolve(t.Context(), tm.lanes.See(laneOf(fmt.Sprint("nobody", i), 0))))
		}
	}
	require.Equal(t, mostNamed+1, logged.Len())
	require.Len(t, tm.homes.unroutable, mostNamed)
}
