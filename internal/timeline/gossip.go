package timeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"
)

// Gossip is how tables of different processes talk to one another. Nothing is waited for,
// and anything may be lost.
type Gossip interface {
	// Tell has all other members Hear what fits a datagram.
	Tell(part []byte)
	// Ask has each of the other nodes Answer a question of its own, and the answer passed
	// to Vouch here.
	Ask(question func(member string) []byte)
}

// Connect has this table talk to those of other members. It must be called before Run, if
// at all.
func (t *Table) Connect(g Gossip) { t.gossip = g }

// Hear takes in which timelines another member says that it has reached, as encoded by
// [Table.Reached]. It only has the nodes be asked whether that is so. An error says that b
// is malformed.
func (t *Table) Hear(from string, b []byte) error {
	return decodeStamps(b, func(s Stamp) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if s.Timeline > t.known[s.Cluster].latest().Timeline {
			t.openInquiry(s.Cluster, Latest{s.Timeline, from})
		}
	})
}

// Answer says of which databases in a question this node has reached a later timeline by
// itself; nil: of none. An error says that the question is malformed.
func (t *Table) Answer(question []byte) (answer []byte, err error) {
	token, rest, err := cutToken(question)
	if err != nil || len(rest) > maxStamps*stampSize {
		return nil, errors.Join(err, errMalformed)
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	err = decodeStamps(rest, func(s Stamp) {
		if seen := t.known[s.Cluster].seen; seen > s.Timeline {
			answer = appendStamp(answer, Stamp{s.Cluster, seen})
		}
	})
	if err != nil || answer == nil {
		return nil, err
	}
	return slices.Concat(token, answer), nil
}

// Vouch takes in another node's answer: its timelines are the latest for a minute from then
// on, and for longer as long as it is answered again. An error says that it is no answer to
// a question of this node.
func (t *Table) Vouch(from string, answer []byte) error {
	token, rest, err := cutToken(answer)
	if err != nil {
		return err
	}
	if !t.tokens.isValid(from, token) {
		return errUnasked
	}
	pools := 0
	err = decodeStamps(rest, func(s Stamp) {
		if t.acceptAnswer(s.Cluster, Latest{s.Timeline, from}) {
			pools++
		}
	})
	if pools > 0 {
		t.rumours.WithLabelValues("confirmed").Add(float64(pools))
		t.log.Error("this node is connected to databases that were replaced: another node has reached their successors; nothing more is done there until the DSN leads to those",
			zap.Int("pools", pools), zap.String("node", from))
	}
	return err
}

// gatherFor is how long news are gathered before they are told: those of one server's pools
// come together. Questions go out sooner.
const (
	gatherFor = 200 * time.Millisecond
	askAfter  = gatherFor / 10
)

// Run tells other members the news and asks them what is open, until ctx ends. Without
// [Table.Connect] it returns at once.
func (t *Table) Run(ctx context.Context) {
	if t.gossip == nil {
		return
	}
	var ask, again, tell <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.woken:
			if ask == nil {
				ask = time.After(askAfter)
			}
			if tell == nil {
				tell = time.After(gatherFor)
			}
			continue
		case <-tell:
			tell = nil
			for _, part := range t.takeNews() {
				t.gossip.Tell(part)
			}
			continue
		case <-ask:
			ask = nil
		case <-again:
		}
		questions, v, wait := t.dueQuestions()
		if again = nil; wait > 0 {
			again = time.After(wait)
		}
		t.askNodes(questions)
		t.reportVerdicts(v)
	}
}

func (t *Table) askNodes(questions []Stamp) {
	for part := range slices.Chunk(questions, maxStamps) {
		var b []byte
		for _, s := range part {
			b = appendStamp(b, s)
		}
		t.gossip.Ask(func(member string) []byte { return append(t.tokens.makeFor(member), b...) })
	}
}

func (t *Table) reportVerdicts(v verdicts) {
	t.rumours.WithLabelValues("dismissed").Add(float64(len(v.dismissed)))
	t.rumours.WithLabelValues("expired").Add(float64(v.expired))
	if len(v.dismissed) > 0 {
		t.log.Warn("a member said that databases were replaced, and no node confirms that it has reached their successors; nothing was done about it",
			zap.Int("pools", len(v.dismissed)), zap.Int32("timeline", v.dismissed[0].Timeline), zap.String("member", v.dismissed[0].By))
	}
	if v.expired > 0 {
		t.log.Warn("no node has confirmed for a while that databases were replaced; this node works on them again",
			zap.Int("pools", v.expired), zap.Duration("after", believedFor))
	}
}
