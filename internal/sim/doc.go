// Package sim runs whole clusters on a clock and a network of its own: hours of faults
// in seconds. It has tests only.
//
//	go test ./internal/sim                                        # some seeds, the broken variants
//	go test ./internal/sim -run TestSimulation -v -seeds 100 -hours 3
//	go test ./internal/sim -run TestSimulation -v -seed 17 -seeds 1
//	go test ./internal/sim -run TestScale -v -scale.nodes 100 -scale.pools 10000
//
// # What is real
//
// Every node is the production code from the acquirers down to the wire: acquisition,
// membership with memberlist, routing, execution, internal/store and pgx. It runs in a
// testing/synctest bubble, so that time.Now, timers and sleeps follow a clock that jumps
// to the next event. Two things below it are not real, put in by internal/underlay:
//
//   - The wires (wires_test.go): packets and streams in memory that take 0.2 to 2 ms,
//     and can be lost, held back or cut, one way or both.
//   - The databases (postgres_test.go, ledger_test.go): a server that speaks Postgres'
//     protocol and knows the statements of internal/store/queries by their text. What
//     they do to the lock's row and to the sessions is written again in Go; a test fails
//     when one of them has changed, or when one arrives that is not known. What Postgres
//     makes of row locks is the business of internal/model and of tests with a real one.
//
// There are no jobs. A claim is modelled by timer_fire, which has a claim's fence.
//
// # What happens, and what must hold
//
// A seed makes a world of 3 to 5 nodes and 2 to 5 pools, dozing or not, and a row of
// episodes (episodes_test.go): crashes, pauses, gossip split, passing one way, flapping
// or lossy, databases cut off, down or standing still, clocks of databases set by up to
// ten minutes, restarts, and several of them at once. The judge (judge_test.go) sees
// every statement and looks at every node once a second. Always:
//
//   - Epochs of a pool rise with every take, whatever its clock does.
//   - Only the last taker renews, lets go and claims, under the last epoch, before it
//     has expired; nobody believes that it holds an epoch that was given to another.
//   - Nobody takes the lock from a holder that has been alive and in reach of the
//     database for ten seconds and has not let go of it.
//   - A pool has a holder that renews while a node that is alive reaches it, but for
//     vacancyBound; after crashes alone, crashBound; when nodes leave in order,
//     handoverBound.
//   - All nodes see the same members, and every pool has a holder that runs,
//     convergeBound after the last fault.
//   - While gossip is in pieces and all reach the database, and once it is whole again,
//     no lock moves; each is read less than twice a second (but for gossip that flaps).
//
// variants_test.go takes protections away and expects the judge to notice.
//
// # What a seed repeats
//
// The world, and which faults come in which order for how long. Not the rest: memberlist
// and the acquirers draw from Go's global generators, which cannot be seeded (math/rand/v2,
// member names from crypto/rand), and the order of goroutines that wake at the same
// instant is the runtime's. So a seed that failed fails again often, not always; run it
// a few times, or its neighbours.
//
// # What is not simulated
//
// A pause stops a process' sockets, as seen from outside, but not its goroutines: they
// find out meanwhile that nobody answers. What they send is held back and arrives when
// the pause ends, so late statements are there; a decision made before a pause and
// carried out after it is not. A goroutine that waits for a sync.Mutex keeps synctest's
// clock from moving, which is why the keeper's connection is guarded by a channel.
// Fail-over, failing disks and slow nodes are left to other tests.
package sim
