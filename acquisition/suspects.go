package acquisition

import (
	"sync"

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

// next takes the first one out.
func (q *suspects) next() suspect {
	s := q.first()
	q.queue[0] = suspect{} // let its payload go
	q.queue = q.queue[1:]
	q.taken++
	delete(q.known, endedJob{s.Record.ID, s.Record.Turn})
	return s
}

func (q *suspects) clear() {
	q.queue, q.taken = nil, 0
	clear(q.known)
}
