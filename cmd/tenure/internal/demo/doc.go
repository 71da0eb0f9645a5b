// Package demo is `tenure demo`: a cluster on this machine that loses a node while
// it works, and the proof that it lost nothing else.
//
// It starts a throwaway Postgres with one database per pool, and the nodes as
// separate processes that find one another by gossip. It replays recorded traffic
// where there is some, together with invoices, kills a node that holds a lock with
// SIGKILL half-way, and counts at the end what every handler wrote into its
// tenant's effect table, which has no unique index that could hide a doubled run.
package demo
