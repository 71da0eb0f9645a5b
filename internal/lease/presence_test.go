package lease

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// A node that no pool needs has no session, and lives: the ledger tells it from one that
// has stopped.
func TestAnIdleNodeIsToldFromOneThatHasStopped(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	require.NoError(t, b.sessions.Start(t.Context()))
	row := func() store.Session {
		rows, err := store.Sessions(t.Context(), b.db)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		return rows[0]
	}
	b.session()
	require.False(t, row().Idle)
	b.sessions.tellPresence(t.Context(), true)
	require.Equal(t, "live", row().State, "it has a session, which says so")
	b.keeper.Current().want(-time.Hour)
	b.until(func() bool { return b.keeper.Current() == nil }, "nobody needs it")
	before := row()
	require.True(t, before.Idle)
	require.Equal(t, "left", before.State, "as nodes of earlier releases read it")
	require.Less(t, before.Unseen, patience)

	b.sessions.tellPresence(t.Context(), true)
	after := row()
	require.True(t, after.Idle)
	require.True(t, after.LastSeen.After(before.LastSeen))
	b.eventually(0, lockConns)

	require.NoError(t, b.stop(context.Background()))
	require.Equal(t, "left", row().State)
	require.False(t, row().Idle)
}
