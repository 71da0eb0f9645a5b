package membership

import (
	"context"
	"time"

	"github.com/hashicorp/memberlist"
)

// announceRest is between two announcements of this process' state: each is repeated
// by every member, and what changes for many pools at once shall be told once.
const announceRest = 300 * time.Millisecond

// run follows the view: it logs who came and went, decides when this process has
// settled, and announces changes of its own state.
func (c *Cluster) run(ctx context.Context, ml *memberlist.Memberlist) {
	var (
		book   = newLogbook(c.log, c.times.twinGrace)
		joined = c.joined // nil once closed
		bound  = time.NewTimer(c.times.settleBound)
		quiet  = time.NewTimer(c.times.settleBound) // set anew once joined
		check  = time.NewTicker(c.times.twinGrace / 3)
		rest   = time.NewTimer(0)

		announcing = c.announcing // nil while resting
	)
	defer bound.Stop()
	defer quiet.Stop()
	defer check.Stop()
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-announcing:
			announcing = nil
			rest.Reset(announceRest)
			// Only queues the broadcast: waiting until it was sent would take as long
			// as the network likes, and nobody could act on the result.
			_ = ml.UpdateNode(time.Millisecond)
		case <-rest.C:
			announcing = c.announcing
		case <-c.wake:
			book.members(c.view().members)
			book.conflicts(c.takeConflicts())
		case <-check.C:
			book.twins(time.Now())
		case <-joined:
			joined = nil
		case <-quiet.C:
		case <-bound.C:
			c.settle()
		}
		if c.isSettled() {
			continue
		}
		if joined != nil && len(c.view().members) == 1 {
			continue
		}
		if left := c.times.settleQuiet - c.StableFor(); left > 0 {
			quiet.Reset(left)
		} else {
			c.settle()
		}
	}
}

// settle makes this process eligible. Only run calls it.
func (c *Cluster) settle() {
	if c.isSettled() {
		return
	}
	c.mu.Lock()
	c.self.Joining = false
	c.changed(c.self.Role == RoleNode)
	nudge(c.announcing)
	c.mu.Unlock()
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

// takeConflicts empties what conflict noted.
func (c *Cluster) takeConflicts() map[string][2]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conflicts) == 0 {
		return nil
	}
	taken := c.conflicts
	c.conflicts = map[string][2]string{}
	return taken
}
