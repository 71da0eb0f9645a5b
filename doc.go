// Package tenure runs background jobs for products that keep many tenants in many
// schemas on many Postgres databases.
//
// A job lives in its tenant's own database, so it is enqueued in the transaction
// that makes it necessary, and a handler registered with [HandleTx] finishes it in
// the transaction that does its work: effects in the tenant's database happen
// exactly once. Handlers registered with job.Handle are started at least once. Those registered
// with [HandleBatchTx] or job.HandleBatch get many jobs of a tenant at a time.
//
// A [Node] acquires and runs jobs and enqueues them; any number of nodes form a
// cluster. A [Client] only enqueues, for a web process. Both take a config.Config. Programs that use Fx
// include [Module]; others call [New].
//
// What is done to jobs, tenants and pools from outside is in package operate, see [Client.Operator]. Jobs for
// workers outside the cluster are in package external, see [Client.ExternalWorkers].
//
// Everything exported here is safe for concurrent use unless it says otherwise.
package tenure
