// Package model explores the protocol of lock, claims, sessions and reaping state by
// state: every order in which its statements can be executed, delayed, lost and
// interrupted, within bounds, and checks the promises P1 to P5 in each, and of two jobs that
// are kept apart P7 and P8. It is a test's tool; nothing of it runs in the product.
//
//	checker.go      explores any [System] breadth first; its counterexamples are shortest
//	ledger.go       the database: one method per SQL statement, with its conditions
//	state.go        what there is beside it: the nodes' memory, and requests under way
//	protocol.go     every step that is possible; time, cancels and fail-overs
//	node.go         what nodes do: keeper, acquirer, workers, completer
//	request.go      how requests are executed, answered and lost
//	symmetry.go     nodes that differ by name only
//	invariants.go   what must hold
//	flaws.go        ways to break the protocol on purpose, and the bounds of a check
//
// # What is modelled
//
// Nodes, each with up to two sessions; one pool, with its lock; two jobs, one whose
// handler works in a transaction and one whose outcome is written afterwards; or both
// work in a transaction, which they may share, and reaping may pass over a job that is locked. An
// exclusive key, under which Y goes first, or a limit of one may keep them apart. A
// request is executed long after it was sent, also when its sender has given it up or
// died, or never; its answer may be lost. The claim and the declaration that a session
// is dead hold the lock's row from their fence to their commit, and a take or a cancel
// waits for that. Locks and sessions expire at any time, and the trust of a node's own
// clock ends with that. Besides there are crashes, restarts, jumps of the database's
// clock, cancels from outside, failing handlers, claims given back unstarted, and a
// fail-over to a replica that misses what was committed last.
//
// A node that is paused is one whose steps do not come: nothing else is needed for it.
//
// # Where steps are joined
//
// The answer to a request arrives with its execution, or is lost: a node that has its
// answer and does nothing yet is the same as one whose answer is on its way. Likewise
// a request is executed when it is sent, or given up, if nothing was looked at before
// that the request relies on. Heartbeats and renewals are one step, answer included:
// one that is late, or whose answer is lost, does what a timely one does behind which
// the session expires. An offer of the lock is one step too: a late one finds its
// epoch unchanged, or does nothing.
//
// # What is left out
//
// Whether anything ever happens: that the lock is taken, that jobs are found. One
// exception is a claim that nobody knows of and nobody will look for. Also left out
// are timers (a retry waits at once), lanes and cursors, rates, limits above one, unique keys, pausing a pool,
// leaving a session, reservations of the lock and gossip (the lock may be taken by
// anybody at any time), statements that deadlock, and a database of which two copies
// accept writes. Within one session, a job is not claimed again before the report on
// its last run was answered.
package model
