// Package routing maps tenants to pools and opens the pools' connections.
//
// A [Router] answers for a tenant's id where the tenant lives: from the static
// map, else from a lookup table of the application's own, else with
// tenancy.ErrUnknownTenant. A [Pool] is one Postgres database: connections for job
// SQL and for tenant SQL apart, so that handlers never keep the acquirer waiting,
// and a connection of its own for the acquire lock.
//
// # What it promises
//
// All methods are safe for concurrent use. A pool that cannot be reached costs the
// others nothing: it is opened in the background and tried again with back-off. Many
// pools on one server are opened few at a time. An idle pool has no connection but the
// one for its lock.
// A connection that handlers used is scrubbed before the next one gets it.
//
// # What it leaves to others
//
// Who acquires jobs from a pool (package acquisition) and what is done in a
// tenant's transaction (package execution).
package routing
