package acquisition

import (
	"context"
	"time"

	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
)

// chooseHeads chooses jobs with exclusive keys: of keys that are free those whose turn it is. They
// get half of n if lanes have work, too. taken is how many there are of each tenant.
func (c *claimer) chooseHeads(ctx context.Context, n int, ready []*peer) (heads []schedule.Portion, taken map[string]int, err error) {
	if !c.keys.HasReady() {
		return nil, nil, nil
	}
	if c.lanes.HasWork() {
		if c.headsFirst = !c.headsFirst; c.headsFirst {
			n++
		}
		n /= 2
	}
	asked := map[string]int{}
	keys := c.keys.Take(n, func(tenant string) bool {
		_, all := c.allowance(tenant, c.keys.RunsHereOnly(tenant), ready)
		if left, _ := c.gates.CountLeft(schedule.Passer{Tenant: tenant}, time.Now()); asked[tenant] >= min(left, all) {
			return false
		}
		asked[tenant]++
		return true
	})
	if len(keys) == 0 {
		return nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	from, now := make([]int64, len(keys)), time.Now()
	for i, k := range keys {
		from[i] = c.keys.BeginLookUp(k, now, tendEvery)
	}
	found, err := store.KeyHeads(ctx, c.pool.Jobs(), keys, from)
	if err != nil {
		return nil, nil, err
	}
	taken = map[string]int{}
	homeless := map[string]bool{} // tenants
	for i, k := range keys {
		h, ok := found[k]
		switch {
		case ok && h.Again:
		case ok:
			c.keys.NoteHead(k, h.Position)
		case from[i] > 0:
			c.keys.LookUpAll(k)
			continue
		default:
			c.keys.Forget(k)
			continue
		}
		lane := c.lanes.Find(h.Lane)
		switch {
		case h.Retrying:
			c.keys.Rest(k)
		case homeless[k.Tenant] || c.homes.resolve(ctx, lane) == nil:
			homeless[k.Tenant] = true
			c.keys.Pause(k)
		case !c.peers.runnable.Has(h.Kind):
			c.restForeign(k, lane, h.Position, h.Kind)
		default:
			of := schedule.Passer{Tenant: k.Tenant, Queue: h.Lane.Queue, Kind: h.Kind, Key: k.Name}
			left, by := c.gates.CountLeft(of, now)
			if left == 0 {
				by.ParkKey(c.keys, k)
				continue
			}
			c.gates.Reserve(of, 1)
			p := schedule.Portion{Lane: lane, Quota: 1, Head: &schedule.Head{Key: k, Position: h.Position, Followed: h.Followed}}
			if here, _ := c.allowance(k.Tenant, false, ready); taken[k.Tenant] < here {
				p.Here = 1
			}
			taken[k.Tenant]++
			heads = append(heads, p)
		}
	}
	for tenant := range homeless {
		c.keys.PauseAll(tenant)
	}
	return heads, taken, nil
}

// restForeign has a key rest whose next job nobody can run now. It is read again with its lane once
// a peer can.
func (c *claimer) restForeign(k store.Key, l *schedule.Lane, position int64, kind string) {
	if c.peers.haveOthers() {
		c.lanes.NoteMissed(l, position, kind, false)
	}
	c.keys.Rest(k)
}

// sortHead looks at what was read where a head was found: whether it is the head, and what is to
// become of it.
func (c *claimer) sortHead(j *store.Waiting, removals int64, p *schedule.Portion) (picked, unwanted bool) {
	h, r := p.Head, &j.Record
	if j.Position != h.Position || j.Left {
		return false, false
	}
	run := schedule.Run{ID: r.ID, Turn: r.Turn}
	switch {
	case c.inFlight.Has(r.ID, r.Turn):
		c.keys.Hold(h.Key, run, h.Followed)
	case j.Unwanted:
		c.keys.Rest(h.Key) // the next one's turn comes once this one is gone
		unwanted = true
	case j.Foreign:
		c.restForeign(h.Key, p.Lane, j.Position, r.Kind)
	case j.Damage != "":
		c.damaged.setAside(r.ID, r.Tenant, j.Damage)
		c.keys.Rest(h.Key) // what follows it may need what it was to do
	case r.Losses > 0 && !j.TooLarge:
		c.quarantine.Add(schedule.Quarantined{Waiting: *j, Removals: removals, Lane: p.Lane})
		c.keys.Hold(h.Key, run, h.Followed)
	default:
		h.Run, h.Kind = run, r.Kind
		return true, false
	}
	h.Settled = true
	return false, unwanted
}

// settleHeads says what has become of the keys whose heads were read. What is not there any more,
// or is not shown as its tenant is frozen, is looked for again with the lanes. If there was room for
// none, neither here nor with a peer that can run it, they are left alone until something happens:
// else they would be read over and over.
func (c *claimer) settleHeads(portions []schedule.Portion, page store.Page) {
	left := map[int]bool{}
	for i := range page.Jobs {
		left[page.Jobs[i].Lane] = page.Jobs[i].Left
	}
	heads, noRoom, learned := 0, 0, false
	for i := range portions {
		h := portions[i].Head
		if h == nil {
			continue
		}
		heads++
		switch {
		case h.Settled:
		case h.Kind != "" && c.inFlight.Has(h.Run.ID, h.Run.Turn):
			c.keys.Hold(h.Key, h.Run, h.Followed)
		case left[i]:
			c.keys.PutBack(h.Key)
		case h.Kind != "" && c.settings.handles(h.Kind):
			c.keys.PutBack(h.Key)
			noRoom++
			if portions[i].Here == 0 && c.keys.MarkHere(h.Key.Tenant) {
				learned = true
			}
		default:
			c.keys.Pause(h.Key)
		}
	}
	if noRoom > 0 && noRoom == heads && !learned {
		c.keys.AwaitRoom()
	}
}
