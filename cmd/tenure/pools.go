package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/plural"
)

func newPools(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pools",
		Short: "List, freeze, thaw and drain pools",
		Long: "To add or remove a pool, or to change its settings, edit the configuration: running\n" +
			"nodes notice within seconds, or at once with `tenure reload` or SIGHUP.",
	}
	cmd.AddCommand(newPoolsList(a), newPoolsFreeze(a), newPoolsThaw(a), newPoolsDrain(a))
	return cmd
}

// jsonPool is a pool as -o json prints it.
type jsonPool struct {
	Pool      string `json:"pool"`
	State     string `json:"state"` // up, frozen, down: it did not answer, or out of service: see reason
	Reason    string `json:"reason,omitempty"`
	Frozen    bool   `json:"frozen"`
	Node      string `json:"node,omitempty"` // that holds the lock
	Waiting   int64  `json:"waiting"`        // this and the others: more than 10000 are not counted
	Claimed   int64  `json:"claimed"`
	Scheduled int64  `json:"scheduled"`
	Awaiting  int64  `json:"awaiting"`
	Dead      int64  `json:"dead"`
}

func newPoolsList(a *app) *cobra.Command {
	head := []string{"POOL", "STATE", "HOLDER", "WAITING", "CLAIMED", "SCHEDULED", "AWAITING", "DEAD"}
	row := func(p jsonPool) []string {
		if p.State == tenure.PoolDown || p.State == tenure.PoolUnfit {
			return []string{p.Pool, p.State, "", "", "", "", "", ""}
		}
		return []string{p.Pool, p.State, cmp.Or(p.Node, "nobody"), bounded(p.Waiting), strconv.FormatInt(p.Claimed, 10), bounded(p.Scheduled), bounded(p.Awaiting), bounded(p.Dead)}
	}
	cmd := &cobra.Command{Use: "list", Short: "List the pools with their lock holders and jobs",
		Long: "Jobs are counted up to ten thousand of each sort; those that wait are without those that nodes have claimed."}
	return list(a, cmd, head, row, func(ctx context.Context, o *operation) (pools []jsonPool, unanswered error) {
		all, unanswered := o.PoolStatuses(ctx)
		for _, p := range all {
			l := p.Load
			out := jsonPool{Pool: p.Pool, State: p.State, Frozen: l.Frozen, Node: l.Node, Waiting: l.Waiting, Claimed: l.Running, Scheduled: l.Timers, Awaiting: l.Awaiting, Dead: l.Dead}
			if p.Unfit != nil {
				out.Reason = oneLine(p.Unfit.Error())
			}
			pools = append(pools, out)
		}
		return pools, unanswered
	})
}

// bounded is a number of jobs that are not counted any further once they are very many.
func bounded(n int64) string {
	if tenure.More(n) {
		return ">10000"
	}
	return strconv.FormatInt(n, 10)
}

func newPoolsFreeze(a *app) *cobra.Command {
	return onEach(a, &cobra.Command{
		Use:   "freeze POOL",
		Short: "Claim no jobs in a pool until it is thawed; running jobs continue",
		Args:  cobra.ExactArgs(1),
	}, "pool", a.knownPool, func(ctx context.Context, o *operation, pool string) (string, error) {
		return "is frozen; thaw it with: tenure pools thaw " + pool, o.FreezePool(ctx, pool)
	})
}

func newPoolsThaw(a *app) *cobra.Command {
	return onEach(a, &cobra.Command{
		Use:   "thaw POOL",
		Short: "Resume a frozen pool",
		Args:  cobra.ExactArgs(1),
	}, "pool", a.knownPool, func(ctx context.Context, o *operation, pool string) (string, error) {
		return "is thawed", o.ThawPool(ctx, pool)
	})
}

// drainLook is how often a drain looks what still runs.
const drainLook = 200 * time.Millisecond

func newPoolsDrain(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "drain POOL",
		Short: "Freeze a pool and wait until nothing is running there",
		Long: "Waits acquire.session.ttl, as long as a node may be silent, longer than other commands do;\n" +
			"run it again to keep waiting. It does not wait for dead nodes: the jobs they had claimed\n" +
			"run again once the pool is thawed.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pool := args[0]
			cfg, err := a.loadConfig(pool)
			if err != nil {
				return err
			}
			ttl := cfg.Acquire.Session.TTL
			return a.act(cmd.Context(), operateLimit+ttl, func(ctx context.Context, o *operation) error {
				dead, err := drain(ctx, o.Operator, pool, ttl)
				if err != nil {
					return err
				}
				left := ""
				if dead > 0 {
					left = "; " + plural.Count(dead, "claim of a dead node is", "claims of dead nodes are") + " given back when it is thawed"
				}
				_, err = fmt.Fprintf(a.stdout, "pool %s is frozen, and nothing is running there%s; thaw it with: tenure pools thaw %s\n", pool, left, pool)
				return err
			})
		},
	}
}

// drain freezes a pool and waits until nothing runs there. dead is how many claims are left
// of nodes that have died: a frozen pool has no holder who would take them back.
func drain(ctx context.Context, op *tenure.Operator, pool string, ttl time.Duration) (dead int, err error) {
	if err := op.FreezePool(ctx, pool); err != nil {
		return 0, err
	}
	seen := silence{}
	left, unknown := 0, error(nil) // what was seen last to run, and why it was not seen since
	for {
		sessions, err := op.Claims(ctx, pool)
		switch {
		case err == nil:
			left, unknown, dead = 0, nil, 0
			for _, s := range sessions {
				if seen.dead(s, ttl) {
					dead += s.Claims
				} else {
					left += s.Claims
				}
			}
			if left == 0 {
				return dead, nil
			}
		case ctx.Err() == nil: // or it is time that has run out, and not the database that does not answer
			unknown = err
		}
		select {
		case <-ctx.Done():
			if unknown != nil || left == 0 {
				return 0, errors.Join(fmt.Errorf("pool %s is frozen, but what is still running there is unknown; run this again to keep waiting", pool), unknown)
			}
			return 0, fmt.Errorf("pool %s is frozen, but jobs of %s are still running there; see tenure jobs list --state running --pool %s; run this again to keep waiting", pool, plural.Count(left, "claim", "claims"), pool)
		case <-time.After(drainLook):
		}
	}
}

// silence is at how many looks in a row the heartbeats of sessions stood still.
type silence map[uuid.UUID]heartbeat

type heartbeat struct {
	number int64
	still  int // looks
}

// dead takes in a look at a session, and tells whether it has ended: it was declared dead,
// or what the lock's holder would declare it dead for was seen here. That it looks expired
// is not enough: after an outage of the database every session does. Looks are counted, and
// not the time, because while there is none the database may be away for everybody.
func (s silence) dead(session tenure.SessionStatus, ttl time.Duration) bool {
	last, seen := s[session.ID]
	if seen && last.number == session.Beat {
		last.still++
	} else {
		last = heartbeat{number: session.Beat}
	}
	s[session.ID] = last
	still := time.Duration(last.still) * drainLook
	// The database's clock may have been set back, and then it does not count for ever.
	return session.State != "live" || session.Expired && still >= ttl || still >= 3*max(ttl, session.TTL)
}
