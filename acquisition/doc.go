// Package acquisition (not for import) takes jobs from pools: a [Manager] runs one acquirer per pool, and the
// acquirer that holds its pool's acquire lock is the only one in the cluster that claims jobs
// there.
//
// # States
//
// An acquirer follows a lock until it is free and this node's turn to take it, then it leads
// for one term:
//
//	           pool ready               take lock
//	awaitPool ───────────► tryLock ────────────────► lead (one term)
//	                       │     ▲                   │
//	    held by another,   │     │ view changed,     │ moved, stopping: lock offered
//	    or not its turn    ▼     │ offer, time       │ lock lost, trust over, database failed
//	                      awaitChange ◄──────────────┘ claim unsure: re-acquired soon
//
// A term is a loop. Whatever it began is undone when it returns: the lock is not renewed any
// more, and is offered to a successor unless it is lost:
//
//	  ┌── nothing waits or runs, and the last holder dozed, if any ──┐
//	  │    load: what is in flight           nothing for a while     ▼
//	start ─────────────────────────► work ────────────────────────► doze
//	                                 │  ▲                           │  │
//	                                 │  └───────────────────────────┘  │
//	       moved (see below),        │      hint, timer, work seen     │ stopping, moved
//	       or stopping               ▼                                 │
//	                              departing: successor prepares,       │
//	                              claiming goes on                     │
//	                                 │ it is ready, or too late        │
//	                                 ▼                                 ▼
//	                              offer lock ◄─────────────────────────┘
//
// Moved: another node is elected, this one holds more locks than its share (balance.mayRelease),
// and the members, the term and the last try to hand over have been as they are for ten seconds
// each; nothing is being reaped (handover.shouldMove).
//
// # One job through this package
//
//	acquirer.run             follows the lock of its pool, takes it, leads
//	term.run                 one term: what has come in, duties, claims, or a wait
//	claimer.claimJobs        reads waiting jobs lane by lane ...
//	dispatcher.handOut       ... commits claims, by one statement under the fence: mostly one for
//	                         this node and one for each peer ...
//	Workers.Submit           ... and hands this node's jobs to its workers
//	lease.Session.Finish     a run has ended: its outcome is written with hundreds of others;
//	                         the claim goes with its last job
//	poolEvents.Finished      the term forgets the job, or expects its timer
//
// # The parts of a term
//
// newTerm puts a term together. Each part of it names first what it uses: its place, the lock or only
// the fence of that, the work or only its lanes, and other parts. What it owns comes after that, with the
// duties that it plans when a term begins. A part that finds out that another's duty is due sooner has
// that duty, and asks for it.
//
// # What it promises
//
// Gossip only proposes: whether this node may claim is decided by the row of the acquire lock,
// whose epoch is part of every statement by which a term claims, fires timers and schedules,
// cancels, settles, withdraws and reaps. What else it writes, by background queries, two nodes may
// write at the same time. A term ends by itself when its lock is not trusted any more (package
// lease). A claim belongs to a session, not to the lock, so running jobs do not notice that the
// lock moves.
//
// A lost reply leaves a claim nobody knows of: the term then ends, the lock is re-acquired,
// which decides everything sent before, and the orphaned claim is removed.
//
// Stopping has two halves, and the order of Stop calls is part of the contract: Manager.Stop
// stops claiming and offers the locks to others; the workers are stopped next, while the
// sessions still send heartbeats; lease.Keepers.Stop then writes the last outcomes and ends the
// sessions. When it returns nil, nothing is claimed by this process.
//
// # Who uses what
//
// Each pool has one goroutine, which runs its acquirer and its term; the parts of a term share its
// work without a lock. Three others come and go. The assistant has one while another node's
// holder invites this one. A term has one for its background query, of which one is under way at a
// time, and one for the page that it reads. These two hand over what they have found, and touch
// nothing of the term's but what only they use.
//
// All other goroutines reach only this: the inbox, the peer events, the lock as last seen, and what
// all pools of the node share (balance, quarantine limit, allotments, and settings that are
// replaced as a whole). Where a mutex guards it, that is its own, and no other one is held with it.
//
// # What it leaves to others
//
// Who should try for a lock ([Elector]; package membership), what to claim next (package
// schedule), sessions and locks (package lease), the SQL (package store) and running handlers
// (package execution).
package acquisition
