package routing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
)

// ErrPoolDown is returned while a pool's database cannot be used; the error
// around it says why.
var ErrPoolDown = errors.New("pool is down")

// Pool is one Postgres database that hosts tenants.
type Pool struct {
	Name string

	cfg PoolConfig
	log *zap.Logger

	dsn        *pgxpool.Config   // what the DSN says; each use of it changes a copy
	bounds     ConnectionsConfig // as the process started with
	budget     *budget
	door       *door
	promotions *promotions
	crowding   crowding

	opening sync.Mutex
	jobs    *pgxpool.Pool // guarded by opening; nil until it is first used
	tenants *pgxpool.Pool // guarded by opening; nil until it is first used
	spare   *pgx.Conn     // guarded by opening; see keepSpare
	closed  bool          // guarded by opening

	mu     sync.Mutex
	number int     // guarded by mu; 0 until admitted
	server string  // guarded by mu; which server it is on; "" until admitted
	room   int     // guarded by mu; for connections there
	first  stamp   // guarded by mu; where it led when it was verified
	serves bool    // guarded by mu; see enter
	down   error   // guarded by mu; why it cannot be used; nil: it can
	unfit  error   // guarded by mu; see Unfit
	silent *outage // guarded by mu; nil: it answers, as far as this node knows
	ready  chan struct{}

	tried      chan struct{} // closed when its database has been tried for the first time
	firstTried sync.Once     // for tried

	forwards forwards

	gone  chan struct{} // closed by retire
	leave sync.Once     // for gone
}

// Share of max_conns: one connection for the lock, some for job SQL, the rest for
// tenants' transactions.
const (
	lockConns   = 1
	maxJobConns = 6
)

// spareConns is how many more connections for handlers are needed than are in use.
const spareConns = 2

// newPool checks what can be checked without connecting. It opens nothing.
func (r *Router) newPool(name string, cfg PoolConfig) (*Pool, error) {
	dsn, err := pgxpool.ParseConfig(cfg.DSN)
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", name, errBadDSN)
	}
	return &Pool{Name: name, cfg: cfg, dsn: dsn, bounds: r.bounds, budget: r.budget, door: r.doors.to(dsn.ConnConfig), promotions: r.promotions, log: r.log.With(zap.String("pool", name)),
		ready: make(chan struct{}), tried: make(chan struct{}), gone: make(chan struct{}), down: fmt.Errorf("%w: not reached yet; its node or client must have been started", ErrPoolDown)}, nil
}

// errBadDSN stands in for the parser's error, which may quote a password.
var errBadDSN = errors.New("its dsn cannot be read as a Postgres connection string")

// maxConnIdle is how long a connection is kept that nobody uses: an idle pool shall
// cost its database the lock's connection only.
const maxConnIdle = 15 * time.Second

func (p *Pool) config(purpose string, maxConns int) *pgxpool.Config {
	c := p.dsn.Copy()
	c.MaxConns = int32(maxConns)
	c.MinConns, c.MinIdleConns = 0, 0
	c.MaxConnIdleTime = maxConnIdle
	c.HealthCheckPeriod = maxConnIdle / 3
	c.BeforeConnect, c.AfterConnect = p.ask, p.served
	c.PrepareConn = func(ctx context.Context, c *pgx.Conn) (bool, error) { // else it is made anew
		return p.closedTo(ctx) == nil && p.Current(c) == nil, nil
	}
	tuneCommon(c.ConnConfig, purpose)
	// A cancelled call asks the server to stop and keeps the connection if it does, so that
	// a burst of timeouts is no storm of reconnects. One on the lock's connection does not
	// wait for that: it is made anew in any case.
	c.ConnConfig.BuildContextWatcherHandler = func(pc *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: pc, DeadlineDelay: time.Second}
	}
	p.heedRefusals(c.ConnConfig)
	p.budget.bound(c)
	return c
}

func (p *Pool) jobConns() int { return min(maxJobConns, (p.cfg.MaxConns-lockConns+1)/2) }

func (p *Pool) jobsConfig() *pgxpool.Config {
	c := p.config("jobs", p.jobConns())
	tuneForJobs(c)
	return c
}

func (p *Pool) tenantsConfig() *pgxpool.Config {
	c := p.config("tenants", p.cfg.MaxConns-lockConns-p.jobConns())
	tuneForTenants(c)
	boundTenants(c, p.bounds)
	guard(c)
	return c
}

func (p *Pool) lockConfig() *pgx.ConnConfig {
	c := p.dsn.ConnConfig.Copy()
	tuneCommon(c, "lock")
	p.heedRefusals(c)
	tuneForLock(c)
	return c
}

// connectTimeout bounds a connect whose DSN sets no bound.
const connectTimeout = 5 * time.Second

func tuneCommon(c *pgx.ConnConfig, purpose string) {
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	c.RuntimeParams["application_name"] = "tenure " + purpose
	// Whatever the database's default: the ledger's statements wait for one another and
	// then have to see what has become of what they waited for.
	c.RuntimeParams["default_transaction_isolation"] = "read committed"
}

func tuneForJobs(c *pgxpool.Config) {
	tunePlans(c.ConnConfig)
	c.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "60s"
}

// tunePlans gives job SQL the one right plan: every statement walks an index, and a
// plan made while a table was small must not become a scan of millions.
func tunePlans(c *pgx.ConnConfig) {
	p := c.RuntimeParams
	p["search_path"] = ""
	p["enable_seqscan"] = "off"
	p["enable_bitmapscan"] = "off"
	p["enable_hashjoin"] = "off"
	p["enable_mergejoin"] = "off"
	p["plan_cache_mode"] = "force_generic_plan"
	p["jit"] = "off"
}

// tuneForTenants has every statement described anew and keeps none. The next
// tenant's tables may differ: a named statement would fail there, or be planned
// again, and a remembered description would have arguments sent as the types of the
// tenant before, of which an enum does not even exist in the next schema. Every
// connection is scrubbed after use.
func tuneForTenants(c *pgxpool.Config) {
	c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	c.ConnConfig.StatementCacheCapacity = 0
	c.ConnConfig.DescriptionCacheCapacity = 0
	c.AfterRelease = scrub
}

// tuneForLock makes a statement on the lock fail long before the lock expires. Nothing
// is prepared: whoever only watches a lock connects for each look.
func tuneForLock(c *pgx.ConnConfig) {
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	c.StatementCacheCapacity, c.DescriptionCacheCapacity = 0, 0 // they would take more memory than all else of an idle pool
	tunePlans(c)
	c.RuntimeParams["statement_timeout"] = "2500"
	c.RuntimeParams["lock_timeout"] = "2000"
	c.RuntimeParams["idle_in_transaction_session_timeout"] = "5000"
}

// scrubTimeout bounds the scrubbing of one connection.
const scrubTimeout = 5 * time.Second

// scrub takes off a connection what a handler may have left on its session. It is
// DISCARD ALL but for the plans, which PL/pgSQL would have to make again for every
// job, and with what that forgets: where random() goes on, and the connections of dblink.
func scrub(c *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(context.Background(), scrubTimeout)
	defer cancel()
	results, err := c.PgConn().Exec(ctx, "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; DEALLOCATE ALL; "+
		"SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES; "+
		fmt.Sprintf("SELECT pg_catalog.setseed(%v); ", 2*rand.Float64()-1)+sqlDblinkSchema).ReadAll()
	if err != nil {
		return false
	}
	if found := results[len(results)-1].Rows; len(found) > 0 && !closeDblink(ctx, c, string(found[0][0])) {
		return false
	}
	cancel()
	for err == nil { // what was notified has arrived by now, and is handed out although ctx has ended
		_, err = c.WaitForNotification(ctx)
	}
	return !c.IsClosed()
}

// sqlDblinkSchema says where dblink is, as SQL writes it, if it is in the database at all.
const sqlDblinkSchema = "SELECT extnamespace::pg_catalog.regnamespace FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'dblink'"

// closeDblink closes the connections that a handler has opened by dblink, those with a name
// and the one without; false: it could not.
func closeDblink(ctx context.Context, c *pgx.Conn, schema string) bool {
	_, err := c.Exec(ctx, fmt.Sprintf("SELECT %[1]s.dblink_disconnect(name) FROM pg_catalog.unnest(%[1]s.dblink_get_connections()) AS name", schema))
	if err != nil {
		return false
	}
	_, err = c.Exec(ctx, fmt.Sprintf("SELECT %s.dblink_disconnect()", schema))
	var none *pgconn.PgError
	return err == nil || errors.As(err, &none) && none.Code == "08003" // connection_does_not_exist
}

// Jobs is for job SQL. Like Tenants it is made when it is first used, as an idle pool
// needs none of them. Of a closed pool it is closed.
func (p *Pool) Jobs() *pgxpool.Pool { return p.use(&p.jobs, p.jobsConfig) }

// Tenants is for tenants' transactions.
func (p *Pool) Tenants() *pgxpool.Pool { return p.use(&p.tenants, p.tenantsConfig) }

// Handling is how many connections tenants' transactions need just now.
func (p *Pool) Handling() int {
	p.opening.Lock()
	defer p.opening.Unlock()
	if p.tenants == nil {
		return 0
	}
	s := p.tenants.Stat()
	return int(min(s.AcquiredConns()+spareConns, s.TotalConns()))
}

// OpenTenants opens connections for tenants' transactions until there are as many, and lets
// warm do what each begins with. What other callers give back meanwhile may be taken until
// it is done. It ends early when ctx does, or a connection cannot be opened.
func (p *Pool) OpenTenants(ctx context.Context, conns int, warm func(*pgxpool.Conn)) {
	db := p.Tenants()
	conns = min(conns, int(db.Config().MaxConns))
	for ctx.Err() == nil && int(db.Stat().TotalConns()) < conns {
		c, err := db.Acquire(ahead(ctx))
		if err != nil {
			return
		}
		defer c.Release() // not before, or it would be the next one, too
		warm(c)
	}
}

func (p *Pool) use(db **pgxpool.Pool, config func() *pgxpool.Config) *pgxpool.Pool {
	p.opening.Lock()
	defer p.opening.Unlock()
	if *db == nil {
		made, err := pgxpool.NewWithConfig(context.Background(), config()) // it connects later, and its settings were checked
		if err != nil {
			panic(fmt.Sprintf("routing: open pool %s: %v", p.Name, err))
		}
		if p.closed {
			made.Close()
		}
		*db = made
	}
	return *db
}

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
	p.door.note()
	p.crowding.served()
	return c, nil
}

var errClosed = errors.New("it was taken out of the configuration, or the node stops")

// spareFor is how long a connection is kept for whoever comes for the lock once the
// pool is in service, which may be when all others were looked at.
const spareFor = 2 * verifyTimeout

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
	p.opening.Lock()
	defer p.opening.Unlock()
	if p.closed {
		return false
	}
	select {
	case p.door.spares <- struct{}{}:
		p.spare = c
		return true
	default:
		return false
	}
}

func (p *Pool) takeSpare() (c *pgx.Conn, closed bool) {
	p.opening.Lock()
	defer p.opening.Unlock()
	if c = p.spare; c != nil {
		p.spare = nil
		<-p.door.spares
	}
	return c, p.closed
}

func (p *Pool) dropSpare() {
	if c, _ := p.takeSpare(); c != nil {
		closeInTime(context.Background(), c)
	}
}

// checkServer refuses a connection that leads elsewhere than those before: behind the
// same DSN there may be a standby after a fail-over, the old primary that does not know
// yet that it was replaced, or another database altogether.
func (p *Pool) checkServer(ctx context.Context, c *pgx.Conn) error {
	id, timeline, err := store.ServerIs(ctx, c)
	if err != nil {
		return fmt.Errorf("connect to pool %s: %w", p.Name, err)
	}
	p.mu.Lock()
	server := p.server
	p.mu.Unlock()
	if server != "" && id != server {
		return &store.PoolError{Pool: p.Name, What: fmt.Sprintf("its DSN leads to another server than before (system identifier %s, it was %s)", id, server),
			Fix: "correct the DSN or what is behind it; if this is meant, restart the node"}
	}
	s := stamp{lineageOf(id, p.Name), timeline}
	before := p.reach(s)
	if timeline == 0 && before.timeline > 0 {
		return &store.PoolError{Pool: p.Name, What: "its DSN leads to a standby", Fix: "point the DSN at the primary, or add target_session_attrs=read-write"}
	}
	c.PgConn().CustomData()[stampKey] = s
	return p.current(s, before)
}

// Number is the pool's number in its ledger, or an error with ErrPoolDown while
// the database has never been reached or cannot be used. See also [Pool.Outage].
func (p *Pool) Number() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down != nil {
		return 0, p.down
	}
	return p.number, nil
}

// Ready is closed once the pool has been verified for the first time.
func (p *Pool) Ready() <-chan struct{} { return p.ready }

// Unfit is why the pool is out of service although its database answered: somebody has to
// mend something, or it is not this pool's at all. Nobody may touch it meanwhile: there is
// no connection to be had, for jobs or for tenants. It is looked at again and again, and
// comes into service once it is mended. nil: it is not known to be unfit.
func (p *Pool) Unfit() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unfit
}

// found is what a pool's database says of itself.
type found struct {
	number    int
	server    string  // which one it is on
	room      int     // for connections there
	installed float64 // when its ledger was made
}

// inspectingKey marks the looks at a pool whose result decides whether it is unfit.
type inspectingKey struct{}

// closedTo is why whoever has this context gets no connection for jobs or tenants.
func (p *Pool) closedTo(ctx context.Context) error {
	if ctx.Value(inspectingKey{}) != nil {
		return nil
	}
	return p.Unfit()
}

// inspect asks the database whether it can be used, and who it is.
func (p *Pool) inspect(ctx context.Context, in *routes) (f found, err error) {
	ctx = context.WithValue(ctx, inspectingKey{}, true)
	c, err := p.ConnectLock(ctx)
	passed := false
	if err == nil {
		passed, err = store.SettingsPassed(ctx, c)
	}
	if err == nil && !passed || store.BehindPooler(err) {
		err = &store.PoolError{Pool: p.Name, What: "what its DSN leads to does not pass a session's settings on, as PgBouncer in transaction mode",
			Fix: "point the DSN at Postgres itself: Tenure pools connections by itself, and holds one for the lock"}
	}
	if err != nil {
		if c != nil {
			closeInTime(ctx, c)
		}
		return f, store.Denied(p.Name, p.dsn.ConnConfig, err)
	}
	if f.number, err = store.Verify(ctx, c, p.Name); err == nil {
		f.server, f.room, f.installed, err = store.Server(ctx, c)
	}
	if err == nil {
		in.caution(ctx, p, c)
		p.keepSpare(c)
		return f, nil
	}
	closeInTime(ctx, c)
	if err = store.Denied(p.Name, p.dsn.ConnConfig, err); !permanent(err) { // those name the pool themselves
		err = fmt.Errorf("pool %s: %w", p.Name, err)
	}
	return f, err
}

// closeInTime closes a connection whose user's time may be over.
func closeInTime(ctx context.Context, c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = c.Close(ctx) // one that cannot even be closed is gone as well
}

// admit puts the pool into service, or keeps it out for the reason err.
func (p *Pool) admit(f found, err error) {
	defer p.firstTried.Do(func() { close(p.tried) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.down = fmt.Errorf("%w: %w", ErrPoolDown, err)
		if permanent(err) { // if it does not answer the next time, it is not known to be mended
			p.unfit = p.down
		}
		return
	}
	p.number, p.server, p.room, p.down, p.unfit = f.number, f.server, f.room, nil, nil
	close(p.ready) // nobody looks at a pool again that is in service
}

// onServer tells whether the pool is in service on a server.
func (p *Pool) onServer(server string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down == nil && p.server == server
}

// onWhich is the server that the pool is in service on, and how many connections that has
// room for; "": it is not in service.
func (p *Pool) onWhich() (server string, room int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down != nil {
		return "", 0
	}
	return p.server, p.room
}

// permanent tells whether waiting cannot mend err: somebody has to do something.
func permanent(err error) bool {
	var pe *store.PoolError
	return errors.As(err, &pe)
}

// Gone is closed when the pool was taken out of the configuration.
func (p *Pool) Gone() <-chan struct{} { return p.gone }

func (p *Pool) isGone() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

func (p *Pool) retire() { p.leave.Do(func() { close(p.gone) }) }

func (p *Pool) close() {
	p.opening.Lock()
	p.closed = true
	p.opening.Unlock()
	p.dropSpare()
	for _, db := range p.opened() {
		db.Close()
	}
}

// opened is the connection pools that have been made.
func (p *Pool) opened() (all []*pgxpool.Pool) {
	p.opening.Lock()
	defer p.opening.Unlock()
	for _, db := range []*pgxpool.Pool{p.jobs, p.tenants} {
		if db != nil {
			all = append(all, db)
		}
	}
	return all
}
