package api

import (
	"context"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/tenancy"
)

type poolOut struct {
	Pool          string   `json:"pool"`
	State         string   `json:"state" doc:"up, frozen, down: it did not answer, or out of service: it answers and cannot be used"`
	Holder        string   `json:"holder,omitempty" doc:"the node that has the acquire lock"`
	Frozen        bool     `json:"frozen"`
	Waiting       *int64   `json:"waiting,omitempty" doc:"none: the pool did not answer, as below"`
	Running       *int64   `json:"running,omitempty"`
	Dead          *int64   `json:"dead,omitempty"`
	OldestSeconds *float64 `json:"oldest_seconds,omitempty" doc:"since the oldest job that waits was made"`
}

// listPools, as all that counts jobs of many tenants, is for grants that are not bound to some.
func listPools(ctx context.Context, s *server, _ *none) (*list[poolOut], error) {
	g := access.From(ctx)
	if !g.SeesTenant("") {
		return nil, hidden
	}
	ctx, cancel := context.WithTimeout(ctx, poolAnswers)
	defer cancel()
	all, err := s.operator.PoolStatuses(ctx)
	var out []poolOut
	for _, p := range all {
		if l := p.Load; g.SeesPool(p.Pool) {
			o := poolOut{Pool: p.Pool, State: p.State, Holder: l.Node, Frozen: l.Frozen}
			if l.Pool != "" { // it has answered
				oldest := l.Oldest.Seconds()
				o.Waiting, o.Running, o.Dead, o.OldestSeconds = &l.Waiting, &l.Running, &l.Dead, &oldest
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
	OldestSeconds float64 `json:"oldest_seconds" doc:"since the oldest of those that were counted was made"`
}

type queuesIn struct {
	Pool   string `query:"pool"`
	Tenant string `query:"tenant" doc:"whose jobs count"`
}

// listQueues lists the queues that have jobs which the grant reaches.
func listQueues(ctx context.Context, s *server, in *queuesIn) (*list[queueOut], error) {
	g := access.From(ctx)
	tenants := g.Tenants
	if in.Tenant != "" {
		tenants = []tenancy.ID{tenancy.ID(in.Tenant)}
	}
	if in.Tenant != "" && !g.SeesTenant(tenancy.ID(in.Tenant)) || in.Pool != "" && !g.SeesPool(in.Pool) {
		return nil, hidden
	}
	ctx, cancel := context.WithTimeout(ctx, poolAnswers)
	defer cancel()
	all, err := s.operator.Queues(ctx, tenure.QueueFilter{Pool: in.Pool, Tenants: tenants})
	var out []queueOut
	for _, q := range all {
		if g.SeesPool(q.Pool) && q.Waiting+q.Running > 0 {
			out = append(out, queueOut{q.Name, q.Pool, q.Waiting, tenure.More(q.Waiting), q.Running, q.Tenants, q.Oldest.Seconds()})
		}
	}
	return listOf(out, err)
}

type lockChangesIn struct {
	Pool  string `query:"pool"`
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"100"`
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
	all, err := gather(ctx, "", in.Pool, poolAnswers, func(ctx context.Context, of scope) ([]tenure.LockChange, error) {
		return s.operator.LockChanges(ctx, tenure.LockChangeFilter{Pool: of.pool, Limit: in.Limit})
	})
	tenure.SortLockChanges(all)
	var out []lockChangeOut
	for _, c := range all[:min(in.Limit, len(all))] {
		out = append(out, lockChangeOut{c.Pool, c.Epoch, c.Change, c.At, c.Node, c.Member, c.LostBy, c.Text()})
	}
	return listOf(out, err)
}

type nodeOut struct {
	Pool      string    `json:"pool"`
	Node      string    `json:"node"`
	Version   string    `json:"version"`
	State     string    `json:"state"`
	Kinds     []string  `json:"kinds" nullable:"false"`
	Claims    int       `json:"claims"`
	StartedAt time.Time `json:"started_at"`
	LastSeen  time.Time `json:"last_seen"`
}

func listNodes(ctx context.Context, s *server, _ *none) (*list[nodeOut], error) {
	g := access.From(ctx)
	if !g.SeesTenant("") {
		return nil, hidden
	}
	ctx, cancel := context.WithTimeout(ctx, poolAnswers)
	defer cancel()
	sessions, err := s.operator.SessionStatuses(ctx)
	var out []nodeOut
	for _, n := range sessions {
		if g.SeesPool(n.Pool) {
			out = append(out, newNode(&n))
		}
	}
	return listOf(out, err)
}

func newNode(n *tenure.SessionStatus) nodeOut {
	return nodeOut{n.Pool, n.Node, n.Version, n.State, append([]string{}, n.Kinds...), n.Claims, n.StartedAt, n.LastSeen}
}

// listClaims says what still runs in a pool, such as one that was frozen to be drained.
func listClaims(ctx context.Context, s *server, in *poolIn) (*list[nodeOut], error) {
	if g := access.From(ctx); !g.SeesPool(in.Pool) || !g.SeesTenant("") {
		return nil, hidden
	}
	ctx, cancel := context.WithTimeout(ctx, poolAnswers)
	defer cancel()
	sessions, err := s.operator.Claims(ctx, in.Pool)
	var out []nodeOut
	for i := range sessions {
		out = append(out, newNode(&sessions[i]))
	}
	return listOf(out, err)
}

// examine looks for what is wrong with all pools that the grant reaches.
func examine(ctx context.Context, s *server, _ *none) (*object[tenure.Examination], error) {
	g := access.From(ctx)
	if !g.SeesTenant("") {
		return nil, hidden
	}
	e, err := s.operator.Examine(ctx, 0, g.Pools...) // as long as the command: a busy machine takes more than a second
	return &object[tenure.Examination]{e.Discreet()}, err
}
