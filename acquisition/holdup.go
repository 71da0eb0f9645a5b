package acquisition

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
)

// A transaction that stays open for long, even one that only reads, keeps Postgres from
// tidying away the rows that jobs leave behind. Here that costs little, as cursors read on
// behind those rows; elsewhere in the same database it may cost much, and queues of other
// makes stand still for it. Whoever operates it is told.
const (
	longHoldup   = 5 * time.Minute
	sayHoldup    = 30 * time.Minute
	holdupsEvery = time.Minute
)

// holdup is the oldest one that was seen.
type holdup struct {
	id    store.HoldupID
	since time.Time // when it was first seen
	said  time.Time // when it was last told of; zero: not yet
}

// see takes a look and returns for how long it has held up, and whether to tell so now.
// For how long a session of another user's has had its transaction is seen only by
// looking again and again.
func (h *holdup) see(o store.Holdup, now time.Time) (held time.Duration, say bool) {
	if h.id != o.HoldupID {
		*h = holdup{id: o.HoldupID, since: now}
	}
	held = max(o.Open, now.Sub(h.since))
	if say = held >= longHoldup && (h.said.IsZero() || now.Sub(h.said) >= sayHoldup); say {
		h.said = now
	}
	return held, say
}

// reportHoldup says what keeps dead rows from being tidied away.
func (t *term) reportHoldup() look {
	return func(ctx context.Context) (use func(), err error) {
		o, found, err := store.OldestHoldup(ctx, t.pool.Jobs())
		return func() { t.saw(o, found) }, err
	}
}

func (t *term) saw(o store.Holdup, found bool) {
	var held time.Duration
	if found {
		var say bool
		if held, say = t.holdup.see(o, time.Now()); say {
			t.log.Warn("a transaction has been open for long; Postgres cannot tidy up behind it, and the whole database gets slower: find out why it is, and "+o.Remedy(),
				zap.String("what", o.What), zap.String("id", o.ID), zap.String("user", o.User), zap.String("application", o.Application),
				zap.String("state", o.State), zap.Duration("for", held.Round(time.Second)))
		}
	}
	t.metrics.holdup.WithLabelValues(t.pool.Name).Set(held.Seconds())
}
