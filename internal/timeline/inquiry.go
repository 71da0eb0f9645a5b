package timeline

import (
	"time"

	"github.com/tenurehq/tenure/internal/backoff"
)

// inquiry is the question whether others have reached a later timeline of a cluster id.
type inquiry struct {
	rumour Latest    // what was said, and by whom; zero: nothing was, this node asks by itself
	asked  int       // how often, since it was confirmed last
	next   time.Time // when to ask again, or to come to a verdict
}

// Questions are repeated, as datagrams are lost, and given up after a few, before the nodes
// are asked again.
const askTries = 3

var askPolicy = backoff.Policy{First: reaffirmEvery / 10, Longest: 2 * reaffirmEvery / 5}

const (
	// believedFor is how long an answer is believed. It is longer than a node takes to
	// restart, so that a rolling restart beside an old primary changes nothing.
	believedFor = time.Minute
	// reaffirmEvery is how often the nodes are asked again meanwhile.
	reaffirmEvery = believedFor / 12
	// tokenLifetime is how long a token is good for: an answer to the question before the
	// last is of no use any more.
	tokenLifetime = reaffirmEvery
)

// openInquiry has the other nodes be asked about c, if it is a pool's of this node; mu is
// held. One that is open already stays as it is, however often a rumour is repeated: that
// bounds the questions.
func (t *Table) openInquiry(c ClusterID, rumour Latest) {
	if r, serves := t.known[c]; !serves || r.seen == 0 || t.inquiries[c] != nil {
		return
	}
	t.inquiries[c] = &inquiry{rumour: rumour, next: time.Now()}
	t.wakeRun()
}

// acceptAnswer notes that a node vouches for a timeline; first: until now nobody was
// believed that the database was replaced.
func (t *Table) acceptAnswer(c ClusterID, said Latest) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, q := t.known[c], t.inquiries[c]
	before := r.latest()
	if q == nil || said.Timeline < before.Timeline || said.Timeline <= r.seen {
		return false
	}
	now := time.Now()
	r.heard, r.by, r.until = said.Timeline, said.By, now.Add(believedFor)
	t.known[c] = r
	q.asked, q.next = 0, now.Add(reaffirmEvery)
	if first = before.Timeline == r.seen; first { // others may be where this node is
		t.queueNews(c)
	}
	return first
}

// verdicts are how inquiries ended.
type verdicts struct {
	dismissed []Latest // rumours that nobody confirmed
	expired   int      // pools whose successors nobody has reached any more
}

// dueQuestions returns what is to be asked now, which inquiries have ended, and when to come
// back; 0: none is left.
func (t *Table) dueQuestions() (questions []Stamp, v verdicts, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for c, q := range t.inquiries {
		r := t.known[c]
		switch {
		case r.heard > 0 && !now.Before(r.until):
			r.heard, r.by, r.until = 0, "", time.Time{}
			t.known[c] = r
			delete(t.inquiries, c)
			v.expired++
			continue
		case now.Before(q.next):
		case q.asked < askTries:
			questions = append(questions, Stamp{c, r.seen})
			q.asked++
			q.next = now.Add(askPolicy.Exactly(q.asked))
		case r.heard > 0: // nobody answers now; the last answer is believed for a while
			q.asked, q.next = 0, now.Add(reaffirmEvery)
		default:
			delete(t.inquiries, c)
			if q.rumour.Timeline > 0 {
				v.dismissed = append(v.dismissed, q.rumour)
			}
			continue
		}
		if left := max(q.next.Sub(now), time.Millisecond); wait == 0 || left < wait {
			wait = left
		}
	}
	return questions, v, wait
}
