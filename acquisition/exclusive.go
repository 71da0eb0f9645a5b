package acquisition

import (
	"context"
	"time"

	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
)

// chooseHeads chooses jobs with exclusive keys for a plan: of keys that are free those whose turn it is. It counts them
// in taken, by tenant.
func (c *claimer) chooseHeads(ctx context.Context, plan []schedule.Portion, ready []*peer, taken map[string]int) (heads []schedule.Portion, err error) {
	var keys []store.Key
	var of []schedule.Portion // which each of them is in
	for _, p := range plan {
		if p.Heads == 0 {
			continue
		}
		_, all := c.countMay(p, ready, taken)
		left, _ := c.gates.CountLeft(schedule.Passer{Tenant: p.Tenant}, time.Now())
		n := min(p.Heads, p.Halve(min(all, left)))
		if min(all, left) == 0 {
			c.lanes.MarkFull(p)
		}
		c.lanes.TakeBack(p, p.Heads-n)
		for _, k := range c.keys.Take(p.Tenant, n) {
			keys, of = append(keys, k), append(of, p)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	from, now := make([]int64, len(keys)), time.Now()
	for i, k := range keys {
		from[i] = c.keys.BeginLookUp(k, now, tendEvery)
	}
	found, err := store.KeyHeads(ctx, c.pool.Jobs(), keys, from)
	if err != nil {
		return nil, err
	}
	homeless := map[string]bool{} // tenants
	for i, k := range keys {
		p := of[i]
		if h, ok := found[k]; ok {
			if p, ok = c.chooseHead(ctx, k, h, p, now, homeless); ok {
				if here, _ := c.countMay(p, ready, taken); here > 0 {
					p.Here = 1
				}
				taken[k.Tenant]++
				heads = append(heads, p)
				continue
			}
		} else if from[i] > 0 {
			c.keys.LookUpAll(k)
		} else {
			c.keys.Forget(k)
		}
		c.lanes.TakeBack(p, 1)
	}
	for tenant := range homeless {
		c.keys.PauseAll(tenant)
	}
	return heads, nil
}

// chooseHead says how the job of a key is read that was found, unless it is not to be claimed now.
func (c *claimer) chooseHead(ctx context.Context, k store.Key, h store.KeyHead, p schedule.Portion, now time.Time, homeless map[string]bool) (_ schedule.Portion, ok bool) {
	if !h.Again {
		c.keys.NoteHead(k, h.Position)
	}
	p.Lane = c.lanes.Find(h.Lane)
	switch {
	case h.Retrying:
		c.keys.Rest(k)
		return p, false
	case homeless[k.Tenant] || c.homes.resolve(ctx, p.Lane) == nil:
		homeless[k.Tenant] = true
		c.keys.Pause(k)
		return p, false
	case !c.peers.runnable.Has(h.Kind):
		c.restForeign(k, p.Lane, h.Position, h.Kind)
		return p, false
	}
	of := schedule.Passer{Tenant: k.Tenant, Queue: h.Lane.Queue, Kind: h.Kind, Key: k.Name}
	left, by := c.gates.CountLeft(of, now)
	if left == 0 {
		by.ParkKey(c.keys, k)
		return p, false
	}
	c.gates.Reserve(of, 1)
	p.Places, p.Head = 1, &schedule.Head{Key: k, Position: h.Position, Followed: h.Followed}
	return p, true
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
// or is not shown as its tenant is frozen, is looked for again with the lanes. If there was no room for one,
// neither here nor with a peer that can run it, its tenant's keys are left alone until something happens: else they
// would be read over and over.
func (c *claimer) settleHeads(portions []schedule.Portion, page store.Page) {
	left := map[int]bool{}
	for i := range page.Jobs {
		left[page.Jobs[i].Lane] = page.Jobs[i].Left
	}
	for i, p := range portions {
		h := p.Head
		switch {
		case h == nil, h.Settled:
		case h.Kind != "" && c.inFlight.Has(h.Run.ID, h.Run.Turn):
			c.keys.Hold(h.Key, h.Run, h.Followed)
		case left[i]:
			c.keys.PutBack(h.Key)
			c.lanes.TakeBack(p, 1)
		case h.Kind != "" && c.settings.handles(h.Kind):
			c.lanes.SkipKeys(p, p.Here == 0)
			c.keys.PutBack(h.Key)
		default:
			c.keys.Pause(h.Key)
		}
	}
	c.lanes.DropInactive()
}
