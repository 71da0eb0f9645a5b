package routing

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/timeline"
)

// otherNode is the only other one: it answers a router's questions once it knows something.
type otherNode struct {
	asker       *timeline.Table
	knows       atomic.Pointer[timeline.Table]
	told, asked atomic.Int32
}

// listenTo has another node answer r's questions.
func listenTo(r *Router) *otherNode {
	o := &otherNode{asker: r.Timelines()}
	r.Timelines().Connect(o)
	return o
}

const otherName = "other-00000000"

func (o *otherNode) Tell([]byte) { o.told.Add(1) }

func (o *otherNode) Ask(question func(member string) []byte) {
	o.asked.Add(1)
	if knows := o.knows.Load(); knows != nil {
		if answer, err := knows.Answer(question(otherName)); err == nil && answer != nil {
			_ = o.asker.Vouch(otherName, answer)
		}
	}
}

// What a pool reaches before its configuration is in force says nothing of others.
func TestTimelinesBeforeAPoolServes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		const id = timeline.ClusterID(1)
		for _, late := range []bool{true, false} {
			r, err := New(onePool("postgres://x@127.0.0.1:1/x"), zap.NewNop())
			require.NoError(t, err)
			other := listenTo(r)
			go r.Timelines().Run(ctx)
			p, _ := r.Pool("main")
			require.Zero(t, p.noteTimeline(timeline.Stamp{Cluster: id, Timeline: 5}))
			p.enterTimelines(late)
			require.Zero(t, r.timelines.Latest(id), "it is not in service")
			p.found.number = 1
			p.enterTimelines(late)
			require.Equal(t, timeline.Latest{Timeline: 5}, r.timelines.Latest(id))
			time.Sleep(time.Second) // of the bubble's clock
			synctest.Wait()
			require.Equal(t, late, other.told.Load() > 0, "others may be elsewhere, or else it will be exchanged")
			require.Equal(t, late, other.asked.Load() > 0, "or further")
			require.Equal(t, int32(5), p.noteTimeline(timeline.Stamp{Cluster: id, Timeline: 6}).Timeline)
			require.Equal(t, int32(6), r.timelines.Latest(id).Timeline)
		}
	})
}

// A connection to a primary that was replaced is refused, in words that say by what.
func TestCheckLatest(t *testing.T) {
	t.Parallel()
	p := &Pool{Name: "main"}
	require.NoError(t, p.checkLatest(timeline.Stamp{Timeline: 1}, timeline.Latest{Timeline: 1}))
	require.NoError(t, p.checkLatest(timeline.Stamp{Timeline: 2}, timeline.Latest{Timeline: 1}))
	err := p.checkLatest(timeline.Stamp{Timeline: 1}, timeline.Latest{Timeline: 2, By: "next"})
	require.ErrorIs(t, err, ErrReplaced)
	require.True(t, isPermanent(err))
	require.ErrorContains(t, err, "timeline 1; next has reached timeline 2")
}
