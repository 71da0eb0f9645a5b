package routing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/store"
)

// ErrReplaced is returned for a database that was replaced by a standby: another
// connection, of this node or of another one, has reached a later timeline. What is
// written there will be lost.
var ErrReplaced = errors.New("another server was promoted in its place")

// promotions is the latest timeline of each pool's database that is known here. Every
// promotion of a standby begins a new one, so that whoever still writes on an earlier
// one talks to a primary that was replaced, which only the others can tell it. What they
// say is believed once it was asked for: see rumours.go. Safe for concurrent use.
type promotions struct {
	woken chan struct{} // one place: there is something in news or doubts
	asker asker

	mu     sync.RWMutex
	known  map[lineage]height // guarded by mu; of pools that this node serves
	news   []lineage          // guarded by mu; what everybody is to be told of
	doubts map[lineage]*doubt // guarded by mu; what others are asked about
}

// lineage is a pool's database and all that were copied from its server, as a hash: a
// copy that became another pool of its own is on a timeline of its own.
type lineage uint64

func lineageOf(server, pool string) lineage {
	h := fnv.New64a()
	_, _ = h.Write([]byte(server + "\x00" + pool)) // it never fails
	return lineage(h.Sum64())
}

// height is what is known of a lineage.
type height struct {
	seen  int32     // the latest timeline that this node reached by itself
	heard int32     // a later one that another node vouches for; 0: none
	by    string    // that node
	until time.Time // it is believed until then, unless it vouches for it again
}

// latest is a timeline, and the member that reached it.
type latest struct {
	timeline int32
	by       string // "": this node
}

func (l latest) who() string {
	if l.by == "" {
		return "this node"
	}
	return l.by
}

// latest is the latest timeline that is believed in now.
func (h height) latest() latest {
	if h.heard > h.seen && time.Now().Before(h.until) {
		return latest{h.heard, h.by}
	}
	return latest{timeline: h.seen}
}

func newPromotions() *promotions {
	return &promotions{woken: make(chan struct{}, 1), asker: newAsker(), known: map[lineage]height{}, doubts: map[lineage]*doubt{}}
}

// latest is what is known of l.
func (p *promotions) latest(l lineage) latest {
	p.mu.RLock() // for each use of a connection
	defer p.mu.RUnlock()
	return p.known[l].latest()
}

// reach takes in what this node found at the other end of a connection, and returns what
// was known before.
func (p *promotions) reach(l lineage, timeline int32) (before latest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.known[l]
	before = h.latest()
	if timeline > before.timeline && before.timeline > 0 {
		p.tell(l)
	}
	if timeline > h.seen {
		h.seen = timeline
		if d := p.doubts[l]; d != nil && timeline >= max(h.heard, d.raised.timeline) {
			delete(p.doubts, l)
		}
	}
	if h.seen >= h.heard {
		h.heard, h.by, h.until = 0, "", time.Time{}
	}
	p.known[l] = h
	return before
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
	p.wake()
}

func (p *promotions) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// On the wire a lineage takes eight bytes and its timeline four.
const lineageSize = 12

// maxTimeline is later than any database gets to, by one promotion after another.
const maxTimeline = 1 << 20

// maxTold is how many of them fit a datagram.
const maxTold = 90

func appendTimeline(b []byte, l lineage, timeline int32) []byte {
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
			b = appendTimeline(b, l, h.seen)
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
			b = appendTimeline(b, l, p.known[l].latest().timeline)
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
func (p *Pool) reach(s stamp) (before latest) {
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
	before := p.promotions.reach(s.lineage, s.timeline)
	if !late || before.timeline > 0 {
		return
	}
	if s.timeline > 1 {
		p.promotions.announce(s.lineage)
	}
	p.promotions.doubt(s.lineage, latest{}) // what others said of it before is not remembered
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

func (p *Pool) current(s stamp, latest latest) error {
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
