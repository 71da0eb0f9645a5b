// Package schedule decides which jobs of a pool are claimed next, for the one node that holds
// the pool's acquire lock. It is pure: no I/O, no goroutines, no clock, no log. What it knows
// it was told by its caller, who reads the ledger and commits the claims.
//
//	[Lanes]       whose jobs are read next, and from where
//	[InFlight]    which jobs are claimed, so that none is claimed twice
//	[Keys]        exclusive keys: which are held, and under which jobs wait
//	[Gates]       what limits let pass: jobs in flight, and rates
//	[Quarantine]  poison-pill jobs: those whose node died, claimed by themselves
//	[Horizon]     up to which position of the queue nothing can appear any more
//
// # What it promises
//
// Every tenant with jobs is served in each round, and what it cannot use goes to the others at
// once. No cursor passes a job for good: what is committed behind one is found again, as
// the horizon does not rise above what may still be committed. A job is told to be in
// flight from when it was noted as claimed until its end was.
//
// All of this belongs to one term of holding the lock and to its goroutine; only
// [QuarantineLimit] is shared by all terms of a node, and safe for concurrent use.
package schedule
