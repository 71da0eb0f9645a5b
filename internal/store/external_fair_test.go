package store_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// Workers that acquire without a pause, one before the other has ended, keep nobody from taking the
// lock, freezing, limiting or moving.
func TestAcquiringHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 20 {
		b.external(t, store.NewJob{})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var workers sync.WaitGroup
	defer func() {
		cancel()
		workers.Wait()
	}()
	var open atomic.Int32 // transactions that have acquired
	var overlap atomic.Bool
	leave := func() {
		for over := time.Now().Add(200 * time.Millisecond); time.Now().Before(over); time.Sleep(time.Millisecond) {
			if n := open.Load(); n > 1 && open.CompareAndSwap(n, n-1) {
				return // another one stays
			}
		}
		open.Add(-1)
	}
	for range 4 {
		workers.Go(func() {
			for ctx.Err() == nil {
				_ = pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
					if _, _, err := store.AcquireExternal(ctx, tx, anyTenants(1)); err != nil {
						return err
					}
					if open.Add(1) > 1 {
						overlap.Store(true)
					}
					leave()
					return nil
				})
			}
		})
	}
	require.Eventually(t, overlap.Load, 30*time.Second, time.Millisecond)
	act := func(what string, err error) {
		t.Helper()
		require.NoError(t, err, what)
	}
	within, stop := context.WithTimeout(ctx, 15*time.Second) // it takes one; if they could pass those who wait, some thirty
	defer stop()
	mine, _, err := store.TakeLock(within, b.db, store.Claimant{Session: b.fence.Session, Member: "a", SeenSeq: -1}, ttl)
	act("take the lock", err)
	require.True(t, mine)
	act("freeze", store.Freeze(within, b.db, true))
	act("thaw", store.Freeze(within, b.db, false))
	act("freeze a tenant", store.FreezeTenant(within, b.db, "acme", true))
	act("thaw a tenant", store.FreezeTenant(within, b.db, "acme", false))
	act("limit a tenant", store.LimitTenant(within, b.db, "acme", 100))
	_, err = (store.Move{Tenant: "acme", Mover: uuid.New()}).Begin(within, b.db, "other")
	act("begin a move", err)
}

// A tenant never has more jobs locked than it may, however many acquire beside one another.
func TestMaxRunningOfExternalJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 4 {
		b.external(t, store.NewJob{})
	}
	require.NoError(t, store.LimitTenant(t.Context(), b.db, "acme", 1))
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	first, _, err := store.AcquireExternal(t.Context(), tx, anyTenants(9))
	require.NoError(t, err)
	require.Len(t, first, 1)
	require.Empty(t, b.acquire(t, 9), "another one is just acquiring them, and is not waited for")
	require.NoError(t, tx.Commit(t.Context()))
	require.Empty(t, b.acquire(t, 9))
	require.NoError(t, store.LimitTenant(t.Context(), b.db, "acme", 2))
	require.Len(t, b.acquire(t, 9), 1)
	b.finish(t, store.ExternalEnd{ExternalLock: lockOf(first[0])})
	require.Len(t, b.acquire(t, 9), 1)

	// Who has let a lock of another topic expire may extend it, so it counts.
	b = setup(t)
	other := b.external(t, store.NewJob{Kind: "other"})
	b.external(t, store.NewJob{})
	require.NoError(t, store.LimitTenant(t.Context(), b.db, "acme", 1))
	lost := b.acquire(t, 1, func(r *store.ExternalRequest) { r.Topic = "other" })
	b.expire(t, other)
	require.Empty(t, b.acquire(t, 9))
	extended, err := store.ExtendExternal(t.Context(), b.db, []store.ExternalLock{lockOf(lost[0])}, time.Hour)
	require.NoError(t, err)
	require.Equal(t, []job.ID{other}, extended)
	require.Empty(t, b.acquire(t, 9))
	b.expire(t, other)
	_, err = store.SweepExternal(t.Context(), b.db, 10)
	require.NoError(t, err)
	require.Len(t, b.acquire(t, 9), 1)
}

// A kind's limit bounds how many jobs of it a tenant has locked, whether or not the ledger has a row of
// the tenant; what the tenant has of its own goes before what every tenant has.
func TestKindLimitsOfExternalJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	limit := func(tenant string, scope store.Scope, name string, most int) {
		require.NoError(t, store.SetLimit(t.Context(), b.db, store.Limit{LimitKey: store.LimitKey{Tenant: tenant, Scope: scope, Name: name}, Most: most}))
	}
	_, err := b.owner.Exec(t.Context(), "DELETE FROM tenure.tenant")
	require.NoError(t, err)
	for range 9 {
		b.external(t, store.NewJob{})
	}
	limit("", store.ScopeKind, "another", 1)
	limit("", store.ScopeKind, "t", 1)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	first, _, err := store.AcquireExternal(t.Context(), tx, anyTenants(9))
	require.NoError(t, err)
	require.Len(t, first, 1)
	require.Empty(t, b.acquire(t, 9), "another one is just acquiring them, and is not waited for")
	require.NoError(t, tx.Commit(t.Context()))
	require.Empty(t, b.acquire(t, 9))
	limit("acme", store.ScopeKind, "t", 3)
	require.Len(t, b.acquire(t, 9), 2)
	b.finish(t, store.ExternalEnd{ExternalLock: lockOf(first[0])})
	limit("", store.ScopeTenant, "", 2)
	require.Empty(t, b.acquire(t, 9), "two of all kinds are locked")
	limit("", store.ScopeTenant, "", 0)
	require.Len(t, b.acquire(t, 9), 1)
}

// Tenants are looked at one behind the other, whatever the plan: else those between would be passed over.
func TestTenantsAreChosenInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, tenant := range []string{"mixed", "e", "d", "c", "b", "a"} {
		b.external(t, store.NewJob{Tenant: tenant})
	}
	whateverThePlan(t, b.db, func(tx pgx.Tx, what string) {
		r := anyTenants(1)
		for _, tenant := range []string{"a", "b", "c"} {
			r.After = cmp.Or(r.After, new(string))
			got, looked, err := store.AcquireExternal(t.Context(), tx, r)
			require.NoError(t, err, what)
			require.Equal(t, []string{tenant, tenant}, []string{got[0].Record.Tenant, looked}, what)
			r.After = &looked
		}
	})
}

// Tenants that have all they may, or that rest, do not stand before others.
func TestFullTenantsHoldUpNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, tenant := range []string{"a", "b", "c", "c", "d"} {
		b.external(t, store.NewJob{Tenant: tenant})
		b.external(t, store.NewJob{Tenant: tenant})
	}
	require.NoError(t, store.LimitTenant(t.Context(), b.db, "a", 1))
	require.NoError(t, store.FreezeTenant(t.Context(), b.db, "b", true))
	begin := ""
	one := func(r *store.ExternalRequest) { r.After, r.Look = &begin, 4 }
	got := func(want, behind string) {
		t.Helper()
		jobs, looked := b.look(t, 1, one)
		require.Len(t, jobs, 1)
		require.Equal(t, []string{want, behind}, []string{jobs[0].Record.Tenant, looked})
	}
	got("a", "a")
	got("c", "c")
	begin = "c"
	got("d", "d")
	begin = "d"
	jobs, looked := b.look(t, 1, one)
	require.Empty(t, jobs)
	require.Empty(t, looked, "there is no tenant behind")
	begin = ""
	jobs, looked = b.look(t, 1, func(r *store.ExternalRequest) { r.After, r.Look = &begin, 2 })
	require.Empty(t, jobs)
	require.Equal(t, "b", looked, "there may be more behind those that were looked at")

	given := func(r *store.ExternalRequest) { r.Tenants = []string{"a", "b", "nobody", "d"} }
	require.Len(t, b.acquire(t, 1, given), 1, "of those that are given one has a job that it may")
	require.Empty(t, b.acquire(t, 1, given))
}

// A job whose time has come waits with the others: by priority, in the order of their times, and all of them can be had.
func TestDueExternalJobsWaitWithOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var due []job.ID
	for i := range 8 { // the last of them is due first
		due = append([]job.ID{b.external(t, store.NewJob{Priority: 1, DueIn: time.Hour - time.Duration(i)*time.Minute})}, due...)
	}
	later := b.external(t, store.NewJob{Kind: "other", DueIn: time.Hour})
	_, err := b.db.Exec(t.Context(), "UPDATE tenure.external_job SET due_at = due_at - interval '2 hours' WHERE due_at IS NOT NULL")
	require.NoError(t, err)
	low, high := b.external(t, store.NewJob{}), b.external(t, store.NewJob{Priority: 2})
	require.Equal(t, []job.ID{high}, externalIDs(b.acquire(t, 1)))
	require.Equal(t, due, externalIDs(b.acquire(t, 8)))
	require.Equal(t, []job.ID{low}, externalIDs(b.acquire(t, 1)))
	swept, err := store.SweepExternal(t.Context(), b.db, 10)
	require.NoError(t, err)
	require.Equal(t, 1, swept, "it is of another topic")
	require.Equal(t, "waiting", b.state(t, later))
}

// A job for later that somebody has start now has waited since then, behind those that waited before.
func TestHurriedExternalJobs(t *testing.T) {
	t.Parallel()
	for name, hurry := range map[string]func(*bundle, job.ID) error{
		"retried": func(b *bundle, id job.ID) error { _, err := store.Retry(t.Context(), b.db, id); return err },
		"retried by SQL": func(b *bundle, id job.ID) error {
			_, err := b.owner.Exec(t.Context(), "SELECT tenure.retry($1)", int64(id))
			return err
		},
		"changed": func(b *bundle, id job.ID) error {
			ago := time.Now().Add(-time.Minute)
			_, err := store.ChangeJob(t.Context(), b.db, id, store.Change{DueAt: &ago})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			hurried := b.external(t, store.NewJob{DueIn: 10 * 24 * time.Hour})
			execute(t, b.owner, "UPDATE tenure.external_job SET ready_at = ready_at - interval '9 days', created_at = created_at - interval '9 days'")
			first := b.external(t, store.NewJob{})
			require.NoError(t, hurry(b, hurried))
			load, err := store.ReadLoad(t.Context(), b.db)
			require.NoError(t, err)
			require.Less(t, load.Oldest, time.Hour)
			require.Equal(t, []job.ID{first, hurried}, externalIDs(b.acquire(t, 2)))
		})
	}
}

// Jobs that are hurried are due in the order that is asked for, and none later than it was; what somebody has locked stays.
func TestHurry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	outside := b.external(t, store.NewJob{DueIn: time.Hour})
	waits := b.external(t, store.NewJob{})
	inside, soon, locked := b.enqueue(t, store.NewJob{DueIn: time.Hour}), b.enqueue(t, store.NewJob{DueIn: time.Minute}), b.enqueue(t, store.NewJob{DueIn: time.Hour})
	tx, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM tenure.timer_job WHERE id = $1 FOR UPDATE", int64(locked))
	require.NoError(t, err)
	n, err := store.Hurry(t.Context(), b.db, []int64{int64(inside), int64(outside), int64(waits), int64(soon), int64(locked)}, 10*time.Minute, 10*time.Minute)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, store.HurryCount{Hurried: 3, Left: 1}, n)
	due := func(table string, id job.ID) (minutes float64) {
		require.NoError(t, b.owner.QueryRow(t.Context(), "SELECT extract(epoch FROM due_at - clock_timestamp()) / 60 FROM tenure."+table+" WHERE id = $1", int64(id)).Scan(&minutes))
		return minutes
	}
	for id, minutes := range map[job.ID]float64{inside: 10, soon: 1, locked: 60} {
		require.InDelta(t, minutes, due("timer_job", id), 1)
	}
	require.InDelta(t, 20, due("external_job", outside), 1)
	require.Equal(t, []job.ID{waits}, externalIDs(b.acquire(t, 9)))
}

// However large jobs are, an acquire returns no more of them than it may, but one.
func TestAcquireBoundsBytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 6 {
		text := strings.Repeat("x", 100_000) // which is stored as less than it prints as
		if i%2 == 0 {
			text = ""
			for n := 0; len(text) < 100_000; n++ {
				text += uuid.NewString()
			}
		}
		b.external(t, store.NewJob{Payload: fmt.Appendf(nil, `%q`, text)})
	}
	bytes := func(n int) func(*store.ExternalRequest) { return func(r *store.ExternalRequest) { r.Bytes = n } }
	require.Len(t, b.acquire(t, 9, bytes(250_000)), 2)
	require.Len(t, b.acquire(t, 9, bytes(1)), 1)
	require.Len(t, b.acquire(t, 9, bytes(250_000)), 2)
	require.Len(t, b.acquire(t, 9, bytes(250_000)), 1)
}

// A job whose worker has let its lock expire can be changed and suspended; the worker is lost then.
func TestChangeAJobWhoseLockHasExpired(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.external(t, store.NewJob{})
	change := func() error {
		_, err := store.ChangeJob(t.Context(), b.db, id, store.Change{Priority: new(7)})
		return err
	}
	lock := lockOf(b.acquire(t, 1)[0])
	require.ErrorIs(t, change(), store.ErrNotFound, "a worker has it")
	b.expire(t, id)
	require.NoError(t, change())
	require.NoError(t, change())
	extended, err := store.ExtendExternal(t.Context(), b.db, []store.ExternalLock{lock}, time.Hour)
	require.NoError(t, err)
	require.Empty(t, extended)
	again := b.acquire(t, 1)[0]
	require.Equal(t, []any{int16(7), 1}, []any{again.Record.Priority, again.Record.Losses})
	b.expire(t, id)
	require.NoError(t, store.SuspendJob(t.Context(), b.db, id, time.Time{}))
	_, err = store.Resume(t.Context(), b.db, []int64{int64(id)})
	require.NoError(t, err)
	require.Equal(t, 2, b.acquire(t, 1)[0].Record.Losses)
}

// What a holder has seen of a quota is heeded for a minute: the next one may be of an earlier release,
// and never see that there is room again.
func TestAQuotaIsSeenAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	require.NoError(t, store.SetQuota(ctx, b.db, "acme", 1))
	b.enqueue(t, store.NewJob{})
	enqueue := func() error {
		j := store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("1")}
		_, _, err := store.Enqueue(ctx, b.db.QueryRow, 1, &j)
		return err
	}
	var quota *store.QuotaError
	for range 2 {
		require.NoError(t, store.CheckQuotas(ctx, b.db))
		require.ErrorAs(t, enqueue(), &quota)
		_, err := b.owner.Exec(ctx, "UPDATE tenure.tenant SET over_quota_at = clock_timestamp() - interval '1 minute'")
		require.NoError(t, err)
		require.NoError(t, enqueue())
	}
}
