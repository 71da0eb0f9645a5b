package notify

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/membership"
)

func TestHintGathersLanesAndTheFirstTimer(t *testing.T) {
	t.Parallel()
	var h Hint
	require.True(t, h.isEmpty())
	for i, j := range []store.NewJob{{Queue: "a", Tenant: "t"}, {Queue: "a", Tenant: "t"}, {Queue: "b", Tenant: "t"}, {DueIn: time.Minute}, {DueIn: time.Second}, {DueAt: time.Unix(0, 0)}} {
		h.AddJob(&j, job.ID(i+1))
	}
	require.Len(t, h.lanes, 2)
	require.Equal(t, time.Nanosecond, h.DueIn)
	o := Hint{DueIn: time.Second}
	o.merge(h)
	require.Len(t, o.lanes, 2)
	require.Equal(t, time.Nanosecond, o.DueIn)
	require.ElementsMatch(t, []job.ID{2, 3, 6}, o.jobs(), "of each lane a job, and the first timer")
	o.AddLane(store.Lane{Queue: "c", Tenant: "t"})
	require.Empty(t, o.jobs(), "the holder is to look")
}

// listener is an acquirer that keeps what it is told.
type listener struct {
	mu    sync.Mutex
	hints []acquisition.Hint
}

func (*listener) Holds(string) bool { return true }

func (l *listener) Hint(h acquisition.Hint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hints = append(l.hints, h)
}

func (l *listener) heard() []acquisition.Hint {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.hints)
}

func waiting(pool, queue string) Hint {
	h := Hint{Pool: pool}
	h.AddLane(store.Lane{Queue: queue, Tenant: "t"})
	return h
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A burst becomes two messages per pool, and nothing is sent of nothing, or once stopped.
func TestNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got listener
		n := New(membership.Single(membership.Self{Node: "n"}), nil)
		n.SetAcquirer(&got)
		n.Notify(Hint{Pool: "p"})
		require.Empty(t, got.heard())
		for _, queue := range []string{"a", "b", "c", "b"} {
			n.Notify(waiting("p", queue))
		}
		require.Len(t, got.heard(), 1)
		n.Notify(waiting("other", "a"))
		require.Len(t, got.heard(), 2)
		pass(time.Second)
		require.Len(t, got.heard(), 3)
		require.Len(t, got.heard()[2].Lanes, 2)
		n.Notify(waiting("p", "a"))
		n.Notify(waiting("p", "a"))
		n.NotifyLater(waiting("p", "a"))
		n.Stop()
		pass(time.Second)
		require.Len(t, got.heard(), 4)
	})
}

// Of a job whose transaction somebody else commits hints are sent again and again, for a while.
func TestNotifyLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got listener
		n := New(membership.Single(membership.Self{Node: "n"}), nil)
		n.SetAcquirer(&got)
		n.NotifyLater(waiting("p", "a"))
		require.Empty(t, got.heard())
		pass(10 * time.Millisecond)
		require.Len(t, got.heard(), 1)
		n.NotifyLater(waiting("p", "b")) // the others begin from the start for both
		pass(time.Second)
		require.Len(t, got.heard(), 1+len(repeats))
		require.Len(t, got.heard()[1].Lanes, 2)
	})
}

// A process that runs no jobs, and knows nobody who does, tells the pool's database: what comes
// while that is busy is told together, and a stop waits until it is told.
func TestNotifyByTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told [][]job.ID
		n := New(membership.Single(membership.Self{Node: "n"}), func(ctx context.Context, _ string, jobs []job.ID) error {
			time.Sleep(100 * time.Millisecond)
			told = append(told, jobs)
			return ctx.Err()
		})
		for id, queue := range []string{"a", "b", "c"} {
			h := Hint{Pool: "p"}
			h.AddJob(&store.NewJob{Queue: queue, Tenant: "t"}, job.ID(id+1))
			n.Notify(h)
			pass(10 * time.Millisecond)
		}
		pass(time.Second)
		require.Len(t, told, 2)
		require.Equal(t, []job.ID{1}, told[0])
		require.ElementsMatch(t, []job.ID{2, 3}, told[1])
		n.Notify(waiting("p", "d"))
		n.Stop()
		require.Len(t, told, 3)
		require.Empty(t, told[2])
	})
}
