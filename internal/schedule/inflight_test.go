package schedule

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func TestFlightOwnClaims(t *testing.T) {
	t.Parallel()
	f := NewInFlight()
	require.False(t, f.Has(1, 0))
	f.Add(1, 0)
	require.True(t, f.Has(1, 0))
	require.False(t, f.Has(1, 1), "a later turn is not claimed: the claim that lists the earlier one has lost it")
	f.Add(1, 1)
	require.False(t, f.Has(1, 0))
	f.End(1, 0)
	require.True(t, f.Has(1, 1), "an end that is heard late does not free the later turn")
	f.End(1, 1)
	require.False(t, f.Has(1, 1))
	f.End(2, 0) // never heard of
	require.Empty(t, f.own)
}

func TestFlightOlderClaims(t *testing.T) {
	t.Parallel()
	mine, other := uuid.New(), uuid.New()
	f := NewInFlight()
	f.Begin([]store.Claim{
		{ID: 3, Session: mine, Turn: 0, Jobs: []job.ID{1, 2}},
		{ID: 7, Session: other, Turn: 4, Jobs: []job.ID{5}},
	})
	require.True(t, f.Has(1, 0) && f.Has(2, 0) && f.Has(5, 4))
	require.False(t, f.Has(5, 5))
	require.True(t, f.OthersClaim(mine))

	// A claim of this term is in own; among the older ones it would never go.
	require.False(t, f.RefreshOlder([]store.Claim{
		{ID: 3, Session: mine, Turn: 0, Jobs: []job.ID{1, 2}}, {ID: 7, Session: other, Turn: 4, Jobs: []job.ID{5}},
		{ID: 8, Session: mine, Turn: 0, Jobs: []job.ID{9}},
	}), "nothing is free that was not")
	require.False(t, f.Has(9, 0))

	require.True(t, f.RefreshOlder([]store.Claim{{ID: 3, Session: mine, Turn: 0, Jobs: []job.ID{2}}}))
	require.False(t, f.Has(1, 0))
	require.True(t, f.Has(2, 0))
	require.False(t, f.OthersClaim(mine))
	require.True(t, f.RefreshOlder(nil))
	require.False(t, f.RefreshOlder(nil))
	require.Empty(t, f.older)
}

// A claim and the memory of it say the same.
func TestFlightModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := NewInFlight()
		model := map[job.ID]int32{}
		id := func(t *rapid.T) job.ID { return job.ID(rapid.IntRange(1, 5).Draw(t, "id")) }
		turn := func(t *rapid.T) int32 { return int32(rapid.IntRange(0, 3).Draw(t, "turn")) }
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				i, n := id(t), turn(t)
				f.Add(i, n)
				model[i] = n
			},
			"end": func(t *rapid.T) {
				i, n := id(t), turn(t)
				f.End(i, n)
				if at, ok := model[i]; ok && at == n {
					delete(model, i)
				}
			},
			"": func(t *rapid.T) {
				require.Equal(t, model, f.own)
				for i := job.ID(1); i <= 5; i++ {
					for n := range int32(4) {
						at, ok := model[i]
						require.Equal(t, ok && at == n, f.Has(i, n))
					}
				}
			},
		})
	})
}

// A job that was put off and is due again stands in two claims, as long as the rest of
// the earlier one runs: whichever is read last, both turns are in flight.
func TestFlightOneJobInTwoClaims(t *testing.T) {
	t.Parallel()
	earlier := store.Claim{ID: 1, Session: uuid.New(), Turn: 0, Jobs: []job.ID{1, 2}}
	later := store.Claim{ID: 2, Session: earlier.Session, Turn: 1, Jobs: []job.ID{1}}
	for _, claims := range [][]store.Claim{{earlier, later}, {later, earlier}} {
		f := NewInFlight()
		f.Begin(claims)
		require.True(t, f.Has(1, 0) && f.Has(1, 1) && f.Has(2, 0))
		require.False(t, f.RefreshOlder(claims))
		require.True(t, f.RefreshOlder([]store.Claim{later}), "job 2 may be free")
		require.True(t, f.Has(1, 1))
	}
}

func TestFlightLends(t *testing.T) {
	t.Parallel()
	f := NewInFlight()
	f.Add(1, 0)
	b, c := uuid.New(), uuid.New()
	f.Assign(7, b, 2, 0)
	f.Assign(7, b, 3, 0)
	f.Assign(8, c, 4, 5)
	require.Equal(t, 1, f.CountHere())
	require.True(t, f.Has(2, 0) && f.Has(3, 0) && f.Has(4, 5))
	require.True(t, f.OthersClaim(uuid.New()))
	require.False(t, f.EndAssignedBy(c, 7), "it was not lent to that session")
	require.True(t, f.Has(2, 0) && f.Has(3, 0), "or they would be claimed once more")
	require.True(t, f.EndAssignedBy(b, 7))
	require.True(t, f.EndAssignedBy(b, 7), "it said so twice")
	require.True(t, f.EndAssignedBy(b, 99), "of an earlier term")
	f.EndAssigned(7)
	require.False(t, f.Has(2, 0) || f.Has(3, 0))
	require.Equal(t, 1, f.CountHere())
	require.False(t, f.CompareAssigned([]store.Standing{{ID: 8}}))
	require.False(t, f.CompareAssigned(nil), "its message may be on the way")
	require.True(t, f.Has(4, 5))
	require.True(t, f.CompareAssigned(nil), "it has ended without a word")
	require.False(t, f.Has(4, 5))
	require.False(t, f.OthersClaim(uuid.New()))
}

// Jobs that were given back unstarted are free, while the rest of their claim runs on.
func TestFlightOfAClaimThatGotSmaller(t *testing.T) {
	t.Parallel()
	f := NewInFlight()
	f.Add(1, 0)
	for id := job.ID(2); id <= 4; id++ {
		f.Assign(7, uuid.New(), id, 3)
	}
	claims, jobs := f.ListAssigned()
	require.Equal(t, []int64{7}, claims)
	require.Equal(t, []int32{3}, jobs)
	require.False(t, f.CompareAssigned([]store.Standing{{ID: 7}}), "it lists as many as it did")
	require.True(t, f.CompareAssigned([]store.Standing{{ID: 7, Jobs: []job.ID{2, 4}}, {ID: 9, Jobs: []job.ID{3}}}))
	require.True(t, f.Has(2, 3) && f.Has(4, 3))
	require.False(t, f.Has(3, 3))
	_, jobs = f.ListAssigned()
	require.Equal(t, []int32{2}, jobs)
	require.Equal(t, 1, f.CountHere())
	require.True(t, f.CompareAssigned([]store.Standing{{ID: 7, Jobs: []job.ID{}}}))
	require.False(t, f.Has(2, 3) || f.Has(4, 3))
	f.EndAssigned(7)
	require.Equal(t, 1, f.CountHere())
}
