package schedule

import "slices"

// makeRoom drops the lanes of a tenant that have nothing to read, to take in another; false: all have. No
// page is being claimed from.
func (ls *Lanes) makeRoom(t *tenantLanes) bool {
	if t.busy {
		t.left = true
		return false
	}
	active := 0
	for _, q := range t.queues {
		for _, l := range q.lanes {
			switch {
			case l.Kind != "":
			case !l.mayHaveMore():
				delete(ls.byKey, l.Lane)
				t.lanes--
			case l.active:
				active++
			}
		}
		q.lanes = slices.DeleteFunc(q.lanes, func(l *Lane) bool { return ls.byKey[l.Lane] == nil })
	}
	t.queues = slices.DeleteFunc(t.queues, func(q *queue) bool { return len(q.lanes) == 0 })
	t.room = min(t.lanes+max(MostLanes-active, 0), mostParked)
	t.busy = t.lanes >= t.room
	t.left = t.left || t.busy
	return !t.busy
}

// BeginDiscovery notes that lanes are about to be seen again: those that find no place are left out once more.
func (ls *Lanes) BeginDiscovery() {
	for _, t := range ls.tenant {
		t.left, t.busy = false, false
	}
}

// HasLeft tells whether lanes of some tenant were left out.
func (ls *Lanes) HasLeft() bool {
	for _, t := range ls.tenant {
		if t.left {
			return true
		}
	}
	return false
}

// TakeDrained tells whether since the last call a tenant has come to the end of its lanes of which others were
// left out.
func (ls *Lanes) TakeDrained() bool {
	drained := ls.drained
	ls.drained = false
	return drained
}

// ForgetIdle drops lanes that it has found inactive so many times, so that tenants that came
// by once are not kept for ever. A dropped lane begins at its start when it is seen again,
// which is slow where its finished jobs are not tidied away yet: so not the first time.
func (ls *Lanes) ForgetIdle(times int) {
	for key, l := range ls.byKey {
		if l.mayHaveMore() || l.owner.waiting || l.owner.full {
			continue
		}
		if l.idle++; l.idle < times {
			continue
		}
		delete(ls.byKey, key)
		t, q := l.owner, l.queue
		t.lanes--
		q.lanes = slices.DeleteFunc(q.lanes, func(o *Lane) bool { return o.Lane == l.Lane })
		if len(q.lanes) == 0 {
			t.queues = slices.DeleteFunc(t.queues, func(o *queue) bool { return o == q })
		}
	}
	for name, t := range ls.tenant {
		if len(t.queues) == 0 && !t.waiting && !t.full && !t.skips { // it may have had nothing but keys
			delete(ls.tenant, name)
		}
	}
}
