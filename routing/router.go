package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/timeline"
	"github.com/tenurehq/tenure/internal/underlay"
	"github.com/tenurehq/tenure/tenancy"
)

// Router maps tenants to pools.
type Router struct {
	log     *zap.Logger
	routes  atomic.Pointer[routes]
	applied atomic.Int64

	bounds      ConnectionsConfig // as it was when the process started
	tenantShare int               // likewise
	budget      *budget
	servers     servers
	network     underlay.Network // nil: this machine's
	types       Types            // of tenants' connections; nil: pgx's own
	timelines   *timeline.Table
	use         store.Use       // of the ledgers
	run         context.Context // of the router's tasks; nil before Start
	cancel      context.CancelFunc
	tasks       tasks
	stop        sync.Once
	stopped     chan struct{} // closed when every connection is
	started     atomic.Bool

	verdict sync.Mutex // held while it is decided whether a pool comes into service

	change  sync.Mutex         // held by Apply, Close and, for a moment, Stop
	retired map[*Pool]struct{} // guarded by change; out of the routes, and not closed yet
	ended   atomic.Bool        // set with change held
}

// tasks are goroutines that are waited for.
type tasks struct {
	mu    sync.Mutex
	ended bool           // guarded by mu
	group sync.WaitGroup // added to with mu held
}

// start runs fn, unless the end has begun.
func (t *tasks) start(fn func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.group.Go(fn)
	}
}

// end waits for all of them; no more are started.
func (t *tasks) end() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.group.Wait()
}

// Option changes what a Router stands on.
type Option func(*Router)

// OnNetwork has a Router reach its databases over another network than this machine's.
func OnNetwork(n underlay.Network) Option { return func(r *Router) { r.network = n } }

// OnlyEnqueue lets pools into service whose ledgers this process may add jobs to, and
// nothing more.
func OnlyEnqueue() Option { return func(r *Router) { r.use = store.ToEnqueue } }

// Types registers types with a connection's map of types.
type Types func(ctx context.Context, conn *pgx.Conn) error

// WithTypes has every connection for tenants know more types. f may be nil.
func WithTypes(f Types) Option { return func(r *Router) { r.types = f } }

// New checks cfg and prepares the pools without connecting to them.
func New(cfg Config, log *zap.Logger, opts ...Option) (*Router, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	log = log.Named("routing")
	r := &Router{log: log, timelines: timeline.New(log), use: store.ToRun, stopped: make(chan struct{}), retired: map[*Pool]struct{}{}}
	for _, o := range opts {
		o(r)
	}
	cfg = cfg.WithDefaults()
	r.bounds, r.tenantShare = cfg.Connections, cmp.Or(cfg.TenantShare, 100)
	r.budget = newBudget(cfg.Connections.PerNode, r.Pools, r.log)
	pools := map[string]*Pool{}
	for name, pc := range cfg.Pools {
		p, err := r.newPool(name, pc)
		if err != nil {
			return nil, err
		}
		pools[name] = p
	}
	routes, err := newRoutes(cfg, pools, r.tasks.start)
	if err != nil {
		return nil, err
	}
	r.routes.Store(routes)
	return r, nil
}

// newPool checks what can be checked without connecting. It opens nothing.
func (r *Router) newPool(name string, cfg PoolConfig) (*Pool, error) {
	dsn, err := pgxpool.ParseConfig(cfg.DSN)
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", name, errBadDSN)
	}
	if r.network != nil {
		dsn.ConnConfig.DialFunc = r.network.Dial
	}
	var way *pooled
	if cfg.TenantDSN != "" {
		way = &pooled{}
		if way.dsn, err = pgxpool.ParseConfig(cfg.TenantDSN); err != nil {
			return nil, fmt.Errorf("pool %s: tenant_dsn: %w", name, errBadDSN)
		}
		if r.network != nil {
			way.dsn.ConnConfig.DialFunc = r.network.Dial
		}
	}
	p := &Pool{Name: name, cfg: cfg, dsn: dsn, pooled: way, bounds: r.bounds, types: r.types, tenantShare: r.tenantShare, budget: r.budget, server: r.servers.at(dsn.ConnConfig), timelines: r.timelines, log: r.log.With(zap.String("pool", name)),
		conns:   conns{operating: make(chan struct{}, 1)},
		service: service{ready: make(chan struct{}), tried: make(chan struct{}), gone: make(chan struct{}), Breaker: Breaker{refused: fmt.Errorf("%w: not reached yet; its node or client must have been started", ErrPoolDown)}}}
	p.latest.Store(newCredentials(cfg))
	p.forwards.pool = p
	p.watchDenied = func() { r.tasks.start(func() { r.watchDenied(r.run, p) }) }
	return p, nil
}

// errBadDSN stands in for the parser's error, which may quote a password.
var errBadDSN = errors.New("its dsn cannot be read as a Postgres connection string")

// Start verifies every pool. One whose database does not answer, or cannot be used (not
// migrated, a wrong password, read-only, another pool's, …; see [Pool.Unfit]), is out of
// service, and tried again in the background. So are the last of many pools on one server,
// which are not waited for. When all pools cannot be used it is an error that says what to
// do about each of them: this is more likely a mistake than an outage.
func (r *Router) Start(ctx context.Context) error {
	r.run, r.cancel = context.WithCancel(context.Background())
	r.started.Store(true)
	in := r.routes.Load()
	pools := in.list()
	pending, refused := r.verifyAll(ctx, pools, in)
	if len(refused) == len(pools) && len(pools) > 0 {
		return errors.Join(errors.Join(refused...), r.Stop(ctx))
	}
	for _, p := range pools {
		if err := p.Unfit(); err != nil {
			logUnfit(p, err)
		}
	}
	for _, p := range in.list() {
		p.enterTimelines(false)
	}
	r.watchAll(pending)
	r.tasks.start(func() { r.timelines.Run(r.run) })
	return nil
}

// Started tells whether Start was called: before, no pool is on its way into service, and Resolve waits in vain.
func (r *Router) Started() bool { return r.started.Load() }

// Stopped tells whether Stop was called: the pools are closed, or about to be.
func (r *Router) Stopped() bool { return r.ended.Load() }

// Stop closes every connection and waits for those that are in use. When ctx ends
// first, they are closed as they are given back.
func (r *Router) Stop(ctx context.Context) error {
	r.stop.Do(func() {
		if r.cancel != nil {
			r.cancel()
		}
		r.change.Lock()
		r.ended.Store(true)
		pools := append(r.Pools(), slices.Collect(maps.Keys(r.retired))...)
		r.change.Unlock()
		go func() {
			defer close(r.stopped)
			r.tasks.end()
			for _, p := range pools {
				p.closeAll()
			}
		}()
	})
	select {
	case <-r.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop routing: connections are still in use: %w", context.Cause(ctx))
	}
}

// Timelines is what this node knows of its databases' fail-overs.
func (r *Router) Timelines() *timeline.Table { return r.timelines }

// Pools lists the pools by name.
func (r *Router) Pools() []*Pool { return r.routes.Load().list() }

// Pool returns a pool by name.
func (r *Router) Pool(name string) (*Pool, bool) {
	p, ok := r.routes.Load().pools[name]
	return p, ok
}

// Resolve says where a tenant lives: where the configuration places it or, if it was
// moved from there, where to; see [Router.Forget]. ErrUnknownTenant: no rule knows it; RouteError:
// a rule says something that cannot be. Other errors mean that the table
// could not be asked.
func (r *Router) Resolve(ctx context.Context, id tenancy.ID) (tenancy.Tenant, *Pool, error) {
	return r.routes.Load().resolve(ctx, id)
}

// Forget has the next Resolve ask again where a tenant lives, because what is remembered
// turned out to be wrong.
func (r *Router) Forget(id tenancy.ID) { r.routes.Load().forget(id) }

// Held returns a *tenancy.HeldError while p, where a tenant lives, is known to hold it:
// asking costs no connection then, however many wait. A caller that was refused by the
// database calls Forget.
func (r *Router) Held(ctx context.Context, id tenancy.ID, p *Pool) error {
	row := p.forwards.read(ctx, r.routes.Load().believeFor())[id]
	if !row.Held {
		return nil
	}
	return &tenancy.HeldError{Tenant: id, To: row.Other}
}

// PlaceIn says how a tenant would be placed in a pool, with the schema and the role that
// it has where it lives. It refuses a schema that is another tenant's there.
func (r *Router) PlaceIn(ctx context.Context, id tenancy.ID, pool string) (tenancy.Tenant, error) {
	in := r.routes.Load()
	t, _, err := in.resolve(ctx, id)
	if err != nil {
		return tenancy.Tenant{}, err
	}
	t.Pool = pool
	if owner, ok := in.owners[schemaIn{t.Pool, t.Schema}]; ok && owner != id {
		return tenancy.Tenant{}, fmt.Errorf("schema %q of tenant %q is tenant %q's in pool %s: give each its own schema", t.Schema, id, owner, pool)
	}
	return t, nil
}

// Reroute has the lookup table say that a tenant lives in a pool now, where the
// configuration says how.
func (r *Router) Reroute(ctx context.Context, id tenancy.ID, pool string) error {
	in := r.routes.Load()
	if _, static := in.cfg.Tenants.Static[id]; static || in.table == nil || in.table.cfg.Move == "" {
		return nil
	}
	var tag pgconn.CommandTag
	err := in.table.pool.Tenants().do(ctx, func(c *pgx.Conn) (err error) {
		tag, err = c.Exec(ctx, in.table.cfg.Move, string(id), pool)
		return in.table.cfg.explain(err, c)
	})
	switch {
	case err != nil:
		return fmt.Errorf("tenants.table.move for tenant %q: %w", id, err)
	case tag.RowsAffected() != 1:
		return rowError("move changed %d rows for tenant %q, not one: correct the statement", tag.RowsAffected(), id)
	}
	r.Forget(id)
	return nil
}

// Listed are the tenants that the configuration itself lists.
func (r *Router) Listed() []tenancy.ID {
	return slices.Sorted(maps.Keys(r.routes.Load().cfg.Tenants.Static))
}

// Exceeds is an error if so many nodes may open more connections to a server than that
// has, although connections.nodes speaks of fewer: each node's own check has passed then.
func (r *Router) Exceeds(nodes int) error {
	in := r.routes.Load()
	if nodes <= in.cfg.Connections.Nodes {
		return nil
	}
	var errs []error
	checked := map[string]bool{}
	for _, p := range in.list() {
		if server, maxConns := p.serverInUse(); server != "" && !checked[server] {
			checked[server] = true
			errs = append(errs, in.checkCapacity(p, server, maxConns, nodes))
		}
	}
	return errors.Join(errs...)
}
