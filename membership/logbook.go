package membership

import (
	"time"

	"go.uber.org/zap"
)

// logbook turns views into log lines: one per member that came, changed or went,
// whatever memberlist made of it meanwhile. Only followView uses it.
type logbook struct {
	log         *zap.Logger
	grace       time.Duration // how long a node name may be shared without a warning
	known       map[string]Member
	sharedSince map[string]time.Time // node name to when a second process appeared
	warned      map[string]bool      // node names warned about
	conflicting map[string]bool      // member names warned about; at most maxConflicts
}

// maxConflicts is where conflicts are no accident any more and not worth more memory.
const maxConflicts = 100

func newLogbook(log *zap.Logger, grace time.Duration) *logbook {
	return &logbook{log: log, grace: grace, known: map[string]Member{}, sharedSince: map[string]time.Time{}, warned: map[string]bool{}, conflicting: map[string]bool{}}
}

func (b *logbook) logMembers(now []Member) {
	seen := make(map[string]Member, len(now))
	nodes := make(map[string]int, len(now))
	for _, m := range now {
		seen[m.Name] = m
		if m.Role == RoleNode {
			nodes[m.Node]++
		}
		old, known := b.known[m.Name]
		switch {
		case !known:
			b.logMember(m, "member joined")
		case old.State() != m.State():
			b.logMember(m, "member changed state")
		}
	}
	for name, m := range b.known {
		if _, ok := seen[name]; !ok {
			b.logMember(m, "member left or failed")
		}
	}
	b.known = seen
	for node, n := range nodes {
		if _, noted := b.sharedSince[node]; n > 1 && !noted {
			b.sharedSince[node] = time.Now()
		}
	}
	for node := range b.sharedSince {
		if nodes[node] < 2 {
			delete(b.sharedSince, node)
			delete(b.warned, node)
		}
	}
}

// logMember logs nodes for operators; clients come and go with every deployment.
func (b *logbook) logMember(m Member, what string) {
	write := b.log.Info
	if m.Role == RoleClient {
		write = b.log.Debug
	}
	write(what, zap.String("peer", m.Name), zap.String("addr", m.Addr), zap.String("role", string(m.Role)),
		zap.String("state", string(m.State())), zap.String("version", m.Version))
}

// warnTwins warns, once, of a node name that two processes have shared for longer
// than a restarted node and its former self would.
func (b *logbook) warnTwins(now time.Time) {
	for node, since := range b.sharedSince {
		if now.Sub(since) >= b.grace && !b.warned[node] {
			b.warned[node] = true
			b.log.Warn("two live processes have the same node name; both work, but name every node differently", zap.String("node", node))
		}
	}
}

func (b *logbook) warnConflicts(addrs map[string][2]string) {
	for name, a := range addrs {
		if b.conflicting[name] || len(b.conflicting) >= maxConflicts {
			continue
		}
		b.conflicting[name] = true
		b.log.Warn("two addresses claim one member name, which is random per process: a copied machine, or a forged packet",
			zap.String("peer", name), zap.Strings("addrs", a[:]))
	}
}
