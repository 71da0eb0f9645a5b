package operate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
)

// Pools tells how pools are, who has their locks, and freezes and thaws them. See [Operator.Pools].
type Pools struct{ proc *process.Process }

// Unfit says which pools are out of service although their databases answer, such as one
// that is not migrated, refuses its user or takes no writes, and why: somebody has to do something. They are
// tried again in the background. One that does not answer is not among them.
func (o *Pools) Unfit() map[string]error {
	all := map[string]error{}
	for _, p := range o.proc.Router.Pools() {
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

// Locks reads every pool's acquire lock.
func (o *Pools) Locks(ctx context.Context) []LockStatus {
	out, _ := routing.AskEach(ctx, o.proc.Router.Pools(), process.AnswerWithin, func(ctx context.Context, p *routing.Pool) ([]LockStatus, error) {
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

// Freeze keeps all nodes from claiming jobs in a pool until [Pools.Thaw]; what is
// running goes on, and jobs can be enqueued. When it returns nothing is claimed there
// any more. Doing it again changes nothing.
func (o *Pools) Freeze(ctx context.Context, pool string) error {
	return o.freeze(ctx, pool, true)
}

// Thaw ends a [Pools.Freeze].
func (o *Pools) Thaw(ctx context.Context, pool string) error {
	return o.freeze(ctx, pool, false)
}

func (o *Pools) freeze(ctx context.Context, pool string, frozen bool) error {
	p, err := o.proc.FindPool(pool)
	if err != nil {
		return err
	}
	action := "pool.freeze"
	if !frozen {
		action = "pool.thaw"
	}
	return routing.NamePool(pool, store.Freeze(ctx, store.Noted(p.Jobs(), o.proc.Deed(ctx, action, "", pool, nil)), frozen))
}

// Claims lists the sessions that have claims in flight in a pool: none means that nothing
// runs there. One whose node has died keeps its own until the lock's holder takes them
// back, and a frozen pool has no holder.
func (o *Pools) Claims(ctx context.Context, pool string) ([]SessionStatus, error) {
	p, err := o.proc.FindPool(pool)
	if err != nil {
		return nil, err
	}
	sessions, err := process.InspectEach(ctx, []*routing.Pool{p}, listSessions)
	return slices.DeleteFunc(sessions, func(s SessionStatus) bool { return s.Claims == 0 }), err
}

// Elected names the node that this process' view of the cluster proposes as the
// holder of a pool's acquire lock; "" when it sees none.
func (o *Pools) Elected(pool string) string {
	m, ok := o.proc.Cluster.Elected(pool)
	if !ok {
		return ""
	}
	return m.Node
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

// Sessions lists the sessions in every pool: the nodes that work there, or
// did within a day.
func (o *Pools) Sessions(ctx context.Context) ([]SessionStatus, error) {
	return process.InspectEach(ctx, o.proc.Router.Pools(), listSessions)
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
func (o *Pools) Count(ctx context.Context) ([]Counts, error) {
	return process.InspectEach(ctx, o.proc.Router.Pools(), func(ctx context.Context, p *routing.Pool, db store.DB) ([]Counts, error) {
		n, err := store.Count(ctx, db)
		if err != nil {
			return nil, err
		}
		return []Counts{{p.Name, n.Waiting, n.Claimed, n.Timers, n.Awaiting, n.External, n.Suspended, n.Dead, n.Finished}}, nil
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
	Oldest  time.Duration // since the oldest of those that wait could start
	Dead    int64         // dead letters; likewise

	Timers, Awaiting, External, Suspended int64 // jobs that stand elsewhere; likewise. Of External those that wait are in Waiting, too
	Kept                                  int64 // finished jobs, as Postgres estimates

	Added, Ended, Finished, Died int64 // rows that came into tenure.job, left it, and came among the finished jobs and the dead letters
	Failed                       int64 // rows that came among the failed runs
}

// Loads asks all pools what they have to do, cheaply enough to do so every second. When some do not
// answer, the others' loads are returned together with an error.
func (o *Pools) Loads(ctx context.Context) ([]PoolLoad, error) {
	return process.InspectEach(ctx, o.proc.Router.Pools(), func(ctx context.Context, p *routing.Pool, db store.DB) ([]PoolLoad, error) {
		l, err := store.ReadLoad(ctx, db)
		if err != nil {
			return nil, err
		}
		l.Pool = p.Name
		return []PoolLoad{PoolLoad(l)}, nil
	})
}

// What state a pool can be in: see [PoolStatus].
const (
	PoolUp     = "up"
	PoolFrozen = "frozen"         // none of its jobs is started until it is thawed
	PoolDown   = "down"           // it did not answer
	PoolUnfit  = "out of service" // it answers, and cannot be used: see [Pools.Unfit]
)

// PoolStatus is whether a pool can be worked with, and what it has to do.
type PoolStatus struct {
	Pool  string
	State string   // one of those above
	Unfit error    // why it is out of service
	Load  PoolLoad // zero if it did not answer
}

// List looks at all pools, as cheaply as [Pools.Loads], and returns them in the order of their names. The
// error is of those that are down.
func (o *Pools) List(ctx context.Context) ([]PoolStatus, error) {
	loads, unanswered := o.Loads(ctx)
	unfit := o.Unfit()
	var out []PoolStatus
	for _, name := range o.Names() {
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

// Names are the names of all pools, in their order. It asks no database.
func (o *Pools) Names() []string { return process.PoolNames(o.proc.Router.Pools()) }

// Overview looks at one pool, on one connection and cheaply enough to be done every second, for five
// seconds at most. tenure.ErrUnknownPool: there is none of this name.
func (o *Pools) Overview(ctx context.Context, pool string) (PoolOverview, error) {
	p, err := o.proc.FindPool(pool)
	if err != nil {
		return PoolOverview{}, err
	}
	var seen store.Overview
	err = process.Operate(ctx, p, func(ctx context.Context, db *pgxpool.Conn) (err error) {
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
func (o *Pools) LockChanges(ctx context.Context, f LockChangeFilter) ([]LockChange, error) {
	pools, err := o.proc.PoolsOf(f.Pool)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(f.Limit, 100)
	out, err := process.InspectEach(ctx, pools, func(ctx context.Context, p *routing.Pool, db store.DB) ([]LockChange, error) {
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
