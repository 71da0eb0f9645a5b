package schedule

import "github.com/tenurehq/tenure/internal/store"

// A kind that has a limit in a tenant is read by itself: in each lane that shows jobs of it, it has a
// lane of its own with a cursor of its own, which follows that of the lane. So what a limit holds up
// does not hold up others, is in nobody's memory however much it is, and is not read again when the
// limit lets one more pass.

// SeeKind notes that a lane has shown a job of a kind that is read by itself.
func (ls *Lanes) SeeKind(l *Lane, kind string, position int64) {
	of := l.ofKind(kind)
	if of == nil {
		of = &Lane{Lane: l.Lane, Kind: kind, owner: l.owner, queue: l.queue, after: position - 1}
		l.kinds = append(l.kinds, of)
		of.queue.add(of)
	}
	if !of.waits() {
		of.beginWait()
		of.after = position - 1
	}
	of.after, of.seen = min(of.after, position-1), max(of.seen, position)
	ls.activateLane(of)
}

func (l *Lane) ofKind(kind string) *Lane {
	for _, of := range l.kinds {
		if of.Kind == kind {
			return of
		}
	}
	return nil
}

// UpTo is how far the lane of a kind is read.
func (l *Lane) UpTo() int64 { return l.seen }

// seeKinds has the kinds of a lane read on that may have jobs: their tenant may have been frozen.
func (ls *Lanes) seeKinds(l *Lane) {
	for _, of := range l.kinds {
		if of.after < of.seen {
			ls.activateLane(of)
		}
	}
}

// DropEmptyKinds leaves what was not found to the sweep that follows.
func (ls *Lanes) DropEmptyKinds() {
	for _, l := range ls.byKey {
		for _, of := range l.kinds {
			if !of.active && !of.parked {
				of.after = of.seen
			}
		}
	}
}

// ListKinds lists the kinds of lanes that are read by themselves, and between which positions.
func (ls *Lanes) ListKinds() map[store.Lane][]store.KindEnd {
	out := map[store.Lane][]store.KindEnd{}
	for key, l := range ls.byKey {
		for _, of := range l.kinds {
			if of.waits() {
				out[key] = append(out[key], store.KindEnd{Kind: of.Kind, After: of.after, UpTo: of.seen})
			}
		}
	}
	return out
}

// unpark has a lane read on that has waited for a gate.
func (ls *Lanes) unpark(l *Lane) {
	l.parked = false
	ls.activateLane(l)
}
