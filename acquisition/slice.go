package acquisition

import "time"

const (
	// sliceTime is how long a slice may take: jobs that are enqueued meanwhile wait for it.
	sliceTime = burst / 10
	// A slice is not so small that its round trip and its commit are most of it, and not so
	// large that one that turns out to be slow holds up claims for long.
	minSlice, maxSlice = 100, 5000
)

// slice is how much is fired between two claims.
type slice struct{ size int }

// most is how much that is now.
func (s *slice) most() int { return max(s.size, minSlice) }

// resize has the next slice take as long as it may, given how long one took.
func (s *slice) resize(n int, took time.Duration) {
	if n == 0 {
		return
	}
	fits := int(int64(n) * int64(sliceTime) / int64(max(took, 1)))
	s.size = min(max(fits, minSlice), maxSlice, 2*s.most())
}
