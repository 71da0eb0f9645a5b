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
	// shortestPart is how many positions a part has at least.
	shortestPart = 1 << 16
)

// sweepParts divides a sweep by positions in the queue, so that no part takes long, however much is
// dead there: beside a snapshot that was taken hours ago nothing can be vacuumed. As long as little is, a
// sweep has one part. What comes back behind the part that is under way is found by the next sweep.
type sweepParts struct {
	from   int64 // behind which the next part begins; 0: a sweep does
	length int64 // how many positions it has; 0: all
	top    int64 // the last position that is known to have been given out
}

// next is behind which position the next part looks, and up to which; it need not look up to the bottom.
func (s *sweepParts) next(bottom int64) (behind, upTo int64) {
	s.from = max(s.from, bottom)
	if s.length == 0 || s.from+s.length >= s.top {
		return s.from, math.MaxInt64
	}
	return s.from, s.from + s.length
}

// note takes in that the part up to a position was done, when which position was the last one, and how
// long it took; and tells whether the sweep is over.
func (s *sweepParts) note(upTo, top int64, took time.Duration) (over bool) {
	s.top = top
	switch {
	case took > partTime:
		s.shorten()
	case took < partTime/4 && s.length > 0:
		if s.length *= 2; s.length >= top {
			s.length = 0
		}
	}
	if s.from = upTo; upTo == math.MaxInt64 {
		s.from = 0
	}
	return s.from == 0
}

// shorten halves the next part: the last one took too long.
func (s *sweepParts) shorten() {
	s.length = max(cmp.Or(s.length, s.top-s.from)/2, shortestPart)
}
