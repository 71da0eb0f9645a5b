package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
)

// Of the jobs of an exclusive key at most one is locked, and they are locked in their order, over all topics.
func TestExternalKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.external(t, store.NewJob{ExclusiveKey: "k"})
	second := b.external(t, store.NewJob{ExclusiveKey: "k", Kind: "u"})
	third := b.external(t, store.NewJob{ExclusiveKey: "k", Priority: 5})
	plain := b.external(t, store.NewJob{})
	other := b.external(t, store.NewJob{ExclusiveKey: "k", Tenant: "other"})
	ofU := func(r *store.ExternalRequest) { r.Topic = "u" }
	require.Empty(t, b.acquire(t, 9, ofU), "the key's next job is of another topic")
	got := b.acquire(t, 9)
	require.ElementsMatch(t, []job.ID{first, plain, other}, externalIDs(got))
	held := map[job.ID]store.External{}
	for _, e := range got {
		held[e.Record.ID] = e
	}
	require.Empty(t, b.acquire(t, 9))
	require.Empty(t, b.acquire(t, 9, ofU))

	b.expire(t, first)
	require.Empty(t, b.acquire(t, 9, ofU), "its worker may still extend the lock")
	again := b.acquire(t, 9)
	require.Equal(t, []job.ID{first}, externalIDs(again))

	b.fail(t, store.ExternalFailure{ExternalLock: lockOf(again[0]), Delay: time.Hour})
	require.Empty(t, b.acquire(t, 9, ofU), "it is tried again before")
	execute(t, b.owner, "UPDATE tenure.external_job SET due_at = clock_timestamp() WHERE due_at IS NOT NULL")
	again = b.acquire(t, 9)
	require.Equal(t, []job.ID{first}, externalIDs(again))
	b.finish(t, store.ExternalEnd{ExternalLock: lockOf(again[0])})

	require.Empty(t, b.acquire(t, 9), "the second is next, whatever the priority")
	next := b.acquire(t, 9, ofU)
	require.Equal(t, []job.ID{second}, externalIDs(next))
	b.finish(t, store.ExternalEnd{ExternalLock: lockOf(next[0])})
	again = b.acquire(t, 9)
	require.Equal(t, []job.ID{third}, externalIDs(again))

	later := b.external(t, store.NewJob{ExclusiveKey: "k", DueIn: time.Minute})
	b.external(t, store.NewJob{ExclusiveKey: "k"})
	b.fail(t, store.ExternalFailure{ExternalLock: lockOf(again[0]), Delay: time.Hour})
	execute(t, b.owner, "DELETE FROM tenure.external_job WHERE id = "+third.String())
	execute(t, b.owner, "UPDATE tenure.external_job SET due_at = clock_timestamp() WHERE due_at IS NOT NULL")
	again = b.acquire(t, 9)
	require.NotContains(t, externalIDs(again), later, "its place is that of its time")
	b.finish(t, store.ExternalEnd{ExternalLock: lockOf(again[0])})
	require.Equal(t, []job.ID{later}, externalIDs(b.acquire(t, 9)))
}

// A topic whose jobs wait for one of their key that is tried again is none that nobody asks for.
func TestTopicsThatWaitForAKeyAreTaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.external(t, store.NewJob{ExclusiveKey: "k"})
	b.fail(t, store.ExternalFailure{ExternalLock: lockOf(b.acquire(t, 1)[0]), Delay: time.Hour})
	b.external(t, store.NewJob{ExclusiveKey: "k"})
	untaken := func() []store.Topic {
		topics, err := store.UntakenTopics(t.Context(), b.db)
		require.NoError(t, err)
		return topics
	}
	require.Empty(t, untaken())
	execute(t, b.owner, `UPDATE tenure.external_job SET meta = '{"tenure:skip_retrying": true}' WHERE id = `+first.String())
	require.Len(t, untaken(), 1, "the other may pass it")
	execute(t, b.owner, "UPDATE tenure.external_job SET meta = NULL")
	require.Empty(t, untaken())
	execute(t, b.owner, "DELETE FROM tenure.external_job WHERE id = "+first.String())
	require.Len(t, untaken(), 1)
}

// While a job waits to be tried again that others may pass, the next one of its key is locked, and it is next after that.
func TestExternalKeysThatArePassed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.external(t, store.NewJob{ExclusiveKey: "k", Meta: []byte(`{"tenure:skip_retrying": true}`)})
	second := b.external(t, store.NewJob{ExclusiveKey: "k"})
	third := b.external(t, store.NewJob{ExclusiveKey: "k"})
	got := b.acquire(t, 9)
	require.Equal(t, []job.ID{first}, externalIDs(got))
	b.fail(t, store.ExternalFailure{ExternalLock: lockOf(got[0]), Delay: time.Hour})
	got = b.acquire(t, 9)
	require.Equal(t, []job.ID{second}, externalIDs(got))
	execute(t, b.owner, "UPDATE tenure.external_job SET due_at = clock_timestamp(), position = nextval('tenure.job_position') WHERE due_at IS NOT NULL") // as if it had been put aside
	require.Empty(t, b.acquire(t, 9))
	b.finish(t, store.ExternalEnd{ExternalLock: lockOf(got[0])})
	got = b.acquire(t, 9)
	require.Equal(t, []job.ID{first}, externalIDs(got), "it stands before all others of its key")
	b.finish(t, store.ExternalEnd{ExternalLock: lockOf(got[0])})
	require.Equal(t, []job.ID{third}, externalIDs(b.acquire(t, 9)))
}

// A job that is committed late comes before one that somebody is locking: the ledger refuses a second lock, and the caller
// gets other jobs.
func TestExternalKeysOfLateCommits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	late, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	first := store.NewJob{Tenant: "acme", Queue: "q", Kind: "t", Payload: []byte("{}"), ExclusiveKey: "k", External: true}
	_, _, err = store.Enqueue(t.Context(), late.QueryRow, 1, &first)
	require.NoError(t, err)
	second := b.external(t, store.NewJob{ExclusiveKey: "k"})
	locking, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	got, _, err := store.AcquireExternal(t.Context(), locking, anyTenants(9))
	require.NoError(t, err)
	require.Equal(t, []job.ID{second}, externalIDs(got))
	require.NoError(t, late.Commit(t.Context()))
	plain := b.external(t, store.NewJob{})

	var seen []store.External
	var wg sync.WaitGroup
	wg.Go(func() { seen, _, err = store.AcquireExternal(context.WithoutCancel(t.Context()), b.db, anyTenants(9)) })
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, b.owner.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n))
		return n > 0
	}, time.Minute, 5*time.Millisecond, "it waits for who locks the second one")
	require.NoError(t, locking.Commit(t.Context()))
	wg.Wait()
	require.NoError(t, err)
	require.Equal(t, []job.ID{plain}, externalIDs(seen))
}

// A long line behind one key holds up no other job of its tenant, and is passed over.
func TestExternalKeysWithALongLine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db = tuned(t, b)
	jobs := make([]store.NewJob, 3000)
	for i := range jobs {
		jobs[i] = store.NewJob{Tenant: "acme", Queue: "q", Kind: "t", Payload: []byte("{}"), ExclusiveKey: "k", External: true}
	}
	require.NoError(t, pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return store.EnqueueMany(t.Context(), tx, 1, jobs) }))
	plain := b.external(t, store.NewJob{})
	require.Equal(t, []job.ID{jobs[0].ID, plain}, externalIDs(b.acquire(t, 100)))
	require.Empty(t, b.acquire(t, 100))
}

// By SQL such jobs have the keys and tags that others may have.
func TestExternalOptionsBySQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	enqueue := func(options string) (id job.ID, duplicate bool) {
		t.Helper()
		require.NoError(t, b.db.QueryRow(t.Context(), fmt.Sprintf("SELECT id, duplicate FROM tenure.enqueue_external('acme', 't', %s)", options)).Scan(&id, &duplicate))
		return id, duplicate
	}
	keyed, _ := enqueue("exclusive_key => 'k', tags => '{a,b}'")
	behind, _ := enqueue("exclusive_key => 'k'")
	w, _, err := store.ReadWait(t.Context(), b.db, store.Status{ID: behind}, nil)
	require.NoError(t, err)
	require.Equal(t, keyed, w.Rival)
	require.Equal(t, "waiting", w.RivalState)
	got := b.acquire(t, 9)
	require.Equal(t, []job.ID{keyed}, externalIDs(got))
	w, _, err = store.ReadWait(t.Context(), b.db, store.Status{ID: behind}, nil)
	require.NoError(t, err)
	require.Equal(t, "locked", w.RivalState)
	var tags int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure.job_tag WHERE job_id = $1", int64(keyed)).Scan(&tags))
	require.Equal(t, 2, tags)

	once, duplicate := enqueue("unique_key => 'u', unique_for => '1 day'")
	require.False(t, duplicate)
	b.finish(t, store.ExternalEnd{ExternalLock: lockOf(got[0])})
	got = b.acquire(t, 9)
	require.Equal(t, []job.ID{behind, once}, externalIDs(got))
	b.finish(t, store.ExternalEnd{ExternalLock: lockOf(got[0])}, store.ExternalEnd{ExternalLock: lockOf(got[1])})
	same, duplicate := enqueue("unique_key => 'u', unique_for => '1 day'")
	require.True(t, duplicate)
	require.Equal(t, once, same)
}

// A tenant whose jobs all wait for others of their keys is not chosen, so that it takes no turn from those who have one to give.
func TestTenantsThatWaitForKeysAreNotChosen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db = tuned(t, b)
	var tenants []string
	const n = 50
	for i := range n {
		tenants = append(tenants, fmt.Sprintf("t%03d", i))
		b.external(t, store.NewJob{Tenant: tenants[i], ExclusiveKey: "k"})
	}
	require.Len(t, b.acquire(t, n), n)
	for _, tenant := range tenants {
		b.external(t, store.NewJob{Tenant: tenant, ExclusiveKey: "k"})
	}
	free := b.external(t, store.NewJob{Tenant: "t025"})
	r := anyTenants(1)
	r.Tenants = tenants
	jobs, _, err := store.AcquireExternal(t.Context(), b.db, r)
	require.NoError(t, err)
	require.Equal(t, []job.ID{free}, externalIDs(jobs))
}

// A damaged job is put off also if it stands behind more jobs that may not be locked than are asked for.
func TestDamagedBehindJobsThatArePassed(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]store.NewJob{"of a key": {ExclusiveKey: "k"}, "of a frozen queue": {Queue: "cold"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.external(t, store.NewJob{ExclusiveKey: "k"})
			require.Len(t, b.acquire(t, 1), 1)
			for range 5 {
				b.external(t, before)
			}
			bad, good := b.external(t, store.NewJob{}), b.external(t, store.NewJob{})
			storetest.Damage(t, b.owner, "external_job", bad)
			execute(t, b.owner, "INSERT INTO tenure.frozen (scope, name) VALUES ('queue', 'cold')")
			jobs, _, err := store.AcquireExternal(context.WithoutCancel(t.Context()), b.db, anyTenants(1))
			require.Equal(t, []job.ID{good}, externalIDs(jobs), "%v", err)
		})
	}
}

// Where there are keys, too, a row that somebody else is taking is left to them, and the next one is taken.
func TestAcquireBesideKeysWaitsForNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.external(t, store.NewJob{ExclusiveKey: "k"})
	second, third := b.external(t, store.NewJob{}), b.external(t, store.NewJob{ExclusiveKey: "other"})
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	first, _, err := store.AcquireExternal(t.Context(), tx, anyTenants(1))
	require.NoError(t, err)
	require.Len(t, first, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	rest, _, err := store.AcquireExternal(ctx, b.db, anyTenants(9))
	require.NoError(t, err)
	require.Equal(t, []job.ID{second, third}, externalIDs(rest))
}
