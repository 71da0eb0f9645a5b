package recurrence

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func TestWhatBecomesOfMissedRuns(t *testing.T) {
	t.Parallel()
	hourly := parse(t, Spec{Rule: "0 * * * *"})
	at := func(hours ...int) (all []time.Time) {
		for _, h := range hours {
			all = append(all, noon.Add(time.Duration(h)*time.Hour))
		}
		return all
	}
	now := noon.Add(3*time.Hour + 30*time.Minute) // the runs of noon, one, two and three were missed
	for _, c := range []struct {
		missed Missed
		inTurn bool
		runs   []time.Time
		next   time.Time
	}{
		{Skip, false, nil, at(4)[0]},
		{Skip, true, nil, at(4)[0]},
		{One, false, at(0), at(4)[0]},
		{One, true, at(0), at(4)[0]},
		{All, false, at(0, 1, 2, 3), at(4)[0]},
		{All, true, at(0), at(1)[0]},
	} {
		runs, next, err := hourly.Due(noon, now, c.missed, c.inTurn)
		require.NoError(t, err)
		require.Equal(t, c.runs, runs, c)
		require.Equal(t, c.next, next, c)
	}
	runs, next, err := hourly.Due(noon, at(3)[0].Add(Late), Skip, false)
	require.NoError(t, err)
	require.Equal(t, at(3), runs, "it can still start in time")
	require.Equal(t, at(4)[0], next)
	runs, next, err = hourly.Due(noon, noon.AddDate(0, 0, 30), All, false)
	require.NoError(t, err)
	require.Len(t, runs, MostMissed)
	require.Equal(t, noon.AddDate(0, 0, 30).Add(time.Hour), next, "those beyond are left out")
	last := parse(t, Spec{Rule: "0 * * * *", End: noon.Add(time.Hour)})
	runs, next, err = last.Due(noon, now, All, false)
	require.NoError(t, err)
	require.Equal(t, at(0, 1), runs)
	require.Zero(t, next)
}

// Whatever the policy, nobody is behind afterwards, but for runs that wait for each other; and
// nothing is made twice, or before its time.
func TestDueGoesOn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := parse(t, Spec{Rule: rapid.SampledFrom([]string{"* * * * *", "@daily", "@every 7s", "R5/2026-12-01T12:00:00Z/PT1H"}).Draw(t, "rule"), Since: noon}).
			Delayed(time.Duration(rapid.IntRange(0, 5000).Draw(t, "delay")) * time.Millisecond)
		at, err := r.Next(noon.Add(-1))
		require.NoError(t, err)
		require.False(t, at.IsZero())
		now := at.Add(time.Duration(rapid.IntRange(0, 400_000).Draw(t, "late")) * time.Second)
		missed := rapid.SampledFrom([]Missed{Skip, One, All}).Draw(t, "missed")
		inTurn := rapid.Bool().Draw(t, "in turn")
		runs, next, err := r.Due(at, now, missed, inTurn)
		require.NoError(t, err)
		for i, run := range runs {
			require.False(t, run.Before(at) || run.After(now))
			require.True(t, i == 0 || run.After(runs[i-1]))
			require.True(t, next.IsZero() || next.After(run))
		}
		if missed != All {
			require.LessOrEqual(t, len(runs), 1)
		}
		if missed != All || !inTurn {
			require.True(t, next.IsZero() || next.After(now))
		}
	})
}
