package schedule

import "slices"

// line is who waits for a turn: those first that have had fewest, and among equals those that have
// waited longest (start-time fair queueing, Goyal, Vin and Cheng, 1996, counted in turns). A tenant that has
// had more turns than others in one page, as more of them could not share it, waits until they have
// caught up.
type line []*tenantLanes

// join has a tenant wait that had nothing to do: behind those whose turn comes next, and before those that
// have had theirs. What it did not use is gone, and so is what it was ahead, as it may not have used that
// either.
func (l line) join(t *tenantLanes) line {
	if len(l) > 0 {
		t.turns = l[0].turns
	}
	return l.queue(t)
}

// queue puts a tenant behind all that have had as many turns.
func (l line) queue(t *tenantLanes) line {
	at := len(l)
	for at > 0 && l[at-1].turns > t.turns {
		at--
	}
	return slices.Insert(l, at, t)
}

// shareOut shares n places among the first ones, so many at most, turn by turn until the places are
// used up, and returns who waits then.
func (l line) shareOut(n, most int) line {
	most = min(most, len(l))
	for _, t := range l[:most] {
		t.quota = 0
	}
	first, others := slices.Clone(l[:most]), l[most:]
	for n > 0 {
		t := first[0]
		n -= t.give(n)
		if t.credit == 0 {
			first = first[1:].queue(t)
		}
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
