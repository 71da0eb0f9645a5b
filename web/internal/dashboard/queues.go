package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure"
)

// queueRow is a queue, in all pools together.
type queueRow struct {
	Name             string
	Waiting, Running int64
	Tenants          int64
	Oldest           time.Duration
	Pools            []string
	More             bool // there may be more that wait, and older ones
}

type queuesBody struct {
	Pool  string
	Pools []string
	Rows  []queueRow
}

func queuesPage(v *visit) (view, error) {
	pool := v.FormValue("pool")
	pools := v.pools(pool)
	answers := make([][]tenure.QueueStatus, len(pools))
	var questions []func()
	for i, p := range pools { // each by itself, so that it is told which of those that may be seen did not answer
		questions = append(questions, func() {
			var err error
			answers[i], err = v.op.Queues(v.ctx, tenure.QueueFilter{Pool: p, Tenants: v.grant.Tenants})
			v.missing(p, err)
		})
	}
	together(questions...)
	return view{Page: "queues", Title: "Queues", Body: queuesBody{pool, v.pools(""), groupQueues(slices.Concat(answers...))}}, nil
}

// groupQueues adds up what waits in the queues of one name, the one with the oldest jobs first.
func groupQueues(parts []tenure.QueueStatus) (rows []queueRow) {
	for _, p := range parts {
		if p.Waiting+p.Running == 0 { // what there is belongs to others
			continue
		}
		i := slices.IndexFunc(rows, func(r queueRow) bool { return r.Name == p.Name })
		if i < 0 {
			i, rows = len(rows), append(rows, queueRow{Name: p.Name})
		}
		r := &rows[i]
		r.Waiting, r.Running, r.Tenants = r.Waiting+p.Waiting, r.Running+p.Running, r.Tenants+p.Tenants
		r.Oldest, r.More = max(r.Oldest, p.Oldest), r.More || tenure.More(p.Waiting)
		r.Pools = append(r.Pools, p.Pool)
	}
	slices.SortFunc(rows, func(a, b queueRow) int {
		return cmp.Or(cmp.Compare(b.Oldest, a.Oldest), strings.Compare(a.Name, b.Name))
	})
	return rows
}
