package routing

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// talking are routers by the names of their members, which talk to one another. Whoever is
// deaf to questions never answers.
type talking struct {
	t       *testing.T
	routers map[string]*Router // written before they run
	deaf    sync.Map           // members
	asked   atomic.Int32       // questions
	run     context.Context
	end     context.CancelFunc
}

// talk has new routers talk; it is to be called in a synctest bubble.
func talk(t *testing.T, members ...string) *talking {
	all := &talking{t: t, routers: map[string]*Router{}}
	all.run, all.end = context.WithCancel(t.Context())
	for _, m := range members {
		r := routerOf(t)
		r.Spread(line{all, m})
		all.routers[m] = r
	}
	for _, r := range all.routers {
		go r.spread(all.run)
	}
	return all
}

// line is one member's.
type line struct {
	*talking
	from string
}

func (l line) Tell(part []byte) {
	for name, r := range l.routers {
		if name != l.from {
			require.NoError(l.t, r.Hear(l.from, part))
		}
	}
}

func (l line) Ask(question func(member string) []byte) {
	for name, r := range l.routers {
		if name == l.from {
			continue
		}
		l.asked.Add(1)
		if _, deaf := l.deaf.Load(name); deaf {
			continue
		}
		answer, err := r.Answer(question(name))
		require.NoError(l.t, err)
		if answer != nil {
			require.NoError(l.t, l.routers[l.from].Vouch(name, answer))
		}
	}
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
}

func TestPromotions(t *testing.T) {
	t.Parallel()
	l := lineageOf("7000000000000000000", "main")
	require.NotEqual(t, l, lineageOf("7000000000000000000", "copy"))
	require.NotEqual(t, l, lineageOf("7000000000000000001", "main"))
	synctest.Test(t, func(t *testing.T) {
		all := talk(t, "old", "next", "third")
		defer synctest.Wait()
		defer all.end()
		old, next, third := all.routers["old"], all.routers["next"], all.routers["third"]
		p, _ := old.Pool("main")
		require.Zero(t, old.promotions.reach(l, 1).timeline)
		require.Empty(t, old.Promotions(), "never replaced")
		require.Zero(t, next.promotions.reach(l, 1).timeline)
		on1 := stamp{l, 1}
		require.NoError(t, p.current(on1, old.promotions.latest(l)))

		require.Equal(t, int32(1), next.promotions.reach(l, 2).timeline)
		after(time.Second)
		err := p.current(on1, old.promotions.latest(l))
		require.ErrorIs(t, err, ErrReplaced)
		require.True(t, permanent(err))
		require.ErrorContains(t, err, "timeline 1; next has reached timeline 2")
		require.Empty(t, old.Promotions(), "what was only heard is not told as one's own")
		answer, err := old.Answer(append(make([]byte, tokenSize), appendTimeline(nil, l, 1)...))
		require.NoError(t, err)
		require.Nil(t, answer, "nor vouched for")

		require.Zero(t, third.promotions.latest(l).timeline, "it does not serve the pool")
		require.Zero(t, third.promotions.reach(l, 1).timeline)
		third.promotions.doubt(l, latest{}) // as the pool enters service
		after(time.Second)
		require.ErrorIs(t, p.current(on1, third.promotions.latest(l)), ErrReplaced, "who comes later asks")
		require.NoError(t, p.current(stamp{l, 2}, third.promotions.reach(l, 2)), "the DSN leads to the new one now")
		require.Equal(t, appendTimeline(nil, l, 2), third.Promotions())
		require.Empty(t, third.promotions.doubts)
	})
}

// One datagram, in whosever name, takes no pool away, and asking about it has an end.
func TestARumourThatNobodyConfirmsIsDismissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := talk(t, "here", "there", "client")
		defer synctest.Wait()
		defer all.end()
		l := lineage(1)
		here, there := all.routers["here"], all.routers["there"]
		here.promotions.reach(l, 1)
		there.promotions.reach(l, 1)
		forged := appendTimeline(appendTimeline(nil, l, 2), l+1, 7)
		for range 1000 {
			require.NoError(t, here.Hear("there", forged))
		}
		for range 40 {
			after(100 * time.Millisecond)
			require.Equal(t, latest{timeline: 1}, here.promotions.latest(l))
		}
		require.EqualValues(t, len(askAgain)*2, all.asked.Load())
		require.Empty(t, here.promotions.doubts)
		require.Len(t, here.promotions.known, 1, "nothing is kept of databases that are not here")
	})
}

// Whoever makes up an answer needs what only the member was told that was asked.
func TestAVoucherIsItsSenders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := routerOf(t)
		l := lineage(1)
		r.promotions.reach(l, 1)
		require.NoError(t, r.Hear("there", appendTimeline(nil, l, 2)))
		r.promotions.reach(l, 1) // another connection; the question stands
		answer := func(token []byte) []byte { return appendTimeline(token, l, 2) }
		require.ErrorIs(t, r.Vouch("there", answer(make([]byte, tokenSize))), errUnasked)
		require.ErrorIs(t, r.Vouch("there", answer(r.promotions.asker.token("another"))), errUnasked)
		late := r.promotions.asker.token("there")
		time.Sleep(answerWithin + 1)
		require.ErrorIs(t, r.Vouch("there", answer(late)), errUnasked)
		require.Equal(t, int32(1), r.promotions.latest(l).timeline)
		require.NoError(t, r.Vouch("there", answer(r.promotions.asker.token("there"))))
		require.Equal(t, latest{2, "there"}, r.promotions.latest(l))
		require.ErrorContains(t, r.Vouch("there", make([]byte, 5)), "5 bytes hold no token")
		require.NoError(t, r.Vouch("there", appendTimeline(r.promotions.asker.token("there"), l+1, 2)))
		require.Zero(t, r.promotions.latest(l+1).timeline, "it was not doubtful")
	})
}

// What was heard holds as long as somebody vouches for it, and a little longer.
func TestARumourExpiresUnlessRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := talk(t, "old", "next")
		defer synctest.Wait()
		defer all.end()
		l := lineage(1)
		old, next := all.routers["old"], all.routers["next"]
		old.promotions.reach(l, 1)
		next.promotions.reach(l, 1)
		next.promotions.reach(l, 2)
		after(time.Second)
		for range 5 {
			require.Equal(t, latest{2, "next"}, old.promotions.latest(l))
			after(believedFor)
		}
		all.deaf.Store("next", true)
		after(believedFor - reaffirmEvery - time.Second)
		require.Equal(t, latest{2, "next"}, old.promotions.latest(l), "it may only start anew")
		after(reaffirmEvery + 2*time.Second)
		require.Equal(t, latest{timeline: 1}, old.promotions.latest(l))
		after(reaffirmEvery)
		require.Empty(t, old.promotions.doubts)
		require.NoError(t, old.Hear("next", appendTimeline(nil, l, 2)))
		all.deaf.Delete("next")
		after(2 * time.Second)
		require.Equal(t, latest{2, "next"}, old.promotions.latest(l))
	})
}

// Many pools are on one server, and are told of and asked about together.
func TestPromotionsFitADatagram(t *testing.T) {
	t.Parallel()
	const pools = 1000
	r := routerOf(t)
	for i := range pools {
		r.promotions.reach(lineage(i), 3)
		r.promotions.doubt(lineage(i), latest{})
	}
	sizes := &measuring{}
	r.Spread(sizes)
	questions, _, _ := r.promotions.due()
	r.ask(questions)
	for i := range pools {
		r.promotions.reach(lineage(i), 4)
	}
	for _, part := range r.promotions.takeNews() {
		r.gossip.Tell(part)
	}
	require.Len(t, *sizes, 2*((pools+maxTold-1)/maxTold))
	for _, size := range *sizes {
		require.LessOrEqual(t, size, 1200, "membership.MaxPayload")
	}
}

// measuring notes the sizes of what is sent.
type measuring []int

func (m *measuring) Tell(part []byte)                        { *m = append(*m, len(part)) }
func (m *measuring) Ask(question func(member string) []byte) { m.Tell(question("there")) }

func TestTimelines(t *testing.T) {
	t.Parallel()
	r := routerOf(t)
	l := lineage(1)
	r.promotions.reach(l, 1)
	whole := appendTimeline(nil, l, 2)
	require.NoError(t, r.Hear("x", nil))
	require.ErrorContains(t, r.Hear("x", whole[1:]), "11 bytes are no multiple of 12")
	require.NoError(t, r.Hear("x", make([]byte, lineageSize)), "timeline 0 says nothing")
	for _, timeline := range []int32{maxTimeline + 1, math.MaxInt32, -1} {
		wild := appendTimeline(appendTimeline(nil, l, 3), l+1, timeline)
		require.ErrorContains(t, r.Hear("x", wild), "no database gets to timeline")
	}
	require.Empty(t, r.promotions.doubts, "nothing is taken from whoever makes that up")
}

func FuzzHear(f *testing.F) {
	f.Add([]byte("twelve bytes"))
	f.Add([]byte(nil))
	f.Add(appendTimeline(nil, 1, 2))
	f.Add(appendTimeline(nil, 1, maxTimeline+1))
	f.Add(appendTimeline(make([]byte, tokenSize), 1, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &Router{log: zap.NewNop(), promotions: newPromotions(), metrics: newMetrics()}
		r.promotions.reach(1, 1)
		err := r.Hear("x", b)
		require.True(t, len(b)%lineageSize == 0 || err != nil)
		if err != nil {
			require.Empty(t, r.promotions.doubts)
		}
		answer, err := r.Answer(b)
		require.True(t, err == nil || answer == nil)
		require.LessOrEqual(t, len(answer), len(b))
		require.Error(t, r.Vouch("x", b))
		require.Equal(t, map[lineage]height{1: {seen: 1}}, r.promotions.known)
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
	require.Equal(t, height{seen: 5}, r.promotions.known[l])
	require.Len(t, r.promotions.takeNews(), 1, "others may be elsewhere")
	require.Contains(t, r.promotions.doubts, l, "or further")
	require.Equal(t, int32(5), p.reach(stamp{l, 6}).timeline)
	require.Equal(t, int32(6), r.promotions.latest(l).timeline)

	early := routerOf(t)
	p, _ = early.Pool("main")
	p.number = 1
	p.reach(stamp{l, 5})
	p.enter(false)
	require.Empty(t, early.promotions.takeNews(), "it will be exchanged")
	require.Equal(t, int32(5), early.promotions.latest(l).timeline)
}
