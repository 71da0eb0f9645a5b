package tenure

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

var (
	// ErrUnknownTenant is returned when no routing rule knows the tenant.
	ErrUnknownTenant = tenancy.ErrUnknownTenant
	// ErrWrongPool is returned when a transaction is on another database than the
	// one its tenant lives in.
	ErrWrongPool = store.ErrWrongPool
	// ErrNotAllowed is returned when a transaction runs under a role that is not that of the
	// tenant which a job is to be enqueued for.
	ErrNotAllowed = store.ErrNotAllowed
	// ErrUnknownPool is returned for the name of a pool that is not configured.
	ErrUnknownPool = errors.New("it is not configured")
	// ErrUnknownKind is returned when no handler is registered for the kind; see [Elsewhere].
	ErrUnknownKind = errors.New("no handler is registered for this kind")
	// ErrNotFound is returned when no job has the id, or none in a state the call could act on.
	ErrNotFound = store.ErrNotFound
	// ErrTenantHeld is returned by what would write for a tenant whose own data is being
	// copied to another pool (see [MoveOptions]): it can be tried again later.
	ErrTenantHeld = tenancy.ErrHeld
	// ErrInTx is returned by [Client.InTx] when it is called within a tenant's transaction.
	ErrInTx = errors.New("a tenant's transaction is open already: use the tx that its function was given; " +
		"for another tenant enqueue a job, or register the handler with job.Handle, which holds no transaction")
	// ErrPoolDown is returned while a pool's database cannot be used: by a node's client
	// also at once, without another try, while the node has not reached it for a while.
	ErrPoolDown = routing.ErrPoolDown
)

// Refused tells whether err says that what was asked for, or what was configured,
// is wrong, so that trying again unchanged is of no use: an unknown tenant or kind,
// arguments or options that cannot be, a transaction on another database, a pool
// that is not migrated, a standby, or the same as another, a row of tenants.table
// that cannot be used, an address that cannot be listened on.
func Refused(err error) bool {
	var pool *store.PoolError
	var input *inputError
	var row *routing.RowError
	var socket *net.OpError
	return errors.As(err, &pool) || errors.As(err, &input) || errors.As(err, &row) || errors.Is(err, ErrUnknownTenant) ||
		errors.Is(err, ErrUnknownKind) || errors.Is(err, ErrWrongPool) || errors.Is(err, ErrNotAllowed) || errors.Is(err, tenancy.ErrNoTenant) ||
		errors.Is(err, routing.ErrInUse) || errors.Is(err, routing.ErrHasJobs) ||
		errors.As(err, &socket) && socket.Op == "listen"
}

// inputError is the caller's mistake.
type inputError struct{ error }

func (e *inputError) Unwrap() error { return e.error }

// Client enqueues jobs and operates on them. A Node has one; a process that runs
// no jobs makes its own with [NewClient].
type Client struct {
	router   *routing.Router
	registry *job.Registry // nil: kinds are not checked
	bell     *doorbell
	keep     bool // whether cancelled jobs are kept among the finished ones

	cluster  *membership.Cluster // of a client of its own; nil: the node's, or none
	reloader *reloader           // of a client of its own
	leaving  sync.WaitGroup      // pools that were taken out of the configuration
}

// NewClient returns a client for a process that runs no jobs, such as a web
// server. Kinds are not checked, and a kind's default queue is not known, unless
// [WithKinds] says what the nodes handle. Where the
// configuration has a cluster section it joins the gossip, as a member that is
// never elected, so that its jobs start at once instead of at the next look. It
// opens nothing before Start.
func NewClient(cfg config.Config, opts ...NodeOption) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	o := nodeOptions(opts)
	router, err := routing.New(cfg.Routing(), o.log)
	if err != nil {
		return nil, err
	}
	cluster, err := newCluster(cfg, membership.RoleClient, router, o)
	if err != nil {
		return nil, err
	}
	cluster.SetPools(poolNames(router))
	return &Client{router: router, registry: o.registry, bell: newDoorbell(cluster, nil), keep: cfg.Execution.Retention > 0, cluster: cluster,
		reloader: &reloader{started: cfg, router: router, cluster: cluster, log: o.log}}, nil
}

// Start opens the pools and joins the gossip. It fails when no pool can be used; see
// [Client.Unfit] for some. It is not needed for a Node's client.
func (c *Client) Start(ctx context.Context) error {
	if c.cluster == nil {
		return nil
	}
	if err := c.router.Start(ctx); err != nil {
		return err
	}
	if err := c.cluster.Start(ctx); err != nil {
		return errors.Join(err, c.router.Stop(ctx))
	}
	return nil
}

// Stop leaves the gossip and closes the pools.
func (c *Client) Stop(ctx context.Context) error {
	if c.cluster == nil { // a node's: the node stops it
		return nil
	}
	c.bell.stop()
	err := errors.Join(c.cluster.Stop(ctx), c.router.Stop(ctx))
	if err == nil {
		c.leaving.Wait() // for what has been closed
	}
	return err
}

// Enqueued is a job that was added.
type Enqueued struct {
	ID job.ID
	// Duplicate: nothing was added, because an unfinished job with the same unique
	// key has this ID.
	Duplicate bool
}

// Enqueue adds a job for the context's tenant (see tenancy.For) in a transaction
// of its own. When it returns without an error the job is durable. While the node or
// client starts it waits, within ctx and for 30 s at most, until the tenant's pool has
// been tried; see also [ErrPoolDown].
func (c *Client) Enqueue(ctx context.Context, args job.Args, opts ...Option) (Enqueued, error) {
	for begun, tries := time.Now(), 1; ; tries++ {
		tenant, pool, err := c.tenant(ctx)
		if err == nil {
			err = pool.Outage()
		}
		if err != nil {
			return Enqueued{}, fmt.Errorf("enqueue %s: %w", args.Kind(), err)
		}
		out, err := c.enqueue(ctx, pool.Jobs().QueryRow, tenant, pool, args, opts)
		switch {
		case err == nil:
			c.bell.ring(out.hint)
			return out.Enqueued, nil
		case !c.follow(ctx, err, begun, tries):
			return Enqueued{}, fmt.Errorf("enqueue %s for tenant %q: %w", args.Kind(), tenant.ID, err)
		}
	}
}

// EnqueueTx adds a job for the context's tenant in a transaction on that tenant's
// database: the job exists if and when tx commits. Any pgx transaction will do, whatever
// user or role it runs as, also the one a [HandleTx] handler or [Client.InTx] was given.
// What it is refused for leaves tx as it was. ErrWrongPool: tx is on another database,
// maybe the one that the tenant lived in before it was moved. ErrNotAllowed: tx runs under
// a role that is not this tenant's. ErrTenantHeld: tx is the caller's own, and must not write
// for the tenant any more, as its data is being copied: roll it back. As only the caller sees
// tx commit, the job may start some milliseconds later than with Enqueue or InTx.
func (c *Client) EnqueueTx(ctx context.Context, tx pgx.Tx, args job.Args, opts ...Option) (Enqueued, error) {
	if !execution.IsTenantTx(tx) { // else it was seen when it began whether the tenant's data may be written
		opts = append(slices.Clip(opts), withData)
	}
	database := func() string { return fmt.Sprintf("database %q", tx.Conn().Config().Database) }
	out, err := c.enqueueTx(ctx, store.OnTx(tx), database, args, opts)
	if err != nil {
		return Enqueued{}, err
	}
	if pending, ok := ctx.Value(pendingKey{}).(*pending); ok {
		pending.hints = append(pending.hints, out.hint)
	} else {
		c.bell.ringLater(out.hint)
	}
	return out.Enqueued, nil
}

// EnqueueSQLTx is [Client.EnqueueTx] for a transaction of database/sql, whose driver may be
// pgx' or any other whose placeholders are $1, $2, ….
func (c *Client) EnqueueSQLTx(ctx context.Context, tx *sql.Tx, args job.Args, opts ...Option) (Enqueued, error) {
	opts = append(slices.Clip(opts), withData)
	out, err := c.enqueueTx(ctx, store.OnSQLTx(tx), func() string { return "another database" }, args, opts)
	if err != nil {
		return Enqueued{}, err
	}
	c.bell.ringLater(out.hint)
	return out.Enqueued, nil
}

// enqueueTx adds a job by row in a transaction of the caller's on a database of this name.
func (c *Client) enqueueTx(ctx context.Context, row store.QueryRow, database func() string, args job.Args, opts []Option) (added, error) {
	tenant, pool, err := c.tenant(ctx)
	if err != nil {
		return added{}, fmt.Errorf("enqueue %s: %w", args.Kind(), err)
	}
	out, err := c.enqueue(ctx, row, tenant, pool, args, opts)
	if errors.Is(err, ErrNotAllowed) && tenant.Role != "" {
		var learned bool
		if learned, err = c.learn(ctx, tenant, pool); learned {
			out, err = c.enqueue(ctx, row, tenant, pool, args, opts)
		}
	}
	var moved *store.TenantMovedError
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, store.ErrWrongPool) || errors.Is(err, store.ErrNotMigrated):
		return added{}, fmt.Errorf("enqueue %s: tenant %q lives in pool %s, but the transaction is on %s: %w", args.Kind(), tenant.ID, pool.Name, database(), ErrWrongPool)
	case errors.As(err, &moved):
		c.router.Forget(tenant.ID)
		return added{}, fmt.Errorf("enqueue %s: the transaction is on pool %s, but %w: begin another one there: %w", args.Kind(), pool.Name, err, ErrWrongPool)
	case store.IsAborted(err):
		return added{}, fmt.Errorf("enqueue %s for tenant %q: the transaction had failed before: %w", args.Kind(), tenant.ID, err)
	}
	return added{}, fmt.Errorf("enqueue %s for tenant %q: %w", args.Kind(), tenant.ID, err)
}

// learn tells the ledger which role the configuration gives a tenant, which it may not
// know yet, and says whether that was news to it.
func (c *Client) learn(ctx context.Context, t tenancy.Tenant, pool *routing.Pool) (bool, error) {
	news, err := store.LearnRoles(ctx, pool.Jobs(), map[string]string{string(t.ID): t.Role})
	switch {
	case err != nil:
		return false, fmt.Errorf("%w, as far as the ledger knows: %w", ErrNotAllowed, err)
	case news == 0:
		return false, fmt.Errorf("%w: its own is %s, and this transaction's has not the rights of that", ErrNotAllowed, t.Role)
	}
	return true, nil
}

// pending gathers the hints of an InTx until it has committed.
type pending struct{ hints []hint }

type pendingKey struct{}

// InTx runs fn in a transaction on the database of the context's tenant, with its
// schema, role and app.tenant_id set, and commits it when fn returns nil. Its isolation
// is READ COMMITTED, whatever the database's default is.
//
// A tenant that was moved is followed. ErrTenantHeld: its data is being copied, and was
// for the two seconds that InTx waits. ErrInTx: ctx belongs to the transaction of a
// [HandleTx] handler or of another InTx, which would wait here for a second connection
// while it keeps its first. In these cases fn was not called; it is called once at most.
func (c *Client) InTx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	if execution.HasTx(ctx) {
		return &inputError{ErrInTx}
	}
	for begun, tries := time.Now(), 1; ; tries++ {
		entered, err := c.inTx(ctx, fn)
		if err == nil || entered || !c.follow(ctx, err, begun, tries) {
			return err
		}
	}
}

// inTx is one try; entered: fn was called.
func (c *Client) inTx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) (entered bool, err error) {
	tenant, pool, err := c.tenant(ctx)
	if err == nil {
		err = cmp.Or(pool.Outage(), c.router.Held(ctx, tenant.ID, pool))
	}
	if err != nil {
		return false, err
	}
	var p pending
	ctx = context.WithValue(tenancy.NewContext(ctx, tenant), pendingKey{}, &p)
	err = execution.InTx(ctx, pool.Tenants(), tenant, func(ctx context.Context, tx pgx.Tx) error {
		entered = true
		return fn(ctx, tx)
	})
	if err != nil {
		if !entered && errors.Is(err, ErrTenantHeld) { // it was not known
			c.router.Forget(tenant.ID)
		}
		return entered, err
	}
	for _, h := range p.hints {
		c.bell.ring(h)
	}
	return entered, nil
}

// Entry is one job of an [Client.EnqueueMany].
type Entry struct {
	Tenant  tenancy.ID // empty: the context's
	Args    job.Args
	Options []Option
}

// PoolErrors says which pools an EnqueueMany failed on.
type PoolErrors map[string]error

// Error lists them.
func (e PoolErrors) Error() string { return errors.Join(e.Unwrap()...).Error() }

// Unwrap returns the errors.
func (e PoolErrors) Unwrap() (errs []error) {
	for pool, err := range e {
		errs = append(errs, fmt.Errorf("enqueue many in pool %s: %w", pool, err))
	}
	return errs
}

// EnqueueMany adds jobs of any tenants, one COPY per pool, and returns how many it
// added; those whose unique key is taken are not. Everything is checked before
// anything is added. Each pool is a transaction of its own: if one fails, the
// others' jobs are added all the same, and the error is a [PoolErrors].
func (c *Client) EnqueueMany(ctx context.Context, entries []Entry) (added int, err error) {
	batches, err := c.batches(ctx, entries)
	if err != nil {
		return 0, err
	}
	failed := PoolErrors{}
	for begun, tries := time.Now(), 1; len(batches) > 0; tries++ {
		var again []Entry // of tenants that were moved meanwhile
		for pool, b := range batches {
			n, err := b.insert(ctx)
			switch {
			case err == nil:
				added += n
				c.bell.ring(b.hint)
			case c.follow(ctx, err, begun, tries):
				again = append(again, b.entries...)
			default:
				failed[pool.Name] = err
			}
		}
		if batches, err = c.batches(ctx, again); err != nil {
			return added, errors.Join(failed.orNil(), err)
		}
	}
	if len(failed) > 0 {
		return added, failed
	}
	return added, nil
}

func (e PoolErrors) orNil() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// Bounds of how often a tenant that is moved is followed, how long an enqueue with a unique
// key waits until all the tenant's keys have arrived, and how long a transaction waits for a
// tenant that is held: as long as a command that gives up needs, not as long as a copy.
const (
	maxFollowed = 5
	arrivalTime = 10 * time.Second
	arrivalLook = 50 * time.Millisecond
	heldTime    = 2 * time.Second
	heldLook    = 200 * time.Millisecond
)

// follow tells whether an enqueue or a transaction that was refused is to be tried again,
// because its tenant has moved, is about to arrive, or is held for a moment.
func (c *Client) follow(ctx context.Context, err error, begun time.Time, tries int) bool {
	var moved *store.TenantMovedError
	switch {
	case errors.As(err, &moved) && tries <= maxFollowed:
		c.router.Forget(moved.Tenant)
		return true
	case errors.Is(err, store.ErrTenantArrives) && time.Since(begun) < arrivalTime:
		return pause(ctx, arrivalLook)
	case errors.Is(err, ErrTenantHeld) && time.Since(begun) < heldTime:
		return pause(ctx, heldLook)
	}
	return false
}

// pause waits; false: ctx has ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// batch is what goes to one pool.
type batch struct {
	pool    *routing.Pool
	entries []Entry
	jobs    []store.NewJob // of the entries
	hint    hint
}

func (b *batch) insert(ctx context.Context) (added int, err error) {
	if err := b.pool.Outage(); err != nil {
		return 0, err
	}
	number, err := b.pool.Number()
	if err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, b.pool.Jobs(), func(tx pgx.Tx) error {
		added, err = store.EnqueueMany(ctx, tx, number, b.jobs)
		return err
	})
	return added, err
}

func (c *Client) batches(ctx context.Context, entries []Entry) (map[*routing.Pool]*batch, error) {
	type place struct {
		tenant tenancy.Tenant
		pool   *routing.Pool
	}
	places := map[tenancy.ID]place{}
	out := map[*routing.Pool]*batch{}
	var faults []error
	for i, e := range entries {
		id := e.Tenant
		if id == "" {
			t, ok := tenancy.FromContext(ctx)
			if !ok {
				faults = append(faults, fmt.Errorf("entry %d: %w", i, tenancy.ErrNoTenant))
				continue
			}
			id = t.ID
		}
		p, ok := places[id]
		if !ok {
			var err error
			if p.tenant, p.pool, err = c.resolve(ctx, id); err != nil {
				faults = append(faults, fmt.Errorf("entry %d: %w", i, err))
				continue
			}
			places[id] = p
		}
		j, err := c.build(p.tenant, e.Args, e.Options)
		if err != nil {
			faults = append(faults, fmt.Errorf("entry %d, kind %s: %w", i, e.Args.Kind(), err))
			continue
		}
		b := out[p.pool]
		if b == nil {
			b = &batch{pool: p.pool, hint: hint{pool: p.pool.Name}}
			out[p.pool] = b
		}
		e.Tenant = id
		b.entries = append(b.entries, e)
		b.jobs = append(b.jobs, j)
		b.hint.add(&j)
	}
	if len(faults) > 0 {
		const shown = 10
		if n := len(faults); n > shown {
			faults = append(faults[:shown], fmt.Errorf("and %d more", n-shown))
		}
		return nil, fmt.Errorf("nothing was enqueued: %w", errors.Join(faults...))
	}
	return out, nil
}

// added is an enqueued job with what to tell its pool's acquirer.
type added struct {
	Enqueued
	hint hint
}

func (c *Client) enqueue(ctx context.Context, row store.QueryRow, tenant tenancy.Tenant, pool *routing.Pool, args job.Args, opts []Option) (added, error) {
	j, err := c.build(tenant, args, opts)
	if err != nil {
		return added{}, err
	}
	number, err := pool.Number()
	if err != nil {
		return added{}, err
	}
	id, duplicate, err := store.Enqueue(ctx, row, number, &j)
	if err != nil {
		return added{}, err
	}
	out := added{Enqueued: Enqueued{ID: id, Duplicate: duplicate}, hint: hint{pool: pool.Name}}
	if !duplicate {
		out.hint.add(&j)
	}
	return out, nil
}

// build checks a job and fills in its defaults.
func (c *Client) build(tenant tenancy.Tenant, args job.Args, opts []Option) (store.NewJob, error) {
	j, err := c.check(tenant, args, opts)
	if err != nil {
		return store.NewJob{}, &inputError{err}
	}
	return j, nil
}

func (c *Client) check(tenant tenancy.Tenant, args job.Args, opts []Option) (store.NewJob, error) {
	kind := args.Kind()
	if err := job.ValidateKind("kind", kind); err != nil {
		return store.NewJob{}, err
	}
	e := enqueue{job: store.NewJob{Tenant: string(tenant.ID), Kind: kind, Queue: job.DefaultQueue}}
	var spec *job.Spec
	if c.registry != nil {
		if spec, _ = c.registry.Lookup(kind); spec != nil {
			e.job.Queue = spec.Queue
		}
	}
	for _, o := range opts {
		if err := o(&e); err != nil {
			return store.NewJob{}, err
		}
	}
	if c.registry != nil && spec == nil && !e.elsewhere {
		return store.NewJob{}, fmt.Errorf("%w: register a handler before New, or pass tenure.Elsewhere() if another node has one", ErrUnknownKind)
	}
	if raw, ok := args.(RawArgs); ok {
		if err := job.CheckPayload(raw.Payload); err != nil {
			return store.NewJob{}, fmt.Errorf("arguments of kind %q: %w", kind, err)
		}
		e.job.Payload = raw.Payload
		return e.job, nil
	}
	payload, err := job.Encode(args)
	if err != nil {
		return store.NewJob{}, err
	}
	e.job.Payload = payload
	return e.job, nil
}

// RawArgs are arguments that are JSON already, of a kind named at run time: for
// tools that enqueue what somebody typed.
type RawArgs struct {
	Name    string // the kind
	Payload []byte // JSON
}

// Kind implements job.Args.
func (r RawArgs) Kind() string { return r.Name }

// tenant resolves the context's tenant.
func (c *Client) tenant(ctx context.Context) (tenancy.Tenant, *routing.Pool, error) {
	t, ok := tenancy.FromContext(ctx)
	if !ok {
		return tenancy.Tenant{}, nil, tenancy.ErrNoTenant
	}
	return c.resolve(ctx, t.ID)
}

func (c *Client) resolve(ctx context.Context, id tenancy.ID) (tenancy.Tenant, *routing.Pool, error) {
	if err := id.Validate(); err != nil {
		return tenancy.Tenant{}, nil, &inputError{err}
	}
	tenant, pool, err := c.router.Resolve(ctx, id)
	if err == nil { // the call that uses the pool says what is wrong with it
		_ = pool.Available(ctx)
	}
	return tenant, pool, err
}
