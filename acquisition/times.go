package acquisition

import (
	"math/rand/v2"
	"time"

	"github.com/tenurehq/tenure/internal/backoff"
)

// Times that many things here go by. What depends on how long locks and sessions live is
// derived from the configuration instead.
const (
	// tendEvery is how often a holder looks after what changes while there is work: lanes,
	// cursors, peers, the election. A pool out of order is tried again as often.
	tendEvery = time.Second
	// sweepEvery is how often it does what only makes up for what went wrong elsewhere.
	sweepEvery = time.Minute
	// sweepsBegin is within which time of a term each sweep comes first: see firstSweep.
	sweepsBegin = 5 * time.Second
	// countEvery is how often it counts what waits, for the metrics.
	countEvery = sweepEvery / 4
	// rankDelay keeps nodes of different rank from trying for a lock at once: the better one
	// has taken it by then. So a successor is prepared within it, or is not waited for.
	rankDelay = 500 * time.Millisecond
	// reservation is how long a lock is kept for a successor: two tries of it, and a bit.
	reservation = 3 * rankDelay
	// calmAfter is how long a view of the members, or a term, must have lasted to count as
	// settled: longer than gossip takes to agree on who has died.
	calmAfter = 10 * time.Second
	// invitedFor is how long a node works on a pool without another invitation, so that three
	// in a row may be lost.
	invitedFor = 3 * tendEvery
	// peerPatience is after how long without a word a peer is forgotten, and a claim that it
	// has not accepted is withdrawn: longer than its longest pause after a failure.
	peerPatience = 5 * tendEvery
	// queryTimeout bounds what the loop of a term asks, and what is asked beside it: well below
	// when it is to be asked again.
	queryTimeout = sweepEvery / 2
	// burst is what a short burst of jobs takes, for which nothing else is begun.
	burst = 50 * time.Millisecond
	// recheckEvery is how often it is checked again whether rows are still locked, and told to
	// a holder how a node stands.
	recheckEvery = tendEvery / 4
	// longTransaction is how long a transaction may be open before somebody is told, while the
	// sweeps see it.
	longTransaction = 5 * sweepEvery
	// longestDoze bounds a doze, and half of it the shortest that nothing ends: finished jobs
	// are to be cleaned up now and then where no more come, too.
	longestDoze = 2 * time.Hour
)

// firstSweep is when a sweep comes first in a term: at a random moment, because the terms of all
// pools begin together when a node starts, and their first jobs come first.
func firstSweep(now time.Time) time.Time { return now.Add(burst + rand.N(sweepsBegin)) }

// firstTidying is likewise for what nobody waits for: a statement costs a server most on a connection on which
// it has not run yet.
func firstTidying(now time.Time) time.Time { return now.Add(burst + rand.N(sweepEvery)) }

// retakes spaces out how soon a lock is re-acquired because it is not known what became of a
// claim, or the database failed: at once, as a rule, as jobs wait; later and later if no
// term gets to a claim, as when the disk is full, for each take costs something, too.
var retakes = backoff.Policy{First: rankDelay / 2, Longest: 2 * tendEvery}

// helpRetries spaces out the tries of a node that cannot accept claims. The longest is less
// than peerPatience: what was assigned can then still be accepted.
var helpRetries = backoff.Policy{First: rankDelay, Longest: 3 * tendEvery}

// queryRetries spaces out background queries that fail.
var queryRetries = backoff.Policy{First: tendEvery, Longest: sweepEvery}
