package schedule

// share is what a tenant has of the others' turns: places in proportion to its weight.
type share struct {
	weight int   // 0: 1
	credit int   // what is left of a turn that was cut short
	turns  int64 // how many it had, or as many as others had meanwhile
	quota  int   // places that it has in the page that is planned
}

func (s *share) parts() int { return max(s.weight, 1) }

// give gives it places of its turn, n at most, and returns how many.
func (s *share) give(n int) int {
	if s.credit == 0 {
		s.credit = s.parts()
	}
	n = min(n, s.credit)
	s.quota += n
	if s.credit -= n; s.credit == 0 { // else it goes on with what is left of its turn
		s.turns++
	}
	return n
}

// wasCutShort tells whether it is still its turn, or was not yet.
func (s *share) wasCutShort() bool { return s.quota == 0 || s.credit > 0 }
