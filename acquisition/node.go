package acquisition

import (
	"context"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// node is what the acquirers of all pools of this process share.
type node struct {
	cfg        Config
	router     *routing.Router
	workers    *execution.Workers
	elector    Elector
	give       func(context.Context, *store.NewJob) (store.Given, error) // what its kind gives to a schedule's job
	kinds      atomic.Pointer[store.Kinds]                               // this node has handlers for; what it points to is never changed
	metrics    *metrics
	queues     atomic.Pointer[QueueConfig]               // how queues share; what it points to is never changed
	schedules  atomic.Pointer[map[string]ScheduleConfig] // that the configuration makes; what it points to is never changed
	limits     atomic.Pointer[map[string][]store.Limit]  // pools' shares of those of the whole cluster; what it points to is never changed
	balance    balance                                   // of its locks
	quarantine schedule.QuarantineLimit
	allotments allotments // of its free slots, to other holders
}

// setKinds has this node claim jobs of these kinds.
func (n *node) setKinds(names []string) {
	k := store.KindsOf(names)
	n.kinds.Store(&k)
}

// handles tells whether this node has a handler for a kind.
func (n *node) handles(kind string) bool { return n.kinds.Load().Has(kind) }

// poolNode is this node's part in one pool: what its acquirer, a term of holding the lock and
// its assistant share.
type poolNode struct {
	*node
	pool    *routing.Pool
	keeper  *lease.Keeper
	inbox   *inbox
	seen    atomic.Pointer[Held] // how the lock stood; nil: that is not known
	changed chan struct{}        // of size one: the view of the members changed
	direct  chan direct          // taken by a term that waits for work
	group   sync.WaitGroup       // the acquirer, the assistant, and background queries
	log     *zap.Logger
}

// Held is a lock as this node last saw it.
type Held struct {
	Pool    string
	Holding bool   // by this node
	Holder  string // member; "" unknown or nobody
	Epoch   int64
}

// noteLock notes how the lock stands.
func (p *poolNode) noteLock(h Held) {
	h.Pool = p.pool.Name
	p.seen.Store(&h)
}

// seenLock is how the lock stood when last seen. Safe for concurrent use.
func (p *poolNode) seenLock() Held {
	if h := p.seen.Load(); h != nil {
		return *h
	}
	return Held{Pool: p.pool.Name}
}

// canServe tells whether this node could take the lock. Safe for concurrent use.
func (p *poolNode) canServe() bool {
	_, eligible := p.elector.Rank(p.pool.Name)
	return eligible && !p.pool.Breaker.IsDown()
}

// resolveTenant finds a tenant's pool. Another one than this may be what it was before the
// tenant was moved here.
func (p *poolNode) resolveTenant(ctx context.Context, id tenancy.ID) (tenancy.Tenant, *routing.Pool, error) {
	tenant, pool, err := p.router.Resolve(ctx, id)
	if err == nil && pool != p.pool {
		p.router.Forget(id)
		tenant, pool, err = p.router.Resolve(ctx, id)
	}
	return tenant, pool, err
}
