package store_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
)

func stateOf(t *testing.T, dsn string) store.ServerState {
	s, err := store.ServerIs(t.Context(), connectTo(t, dsn))
	require.NoError(t, err)
	return s
}

// Whatever a server hides, its timeline is read if it can be, and rises with a promotion; a
// standby is the same server.
func TestServerIs(t *testing.T) {
	t.Parallel()
	s := pgtest.Server(t, devpg.Options{})
	kinds := []storetest.Server{storetest.Open, storetest.Restricted, storetest.Aurora}
	dsn := func(s *devpg.Server, kind storetest.Server) string {
		return storetest.AsRuntime(s.DSN("of-" + string(kind)))
	}
	for _, kind := range kinds {
		require.NoError(t, s.CreateDatabase(t.Context(), "of-"+string(kind)))
		t.Run(string(kind), func(t *testing.T) {
			storetest.On(t, kind)
			require.NoError(t, storetest.PrepareFor(t.Context(), t, s.DSN("of-"+string(kind)), "main", 1))
		})
	}
	before := map[storetest.Server]store.ServerState{}
	ids := map[string]bool{}
	for _, kind := range kinds {
		is := stateOf(t, dsn(s, kind))
		before[kind] = is
		require.EqualValues(t, 1, is.Timeline)
		require.Equal(t, kind == storetest.Aurora, is.Constant(), is.Refused)
		require.NoError(t, is.Usable("main"))
		ids[is.ID] = true
	}
	require.Len(t, ids, len(kinds), "one without an identifier is told by its ledger")
	require.NotContains(t, before[storetest.Open].ID, "ledger")
	require.Contains(t, before[storetest.Aurora].Refused, "not supported for Aurora")

	standby := pgtest.Standby(t, s)
	for _, kind := range kinds {
		is := stateOf(t, dsn(standby, kind))
		require.Zero(t, is.Timeline)
		require.Equal(t, before[kind].ID, is.ID)
	}
	promote := connectTo(t, standby.DSN("of-"))
	execute(t, promote, "SELECT pg_promote()")
	for _, kind := range kinds {
		is := stateOf(t, dsn(standby, kind))
		require.Equal(t, before[kind].ID, is.ID)
		require.Equal(t, map[bool]int32{true: 1, false: 2}[kind == storetest.Aurora], is.Timeline)
	}
}

// Where neither the timeline can be read nor commits are known to be kept, migrating says so,
// each time, and both ways out lead on.
func TestASilentServerIsRefused(t *testing.T) {
	t.Parallel()
	for name, mend := range map[string]string{
		"granted": "GRANT EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) TO tenure_test_owner",
		"said":    "UPDATE tenure.pool SET storage_keeps_commits = true",
	} {
		t.Run(name, func(t *testing.T) {
			dsn := pgtest.Database(t)
			owners, err := storetest.Hide(t.Context(), dsn, storetest.Silent)
			require.NoError(t, err)
			var refused *store.PoolError
			for range 2 {
				err = migrate(t.Context(), t, owners)
				require.ErrorAs(t, err, &refused)
				require.Equal(t, `its server does not let the ledger's owner "tenure_test_owner" read which timeline it is on (permission denied for function pg_walfile_name), so a primary that was replaced could not be told from its successor`, refused.What)
				require.Contains(t, refused.Fix, `GRANT EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) TO "tenure_test_owner"; or, only if`)
				require.Contains(t, refused.Fix, "UPDATE tenure.pool SET storage_keeps_commits = true")
			}
			ledger, err := store.ReadLedger(t.Context(), connectTo(t, owners))
			require.NoError(t, err)
			require.ErrorAs(t, ledger.Usable("main"), &refused, "a look at it says so, too: it is not up to date")
			execute(t, connectTo(t, dsn), mend)
			require.NoError(t, migrate(t.Context(), t, owners))
			is := stateOf(t, owners)
			require.EqualValues(t, 1, is.Timeline)
			require.Equal(t, name == "said", is.Constant())
		})
	}
}

// A database without the ledger, or with one that is closed to the user, does not say.
func TestServerIsWithoutALedger(t *testing.T) {
	t.Parallel()
	require.Zero(t, stateOf(t, pgtest.Database(t)))
	owner, runtime := storetest.Pools(t)
	execute(t, owner, "REVOKE USAGE ON SCHEMA tenure FROM PUBLIC, "+pgx.Identifier{runtime.Config().ConnConfig.User}.Sanitize())
	s, err := store.ServerIs(t.Context(), runtime)
	require.NoError(t, err)
	require.Zero(t, s)
}
