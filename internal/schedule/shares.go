package schedule

// share is what a tenant has of the others' turns: places in proportion to its weight.
type share struct {
	weight   int   // 0: 1
	together int   // of its jobs that may share a call in the page that is planned; 0: 1
	credit   int   // what is left of a turn that was cut short
	turns    int64 // how many it had, or as many as others had meanwhile
	ahead    int64 // how many more it had, which count once it has had another
	places   int   // places that it has in the page that is planned
	most     int   // of them that it has a use for
}

func (s *share) parts() int { return max(s.weight, 1) }

// turn is how many places its next turn has.
func (s *share) turn() int {
	most := s.parts() * max(s.together, 1)
	if s.credit > 0 {
		most -= s.parts() - s.credit
	}
	return most
}

// give gives it places of its turn, n at most, and returns how many. A turn has as many as may share a
// call, and counts as so many.
func (s *share) give(n int) int {
	n = min(n, s.turn())
	s.turns, s.ahead = s.turns+s.ahead, 0
	s.places += n
	s.charge(n)
	return n
}

// charge counts places as turns, or, if there are less than none, gives them back. If the last of these is not full, it goes on with the rest.
func (s *share) charge(n int) {
	parts := s.parts()
	if s.credit > 0 {
		n += parts - s.credit
	}
	s.credit = ((-n)%parts + parts) % parts
	s.turns += int64((n + s.credit) / parts)
	if s.credit > 0 { // that one is not over
		s.turns--
	}
}

// Space is how many jobs a page may have.
type Space struct {
	Calls int // of handlers of this node: as many jobs of a tenant as may share one count as one
	Jobs  int // elsewhere, each by itself
	Most  int // in all
	Keys  int // so many free keys of a tenant are enough: its lanes are not read beside them

	shared float64 // how many there will be that may share calls
	used   float64 // of the places of their turns
}

// mostShared is how many jobs that share calls fill a page: few calls have so many, and those that are not in the
// page wait until it was read and claimed.
const mostShared = 500

func (s *Space) isFull() bool {
	return s.Most <= 0 || s.shared >= mostShared || s.Calls <= 0 && s.Jobs <= 0
}

// fill gives a tenant places of its turn.
func (s *Space) fill(t *tenantLanes) {
	together := max(t.together, 1)
	room := s.Jobs
	if s.Calls > 0 {
		room = s.Calls * together
	}
	n := t.give(min(s.Most, room, t.most-t.places))
	if s.Calls > 0 {
		s.Calls -= (n + together - 1) / together
	} else {
		s.Jobs -= n
	}
	if s.Most -= n; together > 1 {
		s.shared += float64(n) * s.used
	}
}

// wasCutShort tells whether it is still its turn, or was not yet.
func (s *share) wasCutShort() bool { return s.places == 0 || s.credit > 0 }
