package routing

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
)

// ErrReplaced is returned for a database that was replaced by a standby: another
// connection, of this node or of another one, has reached a later timeline. What is
// written there will be lost.
var ErrReplaced = errors.New("another server was promoted in its place")

// promotions is the latest timeline of each pool's database that is known here. Every
// promotion of a standby begins a new one, so that whoever still writes on an earlier
// one talks to a primary that was replaced, which only the others can tell it.
// Safe for concurrent use.
type promotions struct {
	rose chan struct{} // one place: there is something in news

	mu    sync.RWMutex
	known map[lineage]height // guarded by mu
	news  []lineage          // guarded by mu; what everybody is to be told of
}

// lineage is a pool's database and all that were copied from its server, as a hash: a
// copy that became another pool of its own is on a timeline of its own.
type lineage uint64

func lineageOf(server, pool string) lineage {
	h := fnv.New64a()
	_, _ = h.Write([]byte(server + "\x00" + pool)) // it never fails
	return lineage(h.Sum64())
}

// height is the latest timeline of a lineage.
type height struct {
	timeline int32
	seen     int32  // the latest that this node reached by itself
	by       string // the member that reached timeline; "": this node
}

func (h height) who() string {
	if h.by == "" {
		return "this node"
	}
	return h.by
}

func newPromotions() *promotions {
	return &promotions{rose: make(chan struct{}, 1), known: map[lineage]height{}}
}

// latest is what is known of l.
func (p *promotions) latest(l lineage) height {
	p.mu.RLock() // for each use of a connection
	defer p.mu.RUnlock()
	return p.known[l]
}

// reach takes in what this node found at the other end of a connection, and returns what
// was known before.
func (p *promotions) reach(l lineage, timeline int32) (before height) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before = p.known[l]
	h := before
	h.seen = max(h.seen, timeline)
	if timeline > h.timeline {
		h.timeline, h.by = timeline, ""
		if before.timeline > 0 {
			p.tell(l)
		}
	}
	p.known[l] = h
	return before
}

// hear takes in what another member says; later: it has reached a later timeline than
// this node, which did not know.
func (p *promotions) hear(from string, l lineage, timeline int32) (later bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, known := p.known[l]
	if timeline <= h.timeline || !known && len(p.known) >= maxLineages {
		return false
	}
	later = h.seen > 0
	h.timeline, h.by = timeline, from
	p.known[l] = h
	if later { // others may be where this node is
		p.tell(l)
	}
	return later
}

// announce has everybody be told of l.
func (p *promotions) announce(l lineage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tell(l)
}

// tell has everybody be told of l; mu is held.
func (p *promotions) tell(l lineage) {
	if !slices.Contains(p.news, l) {
		p.news = append(p.news, l)
	}
	select {
	case p.rose <- struct{}{}:
	default:
	}
}

// On the wire a lineage takes eight bytes and its timeline four.
const lineageSize = 12

// maxTimeline is later than any database gets to, by one promotion after another. Whoever
// is believed that a later one was reached keeps all nodes from their database.
const maxTimeline = 1 << 20

// maxLineages bounds what is remembered of databases of which this node knows nothing, but
// what others say.
const maxLineages = 1 << 17

// maxTold is how many of them fit a datagram.
const maxTold = 90

func (p *promotions) append(b []byte, l lineage, timeline int32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, uint64(l)), uint32(timeline))
}

// own encodes what this node has reached by itself. What others said is not passed on
// for ever, so that it is forgotten when they are gone. A database that was never
// replaced, which is nearly every one, takes no room.
func (p *promotions) own() (b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l, h := range p.known {
		if h.seen > 1 {
			b = p.append(b, l, h.seen)
		}
	}
	return b
}

// takeNews encodes what everybody is to be told, in parts that fit a datagram each.
func (p *promotions) takeNews() (parts [][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for part := range slices.Chunk(p.news, maxTold) {
		var b []byte
		for _, l := range part {
			b = p.append(b, l, p.known[l].timeline)
		}
		parts = append(parts, b)
	}
	p.news = nil
	return parts
}

// stamp is what a connection is marked with: where it led when it was opened.
type stamp struct {
	lineage  lineage
	timeline int32
}

const stampKey = "tenure.stamp"

// reach notes where a connection leads, and returns what was known of it before. Until the
// pool serves, nobody is told: its configuration may be refused.
func (p *Pool) reach(s stamp) (before height) {
	p.mu.Lock()
	serves := p.serves
	if !serves {
		p.first = s
	}
	p.mu.Unlock()
	if !serves {
		return p.promotions.latest(s.lineage)
	}
	return p.promotions.reach(s.lineage, s.timeline)
}

// enter has a pool serve that was verified and whose configuration is in force. late: this
// node has run for a while, so that others may have to be told.
func (p *Pool) enter(late bool) {
	p.mu.Lock()
	s := p.first
	p.serves = p.number > 0
	serves := p.serves
	p.mu.Unlock()
	if !serves {
		return
	}
	if before := p.promotions.reach(s.lineage, s.timeline); late && before.timeline == 0 && s.timeline > 1 {
		p.promotions.announce(s.lineage)
	}
}

// Current refuses a connection to a primary that was replaced since it was opened, with
// an error that wraps ErrReplaced.
func (p *Pool) Current(c *pgx.Conn) error {
	s, ok := c.PgConn().CustomData()[stampKey].(stamp)
	if !ok { // it is not one of ours
		return nil
	}
	return p.current(s, p.promotions.latest(s.lineage))
}

func (p *Pool) current(s stamp, latest height) error {
	if s.timeline >= latest.timeline {
		return nil
	}
	return replaced{&store.PoolError{Pool: p.Name,
		What: fmt.Sprintf("its DSN leads to a primary that was replaced (timeline %d; %s has reached timeline %d)", s.timeline, latest.who(), latest.timeline),
		Fix:  "stop the old primary, and point the DSN at the one that was promoted; if an older state was restored on purpose, stop all nodes and clients and start them again"}}
}

// replaced is a PoolError that callers know as ErrReplaced, too.
type replaced struct{ *store.PoolError }

func (e replaced) Is(target error) bool { return target == ErrReplaced }
func (e replaced) Unwrap() error        { return e.PoolError }

// Promotions encodes the timelines that this node has reached, for other nodes' Hear.
func (r *Router) Promotions() []byte { return r.promotions.own() }

// Hear takes in which timelines another member has reached. From then on connections to
// databases on earlier ones are refused, with ErrReplaced. An error says that b is not
// what [Router.Promotions] returns.
func (r *Router) Hear(from string, b []byte) error {
	if len(b)%lineageSize != 0 {
		return fmt.Errorf("decode timelines: %d bytes are no multiple of %d", len(b), lineageSize)
	}
	parts := slices.Collect(slices.Chunk(b, lineageSize))
	for _, part := range parts {
		if timeline := binary.BigEndian.Uint32(part[8:]); timeline > maxTimeline {
			return fmt.Errorf("decode timelines: no database gets to timeline %d", timeline)
		}
	}
	later := 0
	for _, part := range parts {
		if r.promotions.hear(from, lineage(binary.BigEndian.Uint64(part)), int32(binary.BigEndian.Uint32(part[8:]))) {
			later++
		}
	}
	if later > 0 {
		r.log.Error("this node is connected to databases that were replaced: another node has reached their successors; nothing more is done there until the DSN leads to those",
			zap.Int("pools", later), zap.String("node", from))
	}
	return nil
}

// gatherFor is how long promotions are gathered before they are told: those of one
// server's pools come together.
const gatherFor = 200 * time.Millisecond

// Spread has tell called with what all other members are to Hear, when a database was
// replaced; each part fits a datagram. It must be called before Start, if at all.
func (r *Router) Spread(tell func(part []byte)) { r.tell = tell }

func (r *Router) spread(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.promotions.rose:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gatherFor):
		}
		for _, part := range r.promotions.takeNews() {
			r.tell(part)
		}
	}
}
