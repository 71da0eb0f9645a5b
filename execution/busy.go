package execution

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tenurehq/tenure/job"
)

const (
	busyAfter = stuckAfter // runs keep workers, and claims wait for them, for so long before others are told
	mostKinds = 5
	mostLate  = 1000
)

// Busy is what keeps the workers, for those who wonder what an owner's jobs wait for, or why this process is to be
// restarted.
type Busy struct {
	Waiting []job.ID // the owner's that wait for a worker, in the order of their ids
	Workers int      // that there are
	Kept    int      // of them those that runs have kept for ten seconds
	Left    int      // of the handlers that ignore the end of their context: those that keep a worker; see Unhealthy
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
	return b.Workers == o.Workers && b.Kept == o.Kept && b.Left == o.Left && slices.Equal(b.Waiting, o.Waiting) && slices.Equal(b.Kinds, o.Kinds)
}

// busyness is what was seen when it was looked last.
type busyness struct {
	all   Busy // of nobody's waiting claims
	stuck Busy // without the runs that heed their context
	late  map[Owner][]job.ID
}

// noteBusy sees what has kept workers for long, and which claims have waited for as long.
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
			all:   Busy{Workers: w.cfg.Workers, Kept: kept, Left: left, Kinds: mostRuns(all)},
			stuck: Busy{Workers: w.cfg.Workers, Left: left, Kinds: mostRuns(stuck)},
			late:  w.backlog.listLate(now.Add(-busyAfter)),
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

// Busy tells what keeps the workers, as it was at most a second ago, if claims of o have waited for one for ten seconds or
// no worker is left, for which nothing more is claimed; else which handlers ignore the end of their context. The zero Busy: neither.
func (w *Workers) Busy(o Owner) Busy {
	b := w.busy.Load()
	switch {
	case b == nil:
		return Busy{}
	case len(b.late[o]) > 0, b.all.Kept >= b.all.Workers:
		all := b.all
		all.Waiting = b.late[o]
		return all
	case len(b.stuck.Kinds) > 0:
		return b.stuck
	}
	return Busy{}
}

// listLate lists the claims that have waited since then, mostLate of an owner at most.
func (b *backlog) listLate(since time.Time) map[Owner][]job.ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	late := map[Owner][]job.ID{}
	for o, owner := range b.owners {
		var ids []job.ID
		for _, q := range owner.byTenant {
			for _, c := range q.waiting() {
				if c.queued.After(since) {
					break
				}
				ids = append(ids, c.Record.ID)
			}
		}
		if slices.Sort(ids); len(ids) > 0 {
			late[o] = ids[:min(len(ids), mostLate)]
		}
	}
	return late
}
