package acquisition

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
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

// What was taken back from a peer is not on its way to it any more, and takes none of its
// room.
func TestPeersHaveTheRoomBackOfWhatTheyDidNotTake(t *testing.T) {
	t.Parallel()
	ps, f := newPeers(store.KindsOf(nil)), newFlight()
	session := uuid.New()
	p, _ := ps.report("b-1", Room{Session: session, Room: 4})
	for id := range 3 {
		f.lend(7, session, job.ID(id), 0)
		p.given++
	}
	_, _ = ps.report("b-1", Room{Session: session, Room: 4})
	require.Equal(t, 1, p.credit, "three are coming")
	ps.tookBack(f.lent[7])
	ps.tookBack(f.lent[8])
	_, _ = ps.report("b-1", Room{Session: session, Room: 4})
	require.Equal(t, 4, p.credit)
}

// A node whose workers have room for all that there is to do asks nobody to help, however
// long that goes on.
func TestPeersAreAskedWhenWorkersAreFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps := newPeers(store.KindsOf(nil))
		for range 10 {
			require.False(t, ps.lack(true, 5))
			time.Sleep(fullFor)
		}
		require.False(t, ps.lack(true, 0), "only now")
		time.Sleep(fullFor / 2)
		require.False(t, ps.lack(true, 0), "not for long")
		time.Sleep(fullFor / 2)
		require.True(t, ps.lack(true, 0))
		require.True(t, ps.lack(true, 5), "there was less than needed, and there is work still")
		require.False(t, ps.lack(false, 5))
		require.False(t, ps.lack(true, 0), "as at first")
	})
}
