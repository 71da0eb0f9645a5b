package acquisition

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// One holder is told of all that is free, as often as it asks and whatever it makes of it.
func TestAllotOneHolderHasAll(t *testing.T) {
	t.Parallel()
	var as allotments
	now := time.Now()
	for range 100 {
		require.Equal(t, 8, as.allot("a", 8, now))
		now = now.Add(recheckEvery)
	}
	as.note("a", 5, now)
	require.Equal(t, 3, as.allot("a", 3, now))
	require.Zero(t, as.allot("a", 0, now))
}

// Holders that have much to do come to equal parts, and use all of what is free.
func TestAllotSharesAmongThoseThatUseIt(t *testing.T) {
	t.Parallel()
	var as allotments
	now, free, got := time.Now(), 60, map[string]int{}
	const rounds, pools = 400, 4
	for round := range rounds {
		for i := 0; free > 0; i++ { // each is told again when its jobs have come
			require.Less(t, i, 30, "what is free is used")
			pool := fmt.Sprint((round + i) % pools)
			n := as.allot(pool, free, now)
			free -= n
			got[pool] += n
			as.note(pool, n, now)
		}
		now = now.Add(recheckEvery)
		free = 60 // all have ended
	}
	for pool, n := range got {
		require.InDelta(t, 60*rounds/pools, n, 60*rounds/pools/10, pool)
	}
}

// A slot of which a holder makes no use is another's soon, and comes back to it once it does.
func TestAllotmentsLapse(t *testing.T) {
	t.Parallel()
	var as allotments
	now := time.Now()
	require.Equal(t, 8, as.allot("idle", 8, now))
	require.Zero(t, as.allot("busy", 8, now), "all are told")
	most := 0
	for range 40 { // ten seconds
		now = now.Add(recheckEvery)
		as.allot("idle", 8, now)
		n := as.allot("busy", 8, now)
		as.note("busy", n, now) // and they end at once
		most = max(most, n)
	}
	require.Equal(t, 8, most, "all that lapsed")
	require.LessOrEqual(t, as.allot("idle", 8, now), 1, "it is tried with one")
	for as.allot("idle", 8, now) == 0 {
		now = now.Add(recheckEvery)
		as.note("busy", as.allot("busy", 8, now), now)
	}
	as.note("idle", 1, now)
	as.note("busy", 8, now)
	require.Equal(t, 4, as.allot("idle", 8, now), "its part")
}

// A holder that is told of less than before may have assigned the rest already: that is told to
// another once it must have come.
func TestAnAllotmentShrinksLate(t *testing.T) {
	t.Parallel()
	var as allotments
	now := time.Now()
	require.Equal(t, 8, as.allot("a", 8, now))
	require.Zero(t, as.allot("b", 8, now))
	for end := now.Add(allottedFor); !now.After(end); now = now.Add(recheckEvery / 5) {
		require.LessOrEqual(t, as.allot("a", 8, now), 4, "its part")
		require.Zero(t, as.allot("b", 8, now))
	}
	now = now.Add(allottedFor / 2)
	require.Equal(t, 1, as.allot("a", 8, now), "it uses none")
	require.Equal(t, 4, as.allot("b", 8, now))
}

// Whatever holders do with what they are told, and however late their claims come: together
// they assign no more than there is room for, as long as a claim is under way for no longer than
// slots are kept.
func TestAllotmentsNeverOverfill(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type claim struct {
			pool        string
			jobs        int
			comes, ends time.Time
			came        bool
		}
		const room = 16
		var as allotments
		var claims []*claim
		now, used := time.Now(), 0
		pass := func(d time.Duration) { // each claim comes and ends when it does
			for until := now.Add(d); now.Before(until); now = now.Add(time.Millisecond) {
				claims = slices.DeleteFunc(claims, func(c *claim) bool {
					switch {
					case !c.came && !now.Before(c.comes):
						c.came = true
						used += c.jobs
						as.note(c.pool, c.jobs, now)
						require.LessOrEqual(t, used, room, "overfilled")
					case c.came && !now.Before(c.ends):
						used -= c.jobs
						return true
					}
					return false
				})
			}
		}
		pools := rapid.IntRange(1, 8).Draw(t, "pools")
		for range rapid.IntRange(1, 200).Draw(t, "reports") {
			pool := fmt.Sprint(rapid.IntRange(1, pools).Draw(t, "pool"))
			n := as.allot(pool, room-used, now)
			require.LessOrEqual(t, n, room-used)
			for _, c := range claims {
				if c.pool == pool && !c.came {
					n -= c.jobs // the holder knows what is under way
				}
			}
			if jobs := rapid.IntRange(0, max(n, 0)).Draw(t, "jobs"); jobs > 0 {
				comes := now.Add(time.Duration(rapid.Int64Range(0, int64(allottedFor)-1).Draw(t, "under way")))
				claims = append(claims, &claim{pool: pool, jobs: jobs, comes: comes, ends: comes.Add(time.Duration(rapid.IntRange(1, 2000).Draw(t, "runs")) * time.Millisecond)})
			}
			pass(time.Duration(rapid.IntRange(0, 300).Draw(t, "pause")) * time.Millisecond)
		}
	})
}
