package proposal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/membership"
)

// A lock is not let go of for a node that says that it does not reach the database, as
// it would have to be taken back.
func TestElectedReachesTheDatabase(t *testing.T) {
	t.Parallel()
	c := membership.Single(membership.Self{Node: "a", Role: membership.RoleNode})
	require.NoError(t, c.Start(t.Context()))
	defer func() { require.NoError(t, c.Stop(t.Context())) }()
	c.SetPools([]string{"p"})
	e := Elector{c}
	require.Equal(t, c.Self().Name, e.Elected("p"))
	e.SetReaches("p", false)
	require.Empty(t, e.Elected("p"))
	rank, eligible := e.Rank("p")
	require.True(t, eligible, "somebody must try")
	require.Zero(t, rank)
	e.SetReaches("p", true)
	require.Equal(t, c.Self().Name, e.Elected("p"))
}
