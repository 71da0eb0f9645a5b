package schedule

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/job"
)

func quarantinedOf(id job.ID, turn int32, removals int64) Quarantined {
	s := Quarantined{Removals: removals}
	s.Record.ID, s.Record.Turn = id, turn
	return s
}

// A job that was in quarantine and has left it may come again: its claim failed,
// or its node was lost once more.
func TestQuarantinedJobsComeAgain(t *testing.T) {
	t.Parallel()
	q := NewQuarantine(&QuarantineLimit{})
	q.Add(quarantinedOf(1, 0, 10))
	q.Add(quarantinedOf(2, 0, 10))
	require.EqualValues(t, 1, q.TakeFirst().Record.ID)
	q.Add(quarantinedOf(1, 0, 11))
	q.Add(quarantinedOf(2, 0, 12))
	q.Add(quarantinedOf(2, 1, 12))
	for _, want := range []Quarantined{quarantinedOf(2, 0, 12), quarantinedOf(1, 0, 11), quarantinedOf(2, 1, 12)} {
		require.Equal(t, want, q.TakeFirst())
	}
	require.True(t, q.Empty())
}

// Jobs wait in quarantine once, in the order they were first read, as they were
// last read.
func TestQuarantineModel(t *testing.T) {
	t.Parallel()
	taken := 0 // in all tries: it must not have been empty each time
	defer func() { require.NotZero(t, taken) }()
	rapid.Check(t, func(t *rapid.T) {
		q := NewQuarantine(&QuarantineLimit{})
		var model []Quarantined
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				s := quarantinedOf(job.ID(rapid.IntRange(1, 4).Draw(t, "id")), int32(rapid.IntRange(0, 1).Draw(t, "turn")), rapid.Int64().Draw(t, "removals"))
				q.Add(s)
				for i := range model {
					if model[i].Record.ID == s.Record.ID && model[i].Record.Turn == s.Record.Turn {
						model[i] = s
						return
					}
				}
				model = append(model, s)
			},
			"next": func(t *rapid.T) {
				if q.Empty() {
					return
				}
				taken++
				require.Equal(t, model[0], q.TakeFirst())
				model = model[1:]
			},
			"clear": func(*rapid.T) {
				q.Clear()
				model = nil
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(model) == 0, q.Empty())
				require.Len(t, q.queue, len(model))
				require.Len(t, q.known, len(model))
			},
		})
	})
}

// Jobs run in quarantine several at a time after their first loss, and alone after it, over
// all pools of a node.
func TestQuarantineLimit(t *testing.T) {
	t.Parallel()
	var node QuarantineLimit
	type one struct {
		*Quarantine
		*InFlight
	}
	a, b := one{NewQuarantine(&node), NewInFlight()}, one{NewQuarantine(&node), NewInFlight()}
	forget := func(p one) { p.Quarantine.EndAllBut(func(e Run) bool { return p.Has(e.ID, e.Turn) }) }
	try := func(p one, id job.ID, losses int) bool {
		forget(p)
		q := quarantinedOf(id, 0, 0)
		q.Record.Losses = losses
		if !p.Start(q) {
			return false
		}
		p.InFlight.Add(id, 0)
		return true
	}
	for id := range job.ID(maxTogether) {
		require.True(t, try([]one{a, b}[id%2], id, 1))
	}
	require.False(t, try(a, 99, 1), "enough of them")
	a.InFlight.End(0, 0)
	require.True(t, try(a, 99, 1))
	require.False(t, try(a, 100, 2), "not beside others")
	for id := range job.ID(maxTogether) {
		a.InFlight.End(id, 0)
		b.InFlight.End(id, 0)
	}
	require.False(t, try(b, 100, 2))
	a.InFlight.End(99, 0)
	forget(a)
	require.True(t, try(b, 100, 2))
	require.False(t, try(a, 101, 1), "not beside one of another pool that must be alone")
	require.False(t, try(a, 102, 2))
	b.Close()
	require.True(t, try(a, 101, 1), "a term that is over leaves the limit to others")
}
