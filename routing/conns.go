package routing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/tenancy"
)

// conns are a pool's connections.
type conns struct {
	mu      sync.Mutex
	jobs    *pgxpool.Pool // guarded by mu; nil until it is first used
	tenants TenantConns   // its db is set once, guarded by mu, before Tenants returns it
	spare   *pgx.Conn     // guarded by mu; see keepSpare
	closed  bool          // guarded by mu

	admission admission // to jobs

	operating chan struct{} // one place; see Operate
}

// Share of max_conns: one connection for the lock, some for job SQL, the rest for
// tenants' transactions.
const (
	lockConns   = 1
	maxJobConns = 6
)

// spareConns is how many more connections for handlers are needed than are in use.
const spareConns = 2

// maxConnIdle is how long a connection is kept that nobody uses: an idle pool shall
// cost its database the lock's connection only. It is longer than another may take to open.
const maxConnIdle = 3 * connectTimeout

// closeTimeout bounds what a connection is asked to do last: to cancel what runs on it, or to
// be closed.
const closeTimeout = connectTimeout / 5

func (p *Pool) poolConfig(dsn *pgxpool.Config, text func() string, purpose string, maxConns int) *pgxpool.Config {
	c := dsn.Copy()
	c.MaxConns = int32(maxConns)
	c.MinConns, c.MinIdleConns = 0, 0
	c.MaxConnIdleTime = maxConnIdle
	c.HealthCheckPeriod = maxConnIdle / 3
	c.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		err := p.allowConnect(ctx)
		if err == nil {
			renewSecrets(c, text())
		}
		return err
	}
	c.AfterConnect = p.checkConnected
	c.PrepareConn = func(ctx context.Context, c *pgx.Conn) (bool, error) { // else it is closed, and another made
		return p.checkFit(ctx) == nil && p.Current(c) == nil, nil
	}
	tuneCommon(c.ConnConfig, purpose)
	// A cancelled call asks the server to stop and keeps the connection if it does, so that
	// a burst of timeouts is no storm of reconnects. One on the lock's connection does not
	// wait for that: it is replaced in any case.
	c.ConnConfig.BuildContextWatcherHandler = func(pc *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: pc, DeadlineDelay: closeTimeout}
	}
	watchRefusals(c.ConnConfig, &p.crowded, &p.server.shortage)
	return c
}

func (p *Pool) jobConns() int { return p.cfg.jobConns() }

func (c PoolConfig) jobConns() int { return min(maxJobConns, (c.MaxConns-lockConns+1)/2) }

// serverConns is how many connections this node may have to the pool's server. Those to a
// pooler are not among them: how many it opens is for it to say.
func (p *Pool) serverConns() int { return p.cfg.serverConns() }

func (c PoolConfig) serverConns() int {
	if c.TenantDSN != "" {
		return lockConns + c.jobConns()
	}
	return c.MaxConns
}

func (p *Pool) jobsConfig() *pgxpool.Config {
	c := p.poolConfig(p.dsn, func() string { return p.latest.Load().DSN }, "jobs", p.jobConns())
	tuneForJobs(c)
	dropReadOnly(c)
	p.budget.limit(c, &p.conns.admission)
	p.conns.admission.working = &p.server.working
	p.conns.admission.guard(c, connects{p, p.dsn.ConnConfig}, mostJobsCost)
	return c
}

func (p *Pool) tenantsConfig() *pgxpool.Config {
	dsn, text := p.dsn, func() string { return p.latest.Load().DSN }
	if p.pooled != nil {
		dsn, text = p.pooled.dsn, func() string { return p.latest.Load().TenantDSN }
	}
	c := p.poolConfig(dsn, text, "tenants", p.cfg.MaxConns-lockConns-p.jobConns())
	tuneForTenants(c)
	boundTenants(c, p.bounds)
	addTypes(c, p.types)
	dropReadOnly(c)
	if p.pooled != nil {
		p.pooled.tune(c)
	}
	p.budget.limit(c, &p.conns.tenants.admission)
	p.conns.tenants.admission.guard(c, connects{p, dsn.ConnConfig}, mostTenantsCost)
	p.conns.tenants.shares = newShares(p.Name, tenancy.Share{Of: int(c.MaxConns), Percent: p.tenantShare})
	return c
}

func (p *Pool) lockConfig() *pgx.ConnConfig {
	c := p.dsn.ConnConfig.Copy()
	renewSecrets(c, p.latest.Load().DSN)
	tuneCommon(c, "lock")
	c.Tracer = connects{p, p.dsn.ConnConfig}
	watchRefusals(c, &p.crowded, &p.server.shortage)
	tuneForLock(c)
	return c
}

// allowConnect is asked for a connection that jobs or tenants want.
func (p *Pool) allowConnect(ctx context.Context) error {
	if err := p.checkFit(ctx); err != nil {
		return err
	}
	if err := p.crowded.allow(); err != nil {
		return fmt.Errorf("connect to pool %s: %w", p.Name, err)
	}
	return nil
}

// checkConnected is called with a connection that they have got.
func (p *Pool) checkConnected(ctx context.Context, c *pgx.Conn) error {
	p.crowded.reset()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout) // it was connected in time, and has to answer
	defer cancel()
	return p.checkServer(ctx, c)
}

// Jobs is for job SQL. Like Tenants it is made when it is first used, as an idle pool
// needs none of them. Of a closed pool it is closed.
func (p *Pool) Jobs() *pgxpool.Pool { return p.makeOnce(&p.conns.jobs, p.jobsConfig) }

// Tenants is for tenants' transactions.
func (p *Pool) Tenants() *TenantConns {
	p.makeOnce(&p.conns.tenants.db, p.tenantsConfig)
	return &p.conns.tenants
}

// Operate calls fn with a connection for an operator's statements. It is one of those for
// job SQL, as handlers may hold all that tenants' transactions have. An operator has one of
// them at a time, however long a statement counts or waits for a row that is locked: there
// are two at least, so that the pool's jobs go on.
func (p *Pool) Operate(ctx context.Context, fn func(*pgxpool.Conn) error) error {
	select {
	case p.conns.operating <- struct{}{}:
		defer func() { <-p.conns.operating }()
	case <-ctx.Done():
		return fmt.Errorf("wait for another call of an operator: %w", context.Cause(ctx))
	}
	if p.isClosed() {
		return NamePool(p.Name, errClosed)
	}
	return p.Blame(p.Jobs().AcquireFunc(ctx, fn))
}

func (p *Pool) isClosed() bool {
	p.conns.mu.Lock()
	defer p.conns.mu.Unlock()
	return p.conns.closed
}

func (p *Pool) makeOnce(db **pgxpool.Pool, config func() *pgxpool.Config) *pgxpool.Pool {
	p.conns.mu.Lock()
	defer p.conns.mu.Unlock()
	if *db == nil {
		made, err := pgxpool.NewWithConfig(context.Background(), config()) // it connects later, and its settings were checked
		if err != nil {
			panic(fmt.Sprintf("routing: open pool %s: %v", p.Name, err))
		}
		if p.conns.closed {
			made.Close()
		}
		*db = made
	}
	return *db
}

// guarded is a connection pool and what lets callers through to it.
type guarded struct {
	*pgxpool.Pool
	admission *admission
}

// madePools is the connection pools that have been made.
func (p *Pool) madePools() (all []guarded) {
	p.conns.mu.Lock()
	defer p.conns.mu.Unlock()
	if db := p.conns.jobs; db != nil {
		all = append(all, guarded{db, &p.conns.admission})
	}
	if t := &p.conns.tenants; t.db != nil {
		all = append(all, guarded{t.db, &t.admission})
	}
	return all
}

// Handling is how many connections tenants' transactions need just now.
func (p *Pool) Handling() int {
	p.conns.mu.Lock()
	defer p.conns.mu.Unlock()
	if p.conns.tenants.db == nil {
		return 0
	}
	s := p.conns.tenants.Stat()
	return int(min(s.AcquiredConns()+spareConns, s.TotalConns()))
}

// AwaitDial waits until this node may open one more connection to the pool's server, which counts
// as being opened until done is called: once it has answered. What every node does for every
// pool waits here first, and has its time bounded only then, so that a crowd makes it late
// and not useless. keeps tells that a lock or a session hangs on it. The error wraps ErrDialLimit.
func (p *Pool) AwaitDial(ctx context.Context, keeps bool) (done func(), err error) {
	l := p.server.looking
	if keeps {
		l = p.server.keeping
	}
	done, err = l.wait(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to pool %s: %w", p.Name, err)
	}
	return done, nil
}

// AwaitTerm waits until this node may begin one more term in a pool of the server, which counts as beginning
// until begun is called, or for a second: that of a database that hangs shall not hold up the others for longer. When
// a hundred begin at once, all read their first jobs late, and none sooner than this way.
func (p *Pool) AwaitTerm(ctx context.Context) (begun func(), err error) {
	done, err := p.server.beginning.wait(ctx)
	if err != nil {
		return nil, err
	}
	done = sync.OnceFunc(done)
	late := time.AfterFunc(time.Second, done)
	return func() { late.Stop(); done() }, nil
}

// SilentFor is how long no lock's connection to the pool's server has been made.
func (p *Pool) SilentFor() time.Duration { return p.server.silentFor() }

// Short tells whether the pool's server has fewer connections than all nodes would like to
// keep. A connection that is not needed just now should be closed then.
func (p *Pool) Short() bool { return p.server.shortage.holds() }

// IsCrowded tells whether pools wait for this node's connections, as there are as many as connections.per_node allows.
// One that is not needed just now is soon closed then.
func (p *Pool) IsCrowded() bool { return p.budget.isCrowded() }

// ConnectLock opens a connection for the acquire lock and the session; the caller
// closes it. The first time it may be the one with which the pool was verified.
func (p *Pool) ConnectLock(ctx context.Context) (*pgx.Conn, error) {
	c, closed := p.takeSpare()
	if closed {
		return nil, fmt.Errorf("connect to pool %s: %w", p.Name, errClosed)
	}
	if c != nil {
		if p.checkServer(ctx, c) == nil {
			return c, nil
		}
		closeInTime(ctx, c)
	}
	c, err := pgx.ConnectConfig(ctx, p.lockConfig())
	if err != nil {
		return nil, fmt.Errorf("connect to pool %s: %w", p.Name, err)
	}
	if err := p.checkServer(ctx, c); err != nil {
		closeInTime(ctx, c) // it is of no use to anybody
		return nil, err
	}
	p.server.noteAnswer()
	p.crowded.reset()
	return c, nil
}

var errClosed = errors.New("it was taken out of the configuration, or the node or client is stopped")

// spareFor is how long a connection is kept for the lock once the pool is in service, which
// may be when all others were looked at.
const spareFor = 2 * connectTimeout

// keepSpare keeps the connection with which the pool was verified for a while, if there
// are not many of them yet. Most of what the start of a node costs a server is
// connections.
func (p *Pool) keepSpare(c *pgx.Conn) {
	if !p.setSpare(c) {
		closeInTime(context.Background(), c)
		return
	}
	time.AfterFunc(spareFor, p.dropSpare)
}

func (p *Pool) setSpare(c *pgx.Conn) bool {
	p.conns.mu.Lock()
	defer p.conns.mu.Unlock()
	if p.conns.closed {
		return false
	}
	select {
	case p.server.spares <- struct{}{}:
		p.conns.spare = c
		return true
	default:
		return false
	}
}

func (p *Pool) takeSpare() (c *pgx.Conn, closed bool) {
	p.conns.mu.Lock()
	defer p.conns.mu.Unlock()
	if c = p.conns.spare; c != nil {
		p.conns.spare = nil
		<-p.server.spares
	}
	return c, p.conns.closed
}

func (p *Pool) dropSpare() {
	if c, _ := p.takeSpare(); c != nil {
		closeInTime(context.Background(), c)
	}
}

// closeInTime closes a connection whose user's time may be over.
func closeInTime(ctx context.Context, c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = c.Close(ctx) // one that cannot even be closed is gone as well
}

func (p *Pool) closeAll() {
	p.conns.mu.Lock()
	p.conns.closed = true
	p.conns.mu.Unlock()
	p.dropSpare()
	for _, db := range p.madePools() {
		db.Close()
	}
}
