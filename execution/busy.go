package execution

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	busyAfter = stuckAfter // runs keep workers for so long before others are told
	mostKinds = 5
)

// Busy is what keeps the workers, for those who wonder what jobs wait for, or why this process is to be restarted.
type Busy struct {
	Workers int  // that there are
	Kept    int  // of them those that runs have kept for ten seconds
	Full    bool // the others, if any, are for tenants that run nothing
	Left    int  // of the handlers that ignore the end of their context: those that keep a worker; see Unhealthy
	Kinds   []BusyKind
}

// BusyKind is what is so of a kind.
type BusyKind struct {
	Kind  string
	Runs  int       // that keep a worker
	Stuck int       // handlers that ignore the end of their context
	Since time.Time // the first of all these
}

// Equal tells whether two say the same.
func (b Busy) Equal(o Busy) bool {
	return b.Workers == o.Workers && b.Kept == o.Kept && b.Full == o.Full && b.Left == o.Left && slices.Equal(b.Kinds, o.Kinds)
}

// busyness is what was seen when it was looked last.
type busyness struct {
	all   Busy
	stuck Busy // without the runs that heed their context
}

// noteBusy sees what has kept workers for long.
func (w *Workers) noteBusy(now time.Time) {
	all, stuck := map[string]BusyKind{}, map[string]BusyKind{}
	kept, left := 0, 0
	for _, s := range w.slots {
		s.mu.Lock()
		if s.claim != nil && now.Sub(s.began) >= busyAfter {
			kind, ignores := s.claim.Record.Kind, s.keeps(now) || s.replaced
			all[kind] = all[kind].with(kind, s.began, !s.replaced, ignores)
			if ignores {
				stuck[kind] = stuck[kind].with(kind, s.began, false, true)
			}
			if !s.replaced {
				kept++
			}
			if s.keeps(now) {
				left++
			}
		}
		s.mu.Unlock()
	}
	var b *busyness // nil: nothing is to be told
	if len(all) > 0 {
		b = &busyness{
			all:   Busy{Workers: w.cfg.Workers, Kept: kept, Full: kept > 0 && !w.backlog.share.AdmitsOneMore(1, 1, w.cfg.Workers-kept), Left: left, Kinds: mostRuns(all)},
			stuck: Busy{Workers: w.cfg.Workers, Left: left, Kinds: mostRuns(stuck)},
		}
	}
	w.busy.Store(b)
}

func (b BusyKind) with(kind string, began time.Time, runs, stuck bool) BusyKind {
	b.Kind = kind
	if runs {
		b.Runs++
	}
	if stuck {
		b.Stuck++
	}
	if began = began.UTC().Truncate(time.Second); b.Since.IsZero() || began.Before(b.Since) {
		b.Since = began
	}
	return b
}

// mostRuns are the kinds with most runs.
func mostRuns(kinds map[string]BusyKind) []BusyKind {
	all := slices.SortedFunc(maps.Values(kinds), func(a, b BusyKind) int {
		return cmp.Or(cmp.Compare(b.Runs+b.Stuck, a.Runs+a.Stuck), cmp.Compare(a.Kind, b.Kind))
	})
	return all[:min(len(all), mostKinds)]
}

// Busy tells what keeps the workers, as it was at most a second ago, if none is left for tenants that run something;
// else which handlers ignore the end of their context. The zero Busy: neither.
func (w *Workers) Busy() Busy {
	b := w.busy.Load()
	switch {
	case b == nil:
		return Busy{}
	case b.all.Full:
		return b.all
	case len(b.stuck.Kinds) > 0:
		return b.stuck
	}
	return Busy{}
}
