package tenure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/notify"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/encryption"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// process is what the client and the operator of one process share.
type process struct {
	cfg      atomic.Pointer[config.Config] // what it was started with, or has loaded since
	router   *routing.Router
	cluster  *membership.Cluster
	notifier *notify.Notifier
	keep     bool // whether cancelled jobs are kept among the finished ones
	cipher   *encryption.Cipher
	registry *job.Registry  // nil: kinds are not checked
	asking   sync.WaitGroup // pools for jobs of external workers
	enqueued *execution.Enqueued
	tracer   trace.Tracer // nil: nothing is traced
}

func newProcess(cfg config.Config, r *routing.Router, c *membership.Cluster, cipher *encryption.Cipher) *process {
	p := &process{router: r, cluster: c, keep: cfg.Execution.Retention > 0, cipher: cipher, enqueued: execution.NewEnqueued()}
	p.cfg.Store(&cfg)
	p.notifier = notify.New(c, p.notifyDatabase)
	return p
}

// fillIn gives a job what its kind gives where it says nothing itself, and has its arguments as they are not
// encrypted yet. Without the kind it stays as it is; known tells. All jobs go this way: those that are enqueued, and
// those of schedules.
func (c *process) fillIn(j *store.NewJob) (known bool, err error) {
	spec, known := c.registry.Find(j.Kind)
	if !known {
		return false, nil
	}
	if j.Queue == "" {
		j.Queue = spec.Queue
	}
	if spec.ExclusiveKey == nil || j.ExclusiveKey != "" || j.External {
		return true, nil
	}
	if j.ExclusiveKey, err = spec.ExclusiveKey(j.Payload); err == nil && j.ExclusiveKey != "" {
		err = checkExclusiveKey(j.ExclusiveKey)
	}
	return true, err
}

// give fills in a schedule's job, and encrypts its arguments. What panics there is the program's, and must not end a
// node that fires schedules of others, too.
func (c *process) give(ctx context.Context, j *store.NewJob) (g store.Given, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &job.InputError{Err: fmt.Errorf("what kind %q gives its jobs cannot be worked out, as job.ExclusiveBy or the key ring panicked: %v", j.Kind, p)}
		}
	}()
	plain := j.Payload
	known, err := c.fillIn(j)
	if err != nil {
		return store.Given{}, &job.InputError{Err: err}
	}
	if j.Payload, err = c.cipher.Seal(ctx, j.Tenant, j.Kind, plain); err != nil {
		return store.Given{}, err
	}
	return store.GivenTo(j, plain, known), nil
}

// notifyDatabase tells the holder of a pool's lock by its database.
func (c *process) notifyDatabase(ctx context.Context, pool string, jobs []job.ID) error {
	p, ok := c.router.Pool(pool)
	if !ok { // it was taken out of the configuration
		return nil
	}
	return store.Notify(ctx, p.Jobs(), jobs)
}

// answerWithin bounds what one pool may take of an answer that is gathered from all.
const answerWithin = 5 * time.Second

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

// mayFollow tells whether an enqueue or a transaction that was refused is to be tried again,
// because its tenant has moved, is about to arrive, or is held for a moment.
func (c *process) mayFollow(ctx context.Context, err error, begun time.Time, tries int) bool {
	var moved *tenancy.MovedError
	switch {
	case errors.As(err, &moved) && tries <= maxFollowed:
		c.router.Forget(moved.Tenant)
		return true
	case errors.Is(err, store.ErrTenantArrives) && time.Since(begun) < arrivalTime:
		return wait.For(ctx, arrivalLook) == nil
	case errors.Is(err, ErrTenantHeld) && time.Since(begun) < heldTime:
		return wait.For(ctx, heldLook) == nil
	}
	return false
}

// contextTenant resolves the context's tenant.
func (c *process) contextTenant(ctx context.Context) (tenancy.Tenant, *routing.Pool, error) {
	t, ok := tenancy.FromContext(ctx)
	if !ok {
		return tenancy.Tenant{}, nil, tenancy.ErrNoTenant
	}
	return c.resolveTenant(ctx, t.ID)
}

// resolveTenant waits, within ctx, until the tenant's pool has been tried.
func (c *process) resolveTenant(ctx context.Context, id tenancy.ID) (tenancy.Tenant, *routing.Pool, error) {
	if err := id.Validate(); err != nil {
		return tenancy.Tenant{}, nil, &job.InputError{Err: err}
	}
	tenant, pool, err := c.router.Resolve(ctx, id)
	if err == nil { // the call that uses the pool says what is wrong with it
		_ = pool.Available(ctx)
	}
	return tenant, pool, err
}

func (c *process) findPool(name string) (*routing.Pool, error) {
	p, ok := c.router.Pool(name)
	if !ok {
		return nil, fmt.Errorf("pool %q: %w", name, ErrUnknownPool)
	}
	return p, nil
}

// poolsOf returns the pool of this name or, without one, all.
func (c *process) poolsOf(name string) ([]*routing.Pool, error) {
	if name == "" {
		return c.router.Pools(), nil
	}
	p, err := c.findPool(name)
	return []*routing.Pool{p}, err
}

// operate is one step of an operator's call on a pool's ledger, for answerWithin at most.
func operate(ctx context.Context, p *routing.Pool, fn func(context.Context, *pgxpool.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return p.Operate(ctx, func(db *pgxpool.Conn) error { return fn(ctx, db) })
}

type (
	whoKey   struct{}
	notedKey struct{}
)

// maxWho is how much of a name is noted, in bytes.
const maxWho = 256

// doneBy returns a context with which what is done is done for somebody.
func doneBy(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, whoKey{}, who)
}

// asNoted returns a context with which what is done to jobs is part of a deed that is noted.
func asNoted(ctx context.Context) context.Context { return context.WithValue(ctx, notedKey{}, true) }

// deed is what somebody does to a tenant's things, or, with "", to all tenants'.
func (c *process) deed(ctx context.Context, action string, tenant tenancy.ID, subject string, detail map[string]any) store.Deed {
	who, _ := ctx.Value(whoKey{}).(string)
	who = strings.ToValidUTF8(strings.ReplaceAll(cmp.Or(who, c.cluster.Self().Node), "\x00", "?"), "?")
	d := store.Deed{Who: strings.ToValidUTF8(who[:min(len(who), maxWho)], ""), Action: action, Tenant: string(tenant), Subject: subject, Detail: detail}
	if tenant == EveryTenant {
		d.Tenant = ""
	}
	return d
}

// jobDeed is what somebody does to a job; none, if that is part of one that is noted.
func (c *process) jobDeed(ctx context.Context, action string, id job.ID, detail map[string]any) store.Deed {
	if ctx.Value(notedKey{}) != nil {
		return store.Deed{}
	}
	d := c.deed(ctx, action, "", "", detail)
	d.Job = id
	return d
}

// note notes what is done in many transactions, before the first one.
func (c *process) note(ctx context.Context, p *routing.Pool, d store.Deed) error {
	return operate(ctx, p, func(ctx context.Context, db *pgxpool.Conn) error { return store.Note(ctx, db, d) })
}

// question is what a pool's ledger is asked.
type question[T any] func(context.Context, *routing.Pool, store.DB) (T, error)

// inspect asks a pool's ledger.
func inspect[T any](ctx context.Context, p *routing.Pool, ask question[T]) (out T, err error) {
	err = p.Operate(ctx, func(c *pgxpool.Conn) error {
		return store.Inspect(ctx, c, func(db store.DB) error {
			out, err = ask(ctx, p, db)
			return err
		})
	})
	return out, err
}

// inspectEach asks the ledgers of pools, each for answerWithin at most.
func inspectEach[T any](ctx context.Context, pools []*routing.Pool, ask question[[]T]) ([]T, error) {
	return routing.AskEach(ctx, pools, answerWithin, func(ctx context.Context, p *routing.Pool) ([]T, error) {
		return inspect(ctx, p, ask)
	})
}
