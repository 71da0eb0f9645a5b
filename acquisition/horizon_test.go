package acquisition

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/store"
)

// pgModel is what matters of Postgres for cursors: transactions that draw positions,
// get an id, and commit or roll back, each at a time of its own.
type pgModel struct {
	last    int64 // position given out
	nextXID int64
	open    []*txModel
	visible map[int64]bool // positions of committed rows
}

type txModel struct {
	xid  int64 // 0: none yet
	rows []int64
}

func newPGModel() *pgModel {
	return &pgModel{nextXID: 1, visible: map[int64]bool{}}
}

func (m *pgModel) draw(tx *txModel) {
	m.last++
	tx.rows = append(tx.rows, m.last)
}

func (m *pgModel) assign(tx *txModel) {
	if tx.xid == 0 {
		tx.xid = m.nextXID
		m.nextXID++
	}
}

func (m *pgModel) end(i int, commit bool) {
	tx := m.open[i]
	m.assign(tx)
	m.open = append(m.open[:i:i], m.open[i+1:]...)
	if commit {
		for _, r := range tx.rows {
			m.visible[r] = true
		}
	}
}

func (m *pgModel) state() store.PageState {
	xmin := m.nextXID
	for _, tx := range m.open {
		if tx.xid != 0 {
			xmin = min(xmin, tx.xid)
		}
	}
	return store.PageState{Position: m.last, XMin: xmin, XMax: m.nextXID}
}

// reader is a lane's cursor, moved as a term moves it.
type reader struct {
	after int64
	seen  map[int64]bool
}

// read reads up to n rows on, in order.
func (r *reader) read(m *pgModel, n int) {
	for pos := r.after + 1; pos <= m.last && n > 0; pos++ {
		if m.visible[pos] {
			r.seen[pos] = true
			r.after = pos
			n--
		}
	}
}

func (r *reader) rewind(to int64) { r.after = min(r.after, to) }

// rule says where cursors are rewound to.
type rule interface {
	observe(s store.PageState) (rewindTo int64)
}

// skips plays a history whose turns draw decides and returns how many committed rows
// no cursor came by in the end, without a sweep.
func skips(steps int, draw func(n int) int, rule rule) (missed int) {
	m := newPGModel()
	r := &reader{seen: map[int64]bool{}}
	var sampled int64 // the last position at the last rewind
	rewind := func() {
		for _, tx := range m.open { // an INSERT gets its id a moment after its position: by the next look
			if len(tx.rows) > 0 && tx.rows[0] <= sampled {
				m.assign(tx)
			}
		}
		s := m.state()
		sampled = s.Position
		r.rewind(rule.observe(s))
	}
	for range steps {
		switch draw(8) {
		case 0:
			m.open = append(m.open, &txModel{})
		case 1, 2:
			if n := len(m.open); n > 0 {
				m.draw(m.open[draw(n)])
			}
		case 3:
			if n := len(m.open); n > 0 {
				m.assign(m.open[draw(n)])
			}
		case 4:
			if n := len(m.open); n > 0 {
				m.end(draw(n), draw(5) > 0)
			}
		case 5: // a short one
			tx := &txModel{}
			m.open = append(m.open, tx)
			m.draw(tx)
			m.end(len(m.open)-1, true)
		case 6:
			r.read(m, 1+draw(20))
		case 7:
			rewind()
		}
	}
	for len(m.open) > 0 {
		m.end(len(m.open)-1, true)
	}
	for range 5 {
		rewind()
		r.read(m, len(m.visible))
	}
	for pos := range m.visible {
		if !r.seen[pos] {
			missed++
		}
	}
	return missed
}

func TestHorizonSkipsNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "draw") }
		require.Zero(t, skips(rapid.IntRange(1, 150).Draw(t, "steps"), draw, newHorizon()))
	})
}

// risingRule rewinds to what has just become final, as the starting design did.
type risingRule struct{ horizon }

func (r *risingRule) observe(s store.PageState) int64 {
	r.horizon.observe(s)
	return r.rising
}

// eagerRule pairs a position with the xmax of its own sample.
type eagerRule struct{ horizon }

func (r *eagerRule) observe(s store.PageState) int64 {
	r.samples = append(r.samples, sample{s.Position, s.XMax})
	r.position = -1
	return r.horizon.observe(store.PageState{Position: -1, XMin: s.XMin, XMax: s.XMax})
}

// The model can tell: both rules that were given up skip rows.
func TestRulesThatSkip(t *testing.T) {
	t.Parallel()
	for name, variant := range map[string]func() rule{
		"to what has just become final": func() rule { return &risingRule{*newHorizon()} },
		"a sample's own xmax":           func() rule { return &eagerRule{*newHorizon()} },
		"never":                         func() rule { return neverRule{} },
	} {
		failed := 0
		for seed := range uint64(3000) {
			rng := rand.New(rand.NewPCG(seed, 0))
			if skips(150, rng.IntN, variant()) > 0 {
				failed++
			}
			rng = rand.New(rand.NewPCG(seed, 0))
			require.Zero(t, skips(150, rng.IntN, newHorizon()), "seed %d", seed)
		}
		require.NotZero(t, failed, name)
		t.Logf("%s: skips in %d of 3000 histories", name, failed)
	}
}

type neverRule struct{}

func (neverRule) observe(store.PageState) int64 { return 1 << 62 }

// The history that the starting design lost a job in.
func TestCommitBetweenPassingAndFinal(t *testing.T) {
	t.Parallel()
	h := newHorizon()
	rising := &risingRule{*newHorizon()}
	for _, s := range []store.PageState{
		{Position: 10, XMin: 100, XMax: 105}, // 100 has drawn position 7, the cursor is at 10
		{Position: 10, XMin: 100, XMax: 105},
	} {
		require.Zero(t, h.observe(s))
		require.Zero(t, rising.observe(s))
	}
	// 100 commits.
	s := store.PageState{Position: 10, XMin: 105, XMax: 105}
	require.EqualValues(t, 0, h.observe(s), "read it all again, once")
	require.EqualValues(t, 10, rising.observe(s), "7 is never seen")
	require.EqualValues(t, 10, h.observe(s), "now it has been read")
}

// The floor follows when transactions end, and stands while the oldest does not; with
// any number of samples the memory is bounded.
func TestFloorKeepsRising(t *testing.T) {
	t.Parallel()
	h := newHorizon()
	at := func(position, xmin, xmax int64) int64 {
		return h.observe(store.PageState{Position: position, XMin: xmin, XMax: xmax})
	}
	for i := range int64(10) {
		at(10*i, 1000+10*i, 1000+10*i)
	}
	require.Positive(t, h.floor)
	stuck := h.rising
	for i := range int64(5000) {
		require.LessOrEqual(t, at(100+i, 1090, 1091+i), stuck, "transaction 1090 is open")
		require.LessOrEqual(t, len(h.samples), maxSamples)
	}
	require.Equal(t, stuck, h.floor)
	at(6000, 7000, 7000) // it has ended
	at(6000, 7000, 7000)
	require.Greater(t, at(6000, 7000, 7000), int64(5000))
	at(6000, 7000, 7000)
	require.EqualValues(t, 6000, h.floor)
}

func TestFloorNeverFalls(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newHorizon()
		var s store.PageState
		last := int64(0)
		for range rapid.IntRange(1, 400).Draw(t, "samples") {
			s.Position += rapid.Int64Range(0, 100).Draw(t, "positions")
			s.XMax += rapid.Int64Range(0, 10).Draw(t, "begun")
			s.XMin = rapid.Int64Range(s.XMin, s.XMax).Draw(t, "oldest")
			floor := h.observe(s)
			require.GreaterOrEqual(t, floor, last)
			require.LessOrEqual(t, floor, h.rising)
			require.LessOrEqual(t, h.rising, s.Position)
			require.LessOrEqual(t, len(h.samples), maxSamples)
			last = floor
		}
	})
}
