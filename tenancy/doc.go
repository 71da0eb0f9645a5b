// Package tenancy holds what a tenant is and how it travels: its [ID], where it
// lives ([Tenant]), and the context that carries it to a handler.
//
// A context is the only carrier. There is no current tenant in a global or a
// goroutine, so nothing can be left behind for the next job when a handler
// panics, and everything here is safe for concurrent use.
//
// Mapping an ID to a Tenant is left to package routing, setting up a tenant's
// database transaction to package execution.
package tenancy
