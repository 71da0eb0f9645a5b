package dashboard

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tenurehq/tenure/operate"
)

type deadBody struct {
	Filter operate.DeadFilter
	Pools  []string
	Total  int
	deadGroups
}

// deadGroups are the dead letters that a visitor may see.
type deadGroups struct {
	Groups   []operate.DeadGroup // the largest first
	At       time.Time           // when they were counted; zero: not all have been
	Counting bool                // some are being counted that nobody has counted before
	Partly   bool                // there are more, which could not be counted
	Various  bool                // there are so many groups that those without a pattern are several
}

func deadPage(v *visit) (view, error) {
	if err := v.only("pool", "tenant", "kind", "said"); err != nil {
		return view{}, err
	}
	f := operate.DeadFilter{Pool: v.FormValue("pool"), Tenant: v.FormValue("tenant"), Kind: v.FormValue("kind")}
	body := deadBody{Filter: f, Pools: v.offeredPools(), deadGroups: v.groupDead(f)}
	for _, g := range body.Groups {
		body.Total += g.Count
	}
	return view{Page: "dead", Title: titled("Dead letters", "of", f.Tenant, "of kind", f.Kind, "in pool", f.Pool), Body: body}, nil
}

// groupDead groups the dead letters of a pool, a tenant and a kind that the visitor may see. What all who look share is not
// counted by kind or group.
func (v *visit) groupDead(f operate.DeadFilter) (all deadGroups) {
	var parts []operate.DeadGroup
	var mu sync.Mutex
	var questions []func()
	for _, pool := range v.pools(f.Pool) {
		for _, tenant := range v.tenants(f.Tenant) {
			questions = append(questions, func() {
				c := v.dead.of(v.ctx, scope{pool, tenant})
				if v.missing(pool, c.err); !c.known() {
					v.missing(pool, v.ctx.Err())
				}
				if !c.begun.IsZero() {
					v.sawAt(c.begun)
				}
				mu.Lock()
				defer mu.Unlock()
				parts = append(parts, c.found...)
				all.Partly = all.Partly || c.err != nil
				all.Counting = all.Counting || !c.known()
				if all.At.IsZero() || c.begun.Before(all.At) {
					all.At = c.begun
				}
			})
		}
	}
	together(questions...)
	merged := operate.MergeGroups(parts)
	all.Various = len(merged) >= operate.MaxDeadGroups
	all.Groups = slices.DeleteFunc(merged, func(g operate.DeadGroup) bool {
		return f.Kind != "" && g.Kind != f.Kind || f.Group != "" && g.ID != f.Group
	})
	return all
}

type confirmBody struct {
	Action  string
	Filter  operate.DeadFilter
	Group   operate.DeadGroup
	Before  string
	AtLeast bool // there are more than Group counts, or will be
	deadGroups
}

// confirmPage says how many dead letters there are to be retried or deleted.
func confirmPage(v *visit) (view, error) {
	if !v.grant.May(roleOfJobs) {
		return view{}, errNotAllowed
	}
	if err := v.only("action", "group", "kind", "pool", "tenant"); err != nil {
		return view{}, err
	}
	action := v.FormValue("action")
	if action != "retry" && action != "delete" {
		return view{}, notFound("action")
	}
	body := confirmBody{Action: action, Filter: deadFilter(v)}
	body.deadGroups = v.groupDead(body.Filter)
	title := strings.ToUpper(action[:1]) + action[1:] + " dead letters"
	if body.Counting && body.Filter.Group != "" {
		return view{Page: "confirm", Title: title, Body: body}, nil // it is asked for again
	}
	if body.Filter.Group == "" || len(body.Groups) == 0 || body.Various && body.Groups[0].Pattern == "" {
		return view{}, notFound("group of dead letters")
	}
	body.Group = body.Groups[0]
	bound := body.Group.Last.Add(time.Microsecond) // what dies later was not counted, and is left alone
	if body.Partly {
		bound = body.At // what was not counted may have died after all that was
	}
	body.Before = bound.UTC().Format(time.RFC3339Nano)
	if body.Group.Last.Sub(body.At) > farAhead {
		body.Before = untilAsked
	}
	body.AtLeast = body.Partly || body.Before == untilAsked
	return view{Page: "confirm", Title: title, Still: true, Body: body}, nil
}

// untilAsked stands for the time when the dead letters' database is asked to change them: some have died at a time that
// is far ahead of this node's clock.
const untilAsked = "asked"

// farAhead is more than the clocks of a node and a database differ by while both are right.
const farAhead = time.Minute

func deadFilter(v *visit) operate.DeadFilter {
	return operate.DeadFilter{Pool: v.FormValue("pool"), Tenant: v.FormValue("tenant"), Kind: v.FormValue("kind"), Group: v.FormValue("group")}
}

// changeDead has the holders of the pools' locks retry or delete a group.
func changeDead(v *visit) (string, error) {
	f := deadFilter(v)
	err := v.only("group", "kind", "pool", "tenant", "before")
	if err != nil {
		return "", err
	}
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
	return v.begin(f.Pool, f.Tenant, func(of scope) (uuid.UUID, error) {
		f.Pool, f.Tenant = of.pool, of.tenant
		return begin(v.ctx, f, 0, v.grant.Who())
	})
}
