package routing

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/internal/store"
)

// connects hears how each connect by one of a pool's ways went. A pool in service whose server
// refuses its user, as when a password has changed, is unfit as if it had been refused at the start,
// until a connect succeeds. What is open goes on being used.
type connects struct {
	pool *Pool
	dsn  *pgx.ConnConfig // the way
}

var _ pgx.ConnectTracer = connects{}

// DoubtRights looks whether the pool's user still has the rights on the ledger that nodes need, if why is that one is wanting.
// Without them jobs would wait, or run although nobody could write their ends: the pool is unfit until they are granted again.
func (p *Pool) DoubtRights(ctx context.Context, why error) {
	if !store.NoPrivilege(why) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err := p.Operate(ctx, func(c *pgxpool.Conn) error { return store.VerifyRights(ctx, c, p.Name) })
	if isPermanent(err) { // else it is found out with the next refusal
		connects{pool: p}.note(err)
	}
}

// TraceConnectStart implements pgx.ConnectTracer.
func (connects) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return ctx
}

// TraceConnectEnd implements pgx.ConnectTracer.
func (c connects) TraceConnectEnd(_ context.Context, data pgx.TraceConnectEndData) {
	err := store.Denied(c.pool.Name, c.dsn, data.Err)
	if err == nil || isPermanent(err) {
		c.note(err)
	}
}

// TraceQueryStart implements pgx.QueryTracer.
func (connects) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (connects) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// note takes in why the way is closed; nil: it is open. No way: they all are.
func (c connects) note(why error) {
	p := c.pool
	if why != nil {
		why = outage(why)
	}
	changed, first := p.noteDenied(c.dsn, why)
	switch {
	case !changed:
	case why == nil:
		p.log.Info("pool is up")
	default:
		logUnfit(p, why)
	}
	if first {
		p.watchDenied()
	}
}
