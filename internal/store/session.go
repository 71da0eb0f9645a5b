package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Session is a process that works on a pool. Everything that protects its jobs
// refers to the session, never to a node's name, so that two nodes of one name, or
// one that restarts, are never taken for one another.
type Session struct {
	Pool string // of who asks several; the store leaves it empty

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

// BusyNode is a node whose workers something keeps: none is left for tenants that run something, or handlers ignore the end of their context.
type BusyNode struct {
	Node   string
	Member string
	Busy   Busy
}

// Busy is what keeps a node's workers.
type Busy struct {
	Workers int        `json:"workers"`        // that the node has
	Kept    int        `json:"kept,omitempty"` // of them those that runs have kept for long
	Rest    bool       `json:"rest,omitempty"` // the others are for tenants that run nothing
	Left    int        `json:"left,omitempty"` // of the handlers that ignore the end of their context: those that keep a worker, as no other is left to stand in
	Kinds   []BusyKind `json:"kinds"`          // the first few, those with most first
}

// BusyKind is what is so of a kind.
type BusyKind struct {
	Kind  string    `json:"kind"`
	Runs  int       `json:"runs,omitempty"`  // that have kept a worker for long; not told if no job waits for one and others are free
	Stuck int       `json:"stuck,omitempty"` // handlers that ignore the end of their context
	Since time.Time `json:"since"`           // the first of all these, by the node's clock
}

// Full tells whether no worker is left for tenants that run something.
func (b *Busy) Full() bool { return b.Workers > 0 && (b.Rest || b.Kept >= b.Workers) }

// ForWhom says for whom a full node has none left, as words behind how many it has.
func (b *Busy) ForWhom() string {
	if b.Kept < b.Workers {
		return " but for tenants that run nothing"
	}
	return ""
}

// Long are the kinds whose runs have kept workers for long.
func (b *Busy) Long() []BusyKind { return b.of(func(k BusyKind) bool { return k.Runs > 0 }) }

// Stuck are the kinds whose handlers ignore the end of their context.
func (b *Busy) Stuck() []BusyKind { return b.of(func(k BusyKind) bool { return k.Stuck > 0 }) }

func (b *Busy) of(which func(BusyKind) bool) (kinds []BusyKind) {
	for _, k := range b.Kinds {
		if which(k) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// OpenSession makes s live for ttl.
func OpenSession(ctx context.Context, db DB, s Session, ttl time.Duration) error {
	_, err := db.Exec(ctx, sqlSessionOpen, s.ID, append([]string{}, s.Kinds...), s.Node, s.Member, s.GossipAddr, s.Version, ttl.Milliseconds(), nullable(s.PerTenant)) // an empty list, not NULL
	return explain(err, "open a session")
}

// SetKinds says which kinds the node of a live session handles by now; of another session nothing is changed.
func SetKinds(ctx context.Context, db DB, id uuid.UUID, kinds []string) error {
	_, err := db.Exec(ctx, sqlSessionKinds, id, append([]string{}, kinds...))
	return explain(err, "say which kinds a node handles")
}

// TellQueues says in which queues jobs of these kinds wait whose enqueuer names none; queues are in the kinds' order.
func TellQueues(ctx context.Context, db DB, kinds, queues []string) error {
	_, err := db.Exec(ctx, sqlKindQueueTell, kinds, queues)
	return explain(err, "say in which queues kinds have their jobs")
}

// KindQueues are the queues that nodes give kinds, by kind.
func KindQueues(ctx context.Context, db DB) (map[string]string, error) {
	rows, _ := db.Query(ctx, sqlKindQueueList) // whose error the rows have
	return scanKindQueues(rows)
}

func scanKindQueues(rows pgx.Rows) (map[string]string, error) {
	queues, kind, queue := map[string]string{}, "", ""
	_, err := pgx.ForEachRow(rows, []any{&kind, &queue}, func() error {
		queues[kind] = queue
		return nil
	})
	return queues, explain(err, "ask for the queues of kinds")
}

// SetBusy says what keeps the workers of a live session's node; nil: nothing is to be told.
func SetBusy(ctx context.Context, db DB, id uuid.UUID, b *Busy) error {
	var text *string
	if b != nil {
		out, err := json.Marshal(b)
		if err != nil {
			return fmt.Errorf("say what keeps a node's workers: %w", err)
		}
		text = nullable(string(out))
	}
	_, err := db.Exec(ctx, sqlSessionBusy, id, text)
	return explain(err, "say what keeps a node's workers")
}

// BusyNodes lists the live nodes whose workers something keeps.
func BusyNodes(ctx context.Context, db DB) ([]BusyNode, error) {
	return list(ctx, db, "list busy nodes", pgx.RowToStructByPos[BusyNode], sqlSessionBusyList)
}

// FullNodes lists the live nodes with a handler of a kind, if none of them has a worker left.
func FullNodes(ctx context.Context, db DB, kind string) ([]BusyNode, error) {
	nodes, err := list(ctx, db, "see which nodes have workers for a kind", pgx.RowToStructByPos[BusyNode], sqlSessionBusyKind, kind)
	if slices.ContainsFunc(nodes, func(n BusyNode) bool { return !n.Busy.Full() }) {
		return nil, err
	}
	return nodes, err
}

// BeatSession says that the session lives, and what time it is by the database's clock.
// ErrSessionLost: it was reaped.
func BeatSession(ctx context.Context, db DB, id uuid.UUID, ttl time.Duration) (clock time.Time, err error) {
	err = db.QueryRow(ctx, sqlSessionBeat, id, ttl.Milliseconds()).Scan(&clock)
	if errors.Is(err, pgx.ErrNoRows) {
		return clock, ErrSessionLost
	}
	return clock, explain(err, "send a heartbeat")
}

// LeaveSession ends a session; false when it still has claims. What was assigned to it
// and not accepted goes back. One that was declared dead stays so. It takes one
// round trip and one transaction, in which nobody can assign it another claim.
func LeaveSession(ctx context.Context, db DB, id uuid.UUID) (bool, error) {
	var b pgx.Batch
	b.Queue(sqlSessionHold, id)
	b.Queue(sqlClaimDecline, id)
	left := false
	b.Queue(sqlSessionLeave, id).Exec(func(tag pgconn.CommandTag) error {
		left = tag.RowsAffected() == 1
		return nil
	})
	err := db.SendBatch(ctx, &b).Close()
	return left && err == nil, explain(err, "end the session")
}

// idleFor marks a session that was ended while its node lives. It is longer than any
// session's time to live.
const idleFor = 24 * time.Hour

// IdleSession says of a session that has left whether its node lives.
func IdleSession(ctx context.Context, db DB, id uuid.UUID, lives bool) error {
	d := idleFor
	if !lives {
		d = 0
	}
	_, err := db.Exec(ctx, sqlSessionIdle, id, d.Milliseconds())
	return explain(err, "say that the node lives")
}

// Sessions lists the pool's sessions.
func Sessions(ctx context.Context, db DB) ([]Session, error) {
	return list(ctx, db, "list sessions", func(row pgx.CollectableRow) (s Session, err error) {
		var ttl int64
		err = row.Scan(&s.ID, &s.Node, &s.Member, &s.GossipAddr, &s.Version, &s.Kinds, &s.State, &s.Beat,
			&s.StartedAt, &s.LastSeen, &s.Expired, &s.Idle, &s.Unseen, &ttl, &s.Claims)
		s.TTL = time.Duration(ttl) * time.Millisecond
		return s, err
	}, sqlSessionList)
}

// GossipAddresses lists where the nodes that work on the pool gossip.
func GossipAddresses(ctx context.Context, db DB) ([]string, error) {
	return list(ctx, db, "list gossip addresses", pgx.RowTo[string], sqlSessionSeeds)
}

// DeclareDead ends a session whose heartbeat the caller saw stand still at beat, if it has
// expired by the database's clock, or if anyway is set. It is false when the session came
// back to life, somebody has locked its row, or the caller is fenced.
func DeclareDead(ctx context.Context, db DB, f Fence, id uuid.UUID, beat int64, anyway bool) (dead bool, err error) {
	err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		q.Exec(func(tag pgconn.CommandTag) error {
			dead = tag.RowsAffected() == 1
			return nil
		})
	}, sqlSessionReap, id, beat, f.Session, f.Epoch, anyway)
	return dead && err == nil, explain(err, "declare session %s dead", id)
}

// ForgetSessions removes sessions that ended long ago.
func ForgetSessions(ctx context.Context, db DB) error {
	return explain(briefly(ctx, db, lockTimeout, nil, sqlSessionForget), "forget old sessions")
}
