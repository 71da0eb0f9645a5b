package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Severity says how bad a finding is.
type Severity string

const (
	// Error is something that keeps jobs from running, or may lose them.
	Error Severity = "error"
	// Warning is something that will hurt if nobody mends it.
	Warning Severity = "warning"
	// Note is something that may be meant.
	Note Severity = "note"
)

// Finding is something that is wrong.
type Finding struct {
	Severity Severity
	// Check is what was looked at: configuration, connections, ledger, privileges, tenants, clock,
	// server, vacuum, transactions, replication, nodes, lock or jobs.
	Check string
	// Pools are where it is; none: in the configuration.
	Pools []string
	// What is wrong, and with which table, transaction, node or job.
	What string
	// Said is what a database said of it, which may name addresses and users; often nothing.
	Said string
	// Why it matters.
	Why string
	// Mend is what to do about it: a command, SQL, or a key of the configuration.
	Mend string

	// About is what it is about, for who wants to see more; What names it, too.
	About About
}

// About is a job, or what jobs are of; empty: it is about nothing of the kind.
type About struct{ Job, Tenant, Queue, Kind, State string }

// Examination is what became of looking.
type Examination struct {
	Findings []Finding // the worst first
	Examined []string  // the pools that everything was asked of
	Partly   []string  // those that did not answer, or not all
}

// Options of an examination.
type Options struct {
	// Pools to look at. Default: all.
	Pools []string
	// Within is how long each pool may take. Default: 5 s.
	Within time.Duration
	// Open is how long a transaction may be open. Default: 10 m.
	Open time.Duration
	// Now is this machine's clock. Default: time.Now.
	Now func() time.Time
	// Resolve asks the routing rules in force. Default: what is wrong with a known tenant's route is not looked for.
	Resolve Resolve
}

// Resolve is the pool that a tenant lives in. An error: why its jobs find no way, tenancy.ErrUnknownTenant and *routing.RouteError among others.
type Resolve func(ctx context.Context, id tenancy.ID) (pool string, err error)

// Examine looks for what is wrong. It takes no longer than Within and a moment; what could not be
// asked is a finding, too.
func Examine(ctx context.Context, cfg config.Config, o Options) Examination {
	within := cmp.Or(max(o.Within, 0), 5*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	names := o.Pools
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(cfg.Pools))
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	pools := make([]*pool, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		pools[i] = &pool{name: name, cfg: cfg, open: cmp.Or(o.Open, longOpen), now: o.Now, resolve: o.Resolve, connects: true}
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			pools[i].examine(ctx, within)
		})
	}
	group.Wait()
	e := Examination{Examined: []string{}, Partly: []string{}}
	var found []Finding
	for _, p := range pools {
		found = append(found, p.findings...)
		if p.whole {
			e.Examined = append(e.Examined, p.name)
		} else {
			e.Partly = append(e.Partly, p.name)
		}
	}
	e.Findings = worstFirst(append(compare(cfg, pools), together(found)...))
	return e
}

func worstFirst(found []Finding) []Finding {
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	return found
}

// Work is what is wrong with the work of a pool: its nodes, its lock and its jobs.
type Work struct{ pool *pool }

// ExamineWork makes those checks of [Examine] that are about a pool's work, on a connection of the pool's.
func ExamineWork(ctx context.Context, db store.Beginner, cfg config.Config, name string, resolve Resolve) (Work, error) {
	p := &pool{name: name, cfg: cfg, open: longOpen, now: time.Now, resolve: resolve}
	for _, c := range checks {
		if !c.work {
			continue
		}
		err := store.Inspect(ctx, db, func(db store.DB) error { return c.run(p, ctx, db) })
		switch {
		case err == nil:
		case p.locked && errors.Is(err, store.ErrLocked): // that is what is wrong
			return Work{p}, nil
		default:
			return Work{}, fmt.Errorf("look at the %s: %w", c.name, err)
		}
	}
	return Work{p}, nil
}

// Merge is what is wrong with the work of several pools, as [Examine] says it, the worst first.
func Merge(works []Work) []Finding {
	var pools []*pool
	var found []Finding
	for _, w := range works {
		if w.pool != nil {
			pools, found = append(pools, w.pool), append(found, w.pool.findings...)
		}
	}
	return worstFirst(slices.Concat(together(found), compareFrozen(pools), compareCommon(pools), findStrays(pools)))
}

// together makes one finding of those that say the same of several pools, such as of all on one server.
func together(found []Finding) []Finding {
	const others = "; likewise for the others"
	out := []Finding{}
	at := map[[6]string]int{}
	for _, f := range found {
		name := f.Pools[0]
		same := [6]string{string(f.Severity), f.Check, f.What, f.Said, f.Why, strings.ReplaceAll(f.Mend, name, "*")}
		i, known := at[same]
		if !known {
			at[same] = len(out)
			out = append(out, f)
			continue
		}
		one := &out[i]
		one.Pools = append(one.Pools, name)
		if one.Mend != f.Mend && !strings.HasSuffix(one.Mend, others) { // it names the pool
			one.Mend += others
		}
	}
	return out
}

var rank = map[Severity]int{Error: 0, Warning: 1, Note: 2}

// pool is one that is examined, by one goroutine.
type pool struct {
	name string
	cfg  config.Config
	open time.Duration // how long a transaction may be
	now  func() time.Time

	connects bool             // it asks the lookup table on a connection of its own
	resolve  Resolve          // nil: there is nobody to ask
	placed   []routing.Placed // what the lookup table says of tenants here

	findings []Finding
	whole    bool
	lacking  bool // its ledger cannot be read, and a finding says why
	locked   bool // a finding says who has locked a table

	server   string // which it is on; "": not known
	room     int    // for connections on that server
	number   int    // in its ledger; 0: not known
	sessions []store.Session
	queues   map[string]string          // in which jobs of a kind wait
	frozen   []store.Frozen             // nil: not known
	common   []string                   // what is set for every tenant; nil: not known
	rows     map[string]store.TenantRow // of tenants; nil: not known
	led      map[string]string          // tenants with jobs here whom a rule leads to another pool, and to which

	unhandled []string // kinds with jobs here that no live node has a handler for
	wayless   []string // tenants with jobs here that no rule leads here
}

func (p *pool) add(s Severity, check, what, why, mend string) {
	p.findings = append(p.findings, Finding{Severity: s, Check: check, Pools: []string{p.name}, What: what, Why: why, Mend: mend})
}

// about says what the last finding is about.
func (p *pool) about(a About) { p.findings[len(p.findings)-1].About = a }

// addSaid adds to the last finding what the database said of it.
func (p *pool) addSaid(err error) {
	p.findings[len(p.findings)-1].Said = strings.Join(strings.Fields(err.Error()), " ")
}

// checks are made in this order: what is most likely wrong comes first, as there may be no time
// for the rest.
var checks = []struct {
	name   string
	ledger bool // it reads the ledger
	work   bool // it is about the pool's work; see [ExamineWork]
	run    func(*pool, context.Context, store.DB) error
}{
	{"server", false, false, (*pool).checkServer},
	{"connections", false, true, (*pool).checkTables},
	{"connections", false, true, (*pool).checkTenantsWay},
	{"ledger", false, false, (*pool).checkLedger},
	{"nodes", true, true, (*pool).checkSessions},
	{"lock", true, true, (*pool).checkLock},
	{"jobs", true, true, (*pool).checkJobs},
	{"routes", true, true, (*pool).checkRoutes},
	{"jobs", true, true, (*pool).checkOldest},
	{"jobs", true, true, (*pool).checkRetrying},
	{"tenants", true, false, (*pool).checkTenants},
	{"privileges", true, false, (*pool).checkHolders},
	{"tenants", true, false, (*pool).checkShared},
	{"jobs", true, false, (*pool).checkAside},
	{"transactions", false, false, (*pool).checkTransactions},
	{"replication", false, false, (*pool).checkReplication},
	{"server", true, false, (*pool).checkLocks},
	{"vacuum", false, false, (*pool).checkVacuum},
}

// examine makes the checks, those of the ledger each in a transaction of its own that only reads.
func (p *pool) examine(ctx context.Context, within time.Duration) {
	conn, err := p.connect(ctx, within)
	if err != nil {
		p.addDown(err)
		return
	}
	defer closeSoon(ctx, conn)
	again := fmt.Sprintf("tenure doctor --within %v", 2*within)
	p.whole = true
	for _, c := range checks {
		if c.ledger && p.lacking {
			p.whole = false
			continue
		}
		var err error
		if c.ledger {
			err = store.Inspect(ctx, conn, func(db store.DB) error { return c.run(p, ctx, db) })
		} else { // a failure must not spoil what is asked next, nor a transaction that only reads be taken for the database's way
			err = c.run(p, ctx, conn)
		}
		if err == nil {
			continue
		}
		p.whole = false
		if ctx.Err() != nil {
			p.add(Error, "connections", fmt.Sprintf("the database did not answer within %v; it was not asked everything, from %q on", within, c.name),
				"it is slow or overloaded, and jobs wait for it", again)
			return
		}
		if errors.Is(err, store.ErrLocked) { // so are the rest
			p.lacking = true
			if p.locked {
				continue
			}
		}
		p.add(Warning, c.name, "this could not be looked at", "what is wrong there stays unknown", again)
		p.addSaid(err)
		if conn.IsClosed() {
			return
		}
	}
}

func (p *pool) connect(ctx context.Context, within time.Duration) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig(p.cfg.Pools[p.name].DSN)
	if err != nil {
		return nil, errors.New("its dsn cannot be read as a Postgres connection string") // err may quote the password
	}
	c.ConnectTimeout = within
	store.FixLedgerSettings(c)
	c.RuntimeParams["application_name"] = "tenure doctor"
	c.RuntimeParams["lock_timeout"] = "2000" // what waits in the server when the time is over would be one more in the way
	conn, err := pgx.ConnectConfig(ctx, c)
	return conn, store.Denied(p.name, c, err)
}

// checkTenantsWay looks whether tenants' transactions can begin where they have a way of their own.
func (p *pool) checkTenantsWay(ctx context.Context, _ store.DB) error {
	trying, cancel := context.WithTimeout(ctx, 3*time.Second) // a pooler may wait for its server for long
	defer cancel()
	err := p.cfg.Routing().TryTenants(trying, p.name)
	if err == nil || ctx.Err() != nil {
		return err
	}
	p.add(Error, "connections", "no transaction of a tenant can begin by its tenant_dsn", "jobs that begin one are put off, and InTx fails; other jobs run",
		fmt.Sprintf("start the pooler, or correct pools.%s.tenant_dsn; try: psql with that, on this machine", p.name))
	p.addSaid(err)
	return nil
}

// closeSoon is polite to a server that answers, and does not wait for another one.
func closeSoon(ctx context.Context, conn interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 100*time.Millisecond)
	defer cancel()
	_ = conn.Close(ctx)
}

// addDown says why a pool cannot be reached.
func (p *pool) addDown(err error) {
	const why = "nodes that find it so run none of its jobs, and enqueuing there fails"
	var known *store.PoolError
	switch {
	case errors.As(err, &known):
		p.add(Error, "connections", known.What, why, known.Fix)
	case store.NoConnectionLeft(err):
		p.add(Error, "connections", "its server has no connection left for this user", why,
			"SELECT usename, application_name, count(*) FROM pg_stat_activity GROUP BY 1, 2 ORDER BY 3 DESC, as a superuser, says who has them; a user may have its own limit: ALTER ROLE … CONNECTION LIMIT -1")
		p.addSaid(err)
	default:
		p.add(Error, "connections", "its database cannot be reached", why, fmt.Sprintf("start the server, or correct pools.%s.dsn; try: psql with that dsn, on this machine", p.name))
		p.addSaid(err)
	}
}
