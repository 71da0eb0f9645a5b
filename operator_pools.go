package tenure

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
)

// Unfit says which pools are out of service although their databases answer, such as one
// that is not migrated, refuses its user or takes no writes, and why: somebody has to do something. They are
// tried again in the background. One that does not answer is not among them.
func (o *Operator) Unfit() map[string]error {
	all := map[string]error{}
	for _, p := range o.router.Pools() {
		if err := cmp.Or(p.Unfit(), p.Refusing()); err != nil {
			all[p.Name] = err
		}
	}
	return all
}

// LockStatus is the acquire lock of a pool, as the database has it.
type LockStatus struct {
	Pool      string
	Holder    string // the member that has taken it last; "": nobody holds it
	Session   uuid.UUID
	Next      string        // the member that it is reserved for
	Epoch     int64         // raised each time it is taken
	Remaining time.Duration // until it expires, or, unheld, until its reservation ends
	Frozen    bool          // with its pool
	TakenAt   time.Time
	Quiet     time.Duration // since the last renewal

	// Timeline of the server that the pool leads to, which each promotion raises. 0: it is constant, as the
	// storage keeps commits, or this is of an overview, which does not ask for it.
	Timeline        int32
	TimelineRefused string // why it cannot be read, although it has to be

	Err error // the pool did not answer
}

func newLockStatus(pool string, l store.Lock) LockStatus {
	return LockStatus{Pool: pool, Holder: l.Holder, Session: l.Session, Next: l.Next, Epoch: l.Epoch, Remaining: l.Remaining, Frozen: l.Paused, TakenAt: l.TakenAt, Quiet: l.Quiet}
}

// LockStatuses reads every pool's acquire lock.
func (o *Operator) LockStatuses(ctx context.Context) []LockStatus {
	out, _ := routing.AskEach(ctx, o.router.Pools(), answerWithin, func(ctx context.Context, p *routing.Pool) ([]LockStatus, error) {
		var lock store.Lock
		var server store.ServerState
		err := p.Operate(ctx, func(db *pgxpool.Conn) (err error) {
			if lock, err = store.ReadLock(ctx, db); err == nil {
				server, err = store.ServerIs(ctx, db)
			}
			return err
		})
		s := newLockStatus(p.Name, lock)
		s.TimelineRefused, s.Err = server.Refused, err
		if !server.Constant() {
			s.Timeline = server.Timeline
		}
		return []LockStatus{s}, nil
	})
	return out
}

// FreezePool keeps all nodes from claiming jobs in a pool until [Operator.ThawPool]; what is
// running goes on, and jobs can be enqueued. When it returns nothing is claimed there
// any more. Doing it again changes nothing.
func (o *Operator) FreezePool(ctx context.Context, pool string) error {
	return o.freezePool(ctx, pool, true)
}

// ThawPool ends a [Operator.FreezePool].
func (o *Operator) ThawPool(ctx context.Context, pool string) error {
	return o.freezePool(ctx, pool, false)
}

func (o *Operator) freezePool(ctx context.Context, pool string, frozen bool) error {
	p, err := o.findPool(pool)
	if err != nil {
		return err
	}
	action := "pool.freeze"
	if !frozen {
		action = "pool.thaw"
	}
	return routing.NamePool(pool, store.Freeze(ctx, store.Noted(p.Jobs(), o.deed(ctx, action, "", pool, nil)), frozen))
}

// FreezeQueue keeps the jobs of a queue, whichever tenant's, from being started in all pools until
// [Operator.ThawQueue]; what is running goes on, jobs can be enqueued, and timers and schedules add to what waits. When
// it returns none is claimed any more, by nodes or external workers. Doing it again changes nothing, but in pools that
// were added since.
//
// If some pools do not answer, it holds in the others, and a PartlyError says in which, and what to type again.
func (o *Operator) FreezeQueue(ctx context.Context, queue string) error {
	return o.freezeJobs(ctx, store.ScopeQueue, queue, true)
}

// ThawQueue ends a [Operator.FreezeQueue]. Errors are as there.
func (o *Operator) ThawQueue(ctx context.Context, queue string) error {
	return o.freezeJobs(ctx, store.ScopeQueue, queue, false)
}

// FreezeKind is [Operator.FreezeQueue] for the jobs of a kind, on whichever queues; of external workers that is a topic.
func (o *Operator) FreezeKind(ctx context.Context, kind string) error {
	return o.freezeJobs(ctx, store.ScopeKind, kind, true)
}

// ThawKind ends a [Operator.FreezeKind]. Errors are as there.
func (o *Operator) ThawKind(ctx context.Context, kind string) error {
	return o.freezeJobs(ctx, store.ScopeKind, kind, false)
}

func (o *Operator) freezeJobs(ctx context.Context, scope store.Scope, name string, frozen bool) error {
	do, done := "freeze", "frozen"
	if !frozen {
		do, done = "thaw", "thawed"
	}
	if err := job.ValidateKind(string(scope), name); err != nil {
		return &job.InputError{Err: fmt.Errorf("%s: %w", do, err)}
	}
	deed := o.deed(ctx, string(scope)+"."+do, "", name, nil)
	pools := o.router.Pools()
	where, err := routing.AskEach(ctx, pools, answerWithin, func(ctx context.Context, p *routing.Pool) ([]string, error) {
		err := p.Operate(ctx, func(db *pgxpool.Conn) error { return store.FreezeJobs(ctx, store.Noted(db, deed), scope, name, frozen) })
		if err != nil {
			return nil, err
		}
		return []string{p.Name}, nil
	})
	if err != nil {
		return &PartlyError{In: where, Of: len(pools), done: fmt.Sprintf("%s %s is %s", scope, name, done), again: fmt.Sprintf("tenure %ss %s %s", scope, do, name), err: err}
	}
	return nil
}

// Frozen lists the queues and kinds that are frozen, over all pools: queues first, by name and pool. When some pools do
// not answer, what is frozen in the others is returned together with an error.
func (o *Operator) Frozen(ctx context.Context) ([]FrozenStatus, error) {
	out, err := inspectEach(ctx, o.router.Pools(), func(ctx context.Context, p *routing.Pool, db store.DB) ([]FrozenStatus, error) {
		rows, err := store.ListFrozen(ctx, db)
		out := make([]FrozenStatus, len(rows))
		for i, r := range rows {
			out[i] = FrozenStatus{Queue: r.Name, Pool: p.Name, Since: r.Since}
			if r.Scope == store.ScopeKind {
				out[i].Queue, out[i].Kind = "", r.Name
			}
		}
		return out, err
	})
	slices.SortStableFunc(out, func(a, b FrozenStatus) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Queue, b.Queue), strings.Compare(a.Pool, b.Pool))
	})
	return out, err
}

// Claims lists the sessions that have claims in flight in a pool: none means that nothing
// runs there. One whose node has died keeps its own until the lock's holder takes them
// back, and a frozen pool has no holder.
func (o *Operator) Claims(ctx context.Context, pool string) ([]SessionStatus, error) {
	p, err := o.findPool(pool)
	if err != nil {
		return nil, err
	}
	sessions, err := inspectEach(ctx, []*routing.Pool{p}, listSessions)
	return slices.DeleteFunc(sessions, func(s SessionStatus) bool { return s.Claims == 0 }), err
}

// Elected names the node that this process' view of the cluster proposes as the
// holder of a pool's acquire lock; "" when it sees none.
func (o *Operator) Elected(pool string) string {
	m, ok := o.cluster.Elected(pool)
	if !ok {
		return ""
	}
	return m.Node
}

// LiveNodes are the nodes that are alive, as the operator's process sees the cluster; where it has no
// gossip, itself if it is one.
func (o *Operator) LiveNodes() []membership.Member {
	return slices.DeleteFunc(o.cluster.Members(), func(m membership.Member) bool { return m.Role != membership.RoleNode })
}

// SessionStatus is a node's session in a pool.
type SessionStatus struct {
	Pool string

	ID         uuid.UUID
	Node       string
	Member     string
	GossipAddr string
	Version    string
	Kinds      []string
	PerTenant  int    // jobs of one tenant that the node runs at a time; 0: as many as it has workers. It is not listed
	State      string // live, left, dead
	Beat       int64
	StartedAt  time.Time
	LastSeen   time.Time
	Expired    bool          // by the database's clock
	Idle       bool          // it has left as nobody needs it, and its node lived when it was seen last
	Unseen     time.Duration // since LastSeen, by the database's clock
	TTL        time.Duration // how long it outlives its last heartbeat, as it said with that
	Claims     int
}

// SessionStatuses lists the sessions in every pool: the nodes that work there, or
// did within a day.
func (o *Operator) SessionStatuses(ctx context.Context) ([]SessionStatus, error) {
	return inspectEach(ctx, o.router.Pools(), listSessions)
}

func listSessions(ctx context.Context, p *routing.Pool, db store.DB) ([]SessionStatus, error) {
	rows, err := store.Sessions(ctx, db)
	out := make([]SessionStatus, len(rows))
	for i, r := range rows {
		r.Pool = p.Name
		out[i] = SessionStatus(r)
	}
	return out, err
}

// Counts is how many jobs stand where in a pool.
type Counts struct {
	Pool string

	Waiting, Claimed, Timers, Awaiting, External, Suspended, Dead, Finished int64
}

// Count counts the jobs of every pool: a look at each row, for tools and tests.
func (o *Operator) Count(ctx context.Context) ([]Counts, error) {
	return inspectEach(ctx, o.router.Pools(), func(ctx context.Context, p *routing.Pool, db store.DB) ([]Counts, error) {
		n, err := store.Count(ctx, db)
		return []Counts{{p.Name, n.Waiting, n.Claimed, n.Timers, n.Awaiting, n.External, n.Suspended, n.Dead, n.Finished}}, err
	})
}

// PoolLoad is what a pool has to do: who holds its lock, how many jobs wait and run, since when, and
// counters of Postgres, whose differences are how many were added and ended between two looks. These
// are of rows, and lag by up to a second; the jobs that wait are counted up to ten thousand.
type PoolLoad struct {
	Pool string

	Held    bool   // somebody holds the acquire lock
	Node    string // that does; "": nobody, or one that the ledger does not know
	Epoch   int64
	Frozen  bool
	Waiting int64         // jobs whose turn it is and that no node or worker has in hand; of each sort more than mostCounted are not counted
	Running int64         // jobs that nodes have in hand
	Oldest  time.Duration // since the oldest of those that wait was made
	Dead    int64         // dead letters; likewise

	Timers, Awaiting, External, Suspended int64 // jobs that stand elsewhere; likewise. Of External those that wait are in Waiting, too
	Kept                                  int64 // finished jobs, as Postgres estimates

	Added, Ended, Finished, Died int64 // rows that came into tenure.job, left it, and came among the finished jobs and the dead letters
	Failed                       int64 // rows that came among the failed runs
}

// Loads asks all pools what they have to do, cheaply enough to do so every second. When some do not
// answer, the others' loads are returned together with an error.
func (o *Operator) Loads(ctx context.Context) ([]PoolLoad, error) {
	return inspectEach(ctx, o.router.Pools(), func(ctx context.Context, p *routing.Pool, db store.DB) ([]PoolLoad, error) {
		l, err := store.ReadLoad(ctx, db)
		l.Pool = p.Name
		return []PoolLoad{PoolLoad(l)}, err
	})
}

// What state a pool can be in: see [PoolStatus].
const (
	PoolUp     = "up"
	PoolFrozen = "frozen"         // none of its jobs is started until it is thawed
	PoolDown   = "down"           // it did not answer
	PoolUnfit  = "out of service" // it answers, and cannot be used: see [Operator.Unfit]
)

// PoolStatus is whether a pool can be worked with, and what it has to do.
type PoolStatus struct {
	Pool  string
	State string   // one of those above
	Unfit error    // why it is out of service
	Load  PoolLoad // zero if it did not answer
}

// PoolStatuses looks at all pools, as cheaply as [Operator.Loads], and returns them in the order of their names. The
// error is of those that are down.
func (o *Operator) PoolStatuses(ctx context.Context) ([]PoolStatus, error) {
	loads, unanswered := o.Loads(ctx)
	unfit := o.Unfit()
	var out []PoolStatus
	for _, name := range o.PoolNames() {
		s := PoolStatus{Pool: name, State: PoolDown, Unfit: unfit[name]}
		if i := slices.IndexFunc(loads, func(l PoolLoad) bool { return l.Pool == name }); i >= 0 {
			s.State, s.Load = PoolUp, loads[i]
		}
		switch {
		case s.Unfit != nil:
			s.State = PoolUnfit
		case s.Load.Frozen:
			s.State = PoolFrozen
		}
		out = append(out, s)
	}
	return out, unanswered
}

// PoolNames are the names of all pools, in their order. It asks no database.
func (o *Operator) PoolNames() []string { return poolNames(o.router.Pools()) }

// Overview looks at one pool, on one connection and cheaply enough to be done every second, for five
// seconds at most. [ErrUnknownPool]: there is none of this name.
func (o *Operator) Overview(ctx context.Context, pool string) (PoolOverview, error) {
	p, err := o.findPool(pool)
	if err != nil {
		return PoolOverview{}, err
	}
	var seen store.Overview
	err = operate(ctx, p, func(ctx context.Context, db *pgxpool.Conn) (err error) {
		seen, err = store.ReadOverview(ctx, db)
		return err
	})
	seen.Load.Pool = pool
	all := PoolOverview{Pool: pool, Lock: newLockStatus(pool, seen.Lock), Load: PoolLoad(seen.Load)}
	for _, s := range seen.Sessions {
		s.Pool = pool
		all.Sessions = append(all.Sessions, SessionStatus(s))
	}
	for _, c := range seen.Changes {
		c.Pool = pool
		all.Changes = append(all.Changes, LockChange(c))
	}
	for _, r := range seen.Runs {
		all.Runs = append(all.Runs, RunTime(r))
	}
	return all, routing.NamePool(pool, err)
}

// LockChanges lists how the acquire locks of pools have changed, over all pools, the newest first. The
// ledgers keep the last five hundred epochs each; what programs of before have done to a lock they do
// not have. When some pools do not answer, the others' changes are returned together with an error.
func (o *Operator) LockChanges(ctx context.Context, f LockChangeFilter) ([]LockChange, error) {
	pools, err := o.poolsOf(f.Pool)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(f.Limit, 100)
	out, err := inspectEach(ctx, pools, func(ctx context.Context, p *routing.Pool, db store.DB) ([]LockChange, error) {
		rows, err := store.LockChanges(ctx, db, limit)
		out := make([]LockChange, len(rows))
		for i, r := range rows {
			r.Pool = p.Name
			out[i] = LockChange(r)
		}
		return out, err
	})
	SortLockChanges(out)
	return out[:min(limit, len(out))], err
}

// Queues lists the queues that have jobs, over all pools. Jobs that wait are counted up to ten thousand of
// each queue and pool. When some pools do not answer, the others' queues are returned together with an error.
func (o *Operator) Queues(ctx context.Context, f QueueFilter) ([]QueueStatus, error) {
	pools, err := o.poolsOf(f.Pool)
	if err != nil {
		return nil, err
	}
	var tenants []string
	for _, id := range f.Tenants {
		tenants = append(tenants, string(id))
	}
	return inspectEach(ctx, pools, func(ctx context.Context, p *routing.Pool, db store.DB) ([]QueueStatus, error) {
		rows, err := store.Queues(ctx, db, tenants)
		out := make([]QueueStatus, len(rows))
		for i, r := range rows {
			r.Pool = p.Name
			out[i] = QueueStatus(r)
		}
		return out, err
	})
}

// Examine is [Examine] for the configuration that the operator's process was started with, or has
// loaded since, its pools as they are.
func (o *Operator) Examine(ctx context.Context, within time.Duration, pools ...string) (Examination, error) {
	return Examine(ctx, *o.cfg.Load(), within, pools...)
}

// Audit lists what was done by operators, on all nodes and from the command line, over all pools, the last of it
// first. Each pool notes what was done in it, in the same transaction where there is one, else before the first, and
// keeps that for ninety days. A move of a tenant, tenant.move, is noted with each stage, in the detail: begun, resumed
// and given_up in the pool that the tenant leaves, held and ended in the one that it goes to. When some pools do not answer, the others' entries are returned together with an error.
func (o *Operator) Audit(ctx context.Context, f AuditFilter) ([]AuditEntry, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	after, _ := parseAuditCursor(f.After)
	pools, err := o.poolsOf(f.Pool)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(f.Limit, 100)
	out, err := inspectEach(ctx, pools, func(ctx context.Context, p *routing.Pool, db store.DB) ([]AuditEntry, error) {
		of := store.AuditFilter{Tenant: string(f.Tenant), Who: f.Who, Action: f.Action, Job: f.Job, Limit: limit}
		if f.After != "" {
			of.Before, of.BeforeID = after.At, after.ID
			switch strings.Compare(p.Name, after.Pool) { // of the same time those of later pools come first
			case -1:
				of.BeforeID = math.MaxInt64
			case 1:
				of.BeforeID = math.MinInt64
			}
		}
		rows, err := store.Audit(ctx, db, of)
		out := make([]AuditEntry, len(rows))
		for i, r := range rows {
			out[i] = AuditEntry{p.Name, r.ID, r.At, r.Who, r.Action, r.Tenant, r.Job, r.Subject, r.Detail}
		}
		return out, err
	})
	slices.SortStableFunc(out, CompareAudit)
	return out[:min(limit, len(out))], err
}
