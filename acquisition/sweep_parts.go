package acquisition

import (
	"cmp"
	"math"
	"time"
)

const (
	// partTime is what a part of a sweep is to take.
	partTime = tendEvery / 4
	// partPatience bounds it: the part is tried again, shorter.
	partPatience = 8 * partTime
	// mostParts bounds how many parts a sweep has: what each takes whatever its length is not to keep a
	// sweep from coming to its end.
	mostParts = 32
)

// sweepParts divides a sweep by positions in the queue, so that no part takes long, however much is
// dead there: beside a snapshot that was taken hours ago nothing can be vacuumed. As long as little is, a
// sweep has one part.
type sweepParts struct {
	begun  bool  // a sweep is under way
	from   int64 // behind which its next part begins
	length int64 // how many positions it has; 0: all
	top    int64 // the last position that is known to have been given out

	due   time.Time // when the next part is, unless somebody asks for a sweep
	again bool      // somebody has since this one began, of what may have come back behind its part
}

// begin tells whether a sweep begins, and not its next part.
func (s *sweepParts) begin(now time.Time) bool {
	if !s.begun {
		s.begun, s.from, s.due, s.again = true, 0, time.Time{}, false
		return true
	}
	s.again = s.again || now.Before(s.due)
	return false
}

// next is behind which position the next part looks, up to which, and how long it may take. It need not look up to
// the bottom.
func (s *sweepParts) next(bottom int64) (behind, upTo int64, patience time.Duration) {
	s.from = max(s.from, bottom)
	shortest := (s.top - bottom + mostParts - 1) / mostParts
	if s.length == 0 || s.from+max(s.length, shortest) >= s.top {
		upTo = math.MaxInt64
	} else {
		upTo = s.from + max(s.length, shortest)
	}
	if s.length > shortest || s.length == 0 && s.top > 0 {
		return s.from, upTo, partPatience
	}
	return s.from, upTo, queryTimeout // it cannot be shorter
}

// note takes in that the part up to a position was done, when which position was the last one, and how
// long it took; and returns when the next one is due. Zero: this sweep is over, and nobody has asked for another.
func (s *sweepParts) note(upTo, top int64, took time.Duration, now time.Time) (due time.Time) {
	s.top = top
	switch {
	case took > partTime:
		s.shorten()
	case took < partTime/4 && s.length > 0:
		if s.length *= 2; s.length >= top {
			s.length = 0
		}
	}
	if upTo < math.MaxInt64 {
		s.from, s.due = upTo, now.Add(dutyFactor*took)
		return s.due
	}
	if s.begun = false; s.again {
		return now
	}
	return time.Time{}
}

// shorten halves the next part: the last one took too long.
func (s *sweepParts) shorten() {
	s.length = max(cmp.Or(s.length, s.top-s.from)/2, 1)
}
