package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// What is frozen is told to the holder as a limit of none, on all tenants, and what was read before is void. Frozen
// again it stays so since when it was first, and it is thawed once.
func TestFreezeJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue(t, store.NewJob{Kind: "send", Queue: "mail"})
	before := b.page(t, 0)
	freeze := func(scope store.Scope, name string, frozen bool) {
		t.Helper()
		require.NoError(t, store.FreezeJobs(t.Context(), b.db, scope, name, frozen))
	}
	list := func() []store.Frozen {
		all, err := store.ListFrozen(t.Context(), b.db)
		require.NoError(t, err)
		return all
	}
	wait := func() *store.Frozen {
		w, ok, err := store.ReadWait(t.Context(), b.db, store.Status{ID: id}, nil)
		require.NoError(t, err)
		require.True(t, ok)
		theirs, err := store.ReadTenantWait(t.Context(), b.db, "acme")
		require.NoError(t, err)
		require.Equal(t, w.Rests, theirs.Rests)
		return w.Rests
	}
	require.Nil(t, wait())
	freeze(store.ScopeKind, "send", true)
	first := list()
	require.Equal(t, &first[0], wait())
	freeze(store.ScopeQueue, "mail", true)
	freeze(store.ScopeKind, "send", true)
	all := list()
	require.Equal(t, first[0], all[1])
	require.Equal(t, &all[0], wait())
	s, err := store.ReadLimits(t.Context(), b.db, nil)
	require.NoError(t, err)
	require.ElementsMatch(t, []store.Limit{
		{LimitKey: store.LimitKey{Scope: store.ScopeFrozenQueue, Name: "mail"}, Most: store.NoneAtAll},
		{LimitKey: store.LimitKey{Scope: store.ScopeFrozenKind, Name: "send"}, Most: store.NoneAtAll},
	}, s.Limits)
	require.Equal(t, before.Limits+3, s.Changes)
	_, err = store.InsertClaims(t.Context(), b.db, b.fence, onlyJob(before.Removals, id, b.first()))
	require.ErrorIs(t, err, store.ErrFenced)

	other := b.enqueue(t, store.NewJob{Kind: "k"})
	theirs, err := store.ReadTenantWait(t.Context(), b.db, "acme")
	require.NoError(t, err)
	require.Nil(t, theirs.Rests, "job %d may start", other)
	freeze(store.ScopeQueue, "mail", false)
	require.ErrorIs(t, store.FreezeJobs(t.Context(), b.db, store.ScopeQueue, "never", false), store.ErrNotFrozen)
	require.Equal(t, first, list())
	freeze(store.ScopeKind, "send", false)
	require.Empty(t, list())
}

// External workers acquire none of a frozen topic, nor of the frozen queues of a topic, and the others of it, although
// these come behind and there is room for few tenants.
func TestExternalWorkersHeedWhatIsFrozen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	frozen := b.external(t, store.NewJob{Tenant: "mixed", Queue: "mail"})
	var others []job.ID
	for range 4 {
		others = append(others, b.external(t, store.NewJob{Tenant: "mixed"}))
	}
	for _, tenant := range []string{"a", "b", "c", "d", "e"} {
		b.external(t, store.NewJob{Tenant: tenant, Queue: "mail", Priority: 9})
	}
	require.NoError(t, store.FreezeJobs(t.Context(), b.db, store.ScopeQueue, "mail", true))
	for _, id := range others {
		require.Equal(t, []job.ID{id}, externalIDs(b.acquire(t, 1)), "of whichever tenants there are")
	}
	require.Empty(t, b.acquire(t, 9))

	require.NoError(t, store.FreezeJobs(t.Context(), b.db, store.ScopeKind, "t", true))
	require.NoError(t, store.FreezeJobs(t.Context(), b.db, store.ScopeQueue, "mail", false))
	require.Empty(t, b.acquire(t, 9))
	w, _, err := store.ReadWait(t.Context(), b.db, store.Status{ID: frozen}, nil)
	require.NoError(t, err)
	require.Equal(t, "t", w.Rests.Name)
	require.NoError(t, store.FreezeJobs(t.Context(), b.db, store.ScopeKind, "t", false))
	require.Len(t, b.acquire(t, 9), 6)
}
