package acquisition

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func claimOf(claim int64, id job.ID) *execution.ClaimedJob {
	return &execution.ClaimedJob{ID: claim, Record: job.Record{ID: id, Turn: int32(id) % 3}}
}

func TestInboxGathers(t *testing.T) {
	t.Parallel()
	b := newInbox()
	require.False(t, nudged(b.nudge))
	require.Equal(t, mail{}, b.take())

	a, z := laneOf("a", 0), laneOf("z", 3)
	b.addHint(Hint{Lanes: []store.Lane{a}})
	b.addHint(Hint{Lanes: []store.Lane{z, a}})
	b.noteOffer(true)
	require.True(t, nudged(b.nudge))
	require.False(t, nudged(b.nudge), "one nudge, however much has come in")
	require.Equal(t, mail{lanes: []store.Lane{a, z, a}, offered: true, idle: true}, b.take())
	require.Equal(t, mail{}, b.take(), "taken once")

	b.addHint(Hint{})
	require.Equal(t, mail{discover: true}, b.take(), "it is not known where")
	require.True(t, nudged(b.nudge), "of the hint that was taken already: one look too many does no harm")

	nudge(b.nudge)
	require.True(t, nudged(b.nudge))
	require.Equal(t, mail{}, b.take())
}

// Of a pool that is down nobody looks into the inbox for hours.
func TestInboxIsBounded(t *testing.T) {
	t.Parallel()
	b := newInbox()
	for range 2 * maxHinted {
		b.addHint(Hint{Pool: "main", Lanes: []store.Lane{{Queue: "q", Tenant: "t"}}})
	}
	m := b.take()
	require.LessOrEqual(t, len(m.lanes), maxHinted)
	require.True(t, m.discover)
}

func TestInboxEndings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		at := func(d time.Duration) time.Time { return now.Add(d) }
		for name, c := range map[string]struct {
			ending   lease.Ended
			returned bool
			due      time.Time
		}{
			"done":          {lease.Ended{Outcome: job.Outcome{State: job.Done}}, false, time.Time{}},
			"done in tx":    {lease.Ended{Outcome: job.Outcome{State: job.Done}, How: lease.RanInTx}, false, time.Time{}},
			"dead":          {lease.Ended{Outcome: job.Outcome{State: job.Dead, Err: errors.New("x")}}, false, time.Time{}},
			"cancelled":     {lease.Ended{Outcome: job.Outcome{State: job.Cancelled}}, false, time.Time{}},
			"retry":         {lease.Ended{Outcome: job.Outcome{State: job.Retrying, Delay: time.Minute}}, false, at(time.Minute)},
			"retry at once": {lease.Ended{Outcome: job.Outcome{State: job.Retrying}}, false, now},
			"snoozed":       {lease.Ended{Outcome: job.Outcome{State: job.Snoozed, Delay: time.Hour}}, false, at(time.Hour)},
			"interrupted":   {lease.Ended{Outcome: job.Outcome{State: job.Returned}}, true, time.Time{}},
			"unstarted":     {lease.Ended{How: lease.Unstarted}, true, time.Time{}},
		} {
			b := newInbox()
			c.ending.Claim = claimOf(1, 7)
			b.addEnded([]lease.Ended{c.ending})
			require.True(t, nudged(b.nudge))
			require.Equal(t, mail{ended: []schedule.Run{{ID: 7, Turn: 1}}, returned: c.returned, due: c.due}, b.take(), name)
		}
	})
}

// Of all that is due later, the first counts.
func TestInboxDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newInbox()
		for _, d := range []time.Duration{time.Hour, time.Minute, 2 * time.Hour} {
			b.addHint(Hint{DueIn: d})
		}
		require.Equal(t, mail{due: time.Now().Add(time.Minute)}, b.take())
		snoozed := func(d time.Duration) lease.Ended {
			return lease.Ended{Claim: claimOf(1, 3), Outcome: job.Outcome{State: job.Snoozed, Delay: d}}
		}
		b.addHint(Hint{DueIn: time.Minute})
		b.addEnded([]lease.Ended{snoozed(time.Hour), snoozed(time.Second)})
		require.Equal(t, time.Now().Add(time.Second), b.take().due)
	})
}

// While nobody here holds the lock, nobody reads what peers say.
func TestInboxBoundsReports(t *testing.T) {
	t.Parallel()
	b := newInbox()
	for i := range maxReports + 10 {
		b.addReport(report{from: "b-1", Capacity: Capacity{Free: i}})
	}
	got := b.take().reports
	require.Len(t, got, maxReports)
	require.Equal(t, 0, got[0].Capacity.Free)
	b.addReport(report{from: "c-1"})
	require.Len(t, b.take().reports, 1)
}

// Anyone who looks only when nudged misses nothing.
func TestInboxLosesNothing(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 500
	b := newInbox()
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				b.addEnded([]lease.Ended{{Claim: claimOf(1, job.ID(w*each+i))}})
			}
		})
	}
	seen := map[job.ID]bool{}
	deadline := time.After(patience)
	for len(seen) < writers*each {
		select {
		case <-b.nudge:
		case <-deadline:
			require.FailNow(t, "an ending was missed", "%d of %d seen", len(seen), writers*each)
		}
		for _, e := range b.take().ended {
			require.False(t, seen[e.ID], "seen twice")
			seen[e.ID] = true
		}
	}
	group.Wait()
}
