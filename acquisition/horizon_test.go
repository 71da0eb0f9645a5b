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
	visible [modelLanes]map[int64]bool // positions of committed rows
}

const modelLanes = 2

type txModel struct {
	xid  int64 // 0: none yet
	rows []rowModel
}

type rowModel struct {
	lane     int
	position int64
}

func newPGModel() *pgModel {
	m := &pgModel{nextXID: 1}
	for i := range m.visible {
		m.visible[i] = map[int64]bool{}
	}
	return m
}

func (m *pgModel) draw(tx *txModel, lane int) {
	m.last++
	tx.rows = append(tx.rows, rowModel{lane, m.last})
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
			m.visible[r.lane][r.position] = true
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
	known, active bool
	after         int64
	seen          map[int64]bool
}

// see makes the lane known, and its cursor begin at its start if it was not.
func (r *reader) see() {
	if !r.known {
		r.known, r.after = true, 0
	}
	r.active = true
}

// read reads up to n rows on, in order.
func (r *reader) read(visible map[int64]bool, last int64, n int) {
	if !r.active {
		return
	}
	for pos := r.after + 1; pos <= last && n > 0; pos++ {
		if visible[pos] {
			r.seen[pos] = true
			r.after = pos
			n--
		}
	}
	r.active = n == 0
}

// forget forgets the lane if there is nothing behind its cursor.
func (r *reader) forget() { r.known = r.known && r.active }

// first is the first row behind a position that was not seen; 0: none.
func (r *reader) first(visible map[int64]bool, last, behind int64) int64 {
	for pos := behind + 1; pos <= last; pos++ {
		if visible[pos] && !r.seen[pos] {
			return pos
		}
	}
	return 0
}

func (r *reader) rewind(first int64) {
	if first > 0 && r.known && r.after >= first {
		r.after, r.active = first-1, true
	}
}

// rule says where looks back begin.
type rule interface {
	behind() int64
	observe(s store.PageState)
}

// lookBackModel is a look that is begun, taken and used, with anything in between.
type lookBackModel struct {
	behind int64
	lanes  [modelLanes]bool // that had been read beyond that when it was begun
	taken  bool
	state  store.PageState
	first  [modelLanes]int64
}

// skips plays a history whose turns draw decides and returns how many committed rows
// no cursor came by in the end, without a sweep.
func skips(steps int, draw func(n int) int, rule rule) (missed int) {
	m := newPGModel()
	var readers [modelLanes]*reader
	for i := range readers {
		readers[i] = &reader{seen: map[int64]bool{}}
	}
	var sampled int64 // the last position at the last look
	var look *lookBackModel
	advance := func() {
		switch {
		case look == nil:
			look = &lookBackModel{behind: rule.behind()}
			for i, r := range readers {
				look.lanes[i] = r.known && r.after > look.behind
			}
		case !look.taken:
			for _, tx := range m.open { // an INSERT gets its id a moment after its position: by the next look
				if len(tx.rows) > 0 && tx.rows[0].position <= sampled {
					m.assign(tx)
				}
			}
			look.taken, look.state = true, m.state()
			sampled = look.state.Position
			for i, r := range readers {
				if look.lanes[i] {
					look.first[i] = r.first(m.visible[i], m.last, look.behind)
				}
			}
		default:
			rule.observe(look.state)
			for i, r := range readers {
				r.rewind(look.first[i])
			}
			look = nil
		}
	}
	for range steps {
		lane := draw(modelLanes)
		switch draw(11) {
		case 0:
			m.open = append(m.open, &txModel{})
		case 1, 2:
			if n := len(m.open); n > 0 {
				m.draw(m.open[draw(n)], lane)
			}
		case 3:
			if n := len(m.open); n > 0 {
				m.assign(m.open[draw(n)])
			}
		case 4:
			if n := len(m.open); n > 0 {
				m.end(draw(n), draw(5) > 0)
			}
		case 5: // a short one, with a hint
			tx := &txModel{}
			m.open = append(m.open, tx)
			m.draw(tx, lane)
			m.end(len(m.open)-1, true)
			readers[lane].see()
		case 6, 7:
			readers[lane].read(m.visible[lane], m.last, 1+draw(20))
		case 8, 9:
			advance()
		case 10:
			readers[lane].forget()
		}
	}
	for len(m.open) > 0 {
		m.end(len(m.open)-1, true)
	}
	for range 15 {
		advance()
		for i, r := range readers {
			if r.first(m.visible[i], m.last, 0) > 0 {
				r.see() // it is discovered: which moves no cursor back
			}
			r.read(m.visible[i], m.last, len(m.visible[i])+1)
		}
	}
	for i, r := range readers {
		if r.first(m.visible[i], m.last, 0) > 0 {
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

// risingRule looks behind what has just become final, as the starting design did.
type risingRule struct{ horizon }

func (r *risingRule) behind() int64 { return r.rising }

// eagerRule pairs a position with the xmax of its own sample.
type eagerRule struct{ horizon }

func (r *eagerRule) observe(s store.PageState) {
	r.samples = append(r.samples, sample{s.Position, s.XMax})
	r.position = -1
	r.horizon.observe(store.PageState{Position: -1, XMin: s.XMin, XMax: s.XMax})
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

func (neverRule) behind() int64 { return 1 << 62 }

func (neverRule) observe(store.PageState) {}

// The history that the starting design lost a job in.
func TestCommitBetweenPassingAndFinal(t *testing.T) {
	t.Parallel()
	h, rising := newHorizon(), &risingRule{*newHorizon()}
	after := func(r rule, s store.PageState) int64 {
		r.observe(s)
		return r.behind()
	}
	for _, s := range []store.PageState{
		{Position: 10, XMin: 100, XMax: 105}, // 100 has drawn position 7, the cursor is at 10
		{Position: 10, XMin: 100, XMax: 105},
	} {
		require.Zero(t, after(h, s))
		require.Zero(t, after(rising, s))
	}
	// 100 commits.
	s := store.PageState{Position: 10, XMin: 105, XMax: 105}
	require.EqualValues(t, 0, after(h, s), "look at it all again, once")
	require.EqualValues(t, 10, after(rising, s), "a lane that came up just before is not looked at: 7 is never seen there")
	require.EqualValues(t, 10, after(h, s), "now it has been looked at")
}

// The floor follows when transactions end, and stands while the oldest does not; with
// any number of samples the memory is bounded.
func TestFloorKeepsRising(t *testing.T) {
	t.Parallel()
	h := newHorizon()
	at := func(position, xmin, xmax int64) int64 {
		h.observe(store.PageState{Position: position, XMin: xmin, XMax: xmax})
		return h.behind()
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
			h.observe(s)
			floor := h.behind()
			require.GreaterOrEqual(t, floor, last)
			require.LessOrEqual(t, floor, h.rising)
			require.LessOrEqual(t, h.rising, s.Position)
			require.LessOrEqual(t, len(h.samples), maxSamples)
			last = floor
		}
	})
}
