package execution

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/job"
)

func numbered(o Owner, ids ...int) []Claim {
	out := make([]Claim, len(ids))
	for i, id := range ids {
		out[i] = Claim{Owner: o, Record: job.Record{ID: job.ID(id)}}
	}
	return out
}

func TestBacklogOwnersTakeTurns(t *testing.T) {
	t.Parallel()
	b := newBacklog(share{1000, 100}, newRoom(1000))
	x, y := newFakeOwner(), newFakeOwner()
	require.True(t, b.push(x, numbered(x, 1, 2)))
	require.True(t, b.push(x, numbered(x, 3, 4)))
	require.True(t, b.push(y, numbered(y, 11)))
	require.True(t, b.push(y, numbered(y, 12)))
	var got []int
	for range 6 {
		got = append(got, int(b.pop().Record.ID))
	}
	require.Equal(t, []int{1, 11, 2, 12, 3, 4}, got)
	require.Zero(t, b.size)
	require.Empty(t, b.queues, "owners without claims are forgotten")
}

// The model: each owner's claims in their order, and the owners in order of turn.
func TestBacklogModel(t *testing.T) {
	t.Parallel()
	popped := 0 // in all tries: there must not have been nothing each time
	defer func() { require.NotZero(t, popped) }()
	rapid.Check(t, func(t *rapid.T) {
		b := newBacklog(share{1000, 100}, newRoom(1000))
		owners := []*fakeOwner{newFakeOwner(), newFakeOwner(), newFakeOwner()}
		waiting := map[int][]int{}
		var turns []int
		next := 1
		pop := func() int {
			o := turns[0]
			id := waiting[o][0]
			waiting[o], turns = waiting[o][1:], turns[1:]
			if len(waiting[o]) > 0 {
				turns = append(turns, o)
			}
			return id
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				o := rapid.IntRange(0, len(owners)-1).Draw(t, "owner")
				var ids []int
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					ids = append(ids, next)
					next++
				}
				if len(waiting[o]) == 0 {
					turns = append(turns, o)
				}
				waiting[o] = append(waiting[o], ids...)
				require.True(t, b.push(owners[o], numbered(owners[o], ids...)))
			},
			"pop": func(t *rapid.T) {
				if len(turns) == 0 { // it would wait
					return
				}
				popped++
				require.EqualValues(t, pop(), b.pop().Record.ID)
			},
			"": func(t *rapid.T) {
				n := 0
				for _, w := range waiting {
					n += len(w)
				}
				require.Equal(t, n, b.size)
				require.Len(t, b.turns, len(turns))
				require.Len(t, b.queues, len(turns))
			},
		})
		rest := b.close()
		for _, c := range rest {
			require.EqualValues(t, pop(), c.Record.ID)
		}
		require.Empty(t, turns, "close hands out all that waited")
		require.Nil(t, b.pop())
		require.False(t, b.push(owners[0], numbered(owners[0], 1)))
		require.Empty(t, b.close())
	})
}

func TestBacklogPopWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog(share{1000, 100}, newRoom(1000))
		o := newFakeOwner()
		got := make(chan *Claim, 10)
		for range 4 {
			go func() { got <- b.pop() }()
		}
		synctest.Wait()
		require.Empty(t, got)

		b.push(o, numbered(o, 1))
		synctest.Wait()
		require.Len(t, got, 1, "one claim wakes one")
		b.push(o, numbered(o, 2, 3))
		synctest.Wait()
		require.Len(t, got, 3, "a batch wakes as many as it can serve")
		b.close()
		synctest.Wait()
		require.Len(t, got, 4)
		for range 3 {
			require.NotNil(t, <-got)
		}
		require.Nil(t, <-got, "closing ends who still waits")
	})
}
