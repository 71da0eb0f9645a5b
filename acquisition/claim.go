package acquisition

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
)

// claimer claims waiting jobs, for this node's workers and for peers.
type claimer struct {
	place
	*work
	lock        *holding
	workers     *execution.Workers
	settings    *settings
	batch       int
	inbox       *inbox
	duties      *duties
	homes       *homes
	limits      *limits
	peers       *peers
	reader      *pageReader
	dispatcher  *dispatcher
	quarantined *quarantineClaimer
	canceller   *canceller
	damaged     *damagedJobs
	sweep       *duty // of the rereader

	headsFirst bool // on this page, and lanes on the next that has both
	readOn     bool // the last time nothing was claimed, and some tenant was not tried
}

// claimJobs claims as many jobs as there is capacity for and some are waiting, and hands them
// to the workers, or to peers.
func (c *claimer) claimJobs(ctx context.Context) (claimed int, err error) {
	if err := c.learnLimits(ctx); err != nil {
		return 0, err
	}
	c.gates.BeginPage()
	if c.gates.Reopen(time.Now(), c.lanes, c.keys) {
		c.sweep.ask()
	}
	if n, err := c.quarantined.claimOne(ctx); n > 0 || err != nil {
		return n, err
	}
	want := c.countWanted(0)
	if want <= 0 {
		return 0, nil
	}
	c.lanes.Configure(c.settings.queues.Load())
	ready, credit := c.peers.listReady()
	if !c.readOn { // else tenants without room would be tried again and again
		c.lanes.ReopenFull(func(tenant string, hereOnly bool) bool { // those that may have more in flight by now
			_, all := c.allowance(tenant, hereOnly, ready)
			return all > 0 && c.gates.MayPass(schedule.Passer{Tenant: tenant}, time.Now())
		})
	}
	c.readOn = false
	slots, work := 0, c.lanes.HasWork() || c.lanes.HasMissed(schedule.MissedHere)
	if work {
		slots = c.workers.Reserve(c.lock.session, want)
	}
	if slots > 0 {
		c.lanes.RereadMissed(schedule.MissedHere)
	}
	if c.isCrowded() || c.peers.holdsCounted() {
		c.peers.seekHelp(c.peers.noteWork(true, 0))
	} else {
		c.peers.seekHelp(c.peers.noteWork(work, slots))
	}
	n := min(slots+credit, c.batch)
	if n == 0 || !c.lanes.HasWork() {
		c.workers.Release(slots)
		return 0, nil
	}
	claimed, err = c.claimPages(ctx, n, slots, ready)
	if err != nil {
		return 0, err
	}
	if c.readOn = claimed == 0 && c.lanes.HasWork(); c.readOn || claimed == 0 && c.gates.MayWake(time.Now(), c.keys) {
		return 1, nil // what was read is in flight, it is another tenant's turn, or another key's: read on
	}
	return claimed, nil
}

// countWanted is how many jobs this node could claim now, on top of those that it is about to claim.
// What has ended but is not written yet still counts, so that a slow database slows the claiming down.
func (c *claimer) countWanted(claiming int) int {
	return min(c.batch, 3*c.batch-c.inFlight.CountHere()-claiming)
}

// claimPages reads up to n jobs and hands them out: as many as slots were reserved for to this
// node's workers, the rest to peers. While a page is being claimed the next one is read.
func (c *claimer) claimPages(ctx context.Context, n, slots int, ready []*peer) (claimed int, err error) {
	reserved := holdReserved(c.workers, slots)
	calls := min(slots, n)
	portions, err := c.choosePortions(ctx, schedule.Space{Calls: calls, Jobs: n - calls, Most: min(c.countWanted(0)+n-calls, c.batch)}, ready, map[string]int{})
	if err != nil {
		reserved.release()
		return 0, err
	}
	next := c.reader.begin(ctx, portions, slots, reserved)
	for ahead := 0; next != nil; ahead++ {
		var n int
		n, next, err = c.claimPage(ctx, next, ahead < mostAhead)
		claimed += n
	}
	return claimed, err
}

// claimPage hands out what a page shows. next is being read then; nil: none is.
func (c *claimer) claimPage(ctx context.Context, r *reading, mayReadAhead bool) (claimed int, next *reading, err error) {
	defer r.reserved.release()
	if <-r.done; r.err != nil {
		return 0, nil, r.err
	}
	c.reader.note(&r.page, r.took)
	if c.homes.areOutdated() { // jobs were read that may have been enqueued because of it
		c.homes.followRoutes()
		c.settleHeads(r.portions, store.Page{})
		return 0, nil, nil
	}
	if r.page.Limits != c.gates.Changes() {
		c.gates.Forget()
		c.putBack(r.portions)
		return 0, nil, nil
	}
	picked, unwanted := c.sortPage(r.page, r.portions)
	cancelled, err := c.canceller.cancel(ctx, unwanted)
	if cancelled > 0 && c.keys.Any() { // a key may rest until one of them was gone
		c.sweep.ask()
	}
	if err == nil {
		ready, _ := c.peers.listReady()
		as := c.dispatcher.assign(picked, r.slots, ready, r.portions)
		if mayReadAhead {
			next = c.readAhead(ctx, as, ready)
		}
		claimed, err = c.dispatcher.handOut(ctx, r.page.Removals, as, r.portions, r.reserved)
	}
	c.settleHeads(r.portions, r.page)
	if err == nil {
		if claimed > 0 {
			c.metrics.claimSeconds.WithLabelValues(c.pool.Name).Observe(time.Since(r.began).Seconds())
		}
		return claimed, next, nil
	}
	if next != nil { // its lanes may be read again from before it
		next.drop()
	}
	if errors.Is(err, store.ErrFenced) {
		err = c.rereadPortions(ctx, r.portions, r.before)
	}
	return claimed, nil, err
}

// readAhead begins to read the next page while what was assigned of the last one is about to be
// claimed; nil: there is something else to do first, or no room. Until that page is used no end of a
// job is taken notice of: one that the page shows, and that has ended since, is known as in flight.
func (c *claimer) readAhead(ctx context.Context, as []assignment, ready []*peer) *reading {
	if len(as) == 0 || !c.lanes.HasWork() || c.keys.HasReady() || c.inbox.hasHints() || !time.Now().Before(c.duties.nextDue()) {
		return nil
	}
	own, taken := 0, map[string]int{}
	for _, a := range as {
		if a.peer == nil {
			own = len(a.jobs)
			maps.Copy(taken, a.calls)
			continue
		}
		for i := range a.jobs {
			taken[a.jobs[i].Record.Tenant]++
		}
	}
	want := c.countWanted(own)
	if want <= 0 {
		return nil
	}
	slots := c.workers.Reserve(c.lock.session, want)
	if slots == 0 {
		return nil
	}
	portions := c.chooseLanes(ctx, c.lanes.Plan(schedule.Space{Calls: slots, Most: want}, time.Now()), ready, taken)
	return c.reader.begin(ctx, portions, slots, holdReserved(c.workers, slots))
}

// putBack has the heads of a page looked up again that nothing is made of.
func (c *claimer) putBack(portions []schedule.Portion) {
	for _, p := range portions {
		if p.Head != nil {
			c.keys.PutBack(p.Head.Key)
		}
	}
	c.reopenAll()
}

// reopenAll brings all tenants back into the line: what there was no room for beside other jobs of theirs may have it now.
func (c *claimer) reopenAll() { c.lanes.ReopenFull(func(string, bool) bool { return true }) }

// joinPortions puts what a page is read for in order. What comes first has the slots here, a kind's
// room and the page's bytes before the others: so heads and lanes do in turns.
func (c *claimer) joinPortions(heads, lanes []schedule.Portion) []schedule.Portion {
	if len(heads) > 0 && len(lanes) > 0 {
		c.headsFirst = !c.headsFirst
	}
	if c.headsFirst {
		return append(heads, lanes...)
	}
	return append(lanes, heads...)
}

// choosePortions chooses what to read, leaving out tenants that may not have more in flight than what is taken of
// theirs. Keys are looked up for it.
func (c *claimer) choosePortions(ctx context.Context, space schedule.Space, ready []*peer, taken map[string]int) ([]schedule.Portion, error) {
	space.Keys = c.batch
	plan := c.lanes.Plan(space, time.Now())
	heads, err := c.chooseHeads(ctx, plan, ready, taken)
	if err != nil {
		return nil, err
	}
	return c.joinPortions(heads, c.chooseLanes(ctx, plan, ready, taken)), nil
}

// countMay is for how many jobs of a portion there is capacity, on this node and on all, beside what is taken of its
// tenant's.
func (c *claimer) countMay(p schedule.Portion, ready []*peer, taken map[string]int) (here, all int) {
	here, all = c.allowance(p.Tenant, p.RunsHereOnly(), ready)
	return max(0, here-taken[p.Tenant]), max(0, all-taken[p.Tenant])
}

// chooseLanes chooses the lanes of a plan, leaving out those of tenants that do not live here.
func (c *claimer) chooseLanes(ctx context.Context, plan []schedule.Portion, ready []*peer, taken map[string]int) []schedule.Portion {
	now := time.Now()
	kept := plan[:0]
	room := c.reader.room
	for _, p := range plan {
		if p.Lane == nil {
			continue
		}
		if room <= 0 && p.Lane.IsLarge() { // what it has would be printed in vain
			p.Places = 0
			kept = append(kept, p)
			continue
		}
		if c.homes.resolve(ctx, p.Lane) == nil {
			p.Lane.Deactivate() // until the next discovery
			c.lanes.TakeBack(p, p.Planned)
			continue
		}
		of := schedule.Passer{Tenant: p.Lane.Tenant, Queue: p.Lane.Queue, Kind: p.Lane.Kind}
		left, by := c.gates.CountLeft(of, now)
		if left == 0 {
			by.Park(p.Lane)
			c.lanes.TakeBack(p, p.Planned)
			continue
		}
		here, all := c.countMay(p, ready, taken)
		if all == 0 {
			if taken[p.Tenant] == 0 { // else that may come to nothing
				c.lanes.MarkFull(p)
			}
			c.lanes.TakeBack(p, p.Planned)
			continue
		}
		fitting, bytes := p.Lane.CountFitting(room)
		p.Places, p.Here = min(p.Places, here*p.Lane.Together()+all-here, left, fitting), here
		room -= int64(p.Places) * bytes
		c.gates.Reserve(of, p.Places)
		kept = append(kept, p)
	}
	c.lanes.DropInactive()
	return kept
}

// sortPage moves the cursors on and leaves out what is in flight, what goes into quarantine,
// and what is unwanted, which it returns, too.
func (c *claimer) sortPage(page store.Page, portions []schedule.Portion) (picked []store.Waiting, unwanted store.Unwanted) {
	now := time.Now()
	got, apart, left := make([]int, len(portions)), make([]int, len(portions)), map[int]bool{}
	shown := make([]kindsShown, len(portions))
	picked, unwanted.Removals = page.Jobs[:0], page.Removals
	for i := range page.Jobs {
		j := &page.Jobs[i]
		got[j.Lane]++
		l := portions[j.Lane].Lane
		if !j.Keyed {
			l.NoteSize(j)
		}
		if p := &portions[j.Lane]; p.Head != nil {
			if pick, end := c.sortHead(j, page.Removals, p); pick {
				picked = append(picked, *j)
			} else if end {
				unwanted.Add(j.Record.ID, j.Record.Turn)
			}
			continue
		}
		limited := !j.Keyed && l.Kind == "" && c.gates.LimitKind(j.Record.Tenant, j.Record.Kind)
		if j.Keyed || limited {
			apart[j.Lane]++
		}
		over := !j.Keyed && !limited && got[j.Lane]-apart[j.Lane] > portions[j.Lane].Places // it was read for the sake of those
		if j.Left || over || left[j.Lane] {                                                 // what is behind it has to wait for it
			left[j.Lane] = true
			continue
		}
		l.Advance(j.Position)
		switch {
		case c.inFlight.Has(j.Record.ID, j.Record.Turn):
		case j.Keyed:
			c.keys.See(store.Key{Tenant: j.Record.Tenant, Name: j.Record.ExclusiveKey}, j.Position)
		case j.Unwanted:
			unwanted.Add(j.Record.ID, j.Record.Turn)
		case j.Foreign:
			c.lanes.NoteMissed(l, j.Position, j.Record.Kind, false)
		case j.Damage != "":
			c.damaged.setAside(j.Record.ID, j.Record.Tenant, j.Damage)
		case limited: // before all that claims it
			c.lanes.SeeKind(l, j.Record.Kind, j.Position)
		case j.TooLarge: // it is not run
			picked = append(picked, *j)
		case j.Record.Losses > 0:
			c.quarantine.Add(schedule.Quarantined{Waiting: *j, Removals: page.Removals, Lane: l})
		default:
			picked = append(picked, *j)
			shown[j.Lane].note(j.Record.Kind)
		}
	}
	for i, p := range portions {
		if p.Head != nil {
			continue
		}
		if p.Places == 0 {
			left[i] = true
		}
		if k := shown[i]; k.first != "" {
			c.lanes.NoteTogether(p, min(c.workers.Together(k.first), c.workers.Together(k.last)), got[i])
		}
		c.lanes.TakeBack(p, p.Planned-got[i])
		p.Lane.MarkRead(p.Lane.Cursor(), got[i] >= p.Lane.CountToRead(p.Places) || left[i])
		p.Lane.NoteApart(apart[i], got[i], now)
	}
	if len(left) > 0 {
		c.lanes.ServeFirst(portions, left)
	}
	c.lanes.DropInactive()
	return picked, unwanted
}

// kindsShown are the kinds of the first and the last job that a lane has shown.
type kindsShown struct{ first, last string }

func (k *kindsShown) note(kind string) {
	if k.last = kind; k.first == "" {
		k.first = kind
	}
}

// rereadPortions finds out why a claim was refused. When jobs were taken away since they were
// read, the same lanes are read again; when the lock is lost, the term ends.
func (c *claimer) rereadPortions(ctx context.Context, portions []schedule.Portion, before []int64) error {
	c.metrics.fenced.WithLabelValues(c.pool.Name).Inc()
	if err := c.lock.verify(ctx, c.pool); err != nil {
		return err
	}
	for i, p := range portions {
		if p.Head == nil {
			c.lanes.ResetCursor(p.Lane, before[i])
		}
	}
	c.reopenAll()
	return nil
}

// learnLimits reads the limits before anything is claimed that they might forbid; from then on
// every discovery of lanes reads them as well.
func (c *claimer) learnLimits(ctx context.Context) error {
	if !c.lanes.HasUnclaimed() && !c.keys.HasReady() && c.quarantine.Empty() && !c.gates.AnyParked() {
		return nil
	}
	return c.limits.read(ctx)
}

// allowance is for how many jobs of a tenant there is capacity now, on this node and on all: here
// and, unless they run here only, with peers.
func (c *claimer) allowance(tenant string, hereOnly bool, ready []*peer) (here, all int) {
	here = c.workers.FreeSlotsFor(c.lock.session, tenant)
	all = here
	for _, p := range ready {
		if !hereOnly && !p.full[tenant] {
			all += p.credit
		}
	}
	return here, all
}

// isCrowded tells whether some tenant has more to do than its share of this node's workers
// allows, and peers might help: its limit does not forbid it.
func (c *claimer) isCrowded() bool {
	now := time.Now()
	return c.lanes.AnyFull(func(tenant string) bool {
		left, _ := c.gates.CountLeft(schedule.Passer{Tenant: tenant}, now)
		return left > 0
	})
}
