package schedule

import (
	"slices"
	"sort"
)

// line is who waits for a turn: those first that have had fewest, and among equals those that have
// waited longest (start-time fair queueing, Goyal, Vin and Cheng, 1996, counted in turns). A tenant that has
// had more turns than others in one page, as more of them could not share it, waits until they have
// caught up.
type line []*tenantLanes

// join has a tenant wait that had nothing to do. What it did not use is gone. If it has had no more than most,
// its turn comes next, once those that stand next, too, have had as many places as they are: it does not wait
// for longer than if each turn had one place.
func (l line) join(t *tenantLanes) line {
	if len(l) == 0 {
		return append(l, t)
	}
	first, last := l[0].turns, l[len(l)-1].turns
	t.turns, t.ahead = min(max(t.turns+t.ahead, first), last), 0
	if t.turns > first+(last-first+1)/2 {
		return l.queue(t)
	}
	t.turns, t.ahead = first, t.turns-first
	at, next := 0, sort.Search(len(l), func(i int) bool { return l[i].turns > first })
	for places := 0; at < next && places < next; at++ {
		places += l[at].turn()
	}
	return slices.Insert(l, at, t)
}

// queue puts a tenant behind all that have had as many turns.
func (l line) queue(t *tenantLanes) line {
	at := len(l)
	for at > 0 && l[at-1].turns > t.turns {
		at--
	}
	return slices.Insert(l, at, t)
}

// shareOut shares what a page has space for among the first ones, so many at most, turn by turn until it
// is full, and returns who waits then.
func (l line) shareOut(space Space, most int) line {
	most = min(most, len(l))
	for _, t := range l[:most] {
		t.places = 0
	}
	first, others := slices.Clone(l[:most]), l[most:]
	var done line // those that have no use for more
	for !space.isFull() && len(first) > 0 {
		t := first[0]
		space.fill(t)
		switch {
		case t.places >= t.most:
			first, done = first[1:], append(done, t)
		case t.credit == 0:
			first = first[1:].queue(t)
		}
	}
	for _, t := range done {
		first = first.queue(t)
	}
	merged := make(line, 0, len(l))
	for _, t := range first {
		for len(others) > 0 && (others[0].turns < t.turns || others[0].turns == t.turns && !t.wasCutShort()) {
			merged, others = append(merged, others[0]), others[1:]
		}
		merged = append(merged, t)
	}
	return append(merged, others...)
}
