package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func (b *bundle) suspend(t *testing.T, until time.Time, ids ...job.ID) store.SuspendCount {
	t.Helper()
	var all []int64
	for _, id := range ids {
		all = append(all, int64(id))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := store.Suspend(ctx, b.db, all, until)
	require.NoError(t, err)
	return n
}

func TestSuspend(t *testing.T) {
	t.Parallel()
	b := setup(t)
	waiting, claimed := b.enqueue(t, store.NewJob{UniqueKey: "u"}), b.enqueue(t, store.NewJob{})
	timer, dead := b.enqueue(t, store.NewJob{DueIn: time.Hour}), b.deadLetter(t, "")
	between := b.enqueue(t, store.NewJob{Tenant: "gone"})
	p := b.page(t, 0)
	_, err := store.InsertClaims(t.Context(), b.db, b.fence, onlyJob(p.Removals, claimed, b.first()))
	require.NoError(t, err)
	_, err = b.db.Exec(t.Context(), "INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('gone', 'moved', 'p9')")
	require.NoError(t, err)

	require.Equal(t, store.SuspendCount{Suspended: 2, Running: 1, Left: 1}, b.suspend(t, time.Time{}, waiting, claimed, timer, dead, between, 99))
	require.Equal(t, store.Counts{Waiting: 2, Claimed: 1, Suspended: 2, Dead: 1}, counts(t, b.db))
	_, err = store.InsertClaims(t.Context(), b.db, b.fence, request(p))
	require.ErrorIs(t, err, store.ErrFenced, "the page that still shows the suspended job is void")
	require.Equal(t, waiting, b.enqueue(t, store.NewJob{UniqueKey: "u"}), "it has its key still")
	require.ErrorAs(t, store.SuspendJob(t.Context(), b.db, between, time.Time{}), new(*store.BetweenPoolsError))
	for _, id := range []job.ID{claimed, dead, 99} {
		require.ErrorIs(t, store.SuspendJob(t.Context(), b.db, id, time.Time{}), store.ErrNotFound)
	}

	resumed, err := store.Resume(t.Context(), b.db, []int64{int64(waiting), int64(timer), int64(claimed)})
	require.NoError(t, err)
	require.Len(t, resumed, 2)
	lane := store.Lane{Tenant: "acme", Queue: "default"}
	for _, r := range resumed {
		require.Equal(t, lane, r.Lane)
		if r.DueIn != nil {
			require.InDelta(t, time.Hour.Milliseconds(), *r.DueIn, 60_000)
		}
	}
	require.Equal(t, "waiting", b.state(t, waiting))
	require.Equal(t, "scheduled", b.state(t, timer))

	b.suspend(t, time.Time{}, waiting, timer)
	for _, id := range []job.ID{waiting, timer} {
		running, err := store.Cancel(t.Context(), b.db, id, true)
		require.NoError(t, err)
		require.False(t, running)
		require.Equal(t, "cancelled", b.state(t, id))
	}
	require.NotEqual(t, waiting, b.enqueue(t, store.NewJob{UniqueKey: "u"}), "its key is free")
}

// Of many those stay whose row somebody has locked; claims are not locked out for that.
func TestSuspendLeavesWhatIsLocked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	waiting, timer, aside := b.enqueue(t, store.NewJob{}), b.enqueue(t, store.NewJob{DueIn: time.Hour}), b.enqueue(t, store.NewJob{})
	others := []job.ID{b.enqueue(t, store.NewJob{}), b.enqueue(t, store.NewJob{DueIn: time.Hour})}
	b.suspend(t, time.Time{}, aside)
	var unlock []func()
	for table, id := range map[string]job.ID{"job": waiting, "timer_job": timer, "suspended_job": aside} {
		unlock = append(unlock, b.locks(t, "SELECT FROM tenure."+table+" WHERE id = $1 FOR UPDATE", int64(id)))
	}
	all := append(others, waiting, timer, aside)
	require.Equal(t, store.SuspendCount{Suspended: 2, Left: 3}, b.suspend(t, time.Time{}, all...))
	for _, unlock := range unlock {
		unlock()
	}
	require.Equal(t, store.SuspendCount{Suspended: 5}, b.suspend(t, time.Time{}, all...))
}

func TestResumeDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	due := func(want int, next time.Duration) []store.Resumed {
		t.Helper()
		resumed, err := store.ResumeDue(t.Context(), b.db, 2)
		require.NoError(t, err)
		require.Len(t, resumed, want)
		in, ok, err := store.NextTimer(t.Context(), b.db)
		require.NoError(t, err)
		require.Equal(t, next >= 0, ok)
		if ok {
			require.InDelta(t, next, in, float64(time.Minute))
		}
		idle, _, err := store.RenewIdle(t.Context(), b.db, b.fence, ttl, ttl)
		require.NoError(t, err)
		require.Equal(t, next >= 0, idle.Due != nil)
		if idle.Due != nil {
			require.InDelta(t, next, max(*idle.Due, 0), float64(time.Minute))
		}
		return resumed
	}
	forever := b.enqueue(t, store.NewJob{})
	b.suspend(t, time.Time{}, forever)
	due(0, -1)

	one, two, three, later := b.enqueue(t, store.NewJob{}), b.enqueue(t, store.NewJob{}), b.enqueue(t, store.NewJob{DueIn: time.Hour}), b.enqueue(t, store.NewJob{})
	locked := b.enqueue(t, store.NewJob{})
	b.suspend(t, time.Now().Add(-time.Hour), one, two, three, locked)
	b.suspend(t, time.Now().Add(2*time.Hour), later)
	unlock := b.locks(t, "SELECT FROM tenure.suspended_job WHERE id = $1 FOR UPDATE", int64(locked))
	due(2, 0)
	require.Equal(t, []string{"waiting", "waiting"}, []string{b.state(t, one), b.state(t, two)}, "in the order in which they were made")
	require.NotNil(t, due(1, 0)[0].DueIn)
	require.Equal(t, "scheduled", b.state(t, three))
	unlock()
	due(1, time.Hour)
	require.Equal(t, "suspended", b.state(t, later))
	require.Equal(t, "suspended", b.state(t, forever))
	_, err := store.FireTimers(t.Context(), b.db, b.fence, 10)
	require.NoError(t, err)

	b.suspend(t, time.Time{}, three)
	due(0, 2*time.Hour)
	b.suspend(t, time.Now().Add(-time.Hour), later)
	due(1, -1)
	require.NoError(t, store.FreezeTenant(t.Context(), b.db, "acme", true))
	b.suspend(t, time.Now().Add(3*time.Hour), later)
	due(0, -1)
}

func TestReadMovable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one := b.enqueue(t, store.NewJob{CorrelationID: "c"})
	two := b.enqueue(t, store.NewJob{Tenant: "b", Kind: "other", Queue: "q"})
	three := b.enqueue(t, store.NewJob{})
	b.enqueue(t, store.NewJob{DueIn: time.Hour})
	aside := b.enqueue(t, store.NewJob{})
	b.suspend(t, time.Time{}, aside)
	execute(t, b.owner, "UPDATE tenure.job SET created_at = now() + interval '1 day' WHERE id = "+two.String()) // when the clock ran ahead
	for size := 1; size <= 4; size++ {
		read := func(place string, f store.MovableFilter) (all []job.ID) {
			for last, more := store.BeforeAllJobs, true; more; {
				var ids []int64
				var err error
				ids, last, more, _, err = store.ReadMovable(t.Context(), b.db, place, f, last, size)
				require.NoError(t, err)
				for _, id := range ids {
					all = append(all, job.ID(id))
				}
			}
			return all
		}
		require.Equal(t, []job.ID{one, two, three}, read(store.PlaceJob, store.MovableFilter{}))
		require.Equal(t, []job.ID{one}, read(store.PlaceJob, store.MovableFilter{CorrelationID: "c"}))
		require.Equal(t, []job.ID{two}, read(store.PlaceJob, store.MovableFilter{Tenant: "b", Kind: "other", Queue: "q"}))
		require.Empty(t, read(store.PlaceJob, store.MovableFilter{Tenant: "b", Kind: "k"}))
		require.Equal(t, []job.ID{two}, read(store.PlaceJob, store.MovableFilter{Before: time.Now().Add(-time.Hour)}))
		require.Len(t, read(store.PlaceTimer, store.MovableFilter{Kind: "k"}), 1)
		require.Equal(t, []job.ID{aside}, read(store.PlaceSuspended, store.MovableFilter{}))
	}
}

func TestChangeJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	change := func(id job.ID, c store.Change) store.Resumed {
		t.Helper()
		at, err := store.ChangeJob(t.Context(), b.db, id, c)
		require.NoError(t, err)
		return at
	}
	priority, attempts, timeout, due := 7, 11, 90*time.Second, time.Now().Add(time.Hour).Truncate(time.Millisecond)
	same := 0
	first, second, claimed := b.enqueue(t, store.NewJob{}), b.enqueue(t, store.NewJob{}), b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	_, err := store.InsertClaims(t.Context(), b.db, b.fence, onlyJob(p.Removals, claimed, b.first()))
	require.NoError(t, err)

	_, was := stands(t, b.db, first)
	require.Equal(t, store.Resumed{Lane: store.Lane{Tenant: "acme", Queue: "default"}}, change(first, store.Change{Priority: &same, MaxAttempts: &attempts, Timeout: &timeout}))
	place, is := stands(t, b.db, first)
	require.Equal(t, "job", place)
	was["max_attempts"], was["timeout_ms"] = 11.0, 90_000.0
	require.Equal(t, was, is, "it keeps its place in the queue")
	_, err = store.InsertClaims(t.Context(), b.db, b.fence, request(p))
	require.ErrorIs(t, err, store.ErrFenced, "the page that shows the job as it was is void")

	last := p.Jobs[len(p.Jobs)-1].Position
	require.Equal(t, int16(7), change(first, store.Change{Priority: &priority}).Priority)
	moved := b.page(t, last)
	require.Len(t, moved.Jobs, 1, "cursors have not passed it")
	require.Equal(t, first, moved.Jobs[0].Record.ID)

	at := change(second, store.Change{DueAt: &due})
	require.InDelta(t, time.Hour.Milliseconds(), *at.DueIn, 60_000)
	require.Equal(t, "scheduled", b.state(t, second))
	soon := time.Now().Add(-time.Minute)
	require.Positive(t, *change(second, store.Change{DueAt: &soon, Priority: &priority}).DueIn)
	fired, err := store.FireTimers(t.Context(), b.db, b.fence, 10)
	require.NoError(t, err)
	require.Equal(t, []store.Fired{{Lane: store.Lane{Tenant: "acme", Queue: "default", Priority: 7}, Count: 1}}, fired)

	b.suspend(t, time.Time{}, second)
	change(second, store.Change{MaxAttempts: &attempts, DueAt: &due})
	place, is = stands(t, b.db, second)
	require.Equal(t, "suspended_job", place)
	require.Equal(t, 11.0, is["max_attempts"])
	resumed, err := store.Resume(t.Context(), b.db, []int64{int64(second)})
	require.NoError(t, err)
	require.NotNil(t, resumed[0].DueIn, "it is due then")

	for _, id := range []job.ID{claimed, b.deadLetter(t, ""), 99} {
		_, err := store.ChangeJob(t.Context(), b.db, id, store.Change{Priority: &priority})
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	_, err = b.db.Exec(t.Context(), "INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('acme', 'moved', 'p9')")
	require.NoError(t, err)
	_, err = store.ChangeJob(t.Context(), b.db, first, store.Change{Priority: &same})
	require.ErrorAs(t, err, new(*store.BetweenPoolsError))
}
