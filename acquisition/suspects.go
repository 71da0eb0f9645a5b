package acquisition

import (
	"context"
	"errors"
	"sync"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/store"
)

// suspect is a job whose node was lost while it ran. It is claimed by itself, so that a
// job which kills its node is found without dragging others down with it: after the
// first loss beside some other suspects, as most of them only happened to be there;
// from the second on while no other suspect runs on this node, of whatever pool.
type suspect struct {
	store.Waiting
	removals int64
	lane     *lane // where it was read; its tenant is placed
}

// atATime is how many suspects may run at a time after their first loss.
const atATime = 16

// alone tells whether it must run while no other suspect does.
func (s suspect) alone() bool { return s.Record.Losses > 1 }

// trials are the suspects that run, of all pools of a node: what kills a process kills
// what runs beside it, wherever that comes from. Those that were given to peers count,
// too. A term that ends lets go of its own. Safe for concurrent use.
type trials struct {
	mu    sync.Mutex
	n     int // guarded by mu
	alone int // guarded by mu; how many of them must be alone
}

// begin tells whether one more may run, and counts it if so.
func (s *trials) begin(alone bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= atATime || s.n > 0 && (alone || s.alone > 0) {
		return false
	}
	s.n++
	if alone {
		s.alone++
	}
	return true
}

func (s *trials) end(alone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n--
	if alone {
		s.alone--
	}
}

// suspects are those that wait for their turn, in the order they were read. Each
// stands there once, however often it is read: it would be claimed again after it
// is finished, as nothing else remembers it then. It belongs to one term and is
// used by its goroutine only.
type suspects struct {
	queue []suspect
	known map[endedJob]int // to the number in the queue, the first that ever stood there being 0
	taken int              // how many have left the queue
}

func (q *suspects) add(s suspect) {
	key := endedJob{s.Record.ID, s.Record.Turn}
	if at, ok := q.known[key]; ok {
		q.queue[at-q.taken] = s // as it was read last: with the latest count of removals
		return
	}
	q.known[key] = q.taken + len(q.queue)
	q.queue = append(q.queue, s)
}

func (q *suspects) none() bool { return len(q.queue) == 0 }

func (q *suspects) first() suspect { return q.queue[0] }

// bring puts the first one of those in front that may run, and tells whether there is one.
func (q *suspects) bring(may func(tenant string) bool) bool {
	for range q.queue {
		if may(q.first().Record.Tenant) {
			return true
		}
		q.add(q.next())
	}
	return false
}

// next takes the first one out.
func (q *suspects) next() suspect {
	s := q.first()
	q.queue[0] = suspect{} // let its payload go
	q.queue = q.queue[1:]
	q.taken++
	delete(q.known, endedJob{s.Record.ID, s.Record.Turn})
	return s
}

// list is which they are.
func (q *suspects) list() (ids []int64, turns []int32) {
	for key := range q.known {
		ids, turns = append(ids, int64(key.id)), append(turns, key.turn)
	}
	return ids, turns
}

func (q *suspects) clear() {
	q.queue, q.taken = nil, 0
	clear(q.known)
}

// forgetTried makes place for other suspects where some have ended.
func (t *term) forgetTried() {
	for e, alone := range t.tried {
		if !t.flight.has(e.id, e.turn) {
			delete(t.tried, e)
			t.trials.end(alone)
		}
	}
}

// acquireSuspect claims one suspect job by itself.
func (t *term) acquireSuspect(ctx context.Context) (claimed int, err error) {
	t.forgetTried()
	if !t.suspects.bring(func(tenant string) bool { return t.limits.left(tenant) > 0 }) {
		return 0, nil
	}
	s := t.suspects.first()
	rec := s.Record
	if !t.trials.begin(s.alone()) {
		return 0, nil
	}
	defer func() {
		if claimed == 0 {
			t.trials.end(s.alone())
		}
	}()
	if !t.kinds.Has(rec.Kind) {
		return t.giveSuspect(ctx)
	}
	if t.workers.Reserve(t.session, 1) == 0 {
		return 0, nil
	}
	t.suspects.next()
	defer t.session.making.enter()()
	byTurn, err := t.insert(ctx, s.removals, []int64{int64(rec.ID)}, []int32{rec.Turn})
	if err != nil {
		t.workers.Release(1)
		return 0, t.suspectVoided(ctx, err)
	}
	id := byTurn[rec.Turn]
	t.flight.add(rec.ID, rec.Turn)
	t.limits.claimed(s.Waiting)
	t.tried[endedJob{rec.ID, rec.Turn}] = s.alone()
	t.session.open(id, 1)
	t.metrics.claimed.WithLabelValues(t.pool.Name).Inc()
	t.workers.Submit(t.session, []execution.Claim{{ID: id, Record: rec, Tenant: s.lane.owner.place, Owner: t.session}})
	return 1, nil
}

// giveSuspect claims the first suspect, whose kind this node cannot run, for a peer.
func (t *term) giveSuspect(ctx context.Context) (int, error) {
	s := t.suspects.next()
	ready, _ := t.peers.ready()
	for _, p := range ready {
		if !p.kinds.Has(s.Record.Kind) {
			continue
		}
		s.Waiting.Lane = 0 // of the one portion
		n, err := t.give(ctx, s.removals, []share{{peer: p, jobs: []store.Waiting{s.Waiting}}}, []portion{{lane: s.lane}})
		if err != nil {
			return 0, t.suspectVoided(ctx, err)
		}
		t.tried[endedJob{s.Record.ID, s.Record.Turn}] = s.alone()
		return n, nil
	}
	t.lanes.miss(s.lane, s.Position, s.Record.Kind, false)
	return 0, nil
}

// suspectVoided handles a claim on a suspect that was refused: what was read is void,
// and the sweep finds it again.
func (t *term) suspectVoided(ctx context.Context, err error) error {
	if !errors.Is(err, store.ErrFenced) {
		return err
	}
	t.suspects.clear()
	askFor(&t.chores.sweep)
	return t.stillMine(ctx)
}
