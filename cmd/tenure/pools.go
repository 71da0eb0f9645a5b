package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
)

func newPools(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pools",
		Short: "List pools, freeze and thaw them, wait until nothing runs there",
		Long: "To add or take away a pool, or to change its settings, edit the configuration: running\n" +
			"nodes see it within seconds, or at once with `tenure reload` or SIGHUP.",
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
	Waiting   int64  `json:"waiting"`
	Claimed   int64  `json:"claimed"`
	Scheduled int64  `json:"scheduled"`
	Dead      int64  `json:"dead"`
}

func newPoolsList(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the pools with their holders and jobs", Args: cobra.NoArgs}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.loadConfig()
		if err != nil {
			return err
		}
		return a.read(cmd.Context(), cfg, func(ctx context.Context, client *tenure.Client) (unanswered, err error) {
			locks, unanswered := readLocks(ctx, client)
			counts, countErr := client.Count(ctx)
			byPool := map[string]tenure.Counts{}
			for _, c := range counts {
				byPool[c.Pool] = c
			}
			byName := map[string]jsonLock{}
			for _, l := range locks {
				byName[l.Pool] = l
			}
			unfit := client.Unfit()
			pools := []jsonPool{}
			for _, name := range slices.Sorted(maps.Keys(cfg.Pools)) {
				l, answers := byName[name]
				c := byPool[name]
				state, reason := "up", ""
				switch {
				case unfit[name] != nil:
					state, reason = "out of service", oneLine(unfit[name].Error())
				case !answers:
					state = "down"
				case l.Paused:
					state = "frozen"
				}
				pools = append(pools, jsonPool{Pool: name, State: state, Reason: reason, Frozen: l.Paused, Node: l.Node,
					Waiting: int64(c.Waiting), Claimed: int64(c.Claimed), Scheduled: int64(c.Timers), Dead: int64(c.Dead)})
			}
			unanswered = errors.Join(unanswered, countErr)
			if *output == asJSON {
				return unanswered, printJSON(a.stdout, pools)
			}
			var rows [][]string
			for _, p := range pools {
				if p.State == "down" || p.State == "out of service" {
					rows = append(rows, []string{p.Pool, p.State, "-", "-", "-", "-", "-"})
					continue
				}
				rows = append(rows, []string{p.Pool, p.State, orNobody(p.Node), number(p.Waiting), number(p.Claimed), number(p.Scheduled), number(p.Dead)})
			}
			return unanswered, printTable(a.stdout, []string{"POOL", "STATE", "HOLDER", "WAITING", "CLAIMED", "SCHEDULED", "DEAD"}, rows)
		})
	}
	return cmd
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func newPoolsFreeze(a *app) *cobra.Command {
	return a.onPool(&cobra.Command{
		Use:   "freeze POOL",
		Short: "Claim nothing in a pool until it is thawed; what runs goes on",
	}, func(ctx context.Context, client *tenure.Client, pool string) (string, error) {
		return "is frozen; thaw it with: tenure pools thaw " + pool, client.Freeze(ctx, pool)
	})
}

func newPoolsThaw(a *app) *cobra.Command {
	return a.onPool(&cobra.Command{
		Use:   "thaw POOL",
		Short: "Let a frozen pool go on",
	}, func(ctx context.Context, client *tenure.Client, pool string) (string, error) {
		return "goes on", client.Thaw(ctx, pool)
	})
}

// drainLook is how often a drain looks what still runs.
const drainLook = 200 * time.Millisecond

func newPoolsDrain(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain POOL",
		Short: "Freeze a pool and wait until nothing runs there",
		Long: "Waits for as long as a node may be silent (acquire.session.ttl) longer than other commands\n" +
			"do; running it again goes on waiting. Nodes that have died are not waited for: what they\n" +
			"had claimed runs again once the pool is thawed.",
		Args: cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := a.loadConfig()
		if err != nil {
			return err
		}
		pool, ttl := args[0], cfg.Acquire.Session.TTL
		if err := checkPools(cfg, pool); err != nil {
			return err
		}
		return a.actFor(cmd.Context(), operateLimit+ttl, cfg, func(ctx context.Context, client *tenure.Client) error {
			dead, err := drain(ctx, client, pool, ttl)
			if err != nil {
				return err
			}
			left := ""
			if dead > 0 {
				left = fmt.Sprintf("; %d claims of nodes that have died are given back when it is thawed", dead)
			}
			_, err = fmt.Fprintf(a.stdout, "pool %s is frozen, and nothing runs there%s; thaw it with: tenure pools thaw %s\n", pool, left, pool)
			return err
		})
	}
	return cmd
}

// drain freezes a pool and waits until nothing runs there. dead is how many claims are left
// of nodes that have died: a frozen pool has no holder who would take them back.
func drain(ctx context.Context, client *tenure.Client, pool string, ttl time.Duration) (dead int, err error) {
	if err := client.Freeze(ctx, pool); err != nil {
		return 0, err
	}
	seen := silence{}
	left, unknown := 0, error(nil) // what was seen last to run, and why it was not seen since
	for {
		sessions, err := client.Claims(ctx, pool)
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
				return 0, errors.Join(fmt.Errorf("pool %s is frozen, and it is not known what still runs there; run this again to go on waiting", pool), unknown)
			}
			return 0, fmt.Errorf("pool %s is frozen, and jobs of %d claims still run there: see tenure jobs list --state running --pool %s; run this again to go on waiting", pool, left, pool)
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

// onPool makes cmd do something to the pool that is its argument.
func (a *app) onPool(cmd *cobra.Command, do func(ctx context.Context, client *tenure.Client, pool string) (string, error)) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := a.loadConfig()
		if err != nil {
			return err
		}
		if err := checkPools(cfg, args[0]); err != nil {
			return err
		}
		return a.act(cmd.Context(), cfg, func(ctx context.Context, client *tenure.Client) error {
			what, err := do(ctx, client, args[0])
			if err == nil {
				_, err = fmt.Fprintf(a.stdout, "pool %s %s\n", args[0], what)
			}
			return err
		})
	}
	return cmd
}

func orNobody(node string) string {
	if node == "" {
		return "nobody"
	}
	return node
}
