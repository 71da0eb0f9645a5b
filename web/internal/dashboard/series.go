package dashboard

import (
	"slices"
	"time"

	"github.com/tenurehq/tenure/operate"
)

const (
	// noteEvery is how far apart the points of the charts are, while somebody looks.
	noteEvery = 2 * time.Second
	// chartsOver is how long the charts go back.
	chartsOver = 10 * time.Minute
)

// point is what was to be seen of all pools at a time.
type point struct {
	at                     time.Time
	done, retrying, died   float64 // in a second
	waiting, running       float64 // jobs
	run, runMost           float64 // ms: of half of the runs, and of 95 %; less than 0: not known
	waitedHalf, waitedMost float64 // ms, from when jobs were added to their start; likewise
}

// series is the points of the charts, the oldest first.
type series []point

// note adds a point when it is time for one.
func (s *series) note(p point) {
	if n := len(*s); n > 0 && p.at.Sub((*s)[n-1].at) < noteEvery {
		return
	}
	for len(*s) > 0 && p.at.Sub((*s)[0].at) > chartsOver {
		*s = (*s)[1:]
	}
	*s = append(*s, p)
}

// newPoint adds up what was seen of the pools.
func newPoint(now time.Time, pools map[string]glance) point {
	p := point{at: now}
	var runs []operate.RunTime
	for _, g := range pools {
		if g.seen == nil || g.err != nil {
			continue
		}
		done, failed, died := g.perSecond()
		p.done, p.retrying, p.died = p.done+done, p.retrying+max(0, failed-died), p.died+died
		p.waiting, p.running = p.waiting+float64(g.seen.Load.Waiting), p.running+float64(g.seen.Load.Running)
		runs = append(runs, g.seen.Runs...)
	}
	p.run, p.runMost = quantiles(runs, func(r operate.RunTime) time.Duration { return r.Ran })
	p.waitedHalf, p.waitedMost = quantiles(runs, func(r operate.RunTime) time.Duration { return r.Waited })
	return p
}

// quantiles is what half and 95 % of the runs took at most, in ms; less than 0: there are none.
func quantiles(runs []operate.RunTime, of func(operate.RunTime) time.Duration) (half, most float64) {
	if len(runs) == 0 {
		return -1, -1
	}
	all := make([]time.Duration, len(runs))
	for i, r := range runs {
		all[i] = of(r)
	}
	slices.Sort(all)
	at := func(share float64) float64 {
		return float64(all[int(share*float64(len(all)-1))].Microseconds()) / 1000
	}
	return at(0.5), at(0.95)
}
