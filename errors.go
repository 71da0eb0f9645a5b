package tenure

import (
	"errors"
	"maps"
	"net"
	"slices"

	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/tenantmove"
	"github.com/tenurehq/tenure/job"
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
	ErrUnknownPool = process.ErrUnknownPool
	// ErrUnknownKind is returned when no handler is registered for the kind; see [Elsewhere].
	ErrUnknownKind = errors.New("no handler is registered for this kind")
	// ErrNotFound is returned when no job has the id, or none in a state the call could act on.
	ErrNotFound = store.ErrNotFound
	// ErrTenantHeld is returned by what would write for a tenant whose own data is being
	// copied to another pool (see operate.MoveOptions): it can be tried again later.
	ErrTenantHeld = tenancy.ErrHeld
	// ErrTenantQuota is returned for a job of a tenant of which as many jobs wait as may; see
	// operate.Tenants.LimitWaiting.
	ErrTenantQuota = store.ErrQuota
	// ErrInTx is returned by [Client.InTx] when it is called within a tenant's transaction.
	ErrInTx = errors.New("a tenant's transaction is open already: use the tx that its function was given; " +
		"for another tenant enqueue a job, or register the handler with job.Handle, which holds no transaction")
	// ErrTenantShare is returned by [Client.InTx] while its tenant has its share of the pool's connections, as
	// execution.tenant_share says, in transactions that go on.
	ErrTenantShare = tenancy.ErrShareInUse
	// ErrPoolDown is returned while a pool's database does not answer, and nothing was done there: by a node's client
	// also at once, without another try, while the node has not reached it for a while. It can be tried again
	// later. A pool that somebody has to mend first is [Refused] instead.
	ErrPoolDown = routing.ErrPoolDown
)

// Refused tells whether err says that what was asked for, or what was configured,
// is wrong, so that trying again unchanged is of no use: an unknown tenant or kind,
// arguments or options that cannot be, a transaction on another database, a pool
// that is not migrated, a standby, or the same as another, a tenant's place
// that cannot be used, a job to start after or a batch that is not there, an address that cannot be listened on. Of these a [job.InputError] can be shown to
// anybody.
func Refused(err error) bool {
	var pool *store.PoolError
	var input *job.InputError
	var route *routing.RouteError
	var socket *net.OpError
	var move *tenantmove.RefusedError
	var link *job.LinkError
	return errors.As(err, &pool) && !errors.Is(err, ErrPoolDown) || errors.As(err, &link) || store.NoPlace(err) || errors.As(err, &input) || errors.As(err, &move) || errors.As(err, &route) || errors.Is(err, ErrUnknownTenant) ||
		errors.Is(err, ErrUnknownKind) || errors.Is(err, ErrWrongPool) || errors.Is(err, ErrNotAllowed) || errors.Is(err, tenancy.ErrNoTenant) ||
		errors.Is(err, routing.ErrInUse) || errors.Is(err, routing.ErrHasJobs) ||
		errors.As(err, &socket) && socket.Op == "listen"
}

// DownPool tells whether err says that a pool's database cannot be used now, and which pool it is about; "": err does
// not say.
func DownPool(err error) (pool string, down bool) {
	var named *routing.NamedError
	var unfit *store.PoolError
	if errors.As(err, &named) {
		pool = named.Pool
	} else if errors.As(err, &unfit) {
		pool = unfit.Pool
	}
	return pool, routing.OutOfService(err) || pool != "" && store.IsGone(err)
}

// FailedPools returns the names of the pools that err, which may be joined of many, is about, in their order.
func FailedPools(err error) []string {
	pools := map[string]bool{}
	var look func(error)
	look = func(err error) {
		switch e := err.(type) {
		case *routing.NamedError:
			pools[e.Pool] = true
		case *store.PoolError:
			pools[e.Pool] = true
		case interface{ Unwrap() error }:
			look(e.Unwrap())
		case interface{ Unwrap() []error }:
			for _, one := range e.Unwrap() {
				look(one)
			}
		}
	}
	look(err)
	return slices.Sorted(maps.Keys(pools))
}
