package tenure

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/external"
	"github.com/tenurehq/tenure/internal/notify"
	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Client enqueues jobs and works in tenants' databases. A Node has one; a process that
// runs no jobs makes its own with [NewClient]. See [operate.Operator] for what is done to jobs,
// tenants and pools from outside.
type Client struct {
	proc     *process.Process
	external *external.Workers
	enqueued *execution.Enqueued  // what it has enqueued, for its metrics
	tracer   trace.Tracer         // nil: nothing is traced
	acquirer *acquisition.Manager // of the client's node; nil: it has none
	handling context.Context      // ends when the node's stop cancels handlers; nil: it has no node

	registerer prometheus.Registerer // where the metrics of a process that runs no jobs are; nil: nowhere

	reloader *reloader      // of a process that runs no jobs; nil: the client is its node's, which starts, stops and reloads it
	started  atomic.Bool    // Start was called
	leaving  sync.WaitGroup // pools that were taken out of the configuration
}

// NewClient returns a client for a process that runs no jobs, such as a web
// server. The pools' user needs no more than to enqueue, see docs/privileges.md; calls
// that look at jobs or change them need what nodes need. Kinds are not checked, and a kind's default queue is not known, unless
// [WithKinds] says what the nodes handle. Where the
// configuration has a cluster section it joins the gossip, as a member that is
// never elected, so that its jobs start at once instead of at the next look. It
// opens nothing before Start.
func NewClient(cfg config.Config, opts ...NodeOption) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	o := nodeOptions(opts)
	router, err := routing.New(cfg.Routing(), o.log, routing.OnlyEnqueue(), routing.WithTypes(o.types))
	if err != nil {
		return nil, err
	}
	cluster, err := newCluster(cfg, membership.RoleClient, router, o)
	if err != nil {
		return nil, err
	}
	cluster.SetPools(process.PoolNames(router.Pools()))
	cipher := o.cipher(cfg)
	client := newClient(process.New(cfg, router, cluster, cipher))
	client.proc.Registry, client.tracer, client.registerer = o.registry, o.tracer(), o.registerer
	client.reloader = &reloader{started: cfg, router: router, cluster: cluster, cipher: o.reloaded(cipher), log: o.log, lock: newReloadLock()}
	if o.registerer != nil {
		if err := o.registerer.Register(client.enqueued); err != nil {
			return nil, err
		}
	}
	return client, nil
}

func newClient(p *process.Process) *Client {
	return &Client{proc: p, external: external.New(p), enqueued: execution.NewEnqueued()}
}

// ClientFrom returns the client of the node that runs a handler, from the handler's context: by it a handler enqueues
// further jobs. In any other context it panics. It is safe for concurrent use.
func ClientFrom(ctx context.Context) *Client {
	c, ok := ctx.Value(execution.ClientKey{}).(*Client)
	if !ok {
		panic("tenure.ClientFrom: this is no context that a handler was called with, nor one made from it")
	}
	return c
}

// Start opens the pools and joins the gossip. It fails when no pool can be used; see
// [operate.Pools.Unfit] for some. It is not needed for a Node's client.
func (c *Client) Start(ctx context.Context) error {
	if c.reloader == nil {
		return nil
	}
	if c.started.Swap(true) || c.proc.Router.Stopped() {
		return errors.New("the client was started or stopped before: make another one with NewClient")
	}
	if err := c.proc.Router.Start(ctx); err != nil {
		return err
	}
	if err := c.proc.Cluster.Start(ctx); err != nil {
		return errors.Join(err, c.proc.Router.Stop(ctx))
	}
	return nil
}

// Stop leaves the gossip and closes the pools.
func (c *Client) Stop(ctx context.Context) error {
	if c.reloader == nil { // a node's: the node stops it
		return nil
	}
	c.proc.Notifier.Stop()
	err := errors.Join(c.proc.Cluster.Stop(ctx), c.proc.Router.Stop(ctx))
	if c.registerer != nil {
		c.registerer.Unregister(c.enqueued)
	}
	if err == nil {
		c.leaving.Wait()     // for what has been closed
		c.proc.Asking.Wait() // for who used it
	}
	return err
}

// Reload puts another configuration's pools, tenants, and keys of encryption and gossip into force while
// the client is used, as [Node.Reload] does on a node. Connections to pools that are left are closed as
// they are given back. A node's client is reloaded with its node. Safe for concurrent use.
func (c *Client) Reload(ctx context.Context, cfg config.Config) (Reloaded, error) {
	if c.reloader == nil {
		return Reloaded{}, errors.New("this client belongs to a node: reload that")
	}
	return c.reloader.applyConfig(ctx, cfg, func(change routing.Change) {
		c.proc.Cfg.Store(&cfg)
		for _, p := range change.Removed {
			c.leaving.Go(func() { c.proc.Router.Close(p) })
			c.enqueued.Forget(p.Name)
		}
	})
}

// Encrypts tells whether the ledger has the arguments of jobs of a kind encrypted, by the configuration as it is now or the
// key ring of [WithKeyRing]. Safe for concurrent use.
func (c *Client) Encrypts(kind string) bool { return c.proc.Cipher.Encrypts(kind) }

// Operator returns the operator of the client's process, for as long as that runs. The pools' user needs what nodes
// need, see docs/privileges.md.
func (c *Client) Operator() *operate.Operator { return operate.New(c.proc) }

// ExternalWorkers returns what acquires and ends jobs for workers outside the cluster, in the client's pools. The
// pools' user needs what nodes need, see docs/privileges.md.
func (c *Client) ExternalWorkers() *external.Workers { return c.external }

// pending gathers the hints of an InTx until it has committed.
type pending struct{ hints []notify.Hint }

type pendingKey struct{}

// InTx runs fn in a transaction on the database of the context's tenant, with its
// schema, role and app.tenant_id set, and commits it when fn returns nil. Its isolation
// is READ COMMITTED, whatever the database's default is.
//
// A tenant that was moved is followed. ErrTenantHeld: its data is being copied, and was
// for the two seconds that InTx waits. ErrInTx: ctx belongs to the transaction of a
// [HandleTx] handler or of another InTx, which would wait here for a second connection
// while it keeps its first. [ErrTenantShare]: the tenant has its share of the pool's connections for
// transactions, and none came free for five seconds, as when such handlers call InTx with a context
// that is not made from theirs. In these cases fn was not called; it is called once at most.
func (c *Client) InTx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	if fn == nil {
		return &job.InputError{Err: errors.New("InTx: the function is nil: pass what is to be done in the transaction")}
	}
	if execution.HasTx(ctx) {
		return &job.InputError{Err: ErrInTx}
	}
	for begun, tries := time.Now(), 1; ; tries++ {
		entered, err := c.inTx(ctx, fn)
		if err == nil || entered || !c.proc.MayFollow(ctx, err, begun, tries) {
			return err
		}
	}
}

// handlingConns are connections that are waited for until the node's stop cancels its handlers: a handler
// may have been called with a context, and wait with another.
type handlingConns struct {
	execution.Conns
	handling context.Context // nil: for as long as the caller waits
}

// AcquireFor implements execution.Conns.
func (h handlingConns) AcquireFor(ctx context.Context, tenant tenancy.ID) (*pgxpool.Conn, func(), error) {
	if h.handling != nil && h.handling.Err() == nil { // else there is a grace, for which nobody waits long
		waits, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(h.handling, func() { cancel(context.Cause(h.handling)) })()
		ctx = waits
	}
	return h.Conns.AcquireFor(ctx, tenant)
}

// inTx is one try; entered: fn was called.
func (c *Client) inTx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) (entered bool, err error) {
	tenant, pool, err := c.proc.ContextTenant(ctx)
	if err == nil {
		err = cmp.Or(pool.Outage(), c.proc.Router.Held(ctx, tenant.ID, pool))
	}
	if err != nil {
		return false, err
	}
	var p pending
	ctx = context.WithValue(tenancy.NewContext(ctx, tenant), pendingKey{}, &p)
	err = execution.InTx(ctx, handlingConns{pool.Tenants(), c.handling}, tenant, func(ctx context.Context, tx pgx.Tx) error {
		entered = true
		return fn(ctx, tx)
	})
	if err != nil {
		if entered {
			return true, err
		}
		if errors.Is(err, ErrTenantHeld) { // it was not known
			c.proc.Router.Forget(tenant.ID)
		}
		return false, pool.BlameUndone(err)
	}
	for _, h := range p.hints {
		c.proc.Notifier.Notify(h)
	}
	return entered, nil
}
