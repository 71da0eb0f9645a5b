package routing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/timeline"
)

// Pool is one Postgres database that hosts tenants.
type Pool struct {
	Name string
	service

	cfg    PoolConfig
	latest atomic.Pointer[credentials] // those of today
	log    *zap.Logger

	dsn         *pgxpool.Config   // what the DSN says; each use of it changes a copy
	pooled      *pooled           // the way for tenants' transactions; nil: that is dsn, too
	bounds      ConnectionsConfig // as the process started with
	types       Types             // likewise; nil: pgx's own
	tenantShare int               // likewise
	budget      *budget
	server      *server
	crowded     crowdBreaker
	conns       conns
	timelines   *timeline.Table
	forwards    forwards
	roles       roles
	noRole      sync.Once // for warnNoRole

	watchDenied func() // has the router do so, of a pool in service
}

// LookIn calls fn with a connection that is opened for it and closed again, as for a pool that
// may be an idle one.
func (p *Pool) LookIn(ctx context.Context, fn func(*pgx.Conn) error) error {
	c, err := p.ConnectLock(ctx)
	if err != nil {
		return err
	}
	defer closeInTime(ctx, c)
	return fn(c)
}

// checkServer refuses a connection that leads elsewhere than those before: behind the
// same DSN there may be a standby after a fail-over, the old primary that does not know
// yet that it was replaced, or another database altogether.
func (p *Pool) checkServer(ctx context.Context, c *pgx.Conn) error {
	is, err := store.ServerIs(ctx, c)
	if err == nil {
		err = is.Usable(p.Name)
	}
	if err != nil {
		return fmt.Errorf("connect to pool %s: %w", p.Name, err)
	}
	c.PgConn().CustomData()[stateKey] = is
	server, installed := p.knownLedger()
	switch {
	case is.ID == "" && (server == "" || ctx.Value(inspectingKey{}) != nil): // store.Verify says why
		return nil
	case is.ID == "":
		return &store.PoolError{Pool: p.Name, What: "its DSN leads to a database without its ledger, or its user may not ask the ledger any more which server that is",
			Fix: "correct the DSN or what is behind it, or run, as the ledger's owner: tenure migrate --pool " + p.Name + " --grants"}
	case server != "" && is.ID != server:
		return &store.PoolError{Pool: p.Name, What: fmt.Sprintf("its DSN leads to another server than before (system identifier %s, it was %s)", is.ID, server),
			Fix: "correct the DSN or what is behind it; if this is meant, restart the node"}
	case installed != 0 && is.Installed != installed:
		return &store.PoolError{Pool: p.Name, What: fmt.Sprintf("it leads to another ledger than before, in database %q (made %s, it was %s), which does not know that one's jobs and would use their ids again", c.Config().Database, madeAt(is.Installed), madeAt(installed)),
			Fix: "correct its DSNs, or restore the database; if this is meant, restart the node"}
	}
	s := stampOf(is, p.Name)
	before := p.noteTimeline(s)
	if s.Timeline == 0 && (before.Timeline > 0 || server != "") {
		return &store.PoolError{Pool: p.Name, What: "its DSN leads to a standby", Fix: "point the DSN at the primary, or add target_session_attrs=read-write"}
	}
	c.PgConn().CustomData()[stampKey] = s
	return p.checkLatest(s, before)
}

// madeAt says when a ledger was made, by its server's clock.
func madeAt(installed int64) string {
	return time.UnixMicro(installed).UTC().Format(time.DateTime)
}

// stampOf is where a connection leads. A constant timeline is compared to none that was read, as
// while the right to read it is given or taken.
func stampOf(is store.ServerState, pool string) timeline.Stamp {
	id := is.ID
	if is.Constant() {
		id += " with a constant timeline"
	}
	return timeline.Stamp{Cluster: timeline.ClusterOf(id, pool), Timeline: is.Timeline}
}

// Where a connection is marked with where it led when it was opened: with the promotion that
// the server followed, and with what the server said of itself.
const (
	stampKey = "tenure.stamp"
	stateKey = "tenure.state"
)

// noteTimeline notes where a connection leads, and returns what was known of it before. Until
// the pool's configuration is in force, nobody is told: it may be refused.
func (p *Pool) noteTimeline(s timeline.Stamp) (before timeline.Latest) {
	p.mu.Lock()
	applied := p.applied
	if !applied {
		p.verified = s
	}
	p.mu.Unlock()
	if !applied {
		return p.timelines.Latest(s.Cluster)
	}
	return p.timelines.Reach(s)
}

// enterTimelines has the timeline of a pool be told to others, and asked about, that was
// verified and whose configuration is in force. late: this node has run for a while.
func (p *Pool) enterTimelines(late bool) {
	p.mu.Lock()
	s := p.verified
	p.applied = p.found.number > 0
	applied := p.applied
	p.mu.Unlock()
	if applied {
		p.timelines.Enter(s, late)
	}
}

// ErrReplaced is returned for a database that was replaced by a standby: another
// connection, of this node or of another one, has reached a later timeline. What is
// written there will be lost.
var ErrReplaced = errors.New("another server was promoted in its place")

// Current refuses a connection to a primary that was replaced since it was opened, with
// an error that wraps ErrReplaced.
func (p *Pool) Current(c *pgx.Conn) error {
	s, ok := c.PgConn().CustomData()[stampKey].(timeline.Stamp)
	if !ok { // it is not one of ours
		return nil
	}
	return p.checkLatest(s, p.timelines.Latest(s.Cluster))
}

func (p *Pool) checkLatest(s timeline.Stamp, latest timeline.Latest) error {
	if s.Timeline >= latest.Timeline {
		return nil
	}
	return (&store.PoolError{Pool: p.Name,
		What: fmt.Sprintf("its DSN leads to a primary that was replaced (timeline %d; %s has reached timeline %d)", s.Timeline, latest.Who(), latest.Timeline),
		Fix:  "stop the old primary, and point the DSN at the one that was promoted; if an older state was restored on purpose, stop all nodes and clients and start them again"}).Because(ErrReplaced)
}

// inspectingKey marks the looks at a pool whose result decides whether it is unfit.
type inspectingKey struct{}

// checkFit is why a caller with this context gets no connection for jobs or tenants.
func (p *Pool) checkFit(ctx context.Context) error {
	if ctx.Value(inspectingKey{}) != nil {
		return nil
	}
	return p.neverFit()
}

// trySettings refuses settings of the DSN that the server does not take, although the connections that
// it has been looked at by have others.
func (p *Pool) trySettings(ctx context.Context) error {
	if len(p.dsn.ConnConfig.RuntimeParams) == 0 {
		return nil
	}
	cfg := p.dsn.ConnConfig.Copy()
	renewSecrets(cfg, p.latest.Load().DSN)
	tuneCommon(cfg, "tenants")
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connect as tenants do: %w", err)
	}
	closeInTime(ctx, c)
	return nil
}

// inspect asks the database whether it can be used, and who it is.
func (p *Pool) inspect(ctx context.Context, in *routes, use store.Use) (f found, err error) {
	ctx = context.WithValue(ctx, inspectingKey{}, true)
	c, err := p.ConnectLock(ctx)
	direct := true
	if err == nil {
		direct, err = store.RequireSession(ctx, c, p.Name)
	} else if store.BehindPooler(err) {
		err = store.NoSession(p.Name)
	}
	if !direct && err == nil {
		p.log.Warn("what this pool's dsn leads to is not Postgres itself, which its nodes' locks depend on; if it is a pooler, let dsn lead to Postgres and tenant_dsn to the pooler")
	}
	if err != nil {
		if c != nil {
			closeInTime(ctx, c)
		}
		return f, store.Denied(p.Name, p.dsn.ConnConfig, err)
	}
	is, _ := c.PgConn().CustomData()[stateKey].(store.ServerState)
	if f.number, err = store.Verify(ctx, c, p.Name, use); err == nil {
		f.systemID, f.maxConns, err = store.Server(ctx, c)
	}
	if err == nil && is.ID == "" { // it was migrated since this connection was made
		is, err = store.ServerIs(ctx, c)
	}
	f.installed = is.Installed
	switch {
	case err != nil:
	case p.pooled == nil:
		err = p.trySettings(ctx)
	default:
		err = p.pooled.inspect(ctx, p, is.Database)
	}
	if err == nil {
		riskCheck{in.cfg.Tenants}.checkPool(ctx, p, c)
		p.keepSpare(c)
		return f, nil
	}
	closeInTime(ctx, c)
	if err = store.Denied(p.Name, p.dsn.ConnConfig, err); !isPermanent(err) { // those name the pool themselves
		err = fmt.Errorf("pool %s: %w", p.Name, err)
	}
	return f, err
}
