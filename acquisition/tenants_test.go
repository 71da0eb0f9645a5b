package acquisition

import (
	"testing"

	"github.com/stretchr/testify/require"

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
