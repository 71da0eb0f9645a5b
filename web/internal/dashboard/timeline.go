package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tenurehq/tenure/operate"
)

const (
	// timelinesShown is of how many pools there are time lines: of those that have changed last.
	timelinesShown = 12
	// changesShown is how many changes of locks are told.
	changesShown = 20
	// inView is how many of the newest changes the time lines reach back to, at least.
	inView = 8
)

// spans are how far time lines may reach back.
var spans = []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 24 * time.Hour}

// timeline is who had a pool's lock when.
type timeline struct {
	Pool  string
	Terms []term
}

// term is a time of holding a lock, as a part of the time line, in per cent.
type term struct {
	From, Width string
	Label       string // its node; "": there is no room for it
	Narrow      bool   // there is none on a small screen
	Colour      int    // of its node
	Text        string
}

// history is how locks have changed lately.
type history struct {
	Lines   []timeline
	Over    string
	Changes []operate.LockChange
}

// newHistory draws who had which lock; nodes have the colours of their places among nodes.
func newHistory(pools []poolRow, nodes []string, now time.Time) history {
	var h history
	for _, p := range pools {
		h.Changes = append(h.Changes, p.Changes...)
	}
	operate.SortLockChanges(h.Changes)
	if len(h.Changes) == 0 {
		return h
	}
	over := reach(h.Changes, now)
	h.Over = span(over)
	for _, c := range h.Changes { // the pools that have changed last, in that order
		known := slices.ContainsFunc(h.Lines, func(l timeline) bool { return l.Pool == c.Pool })
		if known || len(h.Lines) == timelinesShown {
			continue
		}
		p := pools[slices.IndexFunc(pools, func(p poolRow) bool { return p.Name == c.Pool })]
		h.Lines = append(h.Lines, timeline{c.Pool, termsOf(p, nodes, now.Add(-over), now)})
	}
	slices.SortFunc(h.Lines, func(a, b timeline) int { return cmp.Compare(a.Pool, b.Pool) })
	h.Changes = h.Changes[:min(changesShown, len(h.Changes))]
	return h
}

// reach is how far back the time lines go.
func reach(changes []operate.LockChange, now time.Time) time.Duration {
	oldest := now.Sub(changes[min(inView, len(changes))-1].At)
	for _, d := range spans {
		if oldest <= d {
			return d
		}
	}
	return spans[len(spans)-1]
}

// termsOf are a pool's terms between two times.
func termsOf(p poolRow, nodes []string, from, to time.Time) (terms []term) {
	var holder string
	var since time.Time
	end := func(at time.Time) {
		if holder != "" && at.After(from) {
			terms = append(terms, newTerm(holder, nodes, since, at, from, to))
		}
		holder = ""
	}
	for _, c := range slices.Backward(p.Changes) {
		switch {
		case c.Node == holder && c.LostBy == holder: // it took the lock once more
		case c.Change == operate.LockTaken:
			end(c.At)
			holder, since = c.Node, c.At
		default:
			end(c.At)
		}
	}
	last := to
	if p.Lock.Remaining <= 0 { // the row names the last holder until somebody takes the lock
		last = to.Add(-p.Lock.Quiet)
	}
	end(last)
	return terms
}

func newTerm(node string, nodes []string, since, until, from, to time.Time) term {
	share := func(at time.Time) float64 {
		return 100 * min(max(at.Sub(from).Seconds()/to.Sub(from).Seconds(), 0), 1)
	}
	x := share(since)
	width := max(share(until)-x, 0.2) // one that was short is to be seen, too
	t := term{From: fmt.Sprintf("%.2f%%", x), Width: fmt.Sprintf("%.2f%%", width), Label: node, Colour: colourOf(node, nodes),
		Text: fmt.Sprintf("%s for %s", node, span(until.Sub(since)))}
	const ofLetter, ofLetterNarrow = 0.9, 3.5 // per cent
	if room := float64(len(node) + 2); width < ofLetter*room {
		t.Label = ""
	} else {
		t.Narrow = width < ofLetterNarrow*room
	}
	return t
}

// colours is how many colours nodes have.
const colours = 8

// colourOf is a node's colour: the same for as long as the same nodes are there.
func colourOf(node string, nodes []string) int {
	if i := slices.Index(nodes, node); i >= 0 {
		return i % colours
	}
	return colours - 1
}
