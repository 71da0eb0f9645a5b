package acquisition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
)

// A due timer that cannot be read, and a schedule whose jobs could not be, are said once, and the others fire.
func TestDamagedTimersAndSchedulesAreSetAside(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	b.due("acme", 3, time.Hour)
	b.hourly("torn", "all", false, 1)
	b.hourly("whole", "all", false, 1)
	var id job.ID
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT min(id) FROM tenure.timer_job").Scan(&id))
	storetest.Damage(t, b.db, "timer_job", id)
	b.exec("ALTER TABLE tenure.schedule ADD COLUMN id bigint") // by which it is damaged
	b.exec("UPDATE tenure.schedule SET id = 1 WHERE name = 'torn'")
	storetest.Damage(t, b.db, "schedule", 1)
	b.exec("ALTER TABLE tenure.schedule DROP COLUMN id")
	tm, logged := b.term(t.Context())
	for range 3 {
		require.NoError(t, b.fire(tm))
	}
	require.EqualValues(t, 2, b.count("SELECT count(*) FROM tenure.job WHERE meta IS NULL"))
	require.Equal(t, b.count("SELECT count(*) FROM tenure.job WHERE meta IS NOT NULL"), b.count("SELECT count(*) FROM tenure.job WHERE meta ->> 'schedule' = 'whole'"))
	require.NotZero(t, b.count("SELECT count(*) FROM tenure.job WHERE meta IS NOT NULL"))
	require.Equal(t, 1, logged.FilterMessageSnippet("a job cannot be read").FilterField(zap.Stringer("job", id)).Len())
	require.Equal(t, 1, logged.FilterMessageSnippet("a schedule is due and is not fired").FilterField(zap.String("schedule", "torn")).Len())
	require.EqualValues(t, 1, counted(t, tm.metrics.damaged))
	tm.duties.group.Wait()
}

// A job that cannot be read is not claimed, and what follows it under its exclusive key waits; others do not.
func TestDamagedJobsAreNotClaimed(t *testing.T) {
	t.Parallel()
	tm := newIdleTerm()
	lane, key := tm.lanes.See(store.Lane{Queue: "q", Tenant: "t"}), store.Key{Tenant: "t", Name: "x"}
	tm.keys.See(key, 2)
	require.Equal(t, []store.Key{key}, tm.keys.Take("t", 1))
	jobs := []store.Waiting{{Position: 1, Damage: "torn"}, {Lane: 1, Position: 2, Damage: "torn"}, {Position: 3, Damage: "torn"}, {Position: 4}}
	for i := range jobs {
		jobs[i].Record.ID, jobs[i].Record.Losses = job.ID(i+1), i%2
	}
	jobs[2].Unwanted, jobs[3].Record.Losses = true, 0
	portions := []schedule.Portion{{Lane: lane, Places: 4}, {Lane: lane, Places: 1, Head: &schedule.Head{Key: key, Position: 2}}}
	picked, unwanted := tm.claimer.sortPage(store.Page{Jobs: jobs}, portions)
	require.Len(t, picked, 1)
	require.Equal(t, job.ID(4), picked[0].Record.ID)
	require.Equal(t, []int64{3}, unwanted.IDs)
	require.True(t, tm.quarantine.Empty())
	require.EqualValues(t, 4, lane.Cursor())
	require.True(t, portions[1].Head.Settled)
	require.False(t, tm.keys.HasReady())
}
