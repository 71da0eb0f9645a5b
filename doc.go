// Package tenure runs background jobs for products that keep many tenants in many
// schemas on many Postgres databases.
//
// A job lives in its tenant's own database, so it is enqueued in the transaction
// that makes it necessary, and a handler registered with [HandleTx] finishes it in
// the transaction that does its work: effects in the tenant's database happen
// exactly once. Handlers registered with job.Handle are started at least once.
//
// A [Node] acquires and runs jobs and enqueues them; any number of nodes form a
// cluster. A [Client] only enqueues and operates, for a web process. Both take a
// config.Config. Programs that use Fx include [Module]; others call [New].
//
// Everything exported here is safe for concurrent use unless it says otherwise.
package tenure
