package acquisition

import (
	"sync"
	"time"
)

// reach is whether this node reaches a pool's database, as the calls on the lock's
// connection show. It is slow to change its mind, because all nodes elect by it: down
// after three failures in a row, or after a while without success, and up again after
// three successes over several seconds. Safe for concurrent use.
type reach struct {
	changed func(up bool) // told of each change; nil: nobody is

	mu    sync.Mutex
	down  bool      // guarded by mu
	fails int       // guarded by mu; in a row
	oks   int       // guarded by mu; in a row
	since time.Time // guarded by mu; when that row began
}

const (
	downAfter = 3
	upAfter   = 3
	upFor     = 5 * time.Second
)

// note takes in how a call went; quiet is how long without success is too long.
func (r *reach) note(ok bool, now time.Time, quiet time.Duration) {
	r.mu.Lock()
	before := r.down
	if ok {
		if r.oks == 0 {
			r.since = now
		}
		r.oks, r.fails = r.oks+1, 0
		if r.down && r.oks >= upAfter && now.Sub(r.since) >= upFor {
			r.down = false
		}
	} else {
		if r.fails == 0 {
			r.since = now
		}
		r.fails, r.oks = r.fails+1, 0
		if r.fails >= downAfter || now.Sub(r.since) >= quiet {
			r.down = true
		}
	}
	down := r.down
	r.mu.Unlock()
	if down != before && r.changed != nil {
		r.changed(!down)
	}
}

// isDown tells whether the database is out of reach.
func (r *reach) isDown() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.down
}
