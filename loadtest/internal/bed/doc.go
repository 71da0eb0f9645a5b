// Package bed lays out the Postgres servers, pools and tenants that a scenario runs on,
// enqueues jobs there, and reads from the databases what became of them.
package bed
