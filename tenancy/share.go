package tenancy

import "errors"

// Share says how much one tenant may have of something that a pool's or a node's tenants use together,
// such as workers or connections, so that others find some of it at once.
type Share struct {
	Of      int // how much there is
	Percent int // of it that a tenant which is alone may have, 1 to 100
}

// Most is how much one tenant may have.
func (s Share) Most() int {
	n := s.Of * s.Percent / 100
	if s.Percent < 100 {
		n = min(n, s.Of-1)
	}
	return max(n, 1)
}

// AdmitsOneMore tells whether a tenant that has so much, and has a weight, may have one more of what is
// free, of which there is some: as long as it keeps to its share of what it and the free ones come to. So each
// of several that have much to do gets less, and some stay free for others; with one share of four
// parts of five, say, a tenant may have four times as many as it leaves, and one of weight 2 twice as
// many as others.
func (s Share) AdmitsOneMore(has, weight, free int) bool {
	return has == 0 || has < s.Most() && (has+1)*(100-s.Percent) <= s.Percent*(free-1)*weight
}

// CountAdmitted is how many more AdmitsOneMore admits one after another. One that has nothing is admitted even if nothing is free: it is
// next.
func (s Share) CountAdmitted(has, weight, free int) int {
	n := (s.Percent*free*weight - has*(100-s.Percent)) / (100 - s.Percent + s.Percent*weight)
	n = max(min(n, s.Most()-has, free), 0)
	if has == 0 {
		return max(n, 1)
	}
	return n
}

// ErrShareInUse is returned to who waits for a connection for a tenant that has its share of a pool's in
// transactions which do not end.
var ErrShareInUse = errors.New("the tenant's share of the pool's connections is in use")
