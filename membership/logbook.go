package membership

import (
	"time"

	"go.uber.org/zap"
)

// logbook turns views into log lines: one per member that came, changed or went,
// whatever memberlist made of it meanwhile. Only run uses it.
type logbook struct {
	log    *zap.Logger
	grace  time.Duration // how long a node name may be shared without a warning
	known  map[string]Member
	shared map[string]time.Time // node name to when a second process appeared
	warned map[string]bool      // node names warned about
	clash  map[string]bool      // member names warned about; at most maxClashes
}

// maxClashes is where conflicts are no accident any more and not worth more memory.
const maxClashes = 100

func newLogbook(log *zap.Logger, grace time.Duration) *logbook {
	return &logbook{log: log, grace: grace, known: map[string]Member{}, shared: map[string]time.Time{}, warned: map[string]bool{}, clash: map[string]bool{}}
}

func (b *logbook) members(now []Member) {
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
			b.write(m, "member joined")
		case old.State() != m.State():
			b.write(m, "member changed state")
		}
	}
	for name, m := range b.known {
		if _, ok := seen[name]; !ok {
			b.write(m, "member left or failed")
		}
	}
	b.known = seen
	for node, n := range nodes {
		if _, noted := b.shared[node]; n > 1 && !noted {
			b.shared[node] = time.Now()
		}
	}
	for node := range b.shared {
		if nodes[node] < 2 {
			delete(b.shared, node)
			delete(b.warned, node)
		}
	}
}

// write logs nodes for operators; clients come and go with every deployment.
func (b *logbook) write(m Member, what string) {
	write := b.log.Info
	if m.Role == RoleClient {
		write = b.log.Debug
	}
	write(what, zap.String("peer", m.Name), zap.String("addr", m.Addr), zap.String("role", string(m.Role)),
		zap.String("state", string(m.State())), zap.String("version", m.Version))
}

// twins warns, once, of a node name that two processes have shared for longer
// than a restarted node and its former self would.
func (b *logbook) twins(now time.Time) {
	for node, since := range b.shared {
		if now.Sub(since) >= b.grace && !b.warned[node] {
			b.warned[node] = true
			b.log.Warn("two live processes have the same node name; both work, but name every node differently", zap.String("node", node))
		}
	}
}

func (b *logbook) conflicts(addrs map[string][2]string) {
	for name, a := range addrs {
		if b.clash[name] || len(b.clash) >= maxClashes {
			continue
		}
		b.clash[name] = true
		b.log.Warn("two addresses claim one member name, which is random per process: a copied machine, or a forged packet",
			zap.String("peer", name), zap.Strings("addrs", a[:]))
	}
}
