// Package lease keeps what this process holds in a pool: its session, which its claims belong
// to, and the pool's acquire lock while a term of holding it lasts.
//
//	[Keepers]  one keeper per pool; stopped after the workers, so that claims outlive claiming
//	[Keeper]   opens a session when it is needed, sends its heartbeats, renews the lock
//	[Session]  owns runs; writes how they ended, hundreds at a time (completer)
//	[Lock]     the lock as it is held: trusted for a time only
//
// A keeper makes its calls on one connection, which hears notifications between them (hearing).
// How long a call may take goes by what is kept: the session, and the lock. The ends of runs go one
// way: from [Session.Finish] to its completer, in batches to the ledger, and then to [Events].
//
// # What it promises
//
// A lock or a session is trusted for its time-to-live, less a margin, from before its last
// renewal was sent, by the monotonic clock and the time in which the machine was suspended: so
// trust can only end too soon. A session that was
// declared dead ends the contexts of its runs with job.ErrClaimLost, and whatever they still
// report finds no row. A finished run is written for as long as its session lives, whatever
// the database does meanwhile; its claim goes with its last job. A claim in the ledger that a
// session does not know of, as the reply to it was lost, is removed.
//
// Everything exported is safe for concurrent use. What it learns goes to [Events], and how the
// calls on the lock's connection went to the pool's [routing.Breaker].
//
// # What it leaves to others
//
// Who tries for a lock, when it is released, and what is claimed under it (package
// acquisition), and the SQL (package store).
package lease
