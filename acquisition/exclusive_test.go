package acquisition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// What follows a job that waits for its next attempt goes on when that is cancelled or suspended, and not
// only with the next sweep.
func TestFollowersOfARetryGoOnOnceItIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	tm, _ := b.term(t.Context())
	keyed := func(key string, due time.Duration) (id job.ID) {
		id, _, err := store.Enqueue(t.Context(), b.db.QueryRow, 1, &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("1"), ExclusiveKey: key, DueIn: due})
		require.NoError(t, err)
		return id
	}
	look := func() {
		use, err := tm.rereader.discover()(t.Context())
		require.NoError(t, err)
		use()
		for n := 1; n > 0; {
			n, err = tm.claimer.claimJobs(t.Context())
			require.NoError(t, err)
		}
	}
	cancelled, suspended := keyed("a", time.Hour), keyed("b", time.Hour)
	b.exec("UPDATE tenure.timer_job SET attempt = 1")
	keyed("a", 0)
	keyed("b", 0)
	look()
	require.EqualValues(t, 2, b.count("SELECT count(*) FROM tenure.job"))
	require.False(t, tm.keys.HasReady())
	b.exec("SELECT tenure.cancel($1)", cancelled)
	_, err := store.Suspend(t.Context(), b.db, []int64{int64(suspended)}, time.Time{})
	require.NoError(t, err)
	look()
	b.eventually(0, "SELECT count(*) FROM tenure.job")
	tm.duties.group.Wait()
}
