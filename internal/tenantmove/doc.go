// Package tenantmove is the workflow of moving a tenant between pools: which steps are left,
// in which order, and what has to end before the next one. The statements of the steps are
// in internal/store, and what a step has done stands in the ledgers, so that a move that was
// interrupted goes on where it was, whichever process calls it again.
//
//	freeze in the old pool → wait for running jobs → have jobs wait in the new one →
//	close the old pool → move jobs → open the new pool → bring what came late → finished jobs
//
// A move that holds the tenant stops its transactions, too, once its jobs have ended, and
// moves nothing: its own data is copied then.
//
// It locks nothing in this process. What two callers do at once is told apart by the mover's
// id in the ledgers: the later one takes over, and the earlier one fails with its next step.
package tenantmove
