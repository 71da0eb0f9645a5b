package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
)

func TestLookAtShared(t *testing.T) {
	t.Parallel()
	owner, _ := storetest.Pools(t)
	var has bool
	require.NoError(t, owner.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'citext')").Scan(&has))
	if !has {
		t.Skip("this server comes without the extension citext")
	}
	execute(t, owner, "REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE EXTENSION citext SCHEMA public; CREATE EXTENSION pg_stat_statements SCHEMA public; CREATE SCHEMA common; GRANT CREATE ON SCHEMA common TO PUBLIC")
	s, err := store.LookAtShared(t.Context(), owner, []string{"common", "gone"})
	require.NoError(t, err)
	require.Equal(t, store.Shared{Missing: []string{"gone"}, Open: []string{"common"}, Unreached: []string{"citext in public"}}, s)
	s, err = store.LookAtShared(t.Context(), owner, []string{"public"})
	require.NoError(t, err)
	require.Equal(t, store.Shared{Missing: []string{}, Open: []string{}, Unreached: []string{}}, s)
}
