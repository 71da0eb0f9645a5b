package execution

import (
	"sync"
	"sync/atomic"
	"time"
)

// lookahead is how much work may wait for a worker, in time: long enough to hide
// the round trips of a claim, short enough that a job which was claimed for this
// node does not wait behind others while a peer is idle.
const lookahead = 100 * time.Millisecond

// maxAhead bounds the lookahead in jobs.
const maxAhead = 6000

// estimate is how long the next run will take, by those before it. It is quick to rise and
// slow to fall: too much claimed ahead keeps jobs waiting, too little only makes claims
// smaller for a moment. What counts is each run's own time; a rate of ends would take runs that
// begin and end together for a burst. Safe for concurrent use.
type estimate struct{ nanos atomic.Int64 } // 0: no run has ended

// hiccup is how long a busy machine may keep a run from going on that takes a microsecond. Such a run is
// often the last to end before the next claim: up to here the estimate is a plain mean of many.
const hiccup = lookahead / 2

// note takes in how long a run took. Of two that end at the same instant one may not count.
func (e *estimate) note(took time.Duration) {
	now, old := max(int64(took), 1), e.nanos.Load()
	switch {
	case old == 0:
	case max(now, old) <= int64(hiccup):
		now = old + (now-old)/64
	case now > old:
		now = old + (now-old)/4
	default:
		now = old - (old-now)/16
	}
	e.nanos.Store(now)
}

// raise takes in how long a run has taken that has not ended. While none has, nobody knows still,
// which counts as longer.
func (e *estimate) raise(took time.Duration) {
	if old := e.nanos.Load(); 0 < old && old < int64(took) {
		e.nanos.Store(int64(took))
	}
}

// expect is how long a run takes; false: nobody knows yet.
func (e *estimate) expect() (took time.Duration, known bool) {
	n := e.nanos.Load()
	return time.Duration(n), n > 0
}

// countAhead is how many runs so many workers get through in the time of the lookahead, at
// most maxAhead; none while nobody knows.
func (e *estimate) countAhead(workers int) int {
	took, known := e.expect()
	if !known {
		return 0
	}
	return int(min(maxAhead, int64(workers)*int64(lookahead)/int64(took)))
}

// durations are the estimates of all kinds of which one has run here. Safe for concurrent use.
type durations struct{ byKind *sync.Map } // of *estimate

func newDurations() durations { return durations{&sync.Map{}} }

// of is the estimate of a kind.
func (d durations) of(kind string) *estimate {
	e, known := d.byKind.Load(kind)
	if !known {
		e, _ = d.byKind.LoadOrStore(kind, &estimate{})
	}
	return e.(*estimate)
}

// expectAnyway is how long a run of a kind takes; while nobody knows, that counts as long.
func (d durations) expectAnyway(kind string) time.Duration {
	if took, known := d.expect(kind); known {
		return took
	}
	return lookahead
}

// expect is how long a run of a kind takes; false: nobody knows yet.
func (d durations) expect(kind string) (took time.Duration, known bool) {
	if e, ok := d.byKind.Load(kind); ok {
		return e.(*estimate).expect()
	}
	return 0, false
}
