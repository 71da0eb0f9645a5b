package schedule

import "github.com/tenurehq/tenure/internal/store"

// Horizon finds out up to which position of the queue nothing can appear any more.
//
// Positions are given out in order, but committed in any order: a transaction may
// commit minutes later with a position that cursors have long gone by. What bounds
// it is its transaction id, which it has before it draws a position (a column's default
// sees to that). A sample pairs the last position given out with an id that was given
// out after it was read: who drew a position up to there has a lower one. Once every
// transaction below that id has ended, no row up to that position is still to come.
//
// The id is that of the next claim, which has one in any case; the xmax of a snapshot
// would not do, as it is the one after the last id that has *ended*, and the next ones may
// long have been given out. While nothing is claimed the floor stands, and so do the
// cursors above it.
//
// Final is not yet read: rows up to there may have been committed after the cursor
// went by and before now. So a look back begins at the floor, up to which all has
// been looked at since it became final, and only then does the floor rise. It rises to
// what was final one look earlier: a lane that came up while the look was under way was
// not looked at, and began to be read before what the look found final was.
type Horizon struct {
	floor    int64 // everything up to here is final and has been read since
	rising   int64 // final as of the last look back; the next floor
	samples  []sample
	position int64 // of the sample that waits for its xid; -1: none
}

type sample struct {
	position int64
	xid      int64 // who has drawn a position up to there has a lower one
}

// maxSamples bounds the memory; when a transaction stays open for long, samples
// are thinned out, which only makes the floor rise in larger steps.
const maxSamples = 128

// NewHorizon returns a horizon below which nothing is final yet.
func NewHorizon() *Horizon { return &Horizon{position: -1} }

// Floor is where a look back begins.
func (h *Horizon) Floor() int64 { return h.floor }

// BeginAt says that up to a position no job stands, or can appear, as this term, or the one before it, has found out.
func (h *Horizon) BeginAt(position int64) {
	h.rising = max(h.rising, position)
	h.floor = max(h.floor, position)
}

// Final is up to where nothing could appear any more at the last look back.
func (h *Horizon) Final() int64 { return h.rising }

// Observe takes the ledger's state as it was just before a look back, once what that has
// found is heeded.
func (h *Horizon) Observe(s store.PageState) {
	h.position = s.Position
	// What was final at the look before has been looked at since then.
	h.floor = h.rising
	for len(h.samples) > 0 && h.samples[0].xid <= s.XMin {
		h.rising = h.samples[0].position
		h.samples = h.samples[1:]
	}
}

// BoundBy takes the id of a transaction that was begun after the last call of observe.
func (h *Horizon) BoundBy(xid int64) {
	if h.position < 0 {
		return
	}
	h.samples = append(h.samples, sample{h.position, xid})
	h.position = -1
	if len(h.samples) <= maxSamples {
		return
	}
	kept := h.samples[:0]
	for i := 1; i < len(h.samples); i += 2 {
		kept = append(kept, h.samples[i])
	}
	h.samples = kept
}
