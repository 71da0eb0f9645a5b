// Package acquisition takes jobs from pools: a [Manager] runs one acquirer per
// pool, and the acquirer that holds its pool's acquire lock is the only one in the
// cluster that claims jobs there.
//
// # One job through this package
//
//	acquirer.run     waits until the lock of its pool is free for it, takes it
//	term.run         one term of holding: reads waiting jobs lane by lane ...
//	term.claim       ... commits one claim for a whole batch, under the fence ...
//	Workers.Submit   ... and hands the batch to this node's workers
//	session.Finish   a run has ended: its outcome waits in the completer ...
//	completer.flush  ... and is written with hundreds of others; the claim goes with
//	                 its last job
//
// # What it promises
//
// Gossip only proposes: whether this node may claim is decided by the row of the
// acquire lock, whose epoch is part of every statement of a term. A term trusts
// itself until a renewal that was sent before its time-to-live, less a margin, has
// run out by the monotonic clock; it then ends by itself. A claim belongs to a
// session, not to the lock, so running jobs do not notice that the lock moves. A
// session that was declared dead cancels its jobs' contexts with job.ErrClaimLost,
// and whatever they still report finds no row.
//
// An answer that got lost leaves a claim nobody knows of: the term then ends, the
// lock is taken anew, which decides everything sent before, and the leftover is
// removed.
//
// Stopping has two halves, and the order of Stop calls is part of the contract:
// Manager.Stop stops claiming and offers the locks to others; the workers are
// stopped next, while the sessions still beat; Sessions.Stop then writes the last
// outcomes and ends the sessions. When it returns nil, nothing is claimed by this
// process.
//
// # What it leaves to others
//
// Who should try for a lock ([Elector]; package membership), the SQL (package
// store) and running handlers (package execution).
package acquisition
