package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure/operate"
)

// queueRow is a queue, in all pools together.
type queueRow struct {
	Name             string
	Waiting, Running int64
	Tenants          int64
	Oldest           time.Duration
	Pools            []string
	More             bool // there may be more that wait, and older ones
	Frozen           bool // in some of the pools
}

// frozenRow is a queue or kind that is frozen.
type frozenRow struct {
	Queue, Kind string
	Since       time.Time // in the first of the pools
	Pools       []string
}

type queuesBody struct {
	Pool   string
	Pools  []string
	Rows   []queueRow
	Frozen []frozenRow
}

func queuesPage(v *visit) (view, error) {
	pool := v.FormValue("pool")
	pools := v.pools(pool)
	answers := make([][]operate.QueueStatus, len(pools))
	var questions []func()
	for i, p := range pools { // each by itself, so that it is told which of those that may be seen did not answer
		questions = append(questions, func() {
			var err error
			answers[i], err = v.op.Queues().List(v.ctx, operate.LoadFilter{Pool: p, Tenants: v.grant.Tenants})
			v.missing(p, err)
		})
	}
	var frozen []frozenRow
	if v.grant.SeesTenant("") { // it is everybody's
		questions = append(questions, func() {
			all, err := v.op.Frozen(v.ctx)
			v.missing("", err)
			frozen = groupFrozen(slices.DeleteFunc(all, func(f operate.FrozenStatus) bool { return !v.grant.SeesPool(f.Pool) }))
		})
	}
	together(questions...)
	return view{Page: "queues", Title: titled("Queues", "in pool", pool), Body: queuesBody{pool, v.offeredPools(), groupQueues(slices.Concat(answers...), len(v.grant.Tenants) == 0), frozen}}, nil
}

// groupFrozen has one row for what is frozen in several pools.
func groupFrozen(all []operate.FrozenStatus) (rows []frozenRow) {
	for _, f := range all {
		if n := len(rows); n == 0 || rows[n-1].Queue != f.Queue || rows[n-1].Kind != f.Kind {
			rows = append(rows, frozenRow{Queue: f.Queue, Kind: f.Kind, Since: f.Since})
		}
		r := &rows[len(rows)-1]
		r.Pools = append(r.Pools, f.Pool)
		if f.Since.Before(r.Since) {
			r.Since = f.Since
		}
	}
	return rows
}

// groupQueues adds up what waits in the queues of one name, the one with the oldest jobs first. empty keeps those without.
func groupQueues(parts []operate.QueueStatus, empty bool) (rows []queueRow) {
	for _, p := range parts {
		if p.Waiting+p.Running == 0 && !empty { // what there is belongs to others
			continue
		}
		i := slices.IndexFunc(rows, func(r queueRow) bool { return r.Name == p.Name })
		if i < 0 {
			i, rows = len(rows), append(rows, queueRow{Name: p.Name})
		}
		r := &rows[i]
		r.Waiting, r.Running, r.Tenants = r.Waiting+p.Waiting, r.Running+p.Running, r.Tenants+p.Tenants
		r.Oldest, r.More = max(r.Oldest, p.Oldest), r.More || operate.More(p.Waiting)
		r.Pools = append(r.Pools, p.Pool)
		r.Frozen = r.Frozen || !p.FrozenSince.IsZero()
	}
	slices.SortFunc(rows, func(a, b queueRow) int {
		return cmp.Or(cmp.Compare(b.Oldest, a.Oldest), strings.Compare(a.Name, b.Name))
	})
	return rows
}
