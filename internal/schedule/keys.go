package schedule

import (
	"iter"
	"maps"
	"time"

	"github.com/tenurehq/tenure/internal/store"
)

// Keys knows the exclusive keys under which jobs of a pool wait or are in flight. It holds no
// jobs: pages of lanes show which keys have some, and whose turn it is under a key that is free is
// looked up. So a job that has to wait is read once, however many end before it, and what is
// claimed of a key is its first one, wherever that stands. It belongs to one term and is used by
// its goroutine only.
type Keys struct {
	byKey   map[store.Key]*exclusive
	byRun   map[Run]store.Key // that hold one
	has     func(Run) bool    // whether that is in flight
	lanes   *Lanes            // in whose line their tenants take turns
	ready   map[string][]store.Key
	resting int // how many rest, or are paused
	pausing int // how many are paused
	paused  map[string][]store.Key
}

// exclusive is a key of which something is known.
type exclusive struct {
	phase    keyPhase
	runs     int       // that hold it; more than one only if a program that heeds no keys has claimed them
	followed bool      // if it is held: others wait, or may
	head     int64     // the position of the last job that was found; 0: look from the start
	all      time.Time // when it was last looked up from the start
	parkedBy any       // who has it in a list of those that rest until it wakes them; nil: nobody
}

// BeginLookUp returns from which position on a key that was taken is to be looked up: from its start
// every so often, as a transaction may have committed a job that stands before the last one that was
// found.
func (ks *Keys) BeginLookUp(k store.Key, now time.Time, every time.Duration) (from int64) {
	e := ks.byKey[k]
	if e.head == 0 || now.Sub(e.all) >= every {
		e.all = now
		return 0
	}
	return e.head
}

// NoteHead notes where the job stands that was found. It may come back there unstarted.
func (ks *Keys) NoteHead(k store.Key, position int64) { ks.byKey[k].head = position }

// LookUpAll has a key that was taken looked up from its start, as there was none.
func (ks *Keys) LookUpAll(k store.Key) {
	e := ks.byKey[k]
	e.head = 0
	ks.makeReady(k, e)
}

type keyPhase int

const (
	keyReady   keyPhase = iota // to be looked up
	keyTaken                   // being looked up
	keyHeld                    // a job of it is in flight, or in quarantine
	keyResting                 // its jobs wait for one that is to be tried again, or that nobody can run now
	keyPaused                  // its next job cannot be claimed now, such as of a tenant that is frozen
)

// maxResting bounds the keys that are remembered to rest, or to be paused. A sweep finds the jobs of
// others.
const maxResting = 10_000

// NewKeys returns keys of which none is known, whose jobs in flight f knows, and whose tenants take turns for them
// and for their lanes.
func NewKeys(f *InFlight, lanes *Lanes) *Keys {
	ks := &Keys{byKey: map[store.Key]*exclusive{}, byRun: map[Run]store.Key{}, lanes: lanes, ready: map[string][]store.Key{}, paused: map[string][]store.Key{},
		has: func(e Run) bool { return f.Has(e.ID, e.Turn) }}
	lanes.keys = ks
	f.onEnd = append(f.onEnd, ks.noteEnd)
	return ks
}

// See notes that a job of a key waits at a position, or has just come to.
func (ks *Keys) See(k store.Key, position int64) {
	e := ks.byKey[k]
	if e != nil {
		e.head = min(e.head, position) // a transaction may have committed it late
	}
	switch {
	case e == nil:
		e = &exclusive{}
		ks.byKey[k] = e
		ks.makeReady(k, e)
	case e.phase == keyHeld || e.phase == keyTaken:
		e.followed = true
	case e.phase == keyResting || e.phase == keyPaused:
		ks.wake(k, e)
	}
}

func (ks *Keys) makeReady(k store.Key, e *exclusive) {
	e.phase = keyReady
	ks.ready[k.Tenant] = append(ks.ready[k.Tenant], k)
	ks.lanes.contend(ks.lanes.tenantOf(k.Tenant))
}

// wake has a key looked up that rests, or is paused; in the list of those it is passed over.
func (ks *Keys) wake(k store.Key, e *exclusive) {
	ks.resting--
	if e.phase == keyPaused {
		ks.pausing--
	}
	ks.makeReady(k, e)
}

// Take takes up to n keys of a tenant to be looked up, those first that have been ready for longest. Each is to be
// settled: by Hold, PutBack, LookUpAll, Rest, Pause or Forget.
func (ks *Keys) Take(tenant string, n int) []store.Key {
	ready := ks.ready[tenant]
	n = min(n, len(ready))
	if ks.ready[tenant] = ready[n:]; n == len(ready) {
		delete(ks.ready, tenant)
	}
	for _, k := range ready[:n] {
		ks.byKey[k].phase, ks.byKey[k].followed = keyTaken, false
	}
	return ready[:n]
}

// Hold notes that a job of a key is in flight, or is about to be; followed: others wait, too.
func (ks *Keys) Hold(k store.Key, run Run, followed bool) {
	e := ks.byKey[k]
	if e == nil {
		e = &exclusive{}
		ks.byKey[k] = e
	}
	e.phase, e.followed = keyHeld, e.followed || followed
	if _, known := ks.byRun[run]; !known {
		ks.byRun[run] = k
		e.runs++
	}
}

// noteEnd frees the key of a run that is not in flight any more. If others wait, the next is
// looked up.
func (ks *Keys) noteEnd(run Run) {
	if len(ks.byRun) > 0 && !ks.has(run) {
		ks.release(run, func(k store.Key, e *exclusive) {
			if e.followed {
				ks.makeReady(k, e)
			} else {
				delete(ks.byKey, k)
			}
		})
	}
}

// ListHolding lists the runs that hold keys.
func (ks *Keys) ListHolding() iter.Seq[Run] { return maps.Keys(ks.byRun) }

func (ks *Keys) release(run Run, settle func(store.Key, *exclusive)) {
	k, ok := ks.byRun[run]
	if !ok {
		return
	}
	delete(ks.byRun, run)
	if e := ks.byKey[k]; e.runs > 1 {
		e.runs--
	} else {
		e.runs = 0
		settle(k, e)
	}
}

// ReleaseWaiting has the key of a job looked up that left quarantine unclaimed.
func (ks *Keys) ReleaseWaiting(run Run) { ks.release(run, ks.makeReady) }

// PauseWaiting pauses the key of a job that left quarantine, as nobody can run it now.
func (ks *Keys) PauseWaiting(run Run) {
	ks.release(run, func(k store.Key, _ *exclusive) { ks.Pause(k) })
}

// PutBack has a key looked up again later, as nothing has become of its job.
func (ks *Keys) PutBack(k store.Key) { ks.makeReady(k, ks.byKey[k]) }

// Rest notes that the jobs of a key wait for one that is seen again when its time comes: it is to be
// tried again, or nobody can run it now.
func (ks *Keys) Rest(k store.Key) { ks.leave(k, keyResting) }

// leave leaves a key alone, or forgets it if there are too many of those.
func (ks *Keys) leave(k store.Key, phase keyPhase) (remembered bool) {
	if ks.resting >= maxResting {
		ks.Forget(k)
		return false
	}
	ks.resting++
	if phase == keyPaused {
		ks.pausing++
	}
	ks.byKey[k].phase = phase
	return true
}

// Pause notes that the next job of a key cannot be claimed until its tenant's lanes are found
// again.
func (ks *Keys) Pause(k store.Key) {
	if ks.leave(k, keyPaused) {
		ks.paused[k.Tenant] = append(ks.paused[k.Tenant], k)
	}
}

// PauseAll pauses the keys of a tenant that are to be looked up.
func (ks *Keys) PauseAll(tenant string) {
	ready := ks.ready[tenant]
	if len(ready) == 0 {
		return
	}
	delete(ks.ready, tenant)
	for _, k := range ready {
		ks.Pause(k)
	}
}

// Forget notes that a key has no jobs.
func (ks *Keys) Forget(k store.Key) { delete(ks.byKey, k) }

// WakeResting has up to most of the keys looked up that rest, whichever: a job that was to be tried again may
// have been cancelled, or suspended.
func (ks *Keys) WakeResting(most int) {
	if ks.resting == 0 {
		return
	}
	for k, e := range ks.byKey {
		if most == 0 {
			return
		}
		if e.phase == keyResting {
			ks.wake(k, e)
			most--
		}
	}
}

// wakeParked has a key looked up that rests until this wakes it, if it still does.
func (ks *Keys) wakeParked(k store.Key, by any) bool {
	e := ks.byKey[k]
	if e == nil || e.parkedBy != by {
		return false
	}
	e.parkedBy = nil
	if e.phase != keyResting {
		return false
	}
	ks.wake(k, e)
	return true
}

// isReady tells whether a key is to be looked up.
func (ks *Keys) isReady(k store.Key) bool {
	e := ks.byKey[k]
	return e != nil && e.phase == keyReady
}

// WakePaused has the keys of a tenant looked up that are paused.
func (ks *Keys) WakePaused(tenant string) {
	for _, k := range ks.paused[tenant] {
		if e := ks.byKey[k]; e != nil && e.phase == keyPaused {
			ks.wake(k, e)
		}
	}
	delete(ks.paused, tenant)
}

// ListWaited lists the keys of which jobs wait, or may: what stands behind a cursor under one of
// them is looked up when it is its turn.
func (ks *Keys) ListWaited() (keys []store.Key) {
	for k, e := range ks.byKey {
		if e.phase != keyHeld || e.followed {
			keys = append(keys, k)
		}
	}
	return keys
}

// Any tells whether jobs with a key are in flight or wait, but for those of paused keys, which only
// somebody else can change.
func (ks *Keys) Any() bool { return len(ks.byKey) > ks.pausing }

// HasReady tells whether keys are to be looked up.
func (ks *Keys) HasReady() bool { return len(ks.ready) > 0 }

// CountReady is how many keys of a tenant are to be looked up.
func (ks *Keys) CountReady(tenant string) int { return len(ks.ready[tenant]) }
