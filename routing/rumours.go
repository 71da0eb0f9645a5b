package routing

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
)

// A member that says that a database was replaced may be wrong, or somebody else who only
// sent a datagram in its name, and believing it takes the pool out of service. So what is
// heard only raises a doubt: the nodes are asked who has reached a later timeline than this
// one, each with a token of its own, and only an answer with the token of whom it comes from
// is believed, and only for a while. Who has heard, but not reached it, does not answer.
// A doubt that nobody confirms comes to nothing, and costs nothing.

// doubt is about a lineage of which others may have reached a later timeline.
type doubt struct {
	raised latest    // what was said, and by whom; zero: nothing was, this node asks by itself
	asked  int       // how often, since it was confirmed last
	next   time.Time // when to do so again, or to come to a verdict
}

// askAgain is when a question is repeated, as datagrams are lost; the last is when it is
// given up.
var askAgain = []time.Duration{250 * time.Millisecond, time.Second, 2 * time.Second}

const (
	// believedFor is how long an answer is believed. It is longer than a node takes that
	// starts anew, so that a rolling restart beside an old primary changes nothing.
	believedFor = time.Minute
	// reaffirmEvery is how often the nodes are asked again meanwhile.
	reaffirmEvery = 5 * time.Second
	// answerWithin is how long a token is good for.
	answerWithin = 5 * time.Second
)

// doubt has the other nodes be asked about l, if it is a pool's of this node.
func (p *promotions) doubt(l lineage, said latest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.raise(l, said)
}

// raise is doubt with mu held. A doubt that there is already is not raised anew, however
// often it is repeated: that bounds the questions.
func (p *promotions) raise(l lineage, said latest) {
	if h, serves := p.known[l]; !serves || h.seen == 0 || p.doubts[l] != nil {
		return
	}
	p.doubts[l] = &doubt{raised: said, next: time.Now()}
	p.wake()
}

// hear takes in what another member says.
func (p *promotions) hear(said latest, l lineage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if said.timeline > p.known[l].latest().timeline {
		p.raise(l, said)
	}
}

// vouch takes in an answer; first: nobody was believed before that l was replaced.
func (p *promotions) vouch(said latest, l lineage) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, d := p.known[l], p.doubts[l]
	before := h.latest()
	if d == nil || said.timeline < before.timeline || said.timeline <= h.seen {
		return false
	}
	now := time.Now()
	h.heard, h.by, h.until = said.timeline, said.by, now.Add(believedFor)
	p.known[l] = h
	d.asked, d.next = 0, now.Add(reaffirmEvery)
	if first = before.timeline == h.seen; first { // others may be where this node is
		p.tell(l)
	}
	return first
}

// verdicts are what became of doubts.
type verdicts struct {
	dismissed []latest // what was said, which nobody has confirmed
	expired   int      // pools whose successors nobody has reached any more
}

// due returns what is to be asked now, what has come to a verdict, and when to come back;
// 0: there is no doubt left.
func (p *promotions) due() (questions []stamp, v verdicts, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for l, d := range p.doubts {
		h := p.known[l]
		switch {
		case h.heard > 0 && !now.Before(h.until):
			h.heard, h.by, h.until = 0, "", time.Time{}
			p.known[l] = h
			delete(p.doubts, l)
			v.expired++
			continue
		case now.Before(d.next):
		case d.asked < len(askAgain):
			questions = append(questions, stamp{l, h.seen})
			d.next = now.Add(askAgain[d.asked])
			d.asked++
		case h.heard > 0: // it is asked in vain, and believed for a while
			d.asked, d.next = 0, now.Add(reaffirmEvery)
		default:
			delete(p.doubts, l)
			if d.raised.timeline > 0 {
				v.dismissed = append(v.dismissed, d.raised)
			}
			continue
		}
		if left := max(d.next.Sub(now), time.Millisecond); wait == 0 || left < wait {
			wait = left
		}
	}
	return questions, v, wait
}

// asker makes the tokens of questions. A token says when and whom it was made for, and that
// it was made here, so that nothing has to be remembered.
type asker struct {
	secret [32]byte
	born   time.Time
}

func newAsker() asker {
	a := asker{born: time.Now()}
	rand.Read(a.secret[:]) // never fails
	return a
}

// A token is eight bytes of time and sixteen of proof.
const tokenSize = 24

func (a *asker) token(member string) []byte {
	return a.sign(member, uint64(time.Since(a.born)))
}

func (a *asker) sign(member string, at uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, at)
	mac := hmac.New(sha256.New, a.secret[:])
	mac.Write(b)
	mac.Write([]byte(member))
	return mac.Sum(b)[:tokenSize]
}

// knows tells whether a member was asked a moment ago with this token.
func (a *asker) knows(member string, token []byte) bool {
	at := binary.BigEndian.Uint64(token)
	return hmac.Equal(token, a.sign(member, at)) && time.Since(a.born)-time.Duration(at) <= answerWithin
}

// Gossip is how routers of different processes talk to one another. Nothing is waited for,
// and anything may be lost.
type Gossip interface {
	// Tell has all other members Hear what fits a datagram.
	Tell(part []byte)
	// Ask has each of the other nodes Answer a question of its own, and the answer
	// Vouched for here.
	Ask(question func(member string) []byte)
}

// Spread has this router talk to those of other members, by their Hear, Answer and Vouch,
// so that a database that was replaced is left. It must be called before Start, if at all.
func (r *Router) Spread(g Gossip) { r.gossip = g }

var errNotTimelines = errors.New("decode timelines")

// timelines decodes what appendTimeline has encoded, and hands each to take.
func timelines(b []byte, take func(stamp)) error {
	if len(b)%lineageSize != 0 {
		return fmt.Errorf("%w: %d bytes are no multiple of %d", errNotTimelines, len(b), lineageSize)
	}
	parts := slices.Collect(slices.Chunk(b, lineageSize))
	for _, part := range parts {
		if timeline := binary.BigEndian.Uint32(part[8:]); timeline > maxTimeline {
			return fmt.Errorf("%w: no database gets to timeline %d", errNotTimelines, timeline)
		}
	}
	for _, part := range parts {
		take(stamp{lineage(binary.BigEndian.Uint64(part)), int32(binary.BigEndian.Uint32(part[8:]))})
	}
	return nil
}

// tokenOf takes the token off a question or an answer.
func tokenOf(b []byte) (token, rest []byte, err error) {
	if len(b) < tokenSize {
		return nil, nil, fmt.Errorf("%w: %d bytes hold no token", errNotTimelines, len(b))
	}
	return b[:tokenSize], b[tokenSize:], nil
}

// Hear takes in which timelines another member says that it has reached. Nothing is
// refused for that: the nodes are asked whether it is so. An error says that b is not
// what [Router.Promotions] returns.
func (r *Router) Hear(from string, b []byte) error {
	return timelines(b, func(s stamp) { r.promotions.hear(latest{s.timeline, from}, s.lineage) })
}

// Answer says of which databases in a question this node has reached a later timeline by
// itself; nil: of none. An error says that it is no question.
func (r *Router) Answer(question []byte) (answer []byte, err error) {
	token, rest, err := tokenOf(question)
	if err != nil || len(rest) > maxTold*lineageSize {
		return nil, errors.Join(err, errNotTimelines)
	}
	p := r.promotions
	p.mu.RLock()
	defer p.mu.RUnlock()
	err = timelines(rest, func(s stamp) {
		if seen := p.known[s.lineage].seen; seen > s.timeline {
			answer = appendTimeline(answer, s.lineage, seen)
		}
	})
	if err != nil || answer == nil {
		return nil, err
	}
	return slices.Concat(token, answer), nil
}

// errUnasked is for an answer that nobody has asked for, or not of its sender.
var errUnasked = errors.New("an answer about timelines that was not asked for, or too late, or not from whom it was asked")

// Vouch takes in another node's answer. For a minute from then on connections to databases
// on earlier timelines are refused, with ErrReplaced, and for longer as long as it is
// answered again. An error says that it is no answer to a question of this node.
func (r *Router) Vouch(from string, answer []byte) error {
	token, rest, err := tokenOf(answer)
	if err != nil {
		return err
	}
	if !r.promotions.asker.knows(from, token) {
		return errUnasked
	}
	pools := 0
	err = timelines(rest, func(s stamp) {
		if r.promotions.vouch(latest{s.timeline, from}, s.lineage) {
			pools++
		}
	})
	if pools > 0 {
		r.metrics.rumours.WithLabelValues("confirmed").Add(float64(pools))
		r.log.Error("this node is connected to databases that were replaced: another node has reached their successors; nothing more is done there until the DSN leads to those",
			zap.Int("pools", pools), zap.String("node", from))
	}
	return err
}

// gatherFor is how long promotions are gathered before they are told: those of one
// server's pools come together. What is doubtful is asked sooner.
const (
	gatherFor = 200 * time.Millisecond
	doubtFor  = 20 * time.Millisecond
)

// spread tells and asks what there is.
func (r *Router) spread(ctx context.Context) {
	var ask, again, tell <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.promotions.woken:
			if ask == nil {
				ask = time.After(doubtFor)
			}
			if tell == nil {
				tell = time.After(gatherFor)
			}
			continue
		case <-tell:
			tell = nil
			for _, part := range r.promotions.takeNews() {
				r.gossip.Tell(part)
			}
			continue
		case <-ask:
			ask = nil
		case <-again:
		}
		questions, v, wait := r.promotions.due()
		if again = nil; wait > 0 {
			again = time.After(wait)
		}
		r.ask(questions)
		r.judged(v)
	}
}

// ask asks all nodes.
func (r *Router) ask(questions []stamp) {
	for part := range slices.Chunk(questions, maxTold) {
		var b []byte
		for _, s := range part {
			b = appendTimeline(b, s.lineage, s.timeline)
		}
		r.gossip.Ask(func(member string) []byte { return append(r.promotions.asker.token(member), b...) })
	}
}

// judged reports what became of doubts.
func (r *Router) judged(v verdicts) {
	r.metrics.rumours.WithLabelValues("dismissed").Add(float64(len(v.dismissed)))
	r.metrics.rumours.WithLabelValues("expired").Add(float64(v.expired))
	if len(v.dismissed) > 0 {
		r.log.Warn("a member said that databases were replaced, and no node confirms that it has reached their successors; nothing was done about it",
			zap.Int("pools", len(v.dismissed)), zap.Int32("timeline", v.dismissed[0].timeline), zap.String("member", v.dismissed[0].by))
	}
	if v.expired > 0 {
		r.log.Warn("no node has confirmed for a while that databases were replaced; this node works on them again",
			zap.Int("pools", v.expired), zap.Duration("after", believedFor))
	}
}
