package sim

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed")
	seeds     = flag.Int("seeds", 6, "how many seeds to run, each with a world of its own")
	hours     = flag.Float64("hours", 1, "virtual hours per seed")
	within    = flag.Duration("within", 0, "begin no seed after this long; 0: run all")
)

// outcome is how a world did.
type outcome struct {
	faults   []string
	timeline string
	totals   totals
	stats    stats
	counts   counts
	virtual  time.Duration
}

// play runs the world of a seed in a bubble.
func play(t *testing.T, s setup, d time.Duration) (o outcome) {
	statements := loadStatements()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(s, statements)
		w.live(d)
		o = outcome{faults: w.judge.faults, timeline: w.judge.timeline(), totals: w.judge.report(), stats: w.stats, counts: w.wires.counted(), virtual: time.Since(w.began)}
		w.end()
	})
	return o
}

func TestSimulation(t *testing.T) {
	all, sum, began := newStats(), totals{}, time.Now()
	var virtual time.Duration
	ran, most, long := 0, *seeds, time.Duration(*hours*float64(time.Hour))
	if testing.Short() {
		most, long = 1, long/2
	}
	for ; ran < most && (*within == 0 || time.Since(began) < *within); ran++ {
		seed := *firstSeed + uint64(ran)
		o := play(t, setupOf(seed), long)
		if len(o.faults) > 0 {
			t.Errorf("seed %d: %s\n\nthe end of the timeline:\n%s\nrepeat it: go test ./internal/sim -run TestSimulation -seed %d -seeds 1 -hours %g",
				seed, o.faults[0], o.timeline, seed, *hours)
		}
		all.add(o.stats)
		sum.add(o.totals)
		virtual += o.virtual
	}
	took := time.Since(began)
	t.Logf("%d seeds, %.1f virtual hours in %v: %.2f hours per second", ran, virtual.Hours(), took.Round(time.Millisecond), virtual.Hours()/took.Seconds())
	t.Log(report(all, sum))
}

func report(s stats, t totals) string {
	return fmt.Sprintf(`
episodes            %v
locks               taken %d times: %d handed over, %d taken over, %d stolen, %d given away in vain; renewed %d times
claims              %d let through, %d refused
vacant              %v at most
free at a hand-over %s
without a holder    %s after a crash; %s after any fault
agreed after        %s
stale belief        %v at most
reads               %.2f per second and pool at most while gossip was in pieces, %.2f while it flapped, %.1f over any ten seconds
no lock moved       %v
restarts            %d of nodes that held %d locks: %d moved when they left, %d when they came back`,
		s.episodes, t.takes, t.handovers, t.takeovers, t.thefts, t.unheeded, t.renewals, t.claims, t.refused, t.worstVacancy, spread(t.handoverGaps), spread(s.crashGaps), spread(t.takeoverGaps),
		spread(s.converged), t.worstBelief, s.reads, s.flapReads, t.worstReads, s.still, s.restarts, s.restartHeld, s.restartAway, s.restartBack)
}
