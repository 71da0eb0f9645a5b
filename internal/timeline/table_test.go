package timeline

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

// talking are tables by the names of their members, which talk to one another. Anyone who is
// silent never answers a question.
type talking struct {
	t      *testing.T
	tables map[string]*Table // written before they run
	silent sync.Map          // members
	asked  atomic.Int32      // questions
	run    context.Context
	end    context.CancelFunc
}

// talk has new tables talk; it is to be called in a synctest bubble.
func talk(t *testing.T, members ...string) *talking {
	all := &talking{t: t, tables: map[string]*Table{}}
	all.run, all.end = context.WithCancel(t.Context())
	for _, m := range members {
		r := New(zap.NewNop())
		r.Connect(line{all, m})
		all.tables[m] = r
	}
	for _, r := range all.tables {
		go r.Run(all.run)
	}
	return all
}

// line is one member's.
type line struct {
	*talking
	from string
}

func (l line) Tell(part []byte) {
	for name, r := range l.tables {
		if name != l.from {
			require.NoError(l.t, r.Hear(l.from, part))
		}
	}
}

func (l line) Ask(question func(member string) []byte) {
	for name, r := range l.tables {
		if name == l.from {
			continue
		}
		l.asked.Add(1)
		if _, silent := l.silent.Load(name); silent {
			continue
		}
		answer, err := r.Answer(question(name))
		require.NoError(l.t, err)
		if answer != nil {
			require.NoError(l.t, l.tables[l.from].Vouch(name, answer))
		}
	}
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
}

func TestTimelinesSpread(t *testing.T) {
	t.Parallel()
	l := ClusterOf("7000000000000000000", "main")
	require.NotEqual(t, l, ClusterOf("7000000000000000000", "copy"))
	require.NotEqual(t, l, ClusterOf("7000000000000000001", "main"))
	synctest.Test(t, func(t *testing.T) {
		all := talk(t, "old", "next", "third")
		defer synctest.Wait()
		defer all.end()
		old, next, third := all.tables["old"], all.tables["next"], all.tables["third"]
		require.Zero(t, old.Reach(Stamp{l, 1}).Timeline)
		require.Empty(t, old.Reached(), "never replaced")
		require.Zero(t, next.Reach(Stamp{l, 1}).Timeline)
		require.Equal(t, Latest{Timeline: 1}, old.Latest(l))

		require.Equal(t, int32(1), next.Reach(Stamp{l, 2}).Timeline)
		after(time.Second)
		require.Equal(t, Latest{2, "next"}, old.Latest(l))
		require.Empty(t, old.Reached(), "what was only heard is not told as one's own")
		answer, err := old.Answer(append(make([]byte, tokenSize), appendStamp(nil, Stamp{l, 1})...))
		require.NoError(t, err)
		require.Nil(t, answer, "nor vouched for")

		require.Zero(t, third.Latest(l).Timeline, "it does not serve the pool")
		third.Enter(Stamp{l, 1}, true)
		after(time.Second)
		require.Equal(t, Latest{2, "next"}, third.Latest(l), "who comes later asks")
		require.Equal(t, int32(2), third.Reach(Stamp{l, 2}).Timeline, "the DSN leads to the new one now")
		require.Equal(t, appendStamp(nil, Stamp{l, 2}), third.Reached())
		require.Empty(t, third.inquiries)
	})
}

// One datagram, in whosever name, takes no pool away, and asking about it has an end.
func TestARumourThatNobodyConfirmsIsDismissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := talk(t, "here", "there", "client")
		defer synctest.Wait()
		defer all.end()
		l := ClusterID(1)
		here, there := all.tables["here"], all.tables["there"]
		here.Reach(Stamp{l, 1})
		there.Reach(Stamp{l, 1})
		forged := appendStamp(appendStamp(nil, Stamp{l, 2}), Stamp{l + 1, 7})
		for range 1000 {
			require.NoError(t, here.Hear("there", forged))
		}
		for range 40 {
			after(100 * time.Millisecond)
			require.Equal(t, Latest{Timeline: 1}, here.Latest(l))
		}
		require.EqualValues(t, askTries*2, all.asked.Load())
		require.Empty(t, here.inquiries)
		require.Len(t, here.known, 1, "nothing is kept of databases that are not here")
	})
}

// Anyone who makes up an answer needs what only the member was told that was asked.
func TestAVoucherIsItsSenders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New(zap.NewNop())
		l := ClusterID(1)
		r.Reach(Stamp{l, 1})
		require.NoError(t, r.Hear("there", appendStamp(nil, Stamp{l, 2})))
		r.Reach(Stamp{l, 1}) // another connection; the question stands
		answer := func(token []byte) []byte { return appendStamp(token, Stamp{l, 2}) }
		require.ErrorIs(t, r.Vouch("there", answer(make([]byte, tokenSize))), errUnasked)
		require.ErrorIs(t, r.Vouch("there", answer(r.tokens.makeFor("another"))), errUnasked)
		late := r.tokens.makeFor("there")
		time.Sleep(tokenLifetime + 1)
		require.ErrorIs(t, r.Vouch("there", answer(late)), errUnasked)
		require.Equal(t, int32(1), r.Latest(l).Timeline)
		require.NoError(t, r.Vouch("there", answer(r.tokens.makeFor("there"))))
		require.Equal(t, Latest{2, "there"}, r.Latest(l))
		require.ErrorContains(t, r.Vouch("there", make([]byte, 5)), "5 bytes hold no token")
		require.NoError(t, r.Vouch("there", appendStamp(r.tokens.makeFor("there"), Stamp{l + 1, 2})))
		require.Zero(t, r.Latest(l+1).Timeline, "nobody was asked about it")
	})
}

// What was heard holds as long as somebody vouches for it, and a little longer.
func TestARumourExpiresUnlessRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := talk(t, "old", "next")
		defer synctest.Wait()
		defer all.end()
		l := ClusterID(1)
		old, next := all.tables["old"], all.tables["next"]
		old.Reach(Stamp{l, 1})
		next.Reach(Stamp{l, 1})
		next.Reach(Stamp{l, 2})
		after(time.Second)
		for range 5 {
			require.Equal(t, Latest{2, "next"}, old.Latest(l))
			after(believedFor)
		}
		all.silent.Store("next", true)
		after(believedFor - reaffirmEvery - time.Second)
		require.Equal(t, Latest{2, "next"}, old.Latest(l), "it may only start again")
		after(reaffirmEvery + 2*time.Second)
		require.Equal(t, Latest{Timeline: 1}, old.Latest(l))
		after(reaffirmEvery)
		require.Empty(t, old.inquiries)
		require.NoError(t, old.Hear("next", appendStamp(nil, Stamp{l, 2})))
		all.silent.Delete("next")
		after(2 * time.Second)
		require.Equal(t, Latest{2, "next"}, old.Latest(l))
	})
}

// Many pools are on one server, and are told of and asked about together.
func TestTimelinesFitADatagram(t *testing.T) {
	t.Parallel()
	const pools = 1000
	r := New(zap.NewNop())
	for i := range pools {
		r.Enter(Stamp{ClusterID(i), 3}, true)
	}
	sizes := &measuring{}
	r.Connect(sizes)
	questions, _, _ := r.dueQuestions()
	r.askNodes(questions)
	for i := range pools {
		r.Reach(Stamp{ClusterID(i), 4})
	}
	for _, part := range r.takeNews() {
		r.gossip.Tell(part)
	}
	require.Len(t, *sizes, 2*((pools+maxStamps-1)/maxStamps))
	for _, size := range *sizes {
		require.LessOrEqual(t, size, 1200, "membership.MaxPayload")
	}
}

// measuring notes the sizes of what is sent.
type measuring []int

func (m *measuring) Tell(part []byte)                        { *m = append(*m, len(part)) }
func (m *measuring) Ask(question func(member string) []byte) { m.Tell(question("there")) }

func TestWildTimelines(t *testing.T) {
	t.Parallel()
	r := New(zap.NewNop())
	l := ClusterID(1)
	r.Reach(Stamp{l, 1})
	whole := appendStamp(nil, Stamp{l, 2})
	require.NoError(t, r.Hear("x", nil))
	require.ErrorContains(t, r.Hear("x", whole[1:]), "11 bytes are no multiple of 12")
	require.NoError(t, r.Hear("x", make([]byte, stampSize)), "timeline 0 says nothing")
	for _, timeline := range []int32{maxTimeline + 1, math.MaxInt32, -1} {
		wild := appendStamp(appendStamp(nil, Stamp{l, 3}), Stamp{l + 1, timeline})
		require.ErrorContains(t, r.Hear("x", wild), "no database gets to timeline")
	}
	require.Empty(t, r.inquiries, "nothing is taken from anyone who makes that up")
}

func FuzzHear(f *testing.F) {
	f.Add([]byte("twelve bytes"))
	f.Add([]byte(nil))
	f.Add(appendStamp(nil, Stamp{1, 2}))
	f.Add(appendStamp(nil, Stamp{1, maxTimeline + 1}))
	f.Add(appendStamp(make([]byte, tokenSize), Stamp{1, 2}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := New(zap.NewNop())
		r.Reach(Stamp{1, 1})
		err := r.Hear("x", b)
		require.True(t, len(b)%stampSize == 0 || err != nil)
		if err != nil {
			require.Empty(t, r.inquiries)
		}
		answer, err := r.Answer(b)
		require.True(t, err == nil || answer == nil)
		require.LessOrEqual(t, len(answer), len(b))
		require.Error(t, r.Vouch("x", b))
		require.Equal(t, map[ClusterID]record{1: {seen: 1}}, r.known)
	})
}
