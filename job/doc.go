// Package job is the domain: a [Job] and its typed arguments, the [Registry] of
// handlers, the [Outcome] a handler's error stands for, and retry [Policy]s.
//
// It needs the standard library only, and holds no goroutine, connection or
// SQL. A Registry is filled at start-up and frozen when a node starts; after
// that everything here is read-only and safe for concurrent use.
//
// Storing jobs is left to the ledger (internal/store), running them to package
// execution. [github.com/tenurehq/tenure.HandleTx] registers handlers that
// share their database transaction with the job; it lives in the root package
// because its signature names pgx.
package job
