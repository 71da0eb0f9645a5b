package membership

import (
	"context"
	"time"

	"github.com/hashicorp/memberlist"
)

// announceRest is between two announcements of this process' state: each is repeated
// by every member, and what changes for many pools at once shall be told once.
const announceRest = 300 * time.Millisecond

// mostRepeated bounds how often an announcement is repeated that did not go out.
const mostRepeated = 3

// announce tells the others what this process says of itself, whenever that changes. It does so once more when
// the news did not go out: memberlist's queue of news drops one for another that is as long, where both came before
// it could send (https://github.com/hashicorp/memberlist/pull/263), as when nodes start together, and the others
// would learn it with the next exchange of all that is known, in 10 to 20 s. Where the queue is full, more news would
// not help, so the tries are few and further and further apart.
func (c *Cluster) announce(ctx context.Context, ml *memberlist.Memberlist) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.announcing:
		}
		for tries, rest := 0, announceRest; ; tries, rest = tries+1, rest+c.times.announceWithin {
			err := ml.UpdateNode(c.times.announceWithin)
			select {
			case <-ctx.Done():
				return
			case <-time.After(rest):
			}
			if err == nil || tries == mostRepeated {
				break
			}
		}
	}
}

// followView follows the view: it logs who came and went, and decides when this process has
// settled.
func (c *Cluster) followView(ctx context.Context) {
	var (
		book   = newLogbook(c.log, c.times.twinGrace)
		joined = c.joiner.joined // nil once closed
		bound  = time.NewTimer(c.times.settleBound)
		quiet  = time.NewTimer(c.times.settleBound) // set again once joined
		check  = time.NewTicker(c.times.twinGrace / 3)
	)
	var failed <-chan time.Time // nil: everybody is there, or has left in order
	book.holds = c.holds
	defer bound.Stop()
	defer quiet.Stop()
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			members := c.currentView().members // before who has parted is taken: of whom it lacks, that is known then
			parted := c.takeParted()
			if c.currentPhase() == stopped { // the others have not gone
				return
			}
			book.logMembers(members, parted)
			book.warnConflicts(c.takeConflicts())
			if failed == nil && len(book.gone) > 0 {
				failed = time.After(farewellGrace)
			}
		case now := <-failed:
			if failed = nil; book.logFailed(now) {
				failed = time.After(farewellGrace)
			}
		case <-check.C:
			book.warnTwins(time.Now())
		case <-joined:
			if joined = nil; c.joiner.alone { // who else may live, the locks will tell
				c.becomeEligible()
			}
		case <-quiet.C:
		case <-bound.C:
			c.becomeEligible()
		}
		if c.isSettled() {
			continue
		}
		if joined != nil && len(c.currentView().members) == 1 {
			continue
		}
		if left := c.times.settleQuiet - c.StableFor(); left > 0 {
			quiet.Reset(left)
		} else {
			c.becomeEligible()
		}
	}
}

// Settled is closed once this process has looked around: the first join
// succeeded, somebody joined it, or there is nobody to join, and the view then
// stood still for a while (local 200 ms, lan 1 s, wan 3 s); when no seed answered, at once; at the
// latest 1 s, 5 s or 15 s after Start. Until then it is not eligible, on any member. A
// Cluster stopped before never settles.
func (c *Cluster) Settled() <-chan struct{} { return c.settled }

// becomeEligible ends the settling. Only run calls it.
func (c *Cluster) becomeEligible() {
	if c.isSettled() {
		return
	}
	c.markSettled()
	close(c.settled)
}

func (c *Cluster) isSettled() bool {
	select {
	case <-c.settled:
		return true
	default:
		return false
	}
}
