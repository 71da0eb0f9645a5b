package routing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// Change is what a new configuration did to the pools. A pool whose settings changed
// is in both lists: the old one goes, a new one comes, under the same name. One of which only the
// credentials changed is in none: its new connections are made by the new ones.
type Change struct {
	Added   []*Pool
	Removed []*Pool // to be closed with Close once nobody needs them any more
}

// ErrInUse is returned for a configuration without a pool in which tenants still live or
// have jobs; the error around it says which.
var ErrInUse = errors.New("the pool is still in use")

// ErrHasJobs is returned for a configuration that places a tenant in another pool than
// before while it has unfinished jobs, which would stay behind.
var ErrHasJobs = errors.New("a configuration does not move jobs")

// Apply puts a new configuration into force, all of it or, with an error, nothing but the users and
// passwords that the pools' servers take. From then on no tenant is resolved to a removed pool; its connections stay open
// until Close, for the jobs that are still running. A pool that is to be added and
// answers must be usable; one that does not answer comes into service later. One whose
// settings change must lead to the same database as before. Connections stay as they are:
// pools are added within those that the router was made with. Refused with ErrInUse: taking
// away a pool that a tenant has jobs in, or is still led to. With ErrHasJobs: placing a
// tenant that the configuration lists in another pool, while it has unfinished jobs in
// the one that it lives in.
func (r *Router) Apply(ctx context.Context, cfg Config) (Change, error) {
	if err := cfg.Validate(); err != nil {
		return Change{}, err
	}
	cfg = cfg.WithDefaults()
	r.change.Lock()
	defer r.change.Unlock()
	if r.ended.Load() || r.run == nil {
		return Change{}, errors.New("routing does not run")
	}
	old := r.routes.Load()
	// The bound was made with the router, and connections are open that it would have to
	// count again. So what is added has to fit beside what runs.
	wanted := cfg.Connections
	cfg.Connections = old.cfg.Connections
	var c Change
	renewed := map[*Pool]*credentials{}
	var refused []error
	pools := map[string]*Pool{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Pools)) {
		if p := old.pools[name]; p != nil && p.cfg.leadsTo(cfg.Pools[name]) {
			pools[name] = p
			if before := p.latest.Load(); before.DSN != cfg.Pools[name].DSN || before.TenantDSN != cfg.Pools[name].TenantDSN {
				if err := p.tryCredentials(ctx, cfg.Pools[name], r.use); err != nil {
					refused = append(refused, err)
				} else {
					renewed[p] = newCredentials(cfg.Pools[name])
				}
			}
			continue
		}
		p, err := r.newPool(name, cfg.Pools[name])
		if err != nil {
			return Change{}, err
		}
		if before := old.pools[name]; before != nil {
			p.inheritLedger(&before.service)
			p.forwards.inherit(&before.forwards)
		}
		pools[name] = p
		c.Added = append(c.Added, p)
	}
	next, err := newRoutes(cfg, pools, r.tasks.start)
	if err != nil {
		return Change{}, err
	}
	next.table.inherit(old.table)
	rest, unfit := r.verifyAll(ctx, c.Added, next)
	err = errors.Join(append(refused, unfit...)...)
	if err != nil && wanted != cfg.Connections {
		err = fmt.Errorf("%w; connections in the configuration differs from what this process was started with, and takes effect when it is started again", err)
	}
	change := transition{old: old, next: next, log: r.log}
	for _, p := range old.list() {
		if pools[p.Name] == p {
			continue
		}
		c.Removed = append(c.Removed, p)
		switch after := pools[p.Name]; {
		case err != nil: // it is refused already
		case after != nil:
			err = after.checkSameDatabase(ctx, p)
		default:
			err = errors.Join(change.checkNoJobs(ctx, p), change.checkNotRouted(ctx, p), change.checkNotLedTo(ctx, p))
		}
	}
	if err == nil {
		err = change.checkLeavesNoJobs(ctx)
	}
	switch ended := ctx.Err(); { // what looked silent was not asked
	case err != nil, ended == nil:
	case ended == context.DeadlineExceeded:
		err = fmt.Errorf("not all pools could be asked for jobs in time: %w", context.Cause(ctx))
	default:
		err = context.Cause(ctx)
	}
	for p, c := range renewed { // whatever else is refused: the server may take the old ones no more
		p.latest.Store(c)
	}
	if err != nil {
		for _, p := range c.Added {
			p.retire()
			p.closeAll()
		}
		return Change{}, err
	}
	r.routes.Store(next)
	r.applied.Add(1)
	for _, p := range c.Added {
		p.enterTimelines(true)
	}
	r.watchAll(rest)
	r.checkNewRisks(next, old)
	for _, p := range c.Removed {
		p.retire()
		r.retired[p] = struct{}{}
	}
	return c, nil
}

// checkSameDatabase refuses p when it is on another database of the server than before: jobs
// there would be forgotten, and their ids given once more. What does not answer cannot be
// asked.
func (p *Pool) checkSameDatabase(ctx context.Context, before *Pool) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var oids [2]int64
	for i, q := range []*Pool{before, p} {
		if _, err := q.Number(); err != nil {
			return nil
		}
		var err error
		if oids[i], err = store.DatabaseIs(ctx, q.Jobs()); err != nil {
			p.log.Warn("pool has a new DSN, and it could not be seen whether it leads to the same database", zap.Error(err))
			return nil
		}
	}
	if oids[0] != oids[1] {
		return &store.PoolError{Pool: p.Name, What: "its DSN leads to another database than before",
			Fix: "correct the DSN; if this is meant, restart the node"}
	}
	return nil
}

// checkNewRisks looks at the pools that stay in service for what next, which has come into
// force, says otherwise than old did. What was told before is not told again.
func (r *Router) checkNewRisks(next, old *routes) {
	risks := riskCheck{next.cfg.Tenants}
	look := func(p *Pool, at func(ctx context.Context)) {
		r.tasks.start(func() {
			done, err := p.server.verifying.wait(r.run)
			if err != nil {
				return
			}
			defer done()
			ctx, cancel := context.WithTimeout(r.run, connectTimeout)
			defer cancel()
			at(ctx)
		})
	}
	serves := func(name string) (*Pool, bool) {
		p := next.pools[name]
		if p == nil || p != old.pools[name] {
			return nil, false
		}
		_, err := p.Number() // one that is not in service yet is looked at when it comes
		return p, err == nil
	}
	tenants := map[*Pool][]tenancy.Tenant{}
	for id := range next.cfg.Tenants.Static {
		t, _ := next.cfg.Tenants.listed(id)
		before, _ := old.cfg.Tenants.listed(id)
		if p, ok := serves(t.Pool); ok && t != before {
			tenants[p] = append(tenants[p], t)
		}
	}
	for p, here := range tenants {
		look(p, func(ctx context.Context) { risks.checkTenants(ctx, p, p.Jobs(), here) })
	}
	if table := next.cfg.Tenants.Table; table != nil && !table.asksSame(old.cfg.Tenants.Table) {
		if p, ok := serves(table.Pool); ok {
			look(p, func(ctx context.Context) { risks.checkTable(ctx, p) })
		}
	}
}

// Applied counts the configurations that have come into force since the first. A caller that
// keeps what Resolve said compares it before and after.
func (r *Router) Applied() int64 { return r.applied.Load() }

// maxAskedAgain bounds how many tenants are looked up again before a pool is taken away.
const maxAskedAgain = 100

// transition is the step from one configuration to the next, which is refused if it would
// leave tenants or jobs behind.
type transition struct {
	old, next *routes
	log       *zap.Logger
}

// checkNotRouted refuses to take p away while the lookup table still leads a tenant to it
// that was resolved to it lately.
func (c transition) checkNotRouted(ctx context.Context, p *Pool) error {
	if c.next.table == nil || c.old.table == nil {
		return nil
	}
	for _, id := range c.old.table.placedIn(p.Name, maxAskedAgain) {
		if t, err := c.next.table.ask(ctx, id); err == nil && t.Pool == p.Name {
			return fmt.Errorf("pool %s cannot be taken away: %w: tenants.table leads tenant %q to it", p.Name, ErrInUse, id)
		}
	}
	return nil
}

// checkNotLedTo refuses to take p away while a tenant that is placed elsewhere was moved to
// it, or on from it: the address that it left behind would lead nowhere.
func (c transition) checkNotLedTo(ctx context.Context, p *Pool) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	rows := c.readForwards(ctx, p)
	var why []string
	for _, id := range tenantsLedTo(rows, p.Name) {
		t, err := c.next.placeOf(ctx, id)
		if err != nil { // nobody is led anywhere, or the table cannot be asked
			continue
		}
		if w := howLedTo(t, rows, p.Name); w != "" {
			why = append(why, w)
		}
	}
	if len(why) == 0 {
		return nil
	}
	return fmt.Errorf("pool %s cannot be taken away: %w: %s, first%s", p.Name, ErrInUse, why[0], andOthers("; so may", len(why)-1))
}

// readForwards reads what these pools and p say now about tenants, by pool. A few at a
// time: most of them are idle, and have to be connected to for it.
func (c transition) readForwards(ctx context.Context, p *Pool) map[string]map[tenancy.ID]store.TenantRow {
	pools := append(c.next.list(), p)
	found := make([]map[tenancy.ID]store.TenantRow, len(pools))
	var unasked atomic.Int32
	var group sync.WaitGroup
	for i, q := range pools {
		group.Go(func() {
			down := q.Outage()
			done, late := q.server.verifying.wait(ctx)
			if late == nil {
				defer done()
				q.forwards.expire("")
			}
			if q != p && (down != nil || late != nil) {
				unasked.Add(1)
			}
			found[i] = q.forwards.read(ctx, c.next.believeFor())
		})
	}
	group.Wait()
	if n := unasked.Load(); n > 0 {
		c.log.Warn("some pools could not be asked for tenants that they lead to a pool that is taken away", zap.String("pool", p.Name), zap.Int32("unasked", n))
	}
	rows := map[string]map[tenancy.ID]store.TenantRow{}
	for i, q := range pools {
		rows[q.Name] = found[i]
	}
	return rows
}

// tenantsLedTo lists the tenants that some row connects with a pool.
func tenantsLedTo(rows map[string]map[tenancy.ID]store.TenantRow, pool string) []tenancy.ID {
	all := map[tenancy.ID]struct{}{}
	for _, in := range rows {
		for id, row := range in {
			if row.Other == pool {
				all[id] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// howLedTo says how a tenant comes from where it is placed to a pool, and how to change
// that; "": it does not.
func howLedTo(t tenancy.Tenant, rows map[string]map[tenancy.ID]store.TenantRow, pool string) string {
	at := t.Pool
	for range len(rows) { // at most one step from each
		row := rows[at][t.ID]
		back := row.State == store.TenantArriving && rows[row.Other][t.ID].State == store.TenantMoving // it lives there until that pool is closed for it
		switch {
		case at == pool && row.State == store.TenantMoved:
			return fmt.Sprintf("tenant %q is placed in pool %s and led through it to pool %s; place it where it lives", t.ID, t.Pool, row.Other)
		case at == pool && at == t.Pool:
			return fmt.Sprintf("tenants.table leads tenant %q to it; move it with `tenure tenants move`", t.ID)
		case at == pool:
			return fmt.Sprintf("tenant %q is placed in pool %s and lives there since it was moved; move it with `tenure tenants move`", t.ID, t.Pool)
		case row.Other == pool && (row.State == store.TenantMoving || back):
			return fmt.Sprintf("tenant %q is being moved between it and pool %s; let that come to its end", t.ID, at)
		case row.State == store.TenantMoved:
			at = row.Other
		default:
			return ""
		}
	}
	return ""
}

// maxAsked bounds how many tenants are asked for before a pool is taken away.
const maxAsked = 10_000

// checkNoJobs refuses to take p away while a tenant has jobs there: somebody has to move
// the tenant or let its jobs end first. A database that does not answer cannot be
// asked, and may be taken away.
func (c transition) checkNoJobs(ctx context.Context, p *Pool) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	_, err := p.Number()
	if err == nil {
		err = p.Outage() // known, so that many pools of a server that hangs take no time
	}
	var tenants []string
	if err == nil {
		tenants, err = store.TenantsWithJobs(ctx, p.Jobs(), maxAsked, nil)
	}
	if err != nil {
		c.log.Warn("pool is taken away without having been asked for jobs", zap.String("pool", p.Name), zap.Error(err))
		return nil
	}
	if len(tenants) == 0 {
		return nil
	}
	return fmt.Errorf("pool %s cannot be taken away: %w: tenant %q has unfinished jobs there%s; move them with `tenure tenants move`, or let them end, first",
		p.Name, ErrInUse, tenancy.ID(tenants[0]), andOthers(", and so may", len(tenants)-1))
}

// andOthers says that a fault may be that of others, too, if there are some.
func andOthers(lead string, n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return lead + " 1 other"
	}
	return fmt.Sprintf("%s %d others", lead, n)
}

// checkLeavesNoJobs refuses to place a tenant in another pool that has unfinished jobs where it lives: they
// would wait there until somebody moves them. A database that does not answer cannot be
// asked, and its tenants may be given another.
func (c transition) checkLeavesNoJobs(ctx context.Context) error {
	var placed []tenancy.ID
	lookups := 0 // a query each
	before, after := c.old.cfg.Tenants, c.next.cfg.Tenants
	for id := range union(before.Static, after.Static) {
		was, wasListed := before.Static[id]
		is, isListed := after.Static[id]
		switch {
		case was.Pool == is.Pool, !wasListed && before.Table == nil, !isListed && after.Table == nil:
			continue
		case !wasListed, !isListed:
			if lookups++; lookups > maxAskedAgain {
				continue
			}
		}
		placed = append(placed, id)
	}
	if lookups > maxAskedAgain {
		c.log.Warn("many tenants are placed by tenants.static instead of tenants.table, or the other way round; not all were asked for jobs that stay behind",
			zap.Int("tenants", lookups), zap.Int("asked", maxAskedAgain))
	}
	if len(placed) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	for _, p := range c.old.list() {
		p.forwards.expire("")
	}
	to := map[tenancy.ID]string{}
	leave := map[*Pool][]string{}
	for _, id := range placed {
		_, from, err := c.old.resolve(ctx, id)
		if err != nil || c.next.pools[from.Name] == nil { // what is taken away was asked already
			continue
		}
		switch _, p, err := c.next.resolve(ctx, id); {
		case err != nil:
			c.log.Warn("it cannot be seen where a tenant is to live, and whether jobs of it stay behind", zap.String("tenant", string(id)), zap.Error(err))
		case p.Name != from.Name:
			to[id] = p.Name
			leave[from] = append(leave[from], string(id))
		}
	}
	var refused error
	for _, p := range c.old.list() {
		if len(leave[p]) == 0 {
			continue
		}
		err := p.Outage()
		var tenants []string
		if err == nil {
			tenants, err = store.TenantsWithJobs(ctx, p.Jobs(), maxAsked, leave[p])
		}
		switch {
		case err != nil:
			c.log.Warn("tenants are placed in another pool, and the one that they lived in could not be asked for jobs of theirs",
				zap.String("pool", p.Name), zap.Int("tenants", len(leave[p])), zap.Error(err))
		case len(tenants) > 0:
			id := tenancy.ID(tenants[0])
			refused = errors.Join(refused, fmt.Errorf("tenant %q cannot be placed in pool %s: %w, and it has unfinished ones in pool %s, suspended and dead ones among them%s: move it with `tenure tenants move %s --to %s` and then change the configuration",
				id, to[id], ErrHasJobs, p.Name, andOthers(", as may", len(tenants)-1), id, to[id]))
		}
	}
	return refused
}

// union is the tenants of both.
func union(a, b map[tenancy.ID]TenantConfig) map[tenancy.ID]TenantConfig {
	all := maps.Clone(a)
	if all == nil {
		return b
	}
	maps.Copy(all, b)
	return all
}

// Close closes a removed pool's connections, and waits for those that are in use.
func (r *Router) Close(p *Pool) {
	p.closeAll()
	r.change.Lock()
	delete(r.retired, p)
	r.change.Unlock()
}
