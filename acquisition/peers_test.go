package acquisition

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// Nobody speaks for a session but its own process: work would be given to the wrong one.
func TestPeersSpeakForThemselves(t *testing.T) {
	t.Parallel()
	ps := newIdleTerm().peers
	ofB, alsoOfB := uuid.New(), uuid.New()
	p, more := ps.noteReport("b-1", Capacity{Session: ofB, Free: 4})
	require.True(t, more)
	other, more := ps.noteReport("c-1", Capacity{Session: ofB, Free: 400})
	require.Nil(t, other)
	require.False(t, more)
	require.Equal(t, 4, p.credit)
	_, _ = ps.noteReport("c-1", Capacity{Session: alsoOfB, Free: 400})
	ledger := []store.Session{{ID: ofB, Member: "b-1", State: "live"}, {ID: alsoOfB, Member: "b-1", State: "live"}, {ID: uuid.New(), Member: "d-1", State: "live"}}
	require.Equal(t, 1, ps.noteSessions(ledger))
	ready, credit := ps.listReady()
	require.Equal(t, []*peer{p}, ready)
	require.Equal(t, 4, credit)
	_, _ = ps.noteReport("b-1", Capacity{Session: alsoOfB, Free: 5})
	require.Zero(t, ps.noteSessions(ledger))
	_, credit = ps.listReady()
	require.Equal(t, 9, credit, "whose it is may speak")
}

// What was taken back from a peer is not on its way to it any more, and takes none of its
// room.
func TestPeersHaveTheRoomBackOfWhatTheyDidNotTake(t *testing.T) {
	t.Parallel()
	ps, f := newIdleTerm().peers, schedule.NewInFlight()
	session := uuid.New()
	p, _ := ps.noteReport("b-1", Capacity{Session: session, Free: 4})
	for id := range 3 {
		f.Assign(7, session, job.ID(id), 0)
		p.assigned++
	}
	_, _ = ps.noteReport("b-1", Capacity{Session: session, Free: 4})
	require.Equal(t, 1, p.credit, "three are coming")
	ps.noteWithdrawn(f.EndAssigned(7))
	ps.noteWithdrawn(uuid.New(), 1)
	_, _ = ps.noteReport("b-1", Capacity{Session: session, Free: 4})
	require.Equal(t, 4, p.credit)
}

// A node whose workers have room for all that there is to do asks nobody to help, however
// long that goes on.
func TestPeersAreAskedWhenWorkersAreFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps := newIdleTerm().peers
		for range 10 {
			require.False(t, ps.noteWork(true, 5))
			time.Sleep(burst)
		}
		require.False(t, ps.noteWork(true, 0), "only now")
		time.Sleep(burst / 2)
		require.False(t, ps.noteWork(true, 0), "not for long")
		time.Sleep(burst / 2)
		require.True(t, ps.noteWork(true, 0))
		require.True(t, ps.noteWork(true, 5), "there was less than needed, and there is work still")
		require.False(t, ps.noteWork(false, 5))
		require.False(t, ps.noteWork(true, 0), "as at first")
	})
}

// What a peer said a while ago it may have told another holder since: it is assigned nothing
// until it says so again.
func TestPeersAreBelievedForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ps, session := newIdleTerm().peers, uuid.New()
		tell := func() int {
			_, _ = ps.noteReport("b-1", Capacity{Session: session, Free: 4})
			_ = ps.noteSessions([]store.Session{{ID: session, Member: "b-1", State: "live"}})
			_, credit := ps.listReady()
			return credit
		}
		require.Equal(t, 4, tell())
		time.Sleep(allottedFor)
		_, credit := ps.listReady()
		require.Equal(t, 4, credit)
		time.Sleep(time.Millisecond)
		_, credit = ps.listReady()
		require.Zero(t, credit)
		require.Equal(t, 4, tell())
	})
}

// What this node had no room for is read again for peers once a second, and not with each of their
// reports: most of what is read then is in flight.
func TestReportsOfPeersHaveLittleReadAgain(t *testing.T) {
	t.Parallel()
	ps, session := newIdleTerm().peers, uuid.New()
	lane := ps.lanes.See(store.Lane{Queue: "q", Tenant: "t"})
	lane.MarkRead(9, false)
	ps.lanes.NoteMissed(lane, 4, "k", true)
	report := func(free int) {
		ps.noteReports([]report{{from: "b-1", Capacity: Capacity{Session: session, Free: free}}})
	}
	require.NoError(t, ps.tend(t.Context()))
	require.EqualValues(t, 9, lane.Cursor(), "there is nobody to run it")
	report(4)
	ps.noteSessions([]store.Session{{ID: session, Member: "b-1", State: "live"}})
	report(7)
	require.EqualValues(t, 9, lane.Cursor())
	require.NoError(t, ps.tend(t.Context()))
	require.EqualValues(t, 3, lane.Cursor())
	require.False(t, ps.lanes.HasMissed(schedule.MissedHere))
}

// A peer whose kinds have changed is assigned nothing until it is known which it has now, and a member
// that announces others than are known of it is invited anew for those that nobody had.
func TestPeersWhoseKindsChange(t *testing.T) {
	t.Parallel()
	tm := newIdleTerm()
	marks := map[string]uint32{"b-1": 1}
	tm.peers.elector.(*fakeElector).marks = marks
	ps, of := tm.peers, uuid.New()
	ledger := []store.Session{{ID: of, Member: "b-1", State: "live", Kinds: []string{"a"}}}
	_, _ = ps.noteReport("b-1", Capacity{Session: of, Free: 4, Kinds: 1})
	ps.noteSessions(ledger)
	_, credit := ps.listReady()
	require.Equal(t, 4, credit)
	_, _ = ps.noteReport("b-1", Capacity{Session: of, Free: 4, Kinds: 2})
	_, credit = ps.listReady()
	require.Zero(t, credit)
	require.True(t, ps.hasUnmet())
	ledger[0].Kinds = []string{"b"}
	ps.noteSessions(ledger)
	_, credit = ps.listReady()
	require.Equal(t, 4, credit)
	require.False(t, ps.runnable.Has("a"))
	require.True(t, ps.runnable.Has("b"))

	ps.known = map[uuid.UUID]*peer{}
	asked := ps.asked["b-1"]
	asked.at = time.Now().Add(-2 * tendEvery)
	ps.asked["b-1"] = asked
	wanted := map[string]bool{"c": true}
	marks["b-1"] = 2
	require.Empty(t, ps.chooseInvited([]string{"b-1"}, false, wanted), "it has none of those")
	marks["b-1"] = 3
	require.Equal(t, []string{"b-1"}, ps.chooseInvited([]string{"b-1"}, false, wanted))
}
