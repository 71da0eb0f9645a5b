package store_test

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
)

// external adds a job of topic t.
func (b *bundle) external(t *testing.T, j store.NewJob) job.ID {
	t.Helper()
	j.External = true
	if j.Kind == "" {
		j.Kind = "t"
	}
	return b.enqueue(t, j)
}

// acquire has worker w lock jobs of topic t.
func (b *bundle) acquire(t *testing.T, max int, change ...func(*store.ExternalRequest)) []store.External {
	t.Helper()
	jobs, _ := b.look(t, max, change...)
	return jobs
}

// look is acquire with the tenant behind which there may be more.
func (b *bundle) look(t *testing.T, max int, change ...func(*store.ExternalRequest)) ([]store.External, string) {
	t.Helper()
	r := anyTenants(max)
	for _, c := range change {
		c(r)
	}
	jobs, looked, err := store.AcquireExternal(t.Context(), b.db, r)
	require.NoError(t, err)
	return jobs, looked
}

// anyTenants is worker w's request for jobs of topic t.
func anyTenants(max int) *store.ExternalRequest {
	return &store.ExternalRequest{Topic: "t", Worker: "w", LockFor: time.Hour, Max: max, Bytes: 1 << 24, Look: 100}
}

func externalIDs(jobs []store.External) (ids []job.ID) {
	for _, e := range jobs {
		ids = append(ids, e.Record.ID)
	}
	return ids
}

func lockOf(e store.External) store.ExternalLock {
	return store.ExternalLock{Job: e.Record.ID, Turn: e.Turn, Worker: "w"}
}

// expire has the lock of a job expire now.
func (b *bundle) expire(t *testing.T, id job.ID) {
	t.Helper()
	_, err := b.db.Exec(t.Context(), "UPDATE tenure.external_job SET lock_expires_at = clock_timestamp() WHERE id = $1 AND lock_expires_at IS NOT NULL", int64(id))
	require.NoError(t, err)
}

func (b *bundle) finish(t *testing.T, e ...store.ExternalEnd) []job.ID {
	t.Helper()
	done, err := store.FinishExternal(t.Context(), b.db, e, true)
	require.NoError(t, err)
	return done
}

func (b *bundle) fail(t *testing.T, f store.ExternalFailure) (noted, dead []job.ID) {
	t.Helper()
	noted, dead, err := store.FailExternal(t.Context(), b.db, []store.ExternalFailure{f}, job.DefaultPolicy())
	require.NoError(t, err)
	return noted, dead
}

func TestExternalJobsAreLockedByOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	low, high := b.external(t, store.NewJob{Priority: 1}), b.external(t, store.NewJob{Priority: 5, UniqueKey: "u", MaxAttempts: 4, CorrelationID: "c", Meta: []byte(`{"by": "me"}`)})
	b.external(t, store.NewJob{Kind: "other"})
	later := b.external(t, store.NewJob{DueIn: time.Hour})
	require.Equal(t, "scheduled", b.state(t, later))
	require.Equal(t, "waiting", b.state(t, low))

	got := b.acquire(t, 1)
	require.Equal(t, []job.ID{high}, externalIDs(got))
	rec := got[0].Record
	require.JSONEq(t, `{"n": 1}`, string(rec.Payload))
	require.JSONEq(t, `{"by": "me"}`, string(rec.Meta))
	require.Equal(t, []any{"acme", "default", "t", int16(5), 1, 4, "u", "c", 0}, []any{rec.Tenant, rec.Queue, rec.Kind, rec.Priority, rec.Attempt, rec.MaxAttempts, rec.UniqueKey, rec.CorrelationID, rec.Losses})
	require.WithinDuration(t, time.Now().Add(time.Hour), got[0].Until, time.Minute)
	require.Equal(t, "locked", b.state(t, high))
	require.Equal(t, []job.ID{low}, externalIDs(b.acquire(t, 9)))
	require.Empty(t, b.acquire(t, 9))

	lock := lockOf(got[0])
	for _, not := range []store.ExternalLock{{Job: lock.Job, Turn: lock.Turn + 1, Worker: "w"}, {Job: lock.Job, Turn: lock.Turn, Worker: "v"}} {
		require.Empty(t, b.finish(t, store.ExternalEnd{ExternalLock: not}))
		noted, _ := b.fail(t, store.ExternalFailure{ExternalLock: not, Error: "x"})
		require.Empty(t, noted)
		for _, change := range []func(context.Context, store.DB) ([]job.ID, error){
			func(ctx context.Context, db store.DB) ([]job.ID, error) {
				return store.ExtendExternal(ctx, db, []store.ExternalLock{not}, time.Hour)
			},
			func(ctx context.Context, db store.DB) ([]job.ID, error) {
				return store.ReleaseExternal(ctx, db, []store.ExternalLock{not})
			},
		} {
			ids, err := change(t.Context(), b.db)
			require.NoError(t, err)
			require.Empty(t, ids)
		}
	}
	require.Equal(t, []job.ID{high}, b.finish(t, store.ExternalEnd{ExternalLock: lock, Output: []byte(`{"sum": 3}`)}))
	require.Empty(t, b.finish(t, store.ExternalEnd{ExternalLock: lock}), "it has ended")
	require.Equal(t, "done", b.state(t, high))
	reports, err := store.Reports(t.Context(), b.db, high)
	require.NoError(t, err)
	require.Len(t, reports, 1)
	require.JSONEq(t, `{"sum": 3}`, string(reports[0].Output))
	require.NotEqual(t, high, b.external(t, store.NewJob{UniqueKey: "u"}), "its key is free")
}

// A worker whose lock has expired has lost the job as soon as somebody else has it, and not before.
func TestExpiredLocksAreFree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.external(t, store.NewJob{})
	first := b.acquire(t, 1)[0]
	b.expire(t, id)
	require.Equal(t, "waiting", b.state(t, id))
	second := b.acquire(t, 1)[0]
	require.Equal(t, id, second.Record.ID)
	require.Equal(t, 1, second.Record.Losses)
	require.Empty(t, b.finish(t, store.ExternalEnd{ExternalLock: lockOf(first)}))
	b.expire(t, id)
	extended, err := store.ExtendExternal(t.Context(), b.db, []store.ExternalLock{lockOf(second)}, time.Hour)
	require.NoError(t, err)
	require.Equal(t, []job.ID{id}, extended)
	require.Empty(t, b.acquire(t, 1))
	b.expire(t, id)
	swept, err := store.SweepExternal(t.Context(), b.db, 10)
	require.NoError(t, err)
	require.Equal(t, 1, swept)
	require.Empty(t, b.finish(t, store.ExternalEnd{ExternalLock: lockOf(second)}), "the sweep has freed it")

	third := b.acquire(t, 1)[0]
	require.Equal(t, 2, third.Record.Losses)
	b.expire(t, id)
	require.Empty(t, b.acquire(t, 1), "it has lost enough workers")
	require.Equal(t, "dead", b.state(t, id))
	require.Empty(t, b.finish(t, store.ExternalEnd{ExternalLock: lockOf(third)}))
	_, err = store.Retry(t.Context(), b.db, id)
	require.NoError(t, err)
	require.Zero(t, b.acquire(t, 1)[0].Record.Losses)
}

func TestExternalFailures(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.external(t, store.NewJob{MaxAttempts: 2, UniqueKey: "u"})
	noted, dead := b.fail(t, store.ExternalFailure{ExternalLock: lockOf(b.acquire(t, 1)[0]), Error: "no route", Delay: time.Hour})
	require.Equal(t, []job.ID{id}, noted)
	require.Empty(t, dead)
	require.Equal(t, "retrying", b.state(t, id))
	require.Empty(t, b.acquire(t, 1))
	_, err := store.Retry(t.Context(), b.db, id)
	require.NoError(t, err)
	again := b.acquire(t, 1)[0]
	require.Equal(t, 2, again.Record.Attempt)
	noted, dead = b.fail(t, store.ExternalFailure{ExternalLock: lockOf(again), Error: "no route"})
	require.Equal(t, noted, dead)
	require.Equal(t, "dead", b.state(t, id))
	errs, err := store.Errors(t.Context(), b.db, id)
	require.NoError(t, err)
	require.Len(t, errs, 2)
	require.Equal(t, "w", errs[0].Node)
	require.NotEqual(t, id, b.external(t, store.NewJob{UniqueKey: "u"}), "its key is free")

	b = setup(t)
	id = b.external(t, store.NewJob{})
	one, none := 1, 0
	b.fail(t, store.ExternalFailure{ExternalLock: lockOf(b.acquire(t, 1)[0]), Retries: &one, Delay: time.Millisecond})
	var last store.External
	require.Eventually(t, func() bool {
		got := b.acquire(t, 1)
		if len(got) > 0 {
			last = got[0]
		}
		return len(got) > 0
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, []any{id, 2, 2}, []any{last.Record.ID, last.Record.Attempt, last.Record.MaxAttempts})
	_, dead = b.fail(t, store.ExternalFailure{ExternalLock: lockOf(last)})
	require.Equal(t, []job.ID{id}, dead)
	id = b.external(t, store.NewJob{})
	_, dead = b.fail(t, store.ExternalFailure{ExternalLock: lockOf(b.acquire(t, 1)[0]), Retries: &none})
	require.Equal(t, []job.ID{id}, dead)
	id = b.external(t, store.NewJob{})
	b.fail(t, store.ExternalFailure{ExternalLock: lockOf(b.acquire(t, 1)[0])})
	var wait time.Duration
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT due_at - clock_timestamp() FROM tenure.external_job WHERE id = $1", int64(id)).Scan(&wait))
	require.InDelta(t, job.DefaultPolicy().Delay(1), wait, float64(9*time.Second))
}

func TestBusinessErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.external(t, store.NewJob{})
	b.finish(t, store.ExternalEnd{ExternalLock: lockOf(b.acquire(t, 1)[0]), Error: "declined: no cover"})
	require.Equal(t, "business_error", b.state(t, id))
	errs, err := store.Errors(t.Context(), b.db, id)
	require.NoError(t, err)
	require.Equal(t, "declined: no cover", errs[0].Error)
	require.Equal(t, store.Counts{Finished: 1}, counts(t, b.db))
}

// No tenant takes all that is acquired, and none that rests has a job acquired.
func TestExternalJobsOfTenants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 20 {
		b.external(t, store.NewJob{Tenant: "a"})
	}
	for range 3 {
		b.external(t, store.NewJob{Tenant: "b"})
		b.external(t, store.NewJob{Tenant: "c"})
	}
	of := func(jobs []store.External) map[string]int {
		n := map[string]int{}
		for _, e := range jobs {
			n[e.Record.Tenant]++
		}
		return n
	}
	require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2}, of(b.acquire(t, 6)))
	a := "a"
	behind, looked := b.look(t, 2, func(r *store.ExternalRequest) { r.After, r.Look = &a, 1 })
	require.Equal(t, map[string]int{"b": 1}, of(behind))
	require.Equal(t, "b", looked)
	require.Equal(t, map[string]int{"c": 1}, of(b.acquire(t, 9, func(r *store.ExternalRequest) { r.Tenants = []string{"c"} })))

	require.NoError(t, store.FreezeTenant(t.Context(), b.db, "a", true))
	require.Empty(t, b.acquire(t, 9))
	require.NoError(t, store.FreezeTenant(t.Context(), b.db, "a", false))
	require.NoError(t, store.Freeze(t.Context(), b.db, true))
	require.Empty(t, b.acquire(t, 9))
	require.NoError(t, store.Freeze(t.Context(), b.db, false))
	require.NoError(t, store.LimitTenant(t.Context(), b.db, "a", 5))
	require.Len(t, b.acquire(t, 9), 3, "two are locked")
	require.Empty(t, b.acquire(t, 9))
	require.NoError(t, store.LimitTenant(t.Context(), b.db, "a", 0))
	require.Len(t, b.acquire(t, 9), 9)
}

// Whoever may only connect, such as a tenant's role, cannot stand in the gate of external workers.
func TestTheGateOfExternalWorkersIsNotTenants(t *testing.T) {
	t.Parallel()
	owner, _, _ := owned(t)
	storetest.Role(t, owner, "tenure_test_acme", "public")
	for _, sql := range []string{"SELECT tenure.open_external()", "SELECT tenure.shut_external()", "SELECT FROM tenure.external_gate FOR KEY SHARE"} {
		err := pgx.BeginFunc(t.Context(), owner, func(tx pgx.Tx) error {
			execute(t, tx, "SET LOCAL ROLE tenure_test_acme")
			_, err := tx.Exec(t.Context(), sql)
			return err
		})
		require.ErrorContains(t, err, "permission denied for table external_gate", sql)
	}
}

// A statement that freezes a tenant waits for what is just being acquired, and nothing is acquired then.
func TestFreezingWaitsForExternalWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.external(t, store.NewJob{})
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(t.Context(), "SELECT tenure.shut_external()")
	require.NoError(t, err)
	got := make(chan []store.External, 1)
	go func() {
		jobs, _, _ := store.AcquireExternal(context.Background(), b.db, anyTenants(1))
		got <- jobs
	}()
	waits := func() (some bool) {
		require.NoError(t, b.owner.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&some))
		return some
	}
	require.Eventually(t, waits, 10*time.Second, time.Millisecond)
	_, err = tx.Exec(t.Context(), "INSERT INTO tenure.tenant (tenant_id, frozen) VALUES ('acme', true)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.Empty(t, <-got)

	require.NoError(t, store.FreezeTenant(t.Context(), b.db, "acme", false))
	tx, err = b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	acquired, _, err := store.AcquireExternal(t.Context(), tx, anyTenants(1))
	require.NoError(t, err)
	require.Len(t, acquired, 1)
	frozen := make(chan error, 1)
	go func() { frozen <- store.Freeze(context.Background(), b.db, true) }()
	require.Eventually(t, waits, 10*time.Second, time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-frozen)
}

// A job for external workers is one in every state, and comes back to them.
func TestExternalJobsMove(t *testing.T) {
	t.Parallel()
	b, to := setup(t), second(t)
	ctx := t.Context()
	id := b.external(t, store.NewJob{Tenant: "acme", Priority: 5, Meta: []byte(`{}`), UniqueKey: "u", CorrelationID: "c"})
	in := func(place string) {
		t.Helper()
		at, _ := stands(t, b.db, id)
		require.Equal(t, place, at)
	}
	for _, due := range []bool{false, true} {
		if due {
			at := time.Now().Add(time.Hour)
			_, err := store.ChangeJob(ctx, b.db, id, store.Change{DueAt: &at})
			require.NoError(t, err)
			require.Equal(t, "scheduled", b.state(t, id))
		}
		require.NoError(t, store.SuspendJob(ctx, b.db, id, time.Time{}))
		in("suspended_job")
		resumed, err := store.Resume(ctx, b.db, []int64{int64(id)})
		require.NoError(t, err)
		require.Len(t, resumed, 1)
		in("external_job")
	}
	require.Empty(t, b.acquire(t, 1))
	_, err := store.Retry(ctx, b.db, id)
	require.NoError(t, err)

	none := 0
	b.fail(t, store.ExternalFailure{ExternalLock: lockOf(b.acquire(t, 1)[0]), Retries: &none})
	in("dead_letter_job")
	lanes, _, err := store.RetryDead(ctx, b.db, b.dead(t, store.DeadFilter{}, 10))
	require.NoError(t, err)
	require.Len(t, lanes, 1)
	in("external_job")

	locked := b.acquire(t, 1)[0]
	require.ErrorIs(t, store.SuspendJob(ctx, b.db, id, time.Time{}), store.ErrNotFound, "a worker has it")
	n, err := store.Suspend(ctx, b.db, []int64{int64(id)}, time.Time{})
	require.NoError(t, err)
	require.Equal(t, store.SuspendCount{Running: 1}, n)
	found, _, _, _, err := store.ReadMovable(ctx, b.db, store.PlaceExternal, store.MovableFilter{Kind: "t"}, store.BeforeAllJobs, 10)
	require.NoError(t, err)
	require.Equal(t, []int64{int64(id)}, found)

	moveTenant(t, b.db, to)
	done, err := store.FinishExternal(ctx, b.db, []store.ExternalEnd{{ExternalLock: lockOf(locked)}}, true)
	require.NoError(t, err)
	require.Empty(t, done)
	done, err = store.FinishExternal(ctx, to, []store.ExternalEnd{{ExternalLock: lockOf(locked)}}, true)
	require.NoError(t, err)
	require.Equal(t, []job.ID{id}, done, "its lock has moved with it")
}

// While a tenant is between two pools no job of its can be changed by a worker in either.
func TestExternalJobsBetweenPools(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.external(t, store.NewJob{})
	lock := lockOf(b.acquire(t, 1)[0])
	for _, state := range []string{"moved", "arriving"} {
		_, err := b.owner.Exec(t.Context(), "INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('acme', $1, 'p2') ON CONFLICT (tenant_id) DO UPDATE SET state = $1", state)
		require.NoError(t, err)
		require.Empty(t, b.finish(t, store.ExternalEnd{ExternalLock: lock}))
		noted, _ := b.fail(t, store.ExternalFailure{ExternalLock: lock})
		require.Empty(t, noted)
		standing, err := store.StandingLocks(t.Context(), b.db, []store.ExternalLock{lock, {Job: lock.Job, Turn: lock.Turn + 1, Worker: "w"}})
		require.NoError(t, err)
		require.Equal(t, []store.StandingLock{{Job: lock.Job, Between: &store.BetweenPoolsError{Job: lock.Job, Tenant: "acme", Other: "p2"}}}, standing)
	}
}

func TestCancelExternalJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	waiting, locked := b.external(t, store.NewJob{UniqueKey: "u"}), b.external(t, store.NewJob{})
	got := b.acquire(t, 2)
	i := slices.IndexFunc(got, func(e store.External) bool { return e.Record.ID == locked })
	_, err := store.ReleaseExternal(t.Context(), b.db, []store.ExternalLock{lockOf(got[1-i])})
	require.NoError(t, err)
	require.Equal(t, "waiting", b.state(t, waiting))
	for _, id := range []job.ID{waiting, locked} {
		running, err := store.Cancel(t.Context(), b.db, id, true)
		require.NoError(t, err)
		require.False(t, running)
		require.Equal(t, "cancelled", b.state(t, id))
	}
	require.Empty(t, b.finish(t, store.ExternalEnd{ExternalLock: lockOf(got[i])}))
	require.NotEqual(t, waiting, b.external(t, store.NewJob{UniqueKey: "u"}), "its key is free")
}

// What SQL does to jobs of nodes it does to these.
func TestExternalJobsBySQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sql := func(text string, args ...any) (out string) {
		t.Helper()
		require.NoError(t, b.db.QueryRow(t.Context(), text, args...).Scan(&out))
		return out
	}
	var id job.ID
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT id FROM tenure.enqueue_external('acme', 't', '{"n": 1}', delay => interval '1 hour')`).Scan(&id))
	require.Equal(t, "scheduled", sql("SELECT state FROM tenure.job_status WHERE id = $1", int64(id)))
	require.Equal(t, "true", sql("SELECT tenure.retry($1)::text", int64(id)))
	got := b.acquire(t, 1)
	require.Equal(t, []job.ID{id}, externalIDs(got))
	require.Equal(t, "locked", sql("SELECT state FROM tenure.job_status WHERE id = $1", int64(id)))
	none := 0
	b.fail(t, store.ExternalFailure{ExternalLock: lockOf(got[0]), Retries: &none})
	require.Equal(t, "true", sql("SELECT tenure.retry($1)::text", int64(id)))
	require.Equal(t, "waiting", sql("SELECT state FROM tenure.job_status WHERE id = $1", int64(id)))
	require.Equal(t, "cancelled", sql("SELECT tenure.cancel($1)", int64(id)))
	require.Equal(t, "cancelled", b.state(t, id))
	_, err := b.db.Exec(t.Context(), "SELECT tenure.enqueue_external('acme', '?')")
	require.ErrorContains(t, err, "topic: 1 to 128 letters")
}

func TestEnqueueManyExternal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		j := store.NewJob{Tenant: "acme", Queue: "q", Kind: "t", Payload: []byte("{}"), External: true}
		later, keyed := j, j
		later.DueIn, keyed.UniqueKey = time.Hour, "u"
		return store.EnqueueMany(t.Context(), tx, 1, []store.NewJob{j, later, keyed})
	}))
	require.Len(t, b.acquire(t, 9), 2)
	require.Equal(t, store.Counts{External: 3}, counts(t, b.db))
}

func TestListExternalJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	list := func(f store.ExternalFilter) (ids []job.ID, count int) {
		t.Helper()
		f.Limit, f.Count = cmp.Or(f.Limit, 10), cmp.Or(f.Count, 10)
		err := store.Inspect(t.Context(), b.db, func(db store.DB) error {
			found, n, err := store.ListExternal(t.Context(), db, f)
			for _, s := range found {
				ids = append(ids, s.Job)
			}
			count = n
			return err
		})
		require.NoError(t, err)
		return ids, count
	}
	first := b.external(t, store.NewJob{CorrelationID: "order-7"})
	second := b.external(t, store.NewJob{Kind: "other", Priority: 5})
	third := b.external(t, store.NewJob{Tenant: "globex"})
	yes, no := true, false
	locked := b.acquire(t, 1, func(r *store.ExternalRequest) { r.Tenants = []string{"acme"} })
	require.Equal(t, []job.ID{first}, externalIDs(locked))
	for name, c := range map[string]struct {
		filter store.ExternalFilter
		ids    []job.ID
	}{
		"all":        {store.ExternalFilter{}, []job.ID{first, second, third}},
		"descending": {store.ExternalFilter{Descending: true}, []job.ID{third, second, first}},
		"created":    {store.ExternalFilter{Sort: "created", Descending: true}, []job.ID{third, second, first}},
		"tenant":     {store.ExternalFilter{Sort: "tenant", Descending: true}, []job.ID{third, second, first}},
		"tenants":    {store.ExternalFilter{Tenants: []string{"globex", "x"}}, []job.ID{third}},
		"topic":      {store.ExternalFilter{Topic: "other"}, []job.ID{second}},
		"job":        {store.ExternalFilter{Job: second}, []job.ID{second}},
		"worker":     {store.ExternalFilter{Worker: "w"}, []job.ID{first}},
		"stranger":   {store.ExternalFilter{Worker: "v"}, nil},
		"locked":     {store.ExternalFilter{Locked: &yes}, []job.ID{first}},
		"unlocked":   {store.ExternalFilter{Locked: &no}, []job.ID{second, third}},
		"correlated": {store.ExternalFilter{Correlation: "order-7"}, []job.ID{first}},
		"failed":     {store.ExternalFilter{Failed: &yes}, nil},
	} {
		ids, count := list(c.filter)
		require.Equal(t, c.ids, ids, name)
		require.Equal(t, len(c.ids), count, name)
	}
	ids, count := list(store.ExternalFilter{Limit: 2, Count: 2})
	require.Equal(t, []job.ID{first, second}, ids)
	require.Equal(t, 2, count, "no more are counted")

	b.fail(t, store.ExternalFailure{ExternalLock: lockOf(locked[0]), Error: "no paper", Delay: time.Hour})
	s, err := store.FindExternal(t.Context(), b.db, first)
	require.NoError(t, err)
	require.Equal(t, []any{"", "acme", "t", 1, "order-7", "no paper"}, []any{s.Worker, s.Tenant, s.Topic, s.Attempt, s.Correlation, s.Error})
	require.True(t, s.Until.IsZero())
	require.WithinDuration(t, time.Now().Add(time.Hour), s.Due, time.Minute)
	_, err = store.FindExternal(t.Context(), b.db, first+1000)
	require.ErrorIs(t, err, store.ErrNotFound)
}
