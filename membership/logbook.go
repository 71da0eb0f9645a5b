package membership

import (
	"maps"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logbook turns views into log lines: one per member that came, changed or went,
// whatever memberlist made of it meanwhile. Only followView uses it.
type logbook struct {
	log         *zap.Logger
	grace       time.Duration                // how long a node name may be shared without a warning
	holds       func(member string) []string // the pools whose locks a member holds; nil: that is not known
	known       map[string]Member
	parted      map[string]bool      // members that said that they leave, and have not gone yet
	gone        map[string]ended     // members of which it is not known yet how they went
	sharedSince map[string]time.Time // node name to when a second process appeared
	warned      map[string]bool      // node names warned about
	conflicting map[string]bool      // member names warned about; at most maxConflicts
}

// ended is a member that is gone, and the pools whose locks it held.
type ended struct {
	Member
	at    time.Time
	locks []string
}

// farewellGrace is how long a member's word that it leaves may arrive after memberlist's that it is gone.
const farewellGrace = time.Second

// maxParted bounds what is believed of who leaves between two looks.
const maxParted = 10_000

// maxConflicts is where conflicts are no accident any more and not worth more memory.
const maxConflicts = 100

func newLogbook(log *zap.Logger, grace time.Duration) *logbook {
	return &logbook{log: log, grace: grace, known: map[string]Member{}, parted: map[string]bool{}, gone: map[string]ended{}, sharedSince: map[string]time.Time{}, warned: map[string]bool{}, conflicting: map[string]bool{}}
}

// logMembers takes in who is there now, and who has said since the last call that they leave.
func (b *logbook) logMembers(now []Member, parted map[string]bool) {
	maps.Copy(b.parted, parted)
	seen := make(map[string]Member, len(now))
	nodes := make(map[string]int, len(now))
	for _, m := range now {
		seen[m.Name] = m
		if m.Role == RoleNode {
			nodes[m.Node]++
		}
		old, known := b.known[m.Name]
		gone, back := b.gone[m.Name]
		delete(b.gone, m.Name)
		switch {
		case back:
			b.logMember(zap.InfoLevel, m, "member is back: it was taken for dead", zap.Duration("for", time.Since(gone.at)))
		case !known:
			b.logMember(zap.InfoLevel, m, "member joined")
		case old.State() != m.State():
			b.logMember(zap.InfoLevel, m, "member changed state")
		}
	}
	for name, m := range b.known {
		if _, ok := seen[name]; !ok {
			b.gone[name] = ended{m, time.Now(), b.locksOf(name)}
		}
	}
	maps.DeleteFunc(b.gone, func(name string, e ended) bool {
		if b.parted[name] {
			b.logMember(zap.InfoLevel, e.Member, "member left")
		}
		return b.parted[name]
	})
	maps.DeleteFunc(b.parted, func(name string, _ bool) bool {
		_, there := seen[name]
		return !there
	})
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
func (b *logbook) logMember(level zapcore.Level, m Member, what string, more ...zap.Field) {
	if m.Role == RoleClient {
		level = zap.DebugLevel
	}
	b.log.Log(level, what, append(more, zap.String("peer", m.Name), zap.String("node", m.Node), zap.String("addr", m.Addr), zap.String("role", string(m.Role)),
		zap.String("state", string(m.State())), zap.String("version", m.Version))...)
}

// logFailed logs of members that have been gone for a while without a word that they have failed, and what they
// held. It tells whether there are others.
func (b *logbook) logFailed(now time.Time) (more bool) {
	maps.DeleteFunc(b.gone, func(_ string, e ended) bool {
		failed := now.Sub(e.at) >= farewellGrace
		if failed {
			var held []zap.Field
			if len(e.locks) > 0 {
				held = append(held, zap.Strings("locks", e.locks))
			}
			b.logMember(zap.WarnLevel, e.Member, "member failed: it has died, or cannot be reached; others take its locks over, and its jobs run again once its sessions end", held...)
		}
		return failed
	})
	return len(b.gone) > 0
}

// locksOf names the pools whose locks a member holds.
func (b *logbook) locksOf(member string) []string {
	if b.holds == nil {
		return nil
	}
	return b.holds(member)
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
