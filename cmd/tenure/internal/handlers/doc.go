// Package handlers holds the handlers that the daemon brings along: http.request,
// which calls a webhook, and, where the configuration enables it, sql.exec, which runs
// one statement in the tenant's schema.
//
// What a job asks for was chosen by anyone who may enqueue it. For http.request that
// may be a tenant: it reaches public addresses only, whatever names and redirects
// say, and the networks the configuration allows. For sql.exec it must be somebody
// who may run SQL as the tenant's role, or as the pool's user if there is none.
//
// A failure that would only repeat itself sends the job to the dead letters with
// the reason; anything else is retried by the node's policy. All handlers are safe
// for concurrent use.
package handlers
