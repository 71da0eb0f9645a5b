package api

import (
	"context"
	"slices"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

type poolOut struct {
	Pool          string   `json:"pool"`
	State         string   `json:"state" doc:"up, frozen, down: it did not answer, or out of service: it answers and cannot be used"`
	Reason        string   `json:"reason,omitempty" doc:"why it is out of service, as far as that is not for the node's log only"`
	Holder        string   `json:"holder,omitempty" doc:"the node that has the acquire lock"`
	Held          bool     `json:"held" doc:"somebody has the acquire lock"`
	Epoch         int64    `json:"epoch" doc:"of the acquire lock"`
	Frozen        bool     `json:"frozen"`
	Waiting       *int64   `json:"waiting,omitempty" doc:"none: the pool did not answer, as below"`
	Running       *int64   `json:"running,omitempty"`
	Scheduled     *int64   `json:"scheduled,omitempty"`
	Awaiting      *int64   `json:"awaiting,omitempty"`
	Dead          *int64   `json:"dead,omitempty"`
	OldestSeconds *float64 `json:"oldest_seconds,omitempty" doc:"since the oldest job that waits could start"`
	Totals        *totals  `json:"totals,omitempty" doc:"as Postgres' statistics have them, which lag by a second and may be reset: the difference of two looks counts"`
}

// totals are what has become of a pool's jobs.
type totals struct {
	Ended int64 `json:"ended" doc:"runs, whatever their outcome"`
	Done  int64 `json:"done"`
	Died  int64 `json:"died"`
}

// listPools, as all that counts jobs of many tenants, is for grants that are not bound to some.
func listPools(ctx context.Context, s *server, _ *none) (*list[poolOut], error) {
	g := access.From(ctx)
	if !g.SeesTenant("") {
		return nil, hidden
	}
	ctx, cancel := s.look(ctx)
	defer cancel()
	all, err := s.operator.Pools().List(ctx)
	var out []poolOut
	for _, p := range all {
		if l := p.Load; g.SeesPool(p.Pool) {
			o := poolOut{Pool: p.Pool, State: p.State, Held: l.Held, Epoch: l.Epoch, Frozen: l.Frozen}
			if l.Held {
				o.Holder = l.Node
			}
			if p.Unfit != nil && s.failed != nil {
				o.Reason = p.Unfit.Error()
			}
			if l.Pool != "" { // it has answered
				oldest := l.Oldest.Seconds()
				o.Waiting, o.Running, o.Scheduled, o.Awaiting, o.Dead, o.OldestSeconds = &l.Waiting, &l.Running, &l.Timers, &l.Awaiting, &l.Dead, &oldest
				o.Totals = &totals{l.Ended, l.Finished, l.Died}
			}
			out = append(out, o)
		}
	}
	return listOf(out, err)
}

type queueOut struct {
	Queue         string  `json:"queue"`
	Pool          string  `json:"pool"`
	Waiting       int64   `json:"waiting" doc:"counted up to ten thousand"`
	More          bool    `json:"more" doc:"more than those wait"`
	Running       int64   `json:"running"`
	Tenants       int64   `json:"tenants" doc:"whose jobs wait"`
	OldestSeconds float64 `json:"oldest_seconds" doc:"since the oldest of those that were counted could start"`

	Kinds       []string   `json:"kinds" nullable:"false" doc:"whose jobs wait there, as the nodes say; for tokens of all tenants"`
	FrozenSince *time.Time `json:"frozen_since,omitempty" doc:"none: it is not frozen"`
}

type queuesIn struct {
	Pool   string `query:"pool"`
	Tenant string `query:"tenant" doc:"whose jobs count"`
}

// listQueues lists the queues that have jobs which the grant reaches, and, if it is not bound to tenants, those without.
func listQueues(ctx context.Context, s *server, in *queuesIn) (*list[queueOut], error) {
	g := access.From(ctx)
	tenants := g.Tenants
	if in.Tenant != "" {
		tenants = []tenancy.ID{tenancy.ID(in.Tenant)}
	}
	if in.Tenant != "" && !g.SeesTenant(tenancy.ID(in.Tenant)) || in.Pool != "" && !g.SeesPool(in.Pool) {
		return nil, hidden
	}
	ctx, cancel := s.look(ctx)
	defer cancel()
	all, err := s.operator.Queues().List(ctx, operate.LoadFilter{Pool: in.Pool, Tenants: tenants})
	var out []queueOut
	for _, q := range all {
		if !g.SeesTenant("") { // they are those of all tenants' jobs
			q.Kinds = nil
		}
		if g.SeesPool(q.Pool) && (q.Waiting+q.Running > 0 || len(tenants) == 0) {
			out = append(out, queueOut{q.Name, q.Pool, q.Waiting, operate.More(q.Waiting), q.Running, q.Tenants, q.Oldest.Seconds(), append([]string{}, q.Kinds...), timeOrNone(q.FrozenSince)})
		}
	}
	return listOf(out, err)
}

type lockChangesIn struct {
	Pool  string `query:"pool"`
	Limit int    `query:"limit" minimum:"1" maximum:"10000" default:"100" doc:"each ledger keeps the last 500 epochs"`
}

type lockChangeOut struct {
	Pool   string    `json:"pool"`
	Epoch  int64     `json:"epoch"`
	Change string    `json:"change" doc:"taken, released, frozen or thawed"`
	At     time.Time `json:"at"`
	Node   string    `json:"node,omitempty"`
	Member string    `json:"member,omitempty" doc:"the start of that node"`
	LostBy string    `json:"lost_by,omitempty" doc:"the node that had it until then, and had not released it"`
	Text   string    `json:"text"`
}

func listLockChanges(ctx context.Context, s *server, in *lockChangesIn) (*list[lockChangeOut], error) {
	g := access.From(ctx)
	if !g.SeesTenant("") {
		return nil, hidden
	}
	all, err := gather(ctx, "", in.Pool, s.limits.look, func(ctx context.Context, of scope) ([]operate.LockChange, error) {
		return s.operator.Pools().LockChanges(ctx, operate.LockChangeFilter{Pool: of.pool, Limit: in.Limit})
	})
	operate.SortLockChanges(all)
	var out []lockChangeOut
	for _, c := range all[:min(in.Limit, len(all))] {
		out = append(out, lockChangeOut{c.Pool, c.Epoch, c.Change, c.At, c.Node, c.Member, c.LostBy, c.Text()})
	}
	return listOf(out, err)
}

type nodesIn struct {
	Live bool `query:"live" doc:"only nodes that are live or idle"`
}

type nodeOut struct {
	Pool          string    `json:"pool" doc:"empty for a node that has had no session in any pool"`
	Session       string    `json:"session" doc:"empty without one"`
	Node          string    `json:"node"`
	Member        string    `json:"member" doc:"the start of that node"`
	Version       string    `json:"version"`
	GossipAddress string    `json:"gossip_address,omitempty"`
	State         string    `json:"state" doc:"of the session: live, idle (its node lives, and is not needed here), expired (not seen in time, and not declared dead yet), left or dead"`
	NodeState     string    `json:"node_state" doc:"of the node, as all its sessions tell: live, idle (it lives, and no pool needs it), expired, dead or left"`
	Kinds         []string  `json:"kinds" nullable:"false"`
	Claims        int       `json:"claims"`
	StartedAt     time.Time `json:"started_at,omitzero" doc:"of the session"`
	LastSeen      time.Time `json:"last_seen"`
	Beat          int64     `json:"beat" doc:"another one with each heartbeat"`
	TTLMS         int64     `json:"ttl_ms" doc:"how long it outlives its last heartbeat"`
}

func listNodes(ctx context.Context, s *server, in *nodesIn) (*list[nodeOut], error) {
	g := access.From(ctx)
	if !g.SeesTenant("") {
		return nil, hidden
	}
	ctx, cancel := s.look(ctx)
	defer cancel()
	sessions, err := s.operator.Pools().Sessions(ctx)
	var out []nodeOut
	for _, n := range newNodes(sessions, s.operator.LiveNodes()) {
		if (n.Pool == "" && len(g.Pools) == 0 || g.SeesPool(n.Pool)) && (!in.Live || n.NodeState == "live" || n.NodeState == "idle") {
			out = append(out, n)
		}
	}
	return listOf(out, err)
}

// idleSeen is how lately a node that has no session must have said that it lives: it does
// so every 30 s.
const idleSeen = 75 * time.Second

// newNodes are sessions with what all those of a node's process tell of it, and gossip. One of a pool says little of the node: that
// ends the session in a pool that has nothing for it. A node that gossip alone knows has no session.
func newNodes(sessions []operate.SessionStatus, alive []operate.LiveNode) (out []nodeOut) {
	lives := map[string]bool{}
	for _, n := range alive {
		lives[n.Member] = true
		if !slices.ContainsFunc(sessions, func(s operate.SessionStatus) bool { return s.Member == n.Member }) {
			out = append(out, nodeOut{Node: n.Name, Member: n.Member, Version: n.Version, GossipAddress: n.Address, State: "idle", Kinds: []string{}, LastSeen: time.Now()})
		}
	}
	seen, seenIdle := map[[2]string]time.Time{}, map[string]bool{} // by member and state, when last; members that were seen idle a moment ago
	for i := range sessions {
		n := &sessions[i]
		state := n.State
		switch {
		case state == "live" && n.Expired:
			state = "expired"
		case n.Idle:
			state = "idle"
			seenIdle[n.Member] = seenIdle[n.Member] || n.Unseen < idleSeen
		}
		if key := [2]string{n.Member, state}; !n.LastSeen.Before(seen[key]) {
			seen[key] = n.LastSeen
		}
		out = append(out, nodeOut{n.Pool, n.ID.String(), n.Node, n.Member, n.Version, n.GossipAddr, state, "", append([]string{}, n.Kinds...), n.Claims, n.StartedAt, n.LastSeen, n.Beat, n.TTL.Milliseconds()})
	}
	for i := range out {
		n := &out[i]
		last := func(state string) time.Time { return seen[[2]string{n.Member, state}] }
		has := func(state string) bool { return !last(state).IsZero() }
		switch {
		case has("live"):
			n.NodeState = "live"
		case lives[n.Member]:
			n.NodeState = "idle"
		// Else it has ended one since, or has stopped, or is not heard of where it did work.
		case seenIdle[n.Member] && last("idle").After(last("left")) && last("idle").After(last("expired")):
			n.NodeState = "idle"
		case has("expired"):
			n.NodeState = "expired"
		case has("dead"):
			n.NodeState = "dead"
		default:
			n.NodeState = "left"
		}
		if n.State == "idle" && n.NodeState != "live" && n.NodeState != "idle" {
			n.State = "left"
		}
	}
	return out
}

// listClaims says what still runs in a pool, such as one that was frozen to be drained.
func listClaims(ctx context.Context, s *server, in *poolIn) (*list[nodeOut], error) {
	if g := access.From(ctx); !g.SeesPool(in.Pool) || !g.SeesTenant("") {
		return nil, hidden
	}
	ctx, cancel := s.look(ctx)
	defer cancel()
	sessions, err := s.operator.Pools().Claims(ctx, in.Pool)
	return listOf(newNodes(sessions, nil), err)
}

type examineIn struct {
	Pools    []string `query:"pool,explode" doc:"only these"`
	WithinMS int64    `query:"within_ms" minimum:"1" maximum:"600000" doc:"for how long each pool is waited for; five seconds by default"`
}

// examine looks for what is wrong with all pools that the grant reaches, or those of them that are named.
func examine(ctx context.Context, s *server, in *examineIn) (*object[operate.Examination], error) {
	g := access.From(ctx)
	pools := in.Pools
	if len(pools) == 0 {
		pools = g.Pools
	}
	if !g.SeesTenant("") || slices.ContainsFunc(pools, func(pool string) bool { return !g.SeesPool(pool) }) {
		return nil, hidden
	}
	for _, pool := range pools {
		if !slices.Contains(s.operator.Pools().Names(), pool) {
			return nil, tenure.ErrUnknownPool
		}
	}
	e, err := s.operator.Examine(ctx, milliseconds(in.WithinMS), pools...) // 0: as long as the command, as a busy machine takes more than a second
	if s.failed == nil {
		e = e.Discreet()
	}
	return &object[operate.Examination]{e}, err
}
