package acquisition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// due makes timers of a tenant that have been due for a while.
func (b *bundle) due(tenant string, n int, since time.Duration) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), `INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at)
		SELECT $1, 'default', 'k', '{}', clock_timestamp() - $2 * interval '1 us' FROM generate_series(1, $3::int)`, tenant, since.Microseconds(), n)
	require.NoError(b.t, err)
}

// However many timers are due, so many are fired between two claims as take a moment, and each
// tenant has its share of them.
func TestP12TimersAreFiredInSlicesAndShares(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	b.due("acme", 3000, time.Hour)
	b.due("beta", 3, time.Minute)
	tm, _ := b.term(t.Context())
	require.NoError(t, tm.timers.fire(t.Context()))
	require.LessOrEqual(t, b.count("SELECT count(*) FROM tenure.job"), int64(2*minSlice), "jobs are claimed before more of them")
	require.False(t, tm.timers.fireDuty.due.After(time.Now()), "the next ones are fired right after that")
	require.EqualValues(t, 3, b.count("SELECT count(*) FROM tenure.job WHERE tenant_id = 'beta'"), "those of others are not behind all of one")
	b.due("gamma", 3, time.Second)
	tm.timers.listed = time.Time{} // it is some time later
	require.NoError(t, tm.timers.fire(t.Context()))
	require.EqualValues(t, 3, b.count("SELECT count(*) FROM tenure.job WHERE tenant_id = 'gamma'"))
	for b.count("SELECT count(*) FROM tenure.timer_job") > 0 {
		require.NoError(t, tm.timers.fire(t.Context()))
	}
	require.Eventually(t, func() bool { // what tenants there were is listed now and then
		require.NoError(t, tm.timers.fire(t.Context()))
		return tm.timers.next.IsZero()
	}, patience, time.Millisecond)
	require.EqualValues(t, 3006, b.count("SELECT count(*) FROM tenure.job"))
	tm.duties.group.Wait()
}

func TestSlicesTakeAsLongAsTheyMay(t *testing.T) {
	t.Parallel()
	var s slice
	s.resize(100, sliceTime/10)
	require.Equal(t, 200, s.size, "twice as large at most, whatever one took")
	for range 20 {
		s.resize(s.size, time.Microsecond)
	}
	require.Equal(t, maxSlice, s.size)
	s.resize(maxSlice, 10*sliceTime)
	require.Equal(t, maxSlice/10, s.size, "smaller at once")
	s.resize(200, time.Minute)
	require.Equal(t, minSlice, s.size)
	s.resize(0, time.Minute)
	require.Equal(t, minSlice, s.size, "nothing is known of slices in which nothing was")
}
