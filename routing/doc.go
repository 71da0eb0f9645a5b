// Package routing (not for import) maps tenants to pools and opens the pools' connections.
//
// A [Router] answers for a tenant's id where the tenant lives: from the static
// map, else from a lookup table of the application's own, else with
// tenancy.ErrUnknownTenant. A [Pool] is one Postgres database: connections for job
// SQL and for tenant SQL apart, so that handlers never keep the acquirer waiting,
// and a connection of its own for the acquire lock.
//
// # When a connection is opened
//
// Four things decide, and each has one meaning. The dial limiter bounds how many
// connections this node opens to one server at a time. The admission has a pool's
// connections for tenants opened one after another. The budget bounds how many this node
// has, over all pools. The crowd breaker leaves a server alone that has no connection left.
//
// Whether a pool's database can be used at all is another question. Its [Breaker] has the one
// answer: what verification found, and then what the calls on the lock's connection show.
//
// # What it promises
//
// All methods are safe for concurrent use. A pool that cannot be reached costs the
// others nothing: it is opened in the background and tried again with back-off. An idle
// pool has no connection but the one for its lock. A connection that handlers used is
// scrubbed before the next one gets it.
//
// # What it leaves to others
//
// Who acquires jobs from a pool (package acquisition), what is done in a tenant's
// transaction (package execution), and what other nodes say of fail-overs (package
// internal/timeline).
package routing
