package acquisition

import "time"

// Elector proposes who should hold the acquire lock of a pool. It may be wrong,
// also on two nodes at once.
type Elector interface {
	// Rank is this node's place in the order of preference for a pool, 0 being the
	// elected one; ok is false while this node should not try at all.
	Rank(pool string) (rank int, ok bool)
	// Elected names the member that should hold the lock; "" when nobody is eligible who
	// says that it reaches the database.
	Elected(pool string) (member string)
	// Share is how many locks a node should hold at most, as the election spreads them.
	Share() int
	// Peers lists the other members that may run jobs.
	Peers() []string
	// Alive tells whether a member is thought to live.
	Alive(member string) bool
	// Lacks tells whether a member is thought to live and says that it does not reach a
	// pool's database.
	Lacks(member, pool string) bool
	// StableFor is how long the view of the members has stood still.
	StableFor() time.Duration
	// Watch returns a channel of size one that is nudged when the view changes.
	Watch() (changes <-chan struct{}, cancel func())
	// Successor names the member, none of those ruled out, that should have the lock when this
	// node releases it; "" when there is none.
	Successor(pool string, out func(member string) bool) (member string)
	// Drain takes this node out of every election.
	Drain()
	// SetReaches tells whether this node reaches a pool's database; while it does not,
	// others are elected there.
	SetReaches(pool string, reaches bool)
	// SetKindsMark announces a number that tells the kinds that this node handles from others.
	SetKindsMark(mark uint32)
	// KindsMark is what a member announces of its kinds; 0: nothing.
	KindsMark(member string) (mark uint32)
	// Send sends a message to a member, without a promise that it arrives.
	Send(member string, kind byte, payload []byte) error
}
