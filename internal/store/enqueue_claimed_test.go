package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// claimable is a job that can be claimed as it is added.
func claimable() *store.NewJob {
	return &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte(`{"b":1,"a":[2.50]}`), Meta: []byte(`{"m":"x"}`), Priority: 3, MaxAttempts: 7, CorrelationID: "c"}
}

// A job that is claimed as it is added looks to its handler as if it had been read from a page.
func TestEnqueueClaimed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r, claim, err := store.EnqueueClaimed(t.Context(), b.db, b.fence, 0, 1, claimable())
	require.NoError(t, err)
	claims, err := store.Claims(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, []store.Claim{{ID: claim, Session: b.fence.Session, Turn: r.Turn, Jobs: []job.ID{r.ID}}}, claims)
	p := b.page(t, 0)
	require.Len(t, p.Jobs, 1)
	require.WithinDuration(t, p.Jobs[0].Record.CreatedAt, r.CreatedAt, time.Second)
	r.CreatedAt = p.Jobs[0].Record.CreatedAt
	require.Equal(t, p.Jobs[0].Record, r)

	none := claimable()
	none.Meta, none.CorrelationID, none.MaxAttempts = nil, "", 0
	r, _, err = store.EnqueueClaimed(t.Context(), b.db, b.fence, 0, 1, none)
	require.NoError(t, err)
	require.Equal(t, []any{"", "", 0}, []any{string(r.Meta), r.CorrelationID, r.MaxAttempts})
}

// The plan in tenure.first_turn() is made anew whenever the search_path has changed: the statement that
// adds and claims a job calls it under one only.
func TestEnqueueClaimedPlansNothingAnew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	_, err = tx.Exec(t.Context(), "SET LOCAL track_functions = 'pl'")
	require.NoError(t, err)
	_, claim, err := store.EnqueueClaimed(t.Context(), tx, b.fence, 0, 1, claimable())
	require.NoError(t, err)
	require.NotZero(t, claim)
	var calls int
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT calls FROM pg_stat_xact_user_functions WHERE schemaname = 'tenure' AND funcname = 'first_turn'").Scan(&calls))
	require.Equal(t, 1, calls, "by the default of the job's turn")
}

// Without the lock, and of a tenant that rests, the job is added and waits for its claim.
func TestEnqueueClaimedIsFenced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	added := int64(0)
	waits := func(f store.Fence, why string) {
		t.Helper()
		r, claim, err := store.EnqueueClaimed(t.Context(), b.db, f, 0, 1, claimable())
		require.NoError(t, err, why)
		require.NotZero(t, r.ID, why)
		require.Zero(t, claim, why)
		added++
		require.Equal(t, store.Counts{Waiting: added}, counts(t, b.db), why)
	}
	other := b.fence
	other.Epoch--
	waits(other, "another epoch")
	other = b.fence
	other.Session = openSession(t, b.db, "b")
	waits(other, "another session's lock")
	other = b.fence
	other.Incarnation++
	waits(other, "another incarnation")
	require.NoError(t, store.LimitTenant(t.Context(), b.db, "acme", 1))
	waits(b.fence, "limits were changed since they were read")
	require.NoError(t, store.LimitTenant(t.Context(), b.db, "acme", 0))
	execute(t, b.owner, "UPDATE tenure.acquire_lock SET limit_changes = 0")
	require.NoError(t, store.FreezeTenant(t.Context(), b.db, "acme", true))
	waits(b.fence, "its tenant is frozen")
	require.NoError(t, store.FreezeTenant(t.Context(), b.db, "acme", false))
	execute(t, b.owner, "UPDATE tenure.acquire_lock SET paused = true")
	waits(b.fence, "the pool is frozen")
	execute(t, b.owner, "UPDATE tenure.acquire_lock SET paused = false, expires_at = now() - interval '1 s'")
	waits(b.fence, "the lock has expired")
}

// Somebody freezes the tenant, or takes the lock, while the job is added: the snapshot shows
// none of it.
func TestEnqueueClaimedHeedsWhatComesMeanwhile(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]string{
		"freeze": "UPDATE tenure.acquire_lock SET removals = removals + 1; INSERT INTO tenure.tenant (tenant_id, frozen) VALUES ('acme', true)",
		"take":   "UPDATE tenure.acquire_lock SET epoch = epoch + 1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			tx, err := b.owner.Begin(t.Context())
			require.NoError(t, err)
			defer tx.Rollback(context.WithoutCancel(t.Context())) // after a commit it does nothing
			_, err = tx.Exec(t.Context(), "SELECT FROM tenure.acquire_lock FOR UPDATE; "+meanwhile)
			require.NoError(t, err)
			claims := make(chan int64, 1)
			go func() {
				_, claim, err := store.EnqueueClaimed(t.Context(), b.db, b.fence, 0, 1, claimable())
				if err != nil {
					claim = -1
				}
				claims <- claim
			}()
			b.waits(t)
			require.NoError(t, tx.Commit(t.Context()))
			require.Zero(t, <-claims)
			require.Equal(t, store.Counts{Waiting: 1}, counts(t, b.db))
		})
	}
}

// A refusal, and what Postgres has undone, is the caller's; of a session that was ended nobody
// knows what it has done.
func TestEnqueueClaimedSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bad := claimable()
	bad.Payload = []byte(`{"a":"\u0000"}`)
	_, _, err := store.EnqueueClaimed(t.Context(), b.db, b.fence, 0, 1, bad)
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrUnsure)
	_, _, err = store.EnqueueClaimed(t.Context(), b.db, b.fence, 0, 2, claimable())
	require.ErrorIs(t, err, store.ErrWrongPool)
	execute(t, b.owner, "INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('acme', 'moved', 'p2')")
	_, _, err = store.EnqueueClaimed(t.Context(), b.db, b.fence, 0, 1, claimable())
	var moved *tenancy.MovedError
	require.ErrorAs(t, err, &moved)
	require.Equal(t, store.Counts{}, counts(t, b.db))

	execute(t, b.owner, "DELETE FROM tenure.tenant")
	tx, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context())) // after another one it does nothing
	_, err = tx.Exec(t.Context(), "SELECT FROM tenure.acquire_lock FOR UPDATE")
	require.NoError(t, err)
	errs := make(chan error, 1)
	go func() {
		_, _, err := store.EnqueueClaimed(t.Context(), b.db, b.fence, 0, 1, claimable())
		errs <- err
	}()
	b.waits(t)
	execute(t, b.owner, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
	require.ErrorIs(t, <-errs, store.ErrUnsure)
	require.NoError(t, tx.Rollback(t.Context()))
}
