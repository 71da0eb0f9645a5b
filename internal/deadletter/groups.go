package deadletter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tenurehq/tenure/job"
)

// Group is the dead letters of one kind that died of the same cause, as far as their errors tell.
type Group struct {
	ID      string // follows from Kind and Pattern, whatever the pool and the day
	Kind    string
	Pattern string // their error, without what differs; see [Pattern]
	Count   int
	First   time.Time // the earliest death
	Last    time.Time
	Sample  job.ID // the one that died last
}

// GroupID is that of the group of a kind and a pattern.
func GroupID(kind, pattern string) string {
	return fmt.Sprintf("%016x", xxhash.Sum64String(kind+"\x00"+pattern))
}

// MaxGroups bounds how many groups are told apart. The dead letters of further ones are in a
// group of their kind without a pattern: then the errors have too much in them that differs.
const MaxGroups = 10_000

// Groups gathers dead letters.
type Groups struct{ byID map[string]*Group }

// NewGroups returns what has gathered none.
func NewGroups() *Groups { return &Groups{map[string]*Group{}} }

// Add adds groups, such as those of another pool, or of one dead letter with its pattern.
func (g *Groups) Add(one Group) {
	one.ID = GroupID(one.Kind, one.Pattern)
	known := g.byID[one.ID]
	if known == nil && len(g.byID) >= MaxGroups {
		one.Pattern = ""
		one.ID = GroupID(one.Kind, "")
		known = g.byID[one.ID]
	}
	if known == nil {
		g.byID[one.ID] = &one
		return
	}
	known.Count += one.Count
	if one.First.Before(known.First) {
		known.First = one.First
	}
	if !one.Last.Before(known.Last) {
		known.Last, known.Sample = one.Last, one.Sample
	}
}

// List returns the groups, the largest first.
func (g *Groups) List() []Group {
	all := make([]Group, 0, len(g.byID))
	for _, one := range g.byID {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Pattern, b.Pattern))
	})
	return all
}
