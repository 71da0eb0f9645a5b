package acquisition

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// Nobody speaks for a session but its own process: work would be given to the wrong one.
func TestPeersSpeakForThemselves(t *testing.T) {
	t.Parallel()
	ps := newPeers(store.KindsOf(nil))
	ofB, alsoOfB := uuid.New(), uuid.New()
	p, more := ps.report("b-1", Room{Session: ofB, Room: 4})
	require.True(t, more)
	other, more := ps.report("c-1", Room{Session: ofB, Room: 400})
	require.Nil(t, other)
	require.False(t, more)
	require.Equal(t, 4, p.credit)
	_, _ = ps.report("c-1", Room{Session: alsoOfB, Room: 400})
	ledger := []store.Session{{ID: ofB, Member: "b-1", State: "live"}, {ID: alsoOfB, Member: "b-1", State: "live"}, {ID: uuid.New(), Member: "d-1", State: "live"}}
	require.Equal(t, 1, ps.meet(ledger))
	ready, credit := ps.ready()
	require.Equal(t, []*peer{p}, ready)
	require.Equal(t, 4, credit)
	_, _ = ps.report("b-1", Room{Session: alsoOfB, Room: 5})
	require.Zero(t, ps.meet(ledger))
	_, credit = ps.ready()
	require.Equal(t, 9, credit, "whose it is may speak")
}
