package routing

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// routerOf is a router that reaches nothing.
func routerOf(t *testing.T) *Router {
	t.Helper()
	r, err := New(onePool("postgres://x@127.0.0.1:1/x"), zap.NewNop())
	require.NoError(t, err)
	return r
}

func TestPromotions(t *testing.T) {
	t.Parallel()
	l := lineageOf("7000000000000000000", "main")
	require.NotEqual(t, l, lineageOf("7000000000000000000", "copy"))
	require.NotEqual(t, l, lineageOf("7000000000000000001", "main"))

	old, next, third := routerOf(t), routerOf(t), routerOf(t)
	p, _ := old.Pool("main")
	require.Zero(t, old.promotions.reach(l, 1).timeline)
	require.Empty(t, old.Promotions(), "never replaced")
	require.Zero(t, next.promotions.reach(l, 1).timeline)
	require.Equal(t, int32(1), next.promotions.reach(l, 2).timeline)
	parts := next.promotions.takeNews()
	require.Len(t, parts, 1)
	require.Empty(t, next.promotions.takeNews(), "it is told once")
	require.Equal(t, parts[0], next.Promotions())

	on1 := stamp{l, 1}
	require.NoError(t, p.current(on1, old.promotions.latest(l)))
	require.NoError(t, old.Hear("next-00000000", parts[0]))
	err := p.current(on1, old.promotions.latest(l))
	require.ErrorIs(t, err, ErrReplaced)
	require.True(t, permanent(err))
	require.ErrorContains(t, err, "timeline 1; next-00000000 has reached timeline 2")
	require.Equal(t, parts, old.promotions.takeNews(), "others may be where this node was")
	require.Empty(t, old.Promotions(), "hearsay is not kept alive")
	require.NoError(t, old.Hear("next-00000000", parts[0]))
	require.Empty(t, old.promotions.takeNews())

	require.NoError(t, third.Hear("old-00000000", parts[0]))
	require.Empty(t, third.promotions.takeNews(), "it is not there itself")
	require.ErrorIs(t, p.current(on1, third.promotions.reach(l, 1)), ErrReplaced, "a connection to the old primary after that")
	require.NoError(t, p.current(stamp{l, 2}, third.promotions.reach(l, 2)))
	require.Equal(t, parts[0], third.Promotions())
	require.NoError(t, third.Hear("x", nil))
	require.ErrorContains(t, third.Hear("x", parts[0][1:]), "11 bytes are no multiple of 12")
	require.NoError(t, third.Hear("x", make([]byte, lineageSize)), "timeline 0 says nothing")

	before := third.Promotions()
	for _, timeline := range []int32{maxTimeline + 1, math.MaxInt32, -1} {
		wild := third.promotions.append(third.promotions.append(nil, l, 3), l+1, timeline)
		require.ErrorContains(t, third.Hear("x", wild), "no database gets to timeline")
	}
	require.Equal(t, before, third.Promotions())
	require.Equal(t, int32(2), third.promotions.latest(l).timeline, "nothing is taken from whoever makes that up")
}

// Whoever names databases that do not exist takes no memory without end.
func TestPromotionsOfNobody(t *testing.T) {
	t.Parallel()
	r := routerOf(t)
	for i := range 2 * maxLineages {
		r.promotions.hear("x", lineage(i), 2)
	}
	require.Len(t, r.promotions.known, maxLineages)
	r.promotions.reach(2*maxLineages, 1)
	require.True(t, r.promotions.hear("x", 2*maxLineages, 2), "of its own databases the node goes on to hear")
}

// Many pools are on one server, and are told of together.
func TestPromotionsFitADatagram(t *testing.T) {
	t.Parallel()
	r, other := routerOf(t), routerOf(t)
	const pools = 1000
	for i := range pools {
		r.promotions.reach(lineage(i), 3)
		r.promotions.reach(lineage(i), 4)
		other.promotions.reach(lineage(i), 3)
	}
	parts := r.promotions.takeNews()
	require.Len(t, parts, (pools+maxTold-1)/maxTold)
	for _, part := range parts {
		require.LessOrEqual(t, len(part), 1200, "membership.MaxPayload")
		require.NoError(t, other.Hear("r", part))
	}
	for i := range pools {
		require.Equal(t, height{timeline: 4, seen: 3, by: "r"}, other.promotions.latest(lineage(i)))
	}
}

func FuzzHear(f *testing.F) {
	f.Add([]byte("twelve bytes"))
	f.Add([]byte(nil))
	f.Add(newPromotions().append(nil, 1, 2))
	f.Add(newPromotions().append(nil, 1, maxTimeline+1))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &Router{log: zap.NewNop(), promotions: newPromotions()}
		err := r.Hear("x", b)
		require.True(t, len(b)%lineageSize == 0 || err != nil)
		if err != nil {
			require.Empty(t, r.promotions.known)
		}
		for _, h := range r.promotions.known {
			require.Positive(t, h.timeline)
		}
	})
}

// What a pool reaches before its configuration is in force says nothing of others.
func TestPromotionsBeforeAPoolServes(t *testing.T) {
	t.Parallel()
	l := lineage(1)
	r := routerOf(t)
	p, _ := r.Pool("main")
	require.Zero(t, p.reach(stamp{l, 5}).timeline)
	require.Zero(t, r.promotions.latest(l))
	p.enter(true)
	require.Zero(t, r.promotions.latest(l), "it was not admitted")
	p.number = 1
	p.enter(true)
	require.Equal(t, height{timeline: 5, seen: 5}, r.promotions.latest(l))
	require.Len(t, r.promotions.takeNews(), 1, "others may be elsewhere")
	require.Equal(t, int32(5), p.reach(stamp{l, 6}).timeline)
	require.Equal(t, int32(6), r.promotions.latest(l).timeline)

	early := routerOf(t)
	p, _ = early.Pool("main")
	p.number = 1
	p.reach(stamp{l, 5})
	p.enter(false)
	require.Empty(t, early.promotions.takeNews(), "it will be exchanged")
	require.Equal(t, int32(5), early.promotions.latest(l).seen)
}
