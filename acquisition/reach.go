package acquisition

import (
	"math/rand/v2"
	"sync"
	"time"
)

// reach is whether this node reaches a pool's database, as the calls on the lock's
// connection show. It is slow to change its mind, because all nodes elect by it: down
// after three failures in a row, after a while without success, or when it has cost the
// lock, and up again after three successes over several seconds. While it is down, the
// database is tried ever less often, and by one at a time. Safe for concurrent use.
type reach struct {
	changed func(up bool) // told of each change; nil: nobody is
	longest time.Duration // wait between two tries while it is down, without its jitter

	mu    sync.Mutex
	down  bool      // guarded by mu
	fails int       // guarded by mu; in a row
	oks   int       // guarded by mu; in a row
	since time.Time // guarded by mu; when that row began
	fail  time.Time // guarded by mu; when a call failed last; zero: none did

	retry time.Duration // guarded by mu; the last wait between two tries, without its jitter
	next  time.Time     // guarded by mu; when to try again; zero: at any time
	code  string        // guarded by mu; of the last failure that was told of; "": it was none of Postgres's
}

const (
	downAfter = 3
	upAfter   = 3
	upFor     = 5 * time.Second
)

// firstRetry and lastRetry are the waits between tries of a database that is down, which
// have up to a quarter of jitter on top, and grow by half.
const (
	firstRetry = time.Second
	lastRetry  = 1500 * time.Millisecond
)

// longestRetry has a database that is back worked on within three seconds, of which a retry
// with its jitter may take two, and a short outage cost no lock. And whoever is the first to
// be back watches the others' sessions from then on: they must have tried, too, long before
// they look dead.
func longestRetry(lockTTL, sessionTTL time.Duration) time.Duration {
	return min(lastRetry, lockTTL/4, sessionTTL/6)
}

// note takes in how a call went; quiet is how long without success is too long.
func (r *reach) note(ok bool, now time.Time, quiet time.Duration) {
	r.change(func() { r.count(ok, now, quiet) })
}

// giveUp has the database out of reach, however few calls have failed.
func (r *reach) giveUp() { r.change(func() { r.down = true }) }

// change does something to r, and tells of what comes of it.
func (r *reach) change(do func()) {
	r.mu.Lock()
	before := r.down
	do()
	down := r.down
	r.mu.Unlock()
	if down != before && r.changed != nil {
		r.changed(!down)
	}
}

// count is note with mu held.
func (r *reach) count(ok bool, now time.Time, quiet time.Duration) {
	if ok {
		if r.oks == 0 {
			r.since = now
		}
		r.oks, r.fails = r.oks+1, 0
		r.retry, r.next = 0, time.Time{}
		if r.down && r.oks >= upAfter && now.Sub(r.since) >= upFor {
			r.down = false
		}
	} else {
		if r.fails == 0 {
			r.since = now
		}
		r.fails, r.oks, r.fail = r.fails+1, 0, now
		if r.fails >= downAfter || now.Sub(r.since) >= quiet {
			r.down = true
		}
		if r.down {
			r.retry = min(max(r.retry+r.retry/2, firstRetry), r.longest)
			r.next = now.Add(r.retry + rand.N(r.retry/4))
		}
	}
}

// isDown tells whether the database is out of reach.
func (r *reach) isDown() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.down
}

// sound tells whether the database is within reach, and no call has failed since a time.
func (r *reach) sound(since time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.down && r.fail.Before(since)
}

// failing tells whether the last call failed.
func (r *reach) failing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fails > 0
}

// rest is how long to leave the database alone.
func (r *reach) rest(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next.IsZero() {
		return 0
	}
	return max(r.next.Sub(now), 0)
}

// again lets the next call try, as it is the last one for a while.
func (r *reach) again() {
	r.mu.Lock()
	r.next = time.Time{}
	r.mu.Unlock()
}

// isNews tells whether the last failure is worth a line in the log: the first, the second,
// the fourth, and so on, and one by another of Postgres's error codes.
func (r *reach) isNews(code string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	other := r.code != code
	r.code = code
	return other || r.fails&(r.fails-1) == 0
}
