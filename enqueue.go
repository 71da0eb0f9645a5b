package tenure

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/jobmeta"
	"github.com/tenurehq/tenure/internal/notify"
	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/tracing"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Enqueued is a job that was added.
type Enqueued struct {
	ID job.ID
	// Duplicate: nothing was added, because a job with this ID has the same unique key, and is
	// unfinished or has it for a period, see UniqueFor.
	Duplicate bool
}

// Enqueue adds a job for the context's tenant (see tenancy.For) in a transaction
// of its own. When it returns without an error the job is durable. While the node or
// client starts it waits, within ctx and for 30 s at most, until the tenant's pool has
// been tried; see also [ErrPoolDown].
func (c *Client) Enqueue(ctx context.Context, args job.Args, opts ...Option) (Enqueued, error) {
	kind, err := kindOf(args)
	if err != nil {
		return Enqueued{}, fmt.Errorf("enqueue: %w", err)
	}
	ctx, span := c.beginEnqueue(ctx, kind)
	out, err := c.enqueue(ctx, span, args, opts)
	span.end(err)
	return out, err
}

func (c *Client) enqueue(ctx context.Context, span producing, args job.Args, opts []Option) (Enqueued, error) {
	for begun, tries := time.Now(), 1; ; tries++ {
		tenant, pool, err := c.proc.ContextTenant(ctx)
		if err == nil {
			err = pool.Outage()
		}
		if err != nil {
			return Enqueued{}, fmt.Errorf("enqueue %s: %w", args.Kind(), err)
		}
		out, err := c.insertJob(ctx, span, c.addAlone(pool), tenant, pool, args, opts)
		switch {
		case err == nil:
			c.proc.Notifier.Notify(out.hint)
			return out.Enqueued, nil
		case !c.proc.MayFollow(ctx, err, begun, tries):
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
	if tx == nil {
		return Enqueued{}, errNilTx
	}
	if !execution.IsTenantTx(tx) { // else it was seen when it began whether the tenant's data may be written
		opts = append(slices.Clip(opts), withData)
	}
	out, err := c.enqueueTx(ctx, store.OnTx(tx), func() string { return databaseOf(tx) }, args, opts)
	if err != nil {
		return Enqueued{}, err
	}
	c.hintTx(ctx, out.hint)
	return out.Enqueued, nil
}

// databaseOf names the database of a transaction; a handler's connection is nobody's to ask.
func databaseOf(tx pgx.Tx) string {
	if execution.IsTenantTx(tx) {
		return "another database"
	}
	return fmt.Sprintf("database %q", tx.Conn().Config().Database)
}

// hintTx tells of jobs of a transaction once it may have committed.
func (c *Client) hintTx(ctx context.Context, hint notify.Hint) {
	if pending, ok := ctx.Value(pendingKey{}).(*pending); ok {
		pending.hints = append(pending.hints, hint)
	} else {
		c.proc.Notifier.NotifyLater(hint)
	}
}

// EnqueueSQLTx is [Client.EnqueueTx] for a transaction of database/sql, whose driver may be
// pgx' or any other whose placeholders are $1, $2, ….
func (c *Client) EnqueueSQLTx(ctx context.Context, tx *sql.Tx, args job.Args, opts ...Option) (Enqueued, error) {
	if tx == nil {
		return Enqueued{}, errNilTx
	}
	opts = append(slices.Clip(opts), withData)
	out, err := c.enqueueTx(ctx, store.OnSQLTx(tx), func() string { return "another database" }, args, opts)
	if err != nil {
		return Enqueued{}, err
	}
	c.proc.Notifier.NotifyLater(out.hint)
	return out.Enqueued, nil
}

// EnqueueManyTx is [Client.EnqueueTx] for many jobs, fifty in a round trip: all are added if and
// when tx commits, or none. It returns them in the order of entries. Their tenants must live in
// the one database that tx is on.
func (c *Client) EnqueueManyTx(ctx context.Context, tx pgx.Tx, entries []Entry) (_ []Enqueued, err error) {
	ctx, span := c.beginEnqueue(ctx, "many")
	defer func() { span.end(err) }()
	if tx == nil {
		return nil, errNilTx
	}
	if !execution.IsTenantTx(tx) {
		entries = slices.Clone(entries)
		for i := range entries {
			entries[i].Options = append(slices.Clip(entries[i].Options), withData)
		}
	}
	batches, err := c.partBatches(ctx, entries, allOf(entries))
	switch {
	case err != nil:
		return nil, fmt.Errorf("nothing was enqueued: %w", err)
	case len(batches) == 0:
		return nil, nil
	}
	if len(batches) > 1 {
		names := process.PoolNames(slices.Collect(maps.Keys(batches)))
		slices.Sort(names)
		return nil, fmt.Errorf("enqueue many: a transaction is on one database, but the tenants live in the pools %s: %w", strings.Join(names, ", "), ErrWrongPool)
	}
	for _, b := range batches {
		span.many(b.jobs)
		out, err := c.insertManyTx(ctx, tx, b)
		if err != nil {
			return nil, err
		}
		c.hintTx(ctx, b.hint())
		return out, nil
	}
	return nil, nil
}

// insertManyTx adds a batch within a savepoint. If the ledger does not know the tenant's role yet, it tells the ledger and adds the batch again.
func (c *Client) insertManyTx(ctx context.Context, tx pgx.Tx, b *batch) (out []Enqueued, err error) {
	number, err := b.pool.Number()
	if err != nil {
		return nil, err
	}
	learned := map[string]bool{}
	for {
		at := 0
		err = store.AgainIfDeadlocked(func() error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				at, err = store.EnqueueEach(ctx, tx, number, b.jobs)
				return err
			})
		})
		if err == nil {
			c.countEnqueued(b.pool, b.jobs)
			for i := range b.jobs {
				out = append(out, Enqueued{b.jobs[i].ID, b.jobs[i].Taken})
			}
			return out, nil
		}
		c.countFailed(b.pool, err)
		if at == len(b.jobs) { // what failed is none of them
			return nil, fmt.Errorf("enqueue many: %w", err)
		}
		j := &b.jobs[at]
		tenant, _, unknown := c.proc.ResolveTenant(ctx, tenancy.ID(j.Tenant))
		if errors.Is(err, ErrNotAllowed) && unknown == nil && tenant.Role != "" && !learned[j.Tenant] {
			learned[j.Tenant] = true
			var news bool
			if news, err = c.learnRole(ctx, tenant, b.pool); news {
				continue
			}
		}
		return nil, fmt.Errorf("entry %d: %w", at, c.explainTx(err, func() string { return databaseOf(tx) }, j.Kind, tenancy.ID(j.Tenant), b.pool))
	}
}

// enqueueTx adds a job by row in a transaction of the caller's on a database of this name.
func (c *Client) enqueueTx(ctx context.Context, row store.QueryRow, database func() string, args job.Args, opts []Option) (_ added, err error) {
	kind, err := kindOf(args)
	if err != nil {
		return added{}, fmt.Errorf("enqueue: %w", err)
	}
	ctx, span := c.beginEnqueue(ctx, kind)
	defer func() { span.end(err) }()
	tenant, pool, err := c.proc.ContextTenant(ctx)
	if err != nil {
		return added{}, fmt.Errorf("enqueue %s: %w", args.Kind(), err)
	}
	out, err := c.insertJob(ctx, span, addOn(row), tenant, pool, args, opts)
	if errors.Is(err, ErrNotAllowed) && tenant.Role != "" {
		var learned bool
		if learned, err = c.learnRole(ctx, tenant, pool); learned {
			out, err = c.insertJob(ctx, span, addOn(row), tenant, pool, args, opts)
		}
	}
	if err != nil {
		return added{}, c.explainTx(err, database, args.Kind(), tenant.ID, pool)
	}
	return out, nil
}

// explainTx says what an error means to who enqueues in a transaction of their own, on a database of this name.
func (c *Client) explainTx(err error, database func() string, kind string, tenant tenancy.ID, pool *routing.Pool) error {
	var moved *tenancy.MovedError
	switch {
	case errors.Is(err, store.ErrWrongPool) || errors.Is(err, store.ErrNotMigrated):
		return fmt.Errorf("enqueue %s: tenant %q lives in pool %s, but the transaction is on %s: %w", kind, tenant, pool.Name, database(), ErrWrongPool)
	case errors.As(err, &moved):
		c.proc.Router.Forget(tenant)
		return fmt.Errorf("enqueue %s: the transaction is on pool %s, but %w: begin another one there: %w", kind, pool.Name, err, ErrWrongPool)
	case store.IsAborted(err):
		return fmt.Errorf("enqueue %s for tenant %q: the transaction had failed before: %w", kind, tenant, err)
	}
	return fmt.Errorf("enqueue %s for tenant %q: %w", kind, tenant, err)
}

// learnRole tells the ledger which role the configuration gives a tenant, which it may not
// know yet, and says whether that was news to it.
func (c *Client) learnRole(ctx context.Context, t tenancy.Tenant, pool *routing.Pool) (bool, error) {
	news, err := store.LearnRoles(ctx, pool.Jobs(), map[string]string{string(t.ID): t.Role})
	switch {
	case err != nil:
		return false, fmt.Errorf("%w, as far as the ledger knows: %w", ErrNotAllowed, err)
	case news == 0:
		return false, fmt.Errorf("%w: its own is %s, and this transaction's has not the rights of that: begin one with Client.InTx for tenant %q, or under role %[2]s", ErrNotAllowed, t.Role, t.ID)
	}
	return true, nil
}

// added is an enqueued job with what to tell its pool's acquirer.
type added struct {
	Enqueued
	hint notify.Hint
}

// addFunc adds a job to the pool with this number; started: it waits for no acquirer.
type addFunc func(ctx context.Context, number int, j *store.NewJob) (id job.ID, duplicate, started bool, err error)

// addOn adds a job by row.
func addOn(row store.QueryRow) addFunc {
	return func(ctx context.Context, number int, j *store.NewJob) (id job.ID, duplicate, started bool, err error) {
		id, duplicate, err = store.Enqueue(ctx, row, number, j)
		return id, duplicate, false, err
	}
}

// addAlone adds a job in a transaction of its own: that of its claim, if it can start here at once.
func (c *Client) addAlone(pool *routing.Pool) addFunc {
	return func(ctx context.Context, number int, j *store.NewJob) (id job.ID, duplicate, started bool, err error) {
		if c.acquirer != nil && !j.External && !c.proc.Notifier.HasPending(pool.Name) { // or it would start before those
			if d, taken, err := c.acquirer.EnqueueHere(ctx, pool.Name, number, j); taken {
				return d.ID, false, d.Started, err
			}
		}
		return addOn(pool.Jobs().QueryRow)(ctx, number, j)
	}
}

func (c *Client) insertJob(ctx context.Context, span producing, add addFunc, tenant tenancy.Tenant, pool *routing.Pool, args job.Args, opts []Option) (added, error) {
	j, err := c.buildJob(ctx, tenant, args, opts)
	if err != nil {
		return added{}, err
	}
	id, duplicate, started, err := insertIn(ctx, add, pool, &j)
	if err != nil {
		c.countFailed(pool, err)
		return added{}, err
	}
	out := added{Enqueued: Enqueued{ID: id, Duplicate: duplicate}, hint: notify.Hint{Pool: pool.Name}}
	span.one(&j, pool.Name, id)
	if !duplicate {
		c.enqueued.Add(pool.Name, j.Kind, 1)
	}
	if !duplicate && !started && !j.External {
		out.hint.AddJob(&j, id)
	}
	return out, nil
}

func insertIn(ctx context.Context, add addFunc, pool *routing.Pool, j *store.NewJob) (id job.ID, duplicate, started bool, err error) {
	number, err := pool.Number()
	if err != nil {
		return 0, false, false, err
	}
	id, duplicate, started, err = add(ctx, number, j)
	return id, duplicate, started, pool.Blame(err)
}

// countFailed counts a call that could not enqueue, unless its caller gave it up or its transaction is over, or the job was refused
// for what it is.
func (c *Client) countFailed(pool *routing.Pool, err error) {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, pgx.ErrTxClosed) && !store.IsRefusal(err) {
		c.enqueued.CountFailed(pool.Name, err)
	}
}

// countEnqueued counts those of jobs that were added.
func (c *Client) countEnqueued(pool *routing.Pool, jobs []store.NewJob) {
	added := 0
	for i := range jobs {
		if !jobs[i].Taken {
			added++
		}
		if i == len(jobs)-1 || jobs[i+1].Kind != jobs[i].Kind {
			c.enqueued.Add(pool.Name, jobs[i].Kind, added)
			added = 0
		}
	}
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

// EnqueueMany adds jobs of any tenants, one COPY per pool, and returns them in the order of entries. Everything is
// checked before anything is added. Each pool is a transaction of its own: if one fails, the
// others' jobs are added all the same, the error is a [PoolErrors], and those of the pool that failed have the ID 0.
// Jobs with a unique key are added in the order of their keys, unless they have exclusive keys, too.
func (c *Client) EnqueueMany(ctx context.Context, entries []Entry) (_ []Enqueued, err error) {
	ctx, span := c.beginEnqueue(ctx, "many")
	defer func() { span.end(err) }()
	out := make([]Enqueued, len(entries))
	left := allOf(entries)
	failed := PoolErrors{}
	for begun, tries := time.Now(), 1; len(left) > 0; tries++ {
		batches, err := c.partBatches(ctx, entries, left)
		switch {
		case err != nil && tries == 1:
			return nil, fmt.Errorf("nothing was enqueued: %w", err)
		case err != nil:
			return out, errors.Join(failed.orNil(), fmt.Errorf("jobs of tenants that were moved meanwhile were not enqueued: %w", err))
		case tries == 1:
			span.manyOf(batches)
		}
		c.insertAll(ctx, batches)
		left = nil // but for those of tenants that were moved meanwhile
		for pool, b := range batches {
			switch {
			case b.err == nil:
				for i := range b.jobs {
					out[b.places[i]] = Enqueued{b.jobs[i].ID, b.jobs[i].Taken}
				}
			case c.proc.MayFollow(ctx, b.err, begun, tries):
				left = append(left, b.places...)
			default:
				failed[pool.Name] = b.err
			}
		}
		slices.Sort(left)
	}
	return out, failed.orNil()
}

func (e PoolErrors) orNil() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// batch is what goes to one pool.
type batch struct {
	pool   *routing.Pool
	places []int          // of its entries among all
	jobs   []store.NewJob // of those

	err error // of insertAll
}

// hint is where the jobs wait, once they were added: until then the ledger may know their queues alone.
func (b *batch) hint() notify.Hint { return hintOf(b.pool, b.jobs) }

func hintOf(pool *routing.Pool, jobs []store.NewJob) notify.Hint {
	h := notify.Hint{Pool: pool.Name}
	for i := range jobs {
		if !jobs[i].External { // its workers look by themselves
			h.AddJob(&jobs[i], 0)
		}
	}
	return h
}

// poolsAtOnce is how many pools' jobs are added at a time: so many that those of one server commit
// together, and one that answers late delays few.
const poolsAtOnce = 8

// insertAll adds batches, each of which says then what became of it.
func (c *Client) insertAll(ctx context.Context, batches map[*routing.Pool]*batch) {
	var group sync.WaitGroup
	defer group.Wait()
	free := make(chan struct{}, poolsAtOnce)
	for _, b := range batches {
		free <- struct{}{}
		group.Go(func() {
			defer func() { <-free }()
			if b.err = b.insertJobs(ctx); b.err != nil {
				c.countFailed(b.pool, b.err)
				return
			}
			c.countEnqueued(b.pool, b.jobs)
			c.proc.Notifier.Notify(b.hint())
		})
	}
}

func (b *batch) insertJobs(ctx context.Context) error {
	if err := b.pool.Outage(); err != nil {
		return err
	}
	number, err := b.pool.Number()
	if err != nil {
		return err
	}
	return b.pool.Blame(store.AgainIfDeadlocked(func() error {
		return pgx.BeginTxFunc(ctx, b.pool.Jobs(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			return store.EnqueueMany(ctx, tx, number, b.jobs)
		})
	}))
}

// allOf are the places of all entries.
func allOf(entries []Entry) []int {
	all := make([]int, len(entries))
	for i := range all {
		all[i] = i
	}
	return all
}

// partBatches are the entries at these places, by pool.
func (c *Client) partBatches(ctx context.Context, entries []Entry, places []int) (map[*routing.Pool]*batch, error) {
	type home struct {
		tenant tenancy.Tenant
		pool   *routing.Pool
	}
	homes := map[tenancy.ID]home{}
	out := map[*routing.Pool]*batch{}
	var faults []error
	for _, i := range places {
		e := &entries[i]
		id := e.Tenant
		if id == "" {
			t, ok := tenancy.FromContext(ctx)
			if !ok {
				faults = append(faults, fmt.Errorf("entry %d: %w", i, tenancy.ErrNoTenant))
				continue
			}
			id = t.ID
		}
		p, ok := homes[id]
		if !ok {
			var err error
			if p.tenant, p.pool, err = c.proc.ResolveTenant(ctx, id); err != nil {
				faults = append(faults, fmt.Errorf("entry %d: %w", i, err))
				continue
			}
			homes[id] = p
		}
		j, err := c.buildJob(ctx, p.tenant, e.Args, e.Options)
		if err != nil {
			faults = append(faults, sayWhich(err, e.Args, "entry %d", i))
			continue
		}
		b := out[p.pool]
		if b == nil {
			b = &batch{pool: p.pool}
			if len(out) == 0 { // most calls are for one pool
				b.places, b.jobs = make([]int, 0, len(places)), make([]store.NewJob, 0, len(places))
			}
			out[p.pool] = b
		}
		b.places = append(b.places, i)
		b.jobs = append(b.jobs, j)
	}
	if len(faults) > 0 {
		const shown = 10
		if n := len(faults); n > shown {
			faults = append(faults[:shown], fmt.Errorf("and %d more", n-shown))
		}
		return nil, errors.Join(faults...)
	}
	return out, nil
}

// buildJob checks a job, fills in its defaults, notes in which span it is enqueued and encrypts its arguments.
func (c *Client) buildJob(ctx context.Context, tenant tenancy.Tenant, args job.Args, opts []Option) (store.NewJob, error) {
	if ctx.Err() != nil {
		return store.NewJob{}, context.Cause(ctx)
	}
	j, err := checkJob(c.proc.Registry, tenant, args, opts)
	if err == nil {
		_, err = c.proc.FillIn(&j)
	}
	if err == nil {
		err = c.proc.MakeUnique(&j)
	}
	if err != nil {
		return store.NewJob{}, &job.InputError{Err: err}
	}
	noteTrace(ctx, &j)
	j.Payload, err = c.proc.Cipher.Seal(ctx, j.Tenant, j.Kind, j.Payload)
	return j, err
}

// errNilTx is for a transaction that is nil.
var errNilTx error = &job.InputError{Err: errors.New("the transaction is nil: pass the tx that Begin, InTx or the handler gave")}

// kindOf is the kind of a job's arguments, unless they are none.
func kindOf(args job.Args) (string, error) {
	if args == nil {
		return "", &job.InputError{Err: errors.New("the job's arguments are nil: pass a value of the type that its handler takes")}
	}
	if v := reflect.ValueOf(args); v.Kind() == reflect.Pointer && v.IsNil() {
		return "", &job.InputError{Err: fmt.Errorf("the job's arguments are a nil %T: pass what it is to point to", args)}
	}
	return args.Kind(), nil
}

// sayWhich adds to an error of buildJob which of several jobs it is about, also for those who see an InputError only.
func sayWhich(err error, args job.Args, which string, values ...any) error {
	which = fmt.Sprintf(which, values...)
	if kind, none := kindOf(args); none == nil {
		which += ", kind " + kind
	}
	err = fmt.Errorf("%s: %w", which, err)
	if errors.As(err, new(*job.InputError)) {
		return &job.InputError{Err: err}
	}
	return err
}

// noteTrace has the job's run be linked to the span in which it is enqueued, if that is recorded. A job
// whose meta is so large that it does not fit is enqueued without it.
func noteTrace(ctx context.Context, j *store.NewJob) {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsSampled() {
		return
	}
	if meta, err := jobmeta.SetTraceparent(j.Meta, tracing.Format(span)); err == nil && job.CheckPayload(meta) == nil {
		j.Meta = meta
	}
}
