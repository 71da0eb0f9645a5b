package process

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

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/jobmeta"
	"github.com/tenurehq/tenure/internal/notify"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/encryption"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// ErrUnknownPool is for the name of a pool that is not configured.
var ErrUnknownPool = errors.New("it is not configured")

// Process is what the client and the operator of one process share.
type Process struct {
	Cfg      atomic.Pointer[config.Config] // what it was started with, or has loaded since
	Router   *routing.Router
	Cluster  *membership.Cluster
	Notifier *notify.Notifier
	Keep     bool       // whether cancelled jobs are kept among the finished ones
	Retry    job.Policy // of jobs for external workers, and of kinds that have none of their own
	Cipher   *encryption.Cipher
	Registry *job.Registry  // nil: kinds are not checked
	Asking   sync.WaitGroup // pools for jobs of external workers
}

// New makes what the client, the operator and the external workers of a process share.
func New(cfg config.Config, r *routing.Router, c *membership.Cluster, cipher *encryption.Cipher) *Process {
	retry, _ := job.ParsePolicy(cfg.Execution.Retry) // which the configuration's Validate has read
	p := &Process{Router: r, Cluster: c, Keep: cfg.Execution.Retention > 0, Retry: retry, Cipher: cipher}
	p.Cfg.Store(&cfg)
	p.Notifier = notify.New(c, p.NotifyDatabase)
	return p
}

// FillIn gives a job what its kind gives where it says nothing itself, and has its arguments as they are not
// encrypted yet. Without the kind it stays as it is; known tells. All jobs go this way: those that are enqueued, and
// those of schedules.
func (c *Process) FillIn(j *store.NewJob) (known bool, err error) {
	spec, known := c.Registry.Find(j.Kind)
	if !known {
		return false, nil
	}
	if j.Queue == "" {
		j.Queue = spec.Queue
	}
	if spec.ExclusiveKey == nil || j.ExclusiveKey != "" {
		return true, nil
	}
	if j.ExclusiveKey, err = spec.ExclusiveKey(j.Payload); err == nil && j.ExclusiveKey != "" {
		err = job.ValidateExclusiveKey(j.ExclusiveKey)
	}
	return true, err
}

// MakeUnique gives a job that has no unique key its kind's. The key of a request must not take its place: two requests would
// add two jobs.
func (c *Process) MakeUnique(j *store.NewJob) error {
	spec, known := c.Registry.Find(j.Kind)
	ofRequest := jobmeta.Request(j.Meta) != ""
	if !known || spec.UniqueKey == nil || j.UniqueKey != "" && !ofRequest {
		return nil
	}
	key, err := spec.UniqueKey(j.Payload)
	switch {
	case err != nil, key == "":
		return err
	case ofRequest:
		return fmt.Errorf("kind %q gives this job a unique key (job.UniqueBy): send no Idempotency-Key", j.Kind)
	}
	j.UniqueKey, j.UniqueFor = key, spec.UniqueFor
	return job.ValidateUniqueKey(key)
}

// Give fills in a schedule's job, and encrypts its arguments. What panics there is the program's, and must not end a
// node that fires schedules of others, too.
func (c *Process) Give(ctx context.Context, j *store.NewJob) (g store.Given, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &job.InputError{Err: fmt.Errorf("what kind %q gives its jobs cannot be worked out, as job.ExclusiveBy or the key ring panicked: %v", j.Kind, p)}
		}
	}()
	plain := j.Payload
	known, err := c.FillIn(j)
	if err != nil {
		return store.Given{}, &job.InputError{Err: err}
	}
	if j.Payload, err = c.Cipher.Seal(ctx, j.Tenant, j.Kind, plain); err != nil {
		return store.Given{}, err
	}
	return store.GivenTo(j, plain, known), nil
}

// NotifyDatabase tells the holder of a pool's lock by its database.
func (c *Process) NotifyDatabase(ctx context.Context, pool string, jobs []job.ID) error {
	p, ok := c.Router.Pool(pool)
	if !ok { // it was taken out of the configuration
		return nil
	}
	return store.Notify(ctx, p.Jobs(), jobs)
}

// AnswerWithin bounds what one pool may take of an answer that is gathered from all.
const AnswerWithin = 5 * time.Second

// Bounds of how often a tenant that is moved is followed, how long an enqueue with a unique
// key waits until all the tenant's keys have arrived, and how long a transaction waits for a
// tenant that is held: as long as a command that gives up needs, not as long as a copy.
const (
	MaxFollowed = 5
	arrivalTime = 10 * time.Second
	arrivalLook = 50 * time.Millisecond
	heldTime    = 2 * time.Second
	heldLook    = 200 * time.Millisecond
)

// MayFollow tells whether an enqueue or a transaction that was refused is to be tried again,
// because its tenant has moved, is about to arrive, or is held for a moment.
func (c *Process) MayFollow(ctx context.Context, err error, begun time.Time, tries int) bool {
	var moved *tenancy.MovedError
	switch {
	case errors.As(err, &moved) && tries <= MaxFollowed:
		c.Router.Forget(moved.Tenant)
		return true
	case errors.Is(err, store.ErrTenantArrives) && time.Since(begun) < arrivalTime:
		return wait.For(ctx, arrivalLook) == nil
	case errors.Is(err, tenancy.ErrHeld) && time.Since(begun) < heldTime:
		return wait.For(ctx, heldLook) == nil
	}
	return false
}

// ContextTenant resolves the context's tenant.
func (c *Process) ContextTenant(ctx context.Context) (tenancy.Tenant, *routing.Pool, error) {
	t, ok := tenancy.FromContext(ctx)
	if !ok {
		return tenancy.Tenant{}, nil, tenancy.ErrNoTenant
	}
	return c.ResolveTenant(ctx, t.ID)
}

// ResolveTenant waits, within ctx, until the tenant's pool has been tried.
func (c *Process) ResolveTenant(ctx context.Context, id tenancy.ID) (tenancy.Tenant, *routing.Pool, error) {
	if err := id.Validate(); err != nil {
		return tenancy.Tenant{}, nil, &job.InputError{Err: err}
	}
	if err := c.checkRuns(); err != nil {
		return tenancy.Tenant{}, nil, err
	}
	tenant, pool, err := c.Router.Resolve(ctx, id)
	if err == nil { // the call that uses the pool says what is wrong with it
		_ = pool.Available(ctx)
	}
	return tenant, pool, err
}

// checkRuns is an error once the process is stopped, and before a client is started. A node's is used while that is wired, too.
func (c *Process) checkRuns() error {
	switch {
	case c.Router.Stopped() && c.Cluster.Self().Role == membership.RoleClient:
		return errors.New("the client is stopped")
	case c.Router.Stopped():
		return errors.New("the node is stopped")
	case !c.Router.Started() && c.Cluster.Self().Role == membership.RoleClient:
		return errors.New("the client is not started: call Start")
	}
	return nil
}

// FindPool returns the pool of this name, or ErrUnknownPool.
func (c *Process) FindPool(name string) (*routing.Pool, error) {
	p, ok := c.Router.Pool(name)
	if !ok {
		return nil, fmt.Errorf("pool %q: %w", name, ErrUnknownPool)
	}
	return p, nil
}

// PoolsOf returns the pool of this name or, without one, all.
func (c *Process) PoolsOf(name string) ([]*routing.Pool, error) {
	if name == "" {
		return c.Router.Pools(), nil
	}
	p, err := c.FindPool(name)
	return []*routing.Pool{p}, err
}

// Operate is one step of an operator's call on a pool's ledger, for AnswerWithin at most.
func Operate(ctx context.Context, p *routing.Pool, fn func(context.Context, *pgxpool.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	return p.Operate(ctx, func(db *pgxpool.Conn) error { return fn(ctx, db) })
}

type (
	whoKey   struct{}
	notedKey struct{}
)

// maxWho is how much of a name is noted, in bytes.
const maxWho = 256

// DoneBy returns a context with which what is done is done for somebody.
func DoneBy(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, whoKey{}, who)
}

// AsNoted returns a context with which what is done to jobs is part of a deed that is noted.
func AsNoted(ctx context.Context) context.Context { return context.WithValue(ctx, notedKey{}, true) }

// EveryTenant stands for all tenants of a pool.
const EveryTenant tenancy.ID = "(every tenant)\n" // which no tenant can be called

// Deed is what somebody does to a tenant's things, or, with "", to all tenants'.
func (c *Process) Deed(ctx context.Context, action string, tenant tenancy.ID, subject string, detail map[string]any) store.Deed {
	who, _ := ctx.Value(whoKey{}).(string)
	who = strings.ToValidUTF8(strings.ReplaceAll(cmp.Or(who, c.Cluster.Self().Node), "\x00", "?"), "?")
	d := store.Deed{Who: strings.ToValidUTF8(who[:min(len(who), maxWho)], ""), Action: action, Tenant: string(tenant), Subject: subject, Detail: detail}
	if tenant == EveryTenant {
		d.Tenant = ""
	}
	return d
}

// JobDeed is what somebody does to a job; none, if that is part of one that is noted.
func (c *Process) JobDeed(ctx context.Context, action string, id job.ID, detail map[string]any) store.Deed {
	if ctx.Value(notedKey{}) != nil {
		return store.Deed{}
	}
	d := c.Deed(ctx, action, "", "", detail)
	d.Job = id
	return d
}

// Note notes what is done in many transactions, before the first one.
func (c *Process) Note(ctx context.Context, p *routing.Pool, d store.Deed) error {
	return Operate(ctx, p, func(ctx context.Context, db *pgxpool.Conn) error { return store.Note(ctx, db, d) })
}

// Question is what a pool's ledger is asked.
type Question[T any] func(context.Context, *routing.Pool, store.DB) (T, error)

// Inspect asks a pool's ledger.
func Inspect[T any](ctx context.Context, p *routing.Pool, ask Question[T]) (out T, err error) {
	err = p.Operate(ctx, func(c *pgxpool.Conn) error {
		return store.Inspect(ctx, c, func(db store.DB) error {
			out, err = ask(ctx, p, db)
			return err
		})
	})
	return out, err
}

// InspectEach asks the ledgers of pools, each for AnswerWithin at most.
func InspectEach[T any](ctx context.Context, pools []*routing.Pool, ask Question[[]T]) ([]T, error) {
	return routing.AskEach(ctx, pools, AnswerWithin, func(ctx context.Context, p *routing.Pool) ([]T, error) {
		return Inspect(ctx, p, ask)
	})
}

// MadeElsewhere is 0 if a job was made in a pool, for what begins with that one.
func MadeElsewhere(p *routing.Pool, id job.ID) int {
	if n, err := p.Number(); err == nil && n == store.PoolOf(int64(id)) {
		return 0
	}
	return 1
}

// PoolNames names pools.
func PoolNames(pools []*routing.Pool) (names []string) {
	for _, p := range pools {
		names = append(names, p.Name)
	}
	return names
}
