package dashboard

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/tenurehq/tenure"
)

type deadBody struct {
	Filter tenure.DeadFilter
	Pools  []string
	Groups []tenure.DeadGroup
	Total  int
}

func deadPage(v *visit) (view, error) {
	f := tenure.DeadFilter{Pool: v.FormValue("pool"), Tenant: v.FormValue("tenant"), Kind: v.FormValue("kind")}
	body := deadBody{Filter: f, Pools: v.pools(""), Groups: groupDead(v, f)}
	for _, g := range body.Groups {
		body.Total += g.Count
	}
	return view{Page: "dead", Title: "Dead letters", Body: body}, nil
}

// groupDead groups the dead letters that the visitor may see, the largest group first.
func groupDead(v *visit, f tenure.DeadFilter) []tenure.DeadGroup {
	parts := gather(v, f.Pool, f.Tenant, func(pool, tenant string) ([]tenure.DeadGroup, error) {
		of := f
		of.Pool, of.Tenant = pool, tenant
		return v.op.DeadLetters().Groups(v.ctx, of)
	})
	return tenure.MergeGroups(parts)
}

type confirmBody struct {
	Action string
	Filter tenure.DeadFilter
	Group  tenure.DeadGroup
	Before string
}

// confirmPage says how many dead letters there are to be retried or deleted.
func confirmPage(v *visit) (view, error) {
	if !v.grant.May(roleOfJobs) {
		return view{}, errNotAllowed
	}
	action := v.FormValue("action")
	if action != "retry" && action != "delete" {
		return view{}, notFound("action")
	}
	now := time.Now()
	f := deadFilter(v)
	groups := groupDead(v, f)
	if f.Group == "" || len(groups) == 0 {
		return view{}, notFound("group of dead letters")
	}
	before := now.UTC().Format(time.RFC3339Nano) // what dies later was not counted, and is left alone
	switch last := groups[0].Last; {
	case last.Sub(now) > farAhead:
		before = untilAsked
	case !last.Before(now):
		before = last.Add(time.Microsecond).UTC().Format(time.RFC3339Nano)
	}
	title := strings.ToUpper(action[:1]) + action[1:] + " dead letters"
	return view{Page: "confirm", Title: title, Still: true, Body: confirmBody{Action: action, Filter: f, Group: groups[0], Before: before}}, nil
}

// untilAsked stands for the time when the dead letters' database is asked to change them: some have died at a time that
// is far ahead of this node's clock.
const untilAsked = "asked"

// farAhead is more than the clocks of a node and a database differ by while both are right.
const farAhead = time.Minute

func deadFilter(v *visit) tenure.DeadFilter {
	return tenure.DeadFilter{Pool: v.FormValue("pool"), Tenant: v.FormValue("tenant"), Kind: v.FormValue("kind"), Group: v.FormValue("group")}
}

// changeDead has the holders of the pools' locks retry or delete a group.
func changeDead(v *visit) (string, error) {
	f := deadFilter(v)
	var err error
	if before := v.FormValue("before"); before != untilAsked {
		f.Before, err = time.Parse(time.RFC3339Nano, before)
	}
	if err != nil || f.Group == "" {
		return "", &statusError{http.StatusBadRequest, "Which group, and up to when, is missing: go back to the dead letters."}
	}
	begin := v.op.DeadLetters().RetryInBackground
	switch v.PathValue("action") {
	case "retry":
	case "delete":
		begin = v.op.DeadLetters().DeleteInBackground
	default:
		return "", notFound("action")
	}
	asked := 0
	for _, pool := range v.pools(f.Pool) {
		for _, tenant := range v.tenants(f.Tenant) {
			of := f
			of.Pool, of.Tenant = pool, tenant
			if _, failed := begin(v.ctx, of, 0, v.grant.Name); failed != nil {
				err = cmp.Or(err, failed)
				continue
			}
			asked++
		}
	}
	if asked == 0 && err == nil {
		err = notFound("pool or tenant")
	}
	return "/operations?said=begun", err
}
