package acquisition

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/job"
)

func suspectOf(id job.ID, turn int32, removals int64) suspect {
	s := suspect{removals: removals}
	s.Record.ID, s.Record.Turn = id, turn
	return s
}

// A suspect that was in the queue and has left it may come again: its claim failed,
// or its node was lost once more.
func TestSuspectsComeAgain(t *testing.T) {
	t.Parallel()
	q := suspects{known: map[endedJob]int{}}
	q.add(suspectOf(1, 0, 10))
	q.add(suspectOf(2, 0, 10))
	require.EqualValues(t, 1, q.next().Record.ID)
	q.add(suspectOf(1, 0, 11))
	q.add(suspectOf(2, 0, 12))
	q.add(suspectOf(2, 1, 12))
	for _, want := range []suspect{suspectOf(2, 0, 12), suspectOf(1, 0, 11), suspectOf(2, 1, 12)} {
		require.Equal(t, want, q.next())
	}
	require.True(t, q.none())
}

// Suspects stand in their queue once, in the order they were first read, as they were
// last read.
func TestSuspectsModel(t *testing.T) {
	t.Parallel()
	taken := 0 // in all tries: it must not have been empty each time
	defer func() { require.NotZero(t, taken) }()
	rapid.Check(t, func(t *rapid.T) {
		q := suspects{known: map[endedJob]int{}}
		var model []suspect
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				s := suspectOf(job.ID(rapid.IntRange(1, 4).Draw(t, "id")), int32(rapid.IntRange(0, 1).Draw(t, "turn")), rapid.Int64().Draw(t, "removals"))
				q.add(s)
				for i := range model {
					if model[i].Record.ID == s.Record.ID && model[i].Record.Turn == s.Record.Turn {
						model[i] = s
						return
					}
				}
				model = append(model, s)
			},
			"next": func(t *rapid.T) {
				if q.none() {
					return
				}
				taken++
				require.Equal(t, model[0], q.next())
				model = model[1:]
			},
			"clear": func(*rapid.T) {
				q.clear()
				model = nil
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(model) == 0, q.none())
				require.Len(t, q.queue, len(model))
				require.Len(t, q.known, len(model))
			},
		})
	})
}

// Suspects are tried several at a time after their first loss, and alone after it, over
// all pools of a node.
func TestTrials(t *testing.T) {
	t.Parallel()
	var node trials
	a, b := &term{acquirer: &acquirer{trials: &node}, flight: newFlight(), tried: map[endedJob]bool{}}, &term{acquirer: &acquirer{trials: &node}, flight: newFlight(), tried: map[endedJob]bool{}}
	try := func(tm *term, id job.ID, losses int) bool {
		tm.forgetTried()
		s := suspectOf(id, 0, 0)
		s.Record.Losses = losses
		if !node.begin(s.alone()) {
			return false
		}
		tm.tried[endedJob{id, 0}] = s.alone()
		tm.flight.add(id, 0)
		return true
	}
	for id := range job.ID(atATime) {
		require.True(t, try([]*term{a, b}[id%2], id, 1))
	}
	require.False(t, try(a, 99, 1), "enough of them")
	a.flight.end(0, 0)
	require.True(t, try(a, 99, 1))
	require.False(t, try(a, 100, 2), "not beside others")
	for id := range job.ID(atATime) {
		a.flight.end(id, 0)
		b.flight.end(id, 0)
	}
	require.False(t, try(b, 100, 2))
	a.flight.end(99, 0)
	a.forgetTried()
	require.True(t, try(b, 100, 2))
	require.False(t, try(a, 101, 1), "not beside one of another pool that must be alone")
	require.False(t, try(a, 102, 2))
	b.flight.end(100, 0)
	b.forgetTried()
	require.True(t, try(a, 101, 1))
}

// When tenants are placed anew suspects are read again at once.
func TestUnplacedSuspectsAreReadAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	tm := &term{acquirer: b.acquirer(&fakeElector{}), lanes: newLanes(), suspects: suspects{known: map[endedJob]int{}}}
	l := tm.lanes.see(laneOf("acme", 0))
	l.read(100, false)
	tm.lanes.settle()
	for _, position := range []int64{70, 40} {
		s := suspectOf(job.ID(position), 0, 0)
		s.Position, s.lane = position, l
		tm.suspects.add(s)
	}
	tm.unplace()
	require.True(t, tm.suspects.none())
	require.EqualValues(t, 39, l.after)
	require.True(t, tm.lanes.hasWork())
}
