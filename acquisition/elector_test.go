package acquisition

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// fakeElector says what a test wants it to; it is set before it is used.
type fakeElector struct {
	rank      int
	out       bool // of every election
	elected   string
	successor string
	dead      []string
	unable    []string // to reach any database
	stable    time.Duration
	sendErr   error
	changes   chan struct{}
	share     int
	marks     map[string]uint32 // of members' kinds

	mu    sync.Mutex
	sent  []string // guarded by mu
	lacks []string // guarded by mu
}

func (e *fakeElector) Rank(string) (int, bool) { return e.rank, !e.out }

func (e *fakeElector) Elected(string) string { return e.elected }

func (e *fakeElector) Peers() []string { return nil }

func (e *fakeElector) Share() int { return e.share }

func (e *fakeElector) Alive(member string) bool { return !slices.Contains(e.dead, member) }

func (e *fakeElector) Lacks(member, _ string) bool { return slices.Contains(e.unable, member) }

func (e *fakeElector) StableFor() time.Duration { return e.stable }

func (e *fakeElector) Watch() (<-chan struct{}, func()) { return e.changes, func() {} }

func (e *fakeElector) Successor(_ string, out func(string) bool) string {
	if out(e.successor) {
		return ""
	}
	return e.successor
}

func (e *fakeElector) Drain() {}

func (e *fakeElector) SetKindsMark(uint32) {}

func (e *fakeElector) KindsMark(member string) uint32 { return e.marks[member] }

func (e *fakeElector) SetReaches(pool string, reaches bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lacks = slices.DeleteFunc(e.lacks, func(p string) bool { return p == pool })
	if !reaches {
		e.lacks = append(e.lacks, pool)
	}
}

func (e *fakeElector) lacking() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.lacks)
}

func (e *fakeElector) Send(member string, kind byte, payload []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent = append(e.sent, fmt.Sprintf("%d to %s: %s", kind, member, payload))
	return e.sendErr
}

func (e *fakeElector) messages() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.sent)
}

// slowElector is one whose messages are under way until goOn is closed.
type slowElector struct {
	*fakeElector
	goOn <-chan struct{}
}

func (e slowElector) Send(member string, kind byte, payload []byte) error {
	<-e.goOn
	return e.fakeElector.Send(member, kind, payload)
}
