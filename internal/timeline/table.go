package timeline

import (
	"cmp"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Table holds the latest known timeline of each pool's database.
type Table struct {
	log     *zap.Logger
	rumours *prometheus.CounterVec // by result
	gossip  Gossip                 // nil: there is nobody to talk to
	woken   chan struct{}          // one place: there is news, or an inquiry
	tokens  tokens

	mu        sync.RWMutex
	known     map[ClusterID]record   // guarded by mu; of pools that this node serves
	news      []ClusterID            // guarded by mu; what the other members are to be told
	inquiries map[ClusterID]*inquiry // guarded by mu
}

// New returns an empty table.
func New(log *zap.Logger) *Table {
	rumours := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tenure", Subsystem: "routing", Name: "rumours_total",
		Help: "Pools whose database was replaced by a promoted standby, as another member said: confirmed (by a node that has reached it; the pool is left), dismissed (nobody confirmed it; nothing was done), expired (nobody confirms it any more; the pool is worked on again)."},
		[]string{"result"})
	return &Table{log: log, rumours: rumours, woken: make(chan struct{}, 1), tokens: newTokens(), known: map[ClusterID]record{}, inquiries: map[ClusterID]*inquiry{}}
}

// ClusterID stands for a pool's database and all copies of its server, as a hash: a copy
// that became another pool has timelines of its own.
type ClusterID uint64

// ClusterOf is the id of a pool's database on the server with this system identifier.
func ClusterOf(server, pool string) ClusterID {
	h := fnv.New64a()
	_, _ = h.Write([]byte(server + "\x00" + pool)) // it never fails
	return ClusterID(h.Sum64())
}

// Stamp is where a connection led when it was opened.
type Stamp struct {
	Cluster  ClusterID
	Timeline int32
}

// record is what is known of one cluster id.
type record struct {
	seen  int32     // the latest timeline that this node reached by itself
	heard int32     // a later one that another node vouches for; 0: none
	by    string    // that node
	until time.Time // it is believed until then, unless the node vouches for it again
}

// Latest is a timeline, and the member that reached it.
type Latest struct {
	Timeline int32
	By       string // "": this node
}

// Who names the member.
func (l Latest) Who() string { return cmp.Or(l.By, "this node") }

// latest is the latest timeline that is believed now.
func (r record) latest() Latest {
	if r.heard > r.seen && time.Now().Before(r.until) {
		return Latest{r.heard, r.by}
	}
	return Latest{Timeline: r.seen}
}

// Latest is the latest timeline of c that is believed now.
func (t *Table) Latest(c ClusterID) Latest {
	t.mu.RLock() // for each use of a connection
	defer t.mu.RUnlock()
	return t.known[c].latest()
}

// Reach notes what this node found at the other end of a connection, and returns what was
// known before.
func (t *Table) Reach(s Stamp) (before Latest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.known[s.Cluster]
	before = r.latest()
	if s.Timeline > before.Timeline && before.Timeline > 0 {
		t.queueNews(s.Cluster)
	}
	if s.Timeline > r.seen {
		r.seen = s.Timeline
		if q := t.inquiries[s.Cluster]; q != nil && s.Timeline >= max(r.heard, q.rumour.Timeline) {
			delete(t.inquiries, s.Cluster)
		}
	}
	if r.seen >= r.heard {
		r.heard, r.by, r.until = 0, "", time.Time{}
	}
	t.known[s.Cluster] = r
	return before
}

// Enter notes where a pool leads that has come into service. late: this node has run for a
// while, so it may not remember what others said of the pool before, and they may have to be
// told.
func (t *Table) Enter(s Stamp, late bool) {
	before := t.Reach(s)
	if !late || before.Timeline > 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.Timeline > 1 {
		t.queueNews(s.Cluster)
	}
	t.openInquiry(s.Cluster, Latest{})
}

// queueNews has the other members be told of c; mu is held.
func (t *Table) queueNews(c ClusterID) {
	if !slices.Contains(t.news, c) {
		t.news = append(t.news, c)
	}
	t.wakeRun()
}

func (t *Table) wakeRun() {
	select {
	case t.woken <- struct{}{}:
	default:
	}
}

// Reached encodes what this node has reached by itself, for other nodes' Hear. What it only
// heard is not passed on for ever, so that it is forgotten when those who said it are gone.
// A database that was never replaced, which is nearly every one, takes no room.
func (t *Table) Reached() (b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c, r := range t.known {
		if r.seen > 1 {
			b = appendStamp(b, Stamp{c, r.seen})
		}
	}
	return b
}

// takeNews encodes what the other members are to be told, in parts that fit a datagram each.
func (t *Table) takeNews() (parts [][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for part := range slices.Chunk(t.news, maxStamps) {
		var b []byte
		for _, c := range part {
			b = appendStamp(b, Stamp{c, t.known[c].latest().Timeline})
		}
		parts = append(parts, b)
	}
	t.news = nil
	return parts
}

// Metrics returns the table's metrics, to be registered by the caller.
func (t *Table) Metrics() prometheus.Collector { return t.rumours }
