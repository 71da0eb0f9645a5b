package schedule

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/store"
)

// pgModel is what matters of Postgres for cursors: transactions that get an id, draw
// positions, and commit or roll back, each at a time of its own.
type pgModel struct {
	last    int64 // position given out
	nextXID int64
	ended   int64 // the highest id of a transaction that has ended
	lateIDs bool  // positions are drawn before the id, as they were by INSERT
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
	if !m.lateIDs {
		m.assign(tx)
	}
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
	m.ended = max(m.ended, tx.xid)
	m.open = append(m.open[:i:i], m.open[i+1:]...)
	if commit {
		for _, r := range tx.rows {
			m.visible[r.lane][r.position] = true
		}
	}
}

// state is what a look sees, and the xmax of its snapshot: the one after the last id that
// has ended.
func (m *pgModel) state() (s store.PageState, xmax int64) {
	s = store.PageState{Position: m.last, XMin: m.ended + 1}
	for _, tx := range m.open {
		if tx.xid != 0 {
			s.XMin = min(s.XMin, tx.xid)
		}
	}
	return s, m.ended + 1
}

// claim is a short transaction; it returns its id.
func (m *pgModel) claim() (xid int64) {
	tx := &txModel{}
	m.assign(tx)
	m.ended = max(m.ended, tx.xid)
	return tx.xid
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

// read reads up to n rows on, in order, and tells whether there was any.
func (r *reader) read(visible map[int64]bool, last int64, n int) (any bool) {
	if !r.active {
		return false
	}
	for pos := r.after + 1; pos <= last && n > 0; pos++ {
		if visible[pos] {
			r.seen[pos] = true
			r.after = pos
			n--
			any = true
		}
	}
	r.active = n == 0
	return any
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
	Floor() int64
	look(s store.PageState, xmax int64)
	BoundBy(xid int64)
}

// presentRule is what a term does.
type presentRule struct{ *Horizon }

func (r presentRule) look(s store.PageState, _ int64) { r.Observe(s) }

func newRule() rule { return presentRule{NewHorizon()} }

// lookBackModel is a look that is begun, taken and used, with anything in between.
type lookBackModel struct {
	behind int64
	lanes  [modelLanes]bool // that had been read beyond that when it was begun
	taken  bool
	state  store.PageState
	xmax   int64
	first  [modelLanes]int64
}

// skips plays a history whose turns draw decides and returns how many committed rows
// no cursor came by in the end, without a sweep.
func skips(steps int, draw func(n int) int, rule rule, lateIDs bool) (missed int) {
	m := newPGModel()
	m.lateIDs = lateIDs
	var readers [modelLanes]*reader
	for i := range readers {
		readers[i] = &reader{seen: map[int64]bool{}}
	}
	var look *lookBackModel
	advance := func() {
		switch {
		case look == nil:
			look = &lookBackModel{behind: rule.Floor()}
			for i, r := range readers {
				look.lanes[i] = r.known && r.after > look.behind
			}
		case !look.taken:
			look.taken = true
			look.state, look.xmax = m.state()
			for i, r := range readers {
				if look.lanes[i] {
					look.first[i] = r.first(m.visible[i], m.last, look.behind)
				}
			}
		default:
			rule.look(look.state, look.xmax)
			for i, r := range readers {
				r.rewind(look.first[i])
			}
			look = nil
		}
	}
	read := func(lane, n int) {
		if readers[lane].read(m.visible[lane], m.last, n) {
			rule.BoundBy(m.claim())
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
			read(lane, 1+draw(20))
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
			read(i, len(m.visible[i])+1)
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
		require.Zero(t, skips(rapid.IntRange(1, 150).Draw(t, "steps"), draw, newRule(), false))
	})
}

// risingRule looks behind what has just become final, as the starting design did.
type risingRule struct{ presentRule }

func (r *risingRule) Floor() int64 { return r.rising }

// xmaxRule pairs a position with the xmax of the next look's snapshot, and eagerRule with
// that of its own.
type xmaxRule struct{ *Horizon }

func (r xmaxRule) look(s store.PageState, xmax int64) {
	r.Horizon.BoundBy(xmax)
	r.Observe(s)
}

func (xmaxRule) BoundBy(int64) {}

type eagerRule struct{ xmaxRule }

func (r eagerRule) look(s store.PageState, xmax int64) {
	r.position = s.Position
	r.xmaxRule.look(s, xmax)
	r.position = -1
}

// The model can tell: the rules that were given up skip rows, and so does the present one
// where a position may be drawn before its transaction has an id.
func TestRulesThatSkip(t *testing.T) {
	t.Parallel()
	for name, variant := range map[string]struct {
		rule    func() rule
		lateIDs bool
	}{
		"to what has just become final": {func() rule { return &risingRule{presentRule{NewHorizon()}} }, false},
		"a sample's own xmax":           {func() rule { return eagerRule{xmaxRule{NewHorizon()}} }, false},
		"the next look's xmax":          {func() rule { return xmaxRule{NewHorizon()} }, false},
		"a position before the id":      {newRule, true},
		"never":                         {func() rule { return neverRule{} }, false},
	} {
		failed := 0
		for seed := range uint64(3000) {
			rng := rand.New(rand.NewPCG(seed, 0))
			if skips(150, rng.IntN, variant.rule(), variant.lateIDs) > 0 {
				failed++
			}
			rng = rand.New(rand.NewPCG(seed, 0))
			require.Zero(t, skips(150, rng.IntN, newRule(), false), "seed %d", seed)
		}
		require.NotZero(t, failed, name)
		t.Logf("%s: skips in %d of 3000 histories", name, failed)
	}
}

type neverRule struct{}

func (neverRule) Floor() int64 { return 1 << 62 }

func (neverRule) look(store.PageState, int64) {}

func (neverRule) BoundBy(int64) {}

// The history that the starting design lost a job in.
func TestCommitBetweenPassingAndFinal(t *testing.T) {
	t.Parallel()
	h, rising := newRule(), rule(&risingRule{presentRule{NewHorizon()}})
	after := func(r rule, s store.PageState) int64 {
		r.look(s, 0)
		return r.Floor()
	}
	for _, r := range []rule{h, rising} {
		s := store.PageState{Position: 10, XMin: 100} // 100 has drawn position 7, the cursor is at 10
		require.Zero(t, after(r, s))
		r.BoundBy(105)
		require.Zero(t, after(r, s))
	}
	// 100 commits.
	s := store.PageState{Position: 10, XMin: 106}
	require.EqualValues(t, 0, after(h, s), "look at it all again, once")
	require.EqualValues(t, 10, after(rising, s), "a lane that came up just before is not looked at: 7 is never seen there")
	require.EqualValues(t, 10, after(h, s), "now it has been looked at")
}

// The floor follows when transactions end, and stands while the oldest does not, or while
// nothing is claimed; with any number of samples the memory is bounded.
func TestFloorKeepsRising(t *testing.T) {
	t.Parallel()
	h := NewHorizon()
	at := func(position, xmin, xid int64) int64 {
		h.Observe(store.PageState{Position: position, XMin: xmin})
		h.BoundBy(xid)
		return h.Floor()
	}
	for i := range int64(10) {
		at(10*i, 1000+10*i, 1001+10*i)
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
	for range 5 {
		h.Observe(store.PageState{Position: 8000, XMin: 9000})
	}
	require.EqualValues(t, 6000, h.floor, "nothing was claimed since")
	h.BoundBy(9000)
	h.Observe(store.PageState{Position: 8000, XMin: 9000})
	h.Observe(store.PageState{Position: 8000, XMin: 9000})
	require.EqualValues(t, 8000, h.floor)
}

func TestFloorNeverFalls(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := NewHorizon()
		var s store.PageState
		last, next := int64(0), int64(0)
		for range rapid.IntRange(1, 400).Draw(t, "samples") {
			s.Position += rapid.Int64Range(0, 100).Draw(t, "positions")
			next += rapid.Int64Range(0, 10).Draw(t, "begun")
			s.XMin = rapid.Int64Range(s.XMin, next).Draw(t, "oldest")
			h.Observe(s)
			if rapid.Bool().Draw(t, "claims") {
				h.BoundBy(next)
			}
			floor := h.Floor()
			require.GreaterOrEqual(t, floor, last)
			require.LessOrEqual(t, floor, h.rising)
			require.LessOrEqual(t, h.rising, s.Position)
			require.LessOrEqual(t, len(h.samples), maxSamples)
			last = floor
		}
	})
}
