package routing

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/internal/backoff"
)

// Breaker is whether this node can use a pool's database: the one answer for the metric, for
// gossip, for anyone who enqueues, and for those who want the lock. It is open until the pool has
// been verified. From then on it goes by the calls on the lock's connection, and is slow to
// change its mind, because all nodes elect by it: it opens after three failures in a row, after
// a while without success, or when it has cost the lock, and closes after three successes over
// several seconds. While it is open, the database is tried ever less often, and by one at a
// time. Safe for concurrent use.
type Breaker struct {
	mu      sync.Mutex
	refused error         // guarded by mu; why the pool is not in service; nil: it is
	unfit   error         // guarded by mu; see Unfit
	denied  denial        // guarded by mu; of a pool in service
	quiet   time.Duration // guarded by mu; how long without success is too long
	changed func(up bool) // guarded by mu; told of each change in service; nil: nobody is

	down   bool      // guarded by mu; of a pool in service
	fails  int       // guarded by mu; in a row
	oks    int       // guarded by mu; in a row
	since  time.Time // guarded by mu; when that row began
	fail   time.Time // guarded by mu; when a call failed last; zero: none did
	silent error     // guarded by mu; why the last call was not answered; nil: it was

	refusals  int       // guarded by mu; how many calls the server has refused since one wrote something
	refuses   error     // guarded by mu; why it refused the last of them
	refusedAt time.Time // guarded by mu; when that was

	tries backoff.Backoff // guarded by mu; spaces out the tries of a database that is down
	next  time.Time       // guarded by mu; when to try again; zero: at any time
	code  string          // guarded by mu; of the last failure that was told of; "": it was none of Postgres's
}

const (
	downAfter = 3
	upAfter   = 3
	upOver    = 5 * time.Second
)

// silenceOver is after how long without another failure a silence counts as over: nobody
// looks any more.
const silenceOver = 6 * connectTimeout

// Pace says, before the first call, how long without success is too long, and how the tries of
// a database that is down are spaced out.
func (b *Breaker) Pace(quiet time.Duration, tries backoff.Policy) {
	b.mu.Lock()
	b.quiet, b.tries.Policy = quiet, tries
	b.mu.Unlock()
}

// Watch has changed be told when the breaker of a pool in service closes (up) or opens.
func (b *Breaker) Watch(changed func(up bool)) {
	b.mu.Lock()
	b.changed = changed
	b.mu.Unlock()
}

// noteVerified takes in why the pool cannot come into service; nil: it does.
func (b *Breaker) noteVerified(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if why == nil {
		b.refused, b.unfit = nil, nil
		return
	}
	b.refused = outage(why)
	if isPermanent(why) { // if it does not answer the next time, it is not known to be mended
		b.unfit = b.refused
	}
}

// denial is that a server does not let a pool's user in any more.
type denial struct {
	why     error           // an outage; nil: it does
	way     *pgx.ConnConfig // by which it was tried
	watched bool            // somebody looks whether that is over
}

// noteDenied takes in why a way to the database of a pool in service is closed; nil: it is open. No
// way: they all are. One at a time is told of. first: nobody looks yet whether that is over.
func (b *Breaker) noteDenied(way *pgx.ConnConfig, why error) (changed, first bool) {
	b.changeState(func() {
		d := &b.denied
		before := d.why
		switch {
		case b.refused != nil, before != nil && way != nil && way != d.way, why == nil && before == nil:
			return
		case why == nil:
			d.why = nil
		default:
			d.why, d.way = why, way
			first, d.watched = !d.watched, true
		}
		changed = before == nil || d.why == nil || before.Error() != d.why.Error()
	})
	return changed, first
}

// stillDenied tells who watches whether to go on.
func (b *Breaker) stillDenied() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.denied.watched = b.denied.why != nil
	return b.denied.watched
}

// Note takes in how a call on the lock's connection went: why it failed; nil if it did not.
func (b *Breaker) Note(failure error, now time.Time) {
	b.changeState(func() { b.countCall(failure, now) })
}

// MarkDown has the database out of reach, however few calls have failed.
func (b *Breaker) MarkDown() { b.changeState(func() { b.down = true }) }

// changeState does something to b, and tells of what comes of it.
func (b *Breaker) changeState(do func()) {
	b.mu.Lock()
	before := b.isDown()
	do()
	down, changed := b.isDown(), b.changed
	b.mu.Unlock()
	if down != before && changed != nil {
		changed(!down)
	}
}

// isDown is IsDown of a pool in service, with mu held.
func (b *Breaker) isDown() bool { return b.down || b.denied.why != nil }

// countCall is Note with mu held.
func (b *Breaker) countCall(failure error, now time.Time) {
	if failure == nil {
		if b.oks == 0 {
			b.since = now
		}
		b.oks, b.fails, b.silent = b.oks+1, 0, nil
		b.next = time.Time{}
		b.tries.Reset()
		if b.down && b.oks >= upAfter && now.Sub(b.since) >= upOver {
			b.down = false
		}
		return
	}
	if b.fails == 0 {
		b.since = now
	}
	b.fails, b.oks, b.fail, b.silent = b.fails+1, 0, now, failure
	if spoke(failure) { // Postgres does not want to, which is for the caller to find out
		b.silent = nil
		b.refusals, b.refuses, b.refusedAt = b.refusals+1, failure, now
	}
	if b.fails >= downAfter || now.Sub(b.since) >= b.quiet {
		b.down = true
	}
	if b.down {
		b.next = now.Add(b.tries.Next())
	}
}

// spoke tells whether an error is the server's own, and not that it is not there.
func spoke(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && !strings.HasPrefix(pg.Code, "57P0") // it shuts down, or starts
}

// Outage is why the pool's database cannot be used now, as an error of which OutOfService is true;
// nil: as far as this node knows it can, be it that it has only just answered again. Ask it
// before waiting for the database on somebody else's behalf: the database is tried again and
// again anyway, so one more try would only keep the caller waiting.
func (b *Breaker) Outage() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.refused != nil:
		return b.refused
	case b.denied.why != nil:
		return b.denied.why
	case b.down && b.silent != nil && time.Since(b.fail) < silenceOver:
		return fmt.Errorf("%w: its database has not answered this node since %s: %w", ErrPoolDown, b.since.Format(time.RFC3339), b.silent)
	}
	return nil
}

// NoteWritten takes in that a call has written something, such as a heartbeat.
func (b *Breaker) NoteWritten() {
	b.mu.Lock()
	b.refusals = 0
	b.mu.Unlock()
}

// Unusable is why this node cannot work on the pool: [Breaker.Outage], or [Breaker.Refusing].
func (b *Breaker) Unusable() error { return cmp.Or(b.Outage(), b.Refusing()) }

// Refusing is why the server, which answers, refuses what keeps the node at work there, so that a heartbeat or a
// renewal is overdue: nothing runs in a database that takes no writes, however well it is read. nil: it does not.
// Whoever enqueues tries all the same, and is told by Postgres.
func (b *Breaker) Refusing() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refusals > 1 && time.Since(b.refusedAt) < silenceOver {
		return fmt.Errorf("%w: its server refuses what keeps this node at work there: %w", ErrPoolDown, b.refuses)
	}
	return nil
}

// Unfit is why the pool is out of service although its database answered: somebody has to
// mend something, or it is another pool's. The pool is looked at again and again, and comes
// into service once it is mended. nil: it is not known to be unfit.
func (b *Breaker) Unfit() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return cmp.Or(b.unfit, b.denied.why)
}

// neverFit is Unfit of a pool that has not been in service. Then there is no connection to be had,
// for jobs or for tenants.
func (b *Breaker) neverFit() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unfit
}

// refusal is why the pool is not in service; nil: it is.
func (b *Breaker) refusal() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

// IsDown tells whether the database is out of reach, so that others had better be elected.
func (b *Breaker) IsDown() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused != nil || b.isDown()
}

// SoundSince tells whether the database is within reach, and no call has failed since a time.
func (b *Breaker) SoundSince(since time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.isDown() && b.fail.Before(since)
}

// IsFailing tells whether the last call failed.
func (b *Breaker) IsFailing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fails > 0
}

// WaitLeft is how long to leave the database alone.
func (b *Breaker) WaitLeft(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next.IsZero() {
		return 0
	}
	return max(b.next.Sub(now), 0)
}

// TryAtOnce lets the next call try, as it is the last one for a while.
func (b *Breaker) TryAtOnce() {
	b.mu.Lock()
	b.next = time.Time{}
	b.mu.Unlock()
}

// IsNews tells whether the last failure is worth a line in the log: the first, the second,
// the fourth, and so on, and one by another of Postgres's error codes.
func (b *Breaker) IsNews(code string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	other := b.code != code
	b.code = code
	return other || b.fails&(b.fails-1) == 0
}
