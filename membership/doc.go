// Package membership (not for import) says who is alive and which node is elected for a pool.
// It is memberlist behind [Cluster].
//
// Gossip proposes, Postgres disposes. Nothing this package says is a fact:
// two nodes may hold different views at the same moment, both may believe they
// are elected, and a member may be reported dead that only paused. An election
// decides who *tries* to take a pool's lock; only the lock row in that pool's
// database decides who holds it. Code that would lose or repeat work if this
// package lied is wrong.
//
// # What it promises
//
//   - Members with equal views and equal pool sets elect equally, across
//     versions: the hash is specified in election.go and pinned by test vectors.
//   - After any partition the sides find each other again, as long as one seed
//     of either side can be reached: members that memberlist has given up are
//     looked for every 20 s.
//   - With no gossip at all a node elects itself for everything, so a broken
//     network costs contention and not liveness.
//   - Messages are hints: best effort, unordered, possibly late, twice or never.
//     Every message must be harmless when any of that happens.
//   - Nobody without a key reads or writes gossip once keys are set. A member
//     with a key is trusted; the worst it can do is delay.
//
// All methods of Cluster are safe for concurrent use. No method except Start
// and Stop blocks, and none calls back into its caller.
//
// # Lifecycle
//
// New does no I/O, Start opens the sockets and returns while the first join
// still runs, Stop leaves and waits for every goroutine. A member that has left
// cannot come back, which is memberlist's rule: build a new Cluster.
// [Single] builds one without gossip, for a node that is alone by intention.
//
// # What it leaves to others
//
// Taking locks is package acquisition's, holding and renewing them package
// lease's, fencing package store's; where the extra seed addresses come from ([Self].Seeds) is the caller's; what a message means
// is between the two that agreed on its kind.
package membership
