// Package execution (not for import) runs claimed jobs: one shared set of [Workers] per node for
// all pools, with the tenant's context around each job.
//
// # What it promises
//
// A job starts only while its claim stands (Owner.MayStart), and every claim that
// was submitted ends in exactly one call of Owner.Finish, Owner.FinishedInTx or
// Owner.Return, whatever the handler does: return, fail, panic, call
// runtime.Goexit, outlive its timeout. That holds for each claim of a call that several share.
// Pools take turns, so that what waits of one does not hold up another. A handler that runs in a transaction gets one on
// its tenant's database, with the tenant's schema, role and app.tenant_id set for
// that transaction only; the handle it was given is dead once it returns, and the
// connection is scrubbed, or destroyed after a panic, or a call that was cut short.
//
// This protects against mistakes in handlers, not against handlers that run
// hostile SQL: RESET ROLE undoes a role. For that, give each tenant a database.
//
// Workers is safe for concurrent use.
//
// # What it leaves to others
//
// Which jobs to run, and what their outcomes mean in the database: an [Owner]
// (a session of package lease) writes down how they ended; package acquisition
// claims them. There is no SQL of the ledger here.
package execution
