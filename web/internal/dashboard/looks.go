package dashboard

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tenurehq/tenure/operate"
)

const (
	// looksPerSecond bounds what those who look cost the databases together, however many they are:
	// a pool is looked at every second, or, if there are more than so many, in turn.
	looksPerSecond = 100
	// examineEvery is how often it is looked for what is wrong with a pool's work, while somebody looks.
	examineEvery = 5 * time.Second
	// looksAtOnce is how many pools are asked at a time: more would only make each of them late.
	looksAtOnce = 32
	// lookWithin is how long a page waits for a look at pools of which it has nothing else to show.
	lookWithin = 2 * time.Second
	// askWithin is how long a pool has for its answer: a little less than a page waits.
	askWithin = lookWithin - 100*time.Millisecond
	// goodFor is for how long what was seen of a pool is how it stands. It is longer where there are so many that
	// their turn comes later.
	goodFor = 10 * time.Second
	// patience is how long a page waits for something newer than what it could show already.
	patience = 50 * time.Millisecond
	// ratesOver is over how long numbers in a second are taken: Postgres says what it has counted
	// once in a second or so.
	ratesOver = 5 * time.Second
)

// looker keeps what was seen of the pools last, for all who look. While nobody does it asks nothing.
type looker struct {
	names  func() []string
	askOne func(context.Context, string) (operate.PoolOverview, error)
	wrong  func(context.Context, string) (operate.PoolFindings, error)
	places chan struct{} // as many as pools are asked at a time

	mu     sync.Mutex
	pools  map[string]*glance // guarded by mu
	series series             // guarded by mu
}

// glance is what was seen of one pool.
type glance struct {
	begun  time.Time             // when the last look that has ended began; zero: none has
	err    error                 // of that look; nil: it was answered
	seen   *operate.PoolOverview // the last answer; nil: there was none
	found  operate.PoolFindings  // what is wrong with its work
	missed error                 // why that is not known
	looked time.Time             // when it was looked for that
	counts []counted             // of the last answers, the oldest first, for ratesOver
	newer  time.Time             // what was seen before then does not count any more
	good   time.Duration         // for how long it counts
	asking chan struct{}         // closed when the look that is under way has ended; nil: none is
}

// counted is what Postgres has counted at a time.
type counted struct {
	at                     time.Time
	finished, failed, died int64
}

func newLooker(op *operate.Operator) *looker {
	return &looker{names: op.Pools().Names, askOne: func(ctx context.Context, pool string) (operate.PoolOverview, error) {
		return op.Pools().Overview(ctx, pool)
	},
		wrong:  func(ctx context.Context, pool string) (operate.PoolFindings, error) { return op.ExamineWork(ctx, pool) },
		places: make(chan struct{}, looksAtOnce), pools: map[string]*glance{}}
}

// isGood says whether what was seen is how it stands.
func (g *glance) isGood() bool {
	return !g.begun.IsZero() && !g.begun.Before(g.newer) && time.Since(g.begun) <= g.good
}

// look returns what is known of all pools, by their names. For pools of which nothing is known, or nothing of late, or
// which somebody has just changed, it waits for lookWithin; for the others a moment. Of those of which nothing is known then
// begun is zero.
func (l *looker) look(ctx context.Context) map[string]glance {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	for short := time.After(patience); ; {
		must, may := l.begin()
		waited := true
		for _, end := range must {
			waited = waited && wait(end, ctx.Done())
		}
		if len(must) > 0 && waited { // one that somebody has changed may have to be looked at once more
			continue
		}
		for _, end := range may {
			if !wait(end, short) {
				break
			}
		}
		return l.snapshot()
	}
}

// wait says whether something has ended before it is given up.
func wait[T any](end <-chan struct{}, giveUp <-chan T) bool {
	select {
	case <-end:
		return true
	case <-giveUp:
		return false
	}
}

// begin has those pools looked at whose turn it is. It returns what ends with the looks that have to be
// waited for, and those that need not.
func (l *looker) begin() (must, may []chan struct{}) {
	names := l.names()
	every := max(time.Second, time.Duration(len(names))*time.Second/looksPerSecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.pools {
		if !slices.Contains(names, name) { // it was taken out of the configuration
			delete(l.pools, name)
		}
	}
	for _, name := range names {
		g := l.pools[name]
		if g == nil {
			g = &glance{}
			l.pools[name] = g
		}
		g.good = max(goodFor, 2*every)
		known := g.isGood()
		if g.asking == nil && (!known || time.Since(g.begun) >= every) {
			g.asking = make(chan struct{})
			go l.ask(name, g) // ends within askWithin of its place
		}
		switch {
		case g.asking != nil && !known:
			must = append(must, g.asking)
		case g.asking != nil && g.err == nil: // else it is likely to keep everybody waiting
			may = append(may, g.asking)
		}
	}
	return must, may
}

func (l *looker) ask(name string, g *glance) {
	l.places <- struct{}{}
	defer func() { <-l.places }()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), askWithin) // for all who look, whichever of them goes
	defer cancel()
	seen, err := l.askOne(ctx, name)
	l.mu.Lock()
	examine := err == nil && (g.looked.Before(g.newer) || begun.Sub(g.looked) >= examineEvery)
	found, missed, looked := g.found, g.missed, g.looked
	l.mu.Unlock()
	if examine {
		looked = begun
		found, missed = l.wrong(ctx, name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g.begun, g.err = begun, err
	g.found, g.missed, g.looked = found, missed, looked
	if err == nil {
		g.seen = &seen
		if n := len(g.counts); n > 0 && begun.Sub(g.counts[n-1].at) > g.good { // nobody has looked for a while
			g.counts = nil
		}
		g.counts = append(g.counts, counted{begun, seen.Load.Finished, seen.Load.Failed, seen.Load.Died})
		for len(g.counts) > 2 && begun.Sub(g.counts[1].at) >= ratesOver {
			g.counts = g.counts[1:]
		}
	}
	close(g.asking)
	g.asking = nil
}

// snapshot copies what is known, and notes a point of the charts when it is time.
func (l *looker) snapshot() map[string]glance {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]glance, len(l.pools))
	for name, g := range l.pools {
		if g.isGood() {
			all[name] = *g
		} else {
			all[name] = glance{newer: g.newer, good: g.good}
		}
	}
	l.series.note(newPoint(time.Now(), all))
	return all
}

// points are those that were noted, and how it is now.
func (l *looker) points(now map[string]glance) series {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(slices.Clone(l.series), newPoint(time.Now(), now))
}

// expire has the next page wait for what is newer than an action.
func (l *looker) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.pools {
		g.newer = time.Now()
	}
}

// perSecond is how many jobs of a pool have finished, failed and died in a second of late; all are 0
// if that is not known.
func (g *glance) perSecond() (finished, failed, died float64) {
	if len(g.counts) < 2 {
		return 0, 0, 0
	}
	first, last := g.counts[0], g.counts[len(g.counts)-1]
	passed := last.at.Sub(first.at).Seconds()
	rate := func(n int64) float64 { return float64(max(0, n)) / passed } // statistics may have been reset
	return rate(last.finished - first.finished), rate(last.failed - first.failed), rate(last.died - first.died)
}
