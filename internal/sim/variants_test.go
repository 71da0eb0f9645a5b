package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/acquisition"
)

// TestBrokenVariants takes one protection away at a time and expects to be told.
func TestBrokenVariants(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates for minutes")
	}
	for _, c := range []struct {
		name    string
		seed    uint64 // the first that is tried: the one that showed it last
		variant variant
		only    string // the episodes that show it; empty: all of them
		says    string // a pattern of the first fault
	}{
		{"an expired lock can be renewed", 1, variant{flaws: flaws{renewExpired: true}}, "", "renewed a lock that had expired"},
		{"the epoch is the clock's time, also when that goes back", 7, variant{flaws: flaws{epochIsClock: true}}, "", "was given out after"},
		{"no fence", 1, variant{flaws: flaws{noFence: true}}, "", "has claimed"},
		{"a lock counts as quiet since it was taken", 1, variant{flaws: flaws{quietSinceTake: true}}, "", "was well and had not let go"},
		{"every holder is thought dead", 1, variant{elector: func(e acquisition.Elector) acquisition.Elector { return pessimist{e} }}, "clock jumps", "was well and had not let go"},
		{"a lock is given up whenever the view changes", 1, variant{elector: func(e acquisition.Elector) acquisition.Elector { return fickle{e} }}, "", " moved (during|when)"},
		{"only the elected node tries, and does not say that it cannot", 1, variant{elector: func(e acquisition.Elector) acquisition.Elector { return proud{e} }}, "database cut off from some", "nobody has held the lock"},
		{"nobody is told of an offer", 2, variant{elector: func(e acquisition.Elector) acquisition.Elector { return silent{e} }}, "restart", "a lock was free for"},
		{"lost members are not looked for", 1, variant{forgetful: true}, "", "do not agree"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := c.seed; seed < c.seed+12; seed++ {
				s := setupOf(seed)
				s.variant, s.only = c.variant, c.only
				began := time.Now()
				o := play(t, s, time.Hour)
				if len(o.faults) == 0 {
					continue
				}
				require.Regexp(t, c.says, o.faults[0], "seed %d found something else:\n%s", seed, o.timeline)
				t.Logf("seed %d, after %v (%v): %s", seed, o.virtual.Round(time.Second), time.Since(began).Round(time.Millisecond), strings.Split(o.faults[0], "\n")[0])
				return
			}
			require.Fail(t, "nothing was found to be broken")
		})
	}
}

// pessimist takes nobody for alive.
type pessimist struct{ acquisition.Elector }

func (pessimist) Alive(string) bool { return false }

// fickle wants somebody else to have the lock whenever somebody has come or gone.
type fickle struct{ acquisition.Elector }

func (f fickle) StableFor() time.Duration { return time.Hour }
func (f fickle) Share() int               { return 0 }

func (f fickle) Elected(pool string) string {
	if peers := f.Peers(); len(peers) > 0 && f.Elector.StableFor() < 3*time.Second {
		return peers[0]
	}
	return f.Elector.Elected(pool)
}

// proud leaves every lock alone for which it is not elected, and admits nothing.
type proud struct{ acquisition.Elector }

func (p proud) Rank(pool string) (int, bool) {
	rank, ok := p.Elector.Rank(pool)
	return rank, ok && rank == 0
}

func (proud) SetReaches(string, bool) {}

// silent sends no offers.
type silent struct{ acquisition.Elector }

func (s silent) Send(member string, kind byte, payload []byte) error {
	if kind == acquisition.MessageOffer {
		return nil
	}
	return s.Elector.Send(member, kind, payload)
}
