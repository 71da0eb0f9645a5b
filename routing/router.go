package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/underlay"
	"github.com/tenurehq/tenure/tenancy"
)

// Router maps tenants to pools.
type Router struct {
	log     *zap.Logger
	routes  atomic.Pointer[routes]
	applied atomic.Int64

	bounds     ConnectionsConfig // as it was when the process started
	budget     *budget
	doors      doors
	promotions *promotions
	gossip     Gossip // nil: nobody is told of promotions
	metrics    *metrics
	run        context.Context // of what watches pools; nil before Start
	cancel     context.CancelFunc
	group      sync.WaitGroup
	stop       sync.Once
	stopped    chan struct{} // closed when every connection is

	admission sync.Mutex // held while a pool is let into service

	change  sync.Mutex         // held by Apply, Close and, for a moment, Stop
	retired map[*Pool]struct{} // guarded by change; out of the routes, and not closed yet
	ended   bool               // guarded by change
}

// routes is one configuration in force. Only its cache changes.
type routes struct {
	cfg   Config
	pools map[string]*Pool
	taken map[[2]string]tenancy.ID // whose a schema is, by pool and schema, as tenants.static says

	mu    sync.Mutex
	cache map[tenancy.ID]answer    // guarded by mu; of the lookup table
	lent  map[[2]string]tenancy.ID // guarded by mu; whose a schema is, by pool and schema, as the table said last
	lost  error                    // guarded by mu; why the table could not be asked at the last try; nil: it could
	again time.Time                // guarded by mu; when it is tried once more
}

func newRoutes(cfg Config, pools map[string]*Pool) (*routes, error) {
	r := &routes{cfg: cfg, pools: pools, taken: map[[2]string]tenancy.ID{}, cache: map[tenancy.ID]answer{}, lent: map[[2]string]tenancy.ID{}}
	for id, s := range cfg.Tenants.Static {
		t, err := cfg.Tenants.place(id, s.Pool, s.Schema, s.Role)
		if err != nil {
			return nil, err
		}
		r.taken[[2]string{t.Pool, t.Schema}] = id
	}
	return r, nil
}

// list is the pools by name.
func (r *routes) list() []*Pool {
	out := make([]*Pool, 0, len(r.pools))
	for _, name := range slices.Sorted(maps.Keys(r.pools)) {
		out = append(out, r.pools[name])
	}
	return out
}

// New checks cfg and prepares the pools without connecting to them.
func New(cfg Config, log *zap.Logger) (*Router, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Router{log: log.Named("routing"), promotions: newPromotions(), metrics: newMetrics(), stopped: make(chan struct{}), retired: map[*Pool]struct{}{}}
	cfg = cfg.WithDefaults()
	r.bounds = cfg.Connections
	r.budget = newBudget(cfg.Connections.PerNode, r.evictIdle)
	pools := map[string]*Pool{}
	for name, pc := range cfg.Pools {
		p, err := r.newPool(name, pc)
		if err != nil {
			return nil, err
		}
		pools[name] = p
	}
	routes, err := newRoutes(cfg, pools)
	if err != nil {
		return nil, err
	}
	r.routes.Store(routes)
	return r, nil
}

func init() {
	underlay.Put.Router = func(r any, n underlay.Network) {
		for _, p := range r.(*Router).Pools() {
			p.dsn.ConnConfig.DialFunc = n.Dial
		}
	}
}

// Start verifies every pool. One whose database does not answer, or cannot be used (not
// migrated, a wrong password, read-only, another pool's, …; see [Pool.Unfit]), is out of
// service, and tried again in the background. So are the last of many pools on one server,
// which are not waited for. When all pools cannot be used it is an error that says what to
// do about each of them: this is more likely a mistake than an outage.
func (r *Router) Start(ctx context.Context) error {
	r.run, r.cancel = context.WithCancel(context.Background())
	in := r.routes.Load()
	pools := in.list()
	pending, refused := r.admitAll(ctx, pools, in)
	if len(refused) == len(pools) && len(pools) > 0 {
		return errors.Join(errors.Join(refused...), r.Stop(ctx))
	}
	for _, p := range pools {
		if err := p.Unfit(); err != nil {
			r.unfit(p, err)
		}
	}
	for _, p := range in.list() {
		p.enter(false)
	}
	r.watchAll(pending)
	if r.gossip != nil {
		r.group.Go(func() { r.spread(r.run) })
	}
	return nil
}

// pending is a pool that is not in service yet.
type pending struct {
	pool *Pool
	late bool // its turn has not come; else it did not answer
}

// admitAll verifies pools of a configuration. It returns those that are not in service, and
// are to be watched once the configuration is in force: they did not answer, or cannot be
// used, with why in refused, or their turn did not come soon: a server with a thousand
// pools must not keep the others waiting.
func (r *Router) admitAll(ctx context.Context, pools []*Pool, in *routes) (rest []pending, refused []error) {
	looks := make([]look, len(pools))
	turn, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	var group sync.WaitGroup
	for i, p := range pools {
		group.Go(func() {
			done, err := p.door.verifying.turn(turn)
			if err != nil {
				looks[i] = look{err: err}
				return
			}
			defer done()
			looks[i] = r.look(ctx, p, in)
		})
	}
	group.Wait()
	// Of two ledgers with one number the older one gets in: jobs may depend on it.
	order := make([]int, len(pools))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(looks[a].installed, looks[b].installed) })
	for _, i := range order {
		if !errors.Is(looks[i].err, ErrNoTurn) {
			looks[i].err = r.admit(pools[i], looks[i], in)
		}
	}
	later := 0
	for i, p := range pools {
		late := false
		switch err := looks[i].err; {
		case err == nil:
			continue
		case errors.Is(err, ErrNoTurn):
			late = true
			later++
		case permanent(err):
			refused = append(refused, err)
		default:
			r.noAnswer(p, err)
		}
		rest = append(rest, pending{p, late})
	}
	if later > 0 {
		r.log.Info("many pools are on one server; the rest of them come into service one after another", zap.Int("pools", later))
	}
	return rest, refused
}

func (r *Router) watchAll(rest []pending) {
	for _, p := range rest {
		r.group.Go(func() { r.watch(r.run, p.pool, p.late) })
	}
}

// verifyTimeout bounds one look at a database, so that one which hangs delays
// neither Start nor the next try. A connection that takes longer still serves that.
const verifyTimeout = 5 * time.Second

// look is what was seen of a pool.
type look struct {
	found
	err error
}

func (r *Router) look(ctx context.Context, p *Pool, in *routes) look {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	f, err := p.inspect(ctx, in)
	return look{f, err}
}

// admit lets a configuration's pool into service when its database can be used.
func (r *Router) admit(p *Pool, l look, in *routes) error {
	r.admission.Lock() // of two pools with one number only one gets in
	defer r.admission.Unlock()
	err := l.err
	if err == nil {
		err = checkUnique(p, l.number, in.list())
	}
	if err == nil {
		err = in.checkBudget(p, l.server, l.room, in.cfg.Connections.Nodes)
	}
	p.admit(l.found, err)
	if err != nil {
		p.dropSpare() // nobody comes for it
	}
	return err
}

// checkUnique refuses p when a pool in service has its number. Two pools in one
// database do not get here: it has one name, and knows it.
func checkUnique(p *Pool, number int, others []*Pool) error {
	for _, other := range others {
		if n, err := other.Number(); err != nil || other == p || n != number {
			continue
		}
		return &store.PoolError{Pool: p.Name, What: fmt.Sprintf("it has the same number %d as pool %s, so their job ids would collide", number, other.Name),
			Fix: "they were migrated apart; migrate new pools with one configuration that names all of them"}
	}
	return nil
}

// Waits between tries to reach a pool, with up to half as much again of jitter. One that
// somebody has to mend is looked at less often.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 10 * time.Second
	unfitRetry = 20 * time.Second
)

// watch verifies a pool until it is up: one that is down or unfit, or whose first turn to
// be looked at was too late for Start. Why it is not is said once.
func (r *Router) watch(ctx context.Context, p *Pool, late bool) {
	said := ""
	if err := p.Unfit(); err != nil {
		said = err.Error()
	}
	for wait, longest := firstRetry, lastRetry; ; wait = min(2*wait, longest) {
		if !late {
			select {
			case <-ctx.Done():
				return
			case <-p.gone:
				return
			case <-time.After(wait + rand.N(wait/2)):
			}
		}
		done, err := p.door.verifying.turn(ctx)
		if err != nil {
			return
		}
		if !p.isGone() {
			in := r.routes.Load()
			err = r.admit(p, r.look(ctx, p, in), in)
		}
		if err == nil {
			p.enter(true)
		}
		done()
		longest = lastRetry
		switch {
		case p.isGone():
			return
		case err == nil && late:
			r.log.Debug("pool is up", zap.String("pool", p.Name))
			return
		case err == nil:
			r.log.Info("pool is up", zap.String("pool", p.Name))
			return
		case permanent(err):
			longest = unfitRetry
			if why := p.Unfit(); why.Error() != said {
				r.unfit(p, why)
				said = why.Error()
			}
		case late:
			r.noAnswer(p, err)
		}
		late = false
	}
}

func (r *Router) unfit(p *Pool, why error) {
	r.log.Error("pool is out of service until this is mended; it is tried again in the background", zap.String("pool", p.Name), zap.Error(why))
}

func (r *Router) noAnswer(p *Pool, err error) {
	r.log.Warn("pool does not answer; trying again in the background", zap.String("pool", p.Name), zap.Error(err))
}

// Stop closes every connection and waits for those that are in use. When ctx ends
// first, they are closed as they are given back.
func (r *Router) Stop(ctx context.Context) error {
	r.stop.Do(func() {
		if r.cancel != nil {
			r.cancel()
		}
		r.change.Lock()
		r.ended = true
		pools := append(r.Pools(), slices.Collect(maps.Keys(r.retired))...)
		r.change.Unlock()
		go func() {
			defer close(r.stopped)
			r.group.Wait()
			for _, p := range pools {
				p.close()
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

// Pools lists the pools by name.
func (r *Router) Pools() []*Pool { return r.routes.Load().list() }

// Pool returns a pool by name.
func (r *Router) Pool(name string) (*Pool, bool) {
	p, ok := r.routes.Load().pools[name]
	return p, ok
}

// Resolve says where a tenant lives: where the configuration places it or, if it was
// moved from there, where to; see [Router.Forget]. ErrUnknownTenant: no rule knows it; RowError:
// the lookup table says something that cannot be. Other errors mean that the table
// could not be asked.
func (r *Router) Resolve(ctx context.Context, id tenancy.ID) (tenancy.Tenant, *Pool, error) {
	return r.routes.Load().resolve(ctx, id)
}

func (r *routes) resolve(ctx context.Context, id tenancy.ID) (tenancy.Tenant, *Pool, error) {
	t, err := r.place(ctx, id)
	if err != nil {
		return tenancy.Tenant{}, nil, err
	}
	p, ok := r.pools[t.Pool]
	if !ok {
		return tenancy.Tenant{}, nil, &RowError{fmt.Errorf("tenant %q is routed to pool %q, which is not configured: add it under pools, or correct the row", id, t.Pool)}
	}
	return r.follow(ctx, t, p)
}

func (r *routes) place(ctx context.Context, id tenancy.ID) (tenancy.Tenant, error) {
	if err := id.Validate(); err != nil {
		return tenancy.Tenant{}, err
	}
	if s, ok := r.cfg.Tenants.Static[id]; ok {
		return r.cfg.Tenants.place(id, s.Pool, s.Schema, s.Role)
	}
	if r.cfg.Tenants.Table == nil {
		return tenancy.Tenant{}, fmt.Errorf("%w %q: it is not under tenants.static, and there is no tenants.table", tenancy.ErrUnknownTenant, id)
	}
	return r.lookUp(ctx, id)
}
