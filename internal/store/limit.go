package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// Scope is what of a tenant a limit is about.
type Scope string

const (
	ScopeTenant Scope = "tenant" // all its jobs
	ScopeQueue  Scope = "queue"
	ScopeKind   Scope = "kind"
	ScopeKey    Scope = "key" // those with an exclusive key

	// Of all tenants together, in all pools; a pool has a share of such a limit.
	ScopeClusterQueue Scope = "cluster queue"
	ScopeClusterKind  Scope = "cluster kind"

	// Of all tenants together, in the pool, as an operator has frozen it.
	ScopeFrozenQueue Scope = "frozen queue"
	ScopeFrozenKind  Scope = "frozen kind"
)

// LimitKey is what a limit is about.
type LimitKey struct {
	Tenant string // "": of each tenant
	Scope  Scope
	Name   string // of the queue, kind or key; "": ScopeTenant, or each key
}

// Bounds of limits: of their numbers, of the period of a rate, and of the time that it takes to give a whole burst.
const (
	MaxLimit      = 1_000_000
	LongestPer    = 24 * time.Hour
	LongestRefill = 365 * 24 * time.Hour
)

// NoneAtAll is what may be in flight where nothing may.
const NoneAtAll = -1

// Limit is how many jobs may be in flight at a time, and how many may start in a period.
type Limit struct {
	LimitKey
	Most  int // in flight; 0: any number
	Rate  int // starts in Per; 0: any number
	Per   time.Duration
	Burst int // starts at once
}

// Tokens is the time in which a rate gives so many. It is rounded up: none comes too soon.
func (l Limit) Tokens(n int) time.Duration {
	if l.Rate == 0 {
		return 0
	}
	return time.Duration(n) * ((l.Per + time.Duration(l.Rate) - 1) / time.Duration(l.Rate))
}

// LimitedRuns are runs in flight that limits count.
type LimitedRuns struct {
	Tenant, Queue, Kind string
	IDs                 []job.ID
	Turns               []int32 // theirs
}

// Bucket is how much of a rate a tenant has used.
type Bucket struct {
	LimitKey
	FullIn time.Duration // the bucket of tokens is full again
}

// LimitState is what a term has to know of limits.
type LimitState struct {
	Changes int64 // of limits, before the rest was read
	Limits  []Limit
	Flying  []LimitedRuns
	Buckets []Bucket
	Weights map[string]int // of tenants, but for those that have 1
}

// ReadLimits reads the limits, what is in flight under them, what is left of their rates, and weights. shared are the
// pool's shares of limits of the whole cluster, which come besides.
func ReadLimits(ctx context.Context, db DB, shared []Limit) (s LimitState, err error) {
	var b pgx.Batch
	b.Queue(sqlPageState).QueryRow(func(row pgx.Row) error {
		var p PageState
		err := p.scan(row)
		s.Changes = p.Limits
		return err
	})
	collectInto(b.Queue(sqlLimitList), &s.Limits, scanLimit)
	var queues, kinds []string // of which what is in flight counts, whatever its tenant
	for _, l := range shared {
		switch {
		case l.Most <= 0:
		case l.Scope == ScopeClusterQueue:
			queues = append(queues, l.Name)
		default:
			kinds = append(kinds, l.Name)
		}
	}
	collectInto(b.Queue(sqlLimitFlying, queues, kinds), &s.Flying, pgx.RowToStructByPos[LimitedRuns])
	b.Queue(sqlTenantWeights).Query(func(rows pgx.Rows) (err error) {
		s.Weights, err = collectWeights(rows)
		return err
	})
	collectInto(b.Queue(sqlLimitBuckets), &s.Buckets, func(row pgx.CollectableRow) (b Bucket, err error) {
		var us int64
		err = row.Scan(&b.Tenant, &b.Scope, &b.Name, &us)
		b.FullIn = time.Duration(us) * time.Microsecond
		return b, err
	})
	err = db.SendBatch(ctx, &b).Close()
	s.Limits = append(s.Limits, shared...)
	return s, explain(err, "read limits")
}

func collectWeights(rows pgx.Rows) (map[string]int, error) {
	weights := map[string]int{}
	var tenant string
	var weight int
	_, err := pgx.ForEachRow(rows, []any{&tenant, &weight}, func() error {
		weights[tenant] = weight
		return nil
	})
	return weights, err
}

// Weights reads the weights of tenants, but for those that have 1.
func Weights(ctx context.Context, db DB) (map[string]int, error) {
	rows, err := db.Query(ctx, sqlTenantWeights)
	if err == nil {
		var weights map[string]int
		if weights, err = collectWeights(rows); err == nil {
			return weights, nil
		}
	}
	return nil, explain(err, "read the weights of tenants")
}

// SetWeight sets a tenant's weight. TenantBusyError: the tenant is being moved.
func SetWeight(ctx context.Context, db Beginner, tenant string, weight int) error {
	return changeLimits(ctx, db, fmt.Sprintf("weight tenant %q", tenant), func(tx pgx.Tx) error {
		return changeTenant(ctx, tx, tenant, sqlTenantWeight, tenant, weight)
	})
}

// Limits reads the limits.
func Limits(ctx context.Context, db DB) ([]Limit, error) {
	return list(ctx, db, "read limits", scanLimit, sqlLimitList)
}

func scanLimit(row pgx.CollectableRow) (l Limit, err error) {
	var ms int64
	err = row.Scan(&l.Tenant, &l.Scope, &l.Name, &l.Most, &l.Rate, &ms, &l.Burst)
	l.Per = time.Duration(ms) * time.Millisecond
	return l, err
}

func splitBuckets(buckets []Bucket) (tenants, scopes, names []string, full []int64) {
	for _, b := range buckets {
		tenants, scopes, names = append(tenants, b.Tenant), append(scopes, string(b.Scope)), append(names, b.Name)
		full = append(full, int64((b.FullIn+time.Microsecond-1)/time.Microsecond))
	}
	return tenants, scopes, names, full
}

// ErrNoLimit: there is no such limit. It is ErrNotFound, too.
var ErrNoLimit error = absence("no such limit")

// absence is an ErrNotFound of something that is no job.
type absence string

func (a absence) Error() string { return string(a) }

// Is lets errors.Is find [ErrNotFound].
func (absence) Is(target error) bool { return target == ErrNotFound }

// SetLimit sets a limit, or, with neither a number nor a rate, removes it. No claim is made any more
// that does not heed it. TenantBusyError: the tenant is being moved. ErrNoLimit: there is none to remove.
func SetLimit(ctx context.Context, db Beginner, l Limit) error {
	return changeLimits(ctx, db, fmt.Sprintf("limit %s", l.LimitKey), func(tx pgx.Tx) error {
		err := changeTenant(ctx, tx, l.Tenant, sqlLimitSet, l.Tenant, string(l.Scope), l.Name, nullable(l.Most), nullable(l.Rate), nullable(l.Per.Milliseconds()), nullable(l.Burst))
		if busy := (*TenantBusyError)(nil); l.Most == 0 && l.Rate == 0 && errors.As(err, &busy) && busy.State == TenantActive {
			err = ErrNoLimit
		}
		return err
	})
}

// LimitTenant bounds how many jobs of a tenant are in flight at a time, and leaves its rate; 0 lifts
// the bound. TenantBusyError: the tenant is being moved.
func LimitTenant(ctx context.Context, db Beginner, tenant string, most int) error {
	return changeLimits(ctx, db, fmt.Sprintf("limit tenant %q", tenant), func(tx pgx.Tx) error {
		return changeTenant(ctx, tx, tenant, sqlTenantLimit, tenant, nullable(most))
	})
}

// changeLimits changes limits so that no claim is made any more that does not heed them.
func changeLimits(ctx context.Context, db Beginner, what string, change func(pgx.Tx) error) error {
	return bothLockedOut(ctx, db, what, func(tx pgx.Tx) error {
		err := change(tx)
		if err == nil {
			_, err = tx.Exec(ctx, sqlLimitCount)
		}
		return err
	})
}

// String says what the limit is about.
func (k LimitKey) String() string {
	switch k.Scope {
	case ScopeClusterQueue, ScopeClusterKind, ScopeFrozenQueue, ScopeFrozenKind:
		return fmt.Sprintf("%s %q", k.Scope, k.Name)
	}
	whose := fmt.Sprintf("tenant %q", k.Tenant)
	if k.Tenant == "" {
		whose = "every tenant"
	}
	switch {
	case k.Scope == ScopeTenant:
		return whose
	case k.Name == "":
		return fmt.Sprintf("each %s of %s", k.Scope, whose)
	}
	return fmt.Sprintf("%s %q of %s", k.Scope, k.Name, whose)
}

// ForgetBuckets forgets buckets that are full, but for those that somebody has locked.
func ForgetBuckets(ctx context.Context, db DB) error {
	_, err := db.Exec(ctx, sqlLimitForget)
	return explain(err, "forget full buckets")
}

// LimitRow is a limit as an operator sees it.
type LimitRow struct {
	Limit
	Flying int           // jobs of the tenant that it counts; of each tenant's: not counted
	FullIn time.Duration // its bucket is full again; not above 0: it is
	Quota  int           // in a list of all limits: so many of the tenant's jobs may wait; 0: any number
}

// NextIn is when the rate lets the next job start; not above 0: now.
func (l LimitRow) NextIn() time.Duration {
	if l.Rate == 0 {
		return 0
	}
	return l.FullIn - l.Tokens(l.Burst-1)
}

// IsFull tells whether no more may be in flight.
func (l LimitRow) IsFull() bool { return l.Most != 0 && l.Flying >= l.Most }

// LimitRows lists the limits of a pool, but for those of tenants that do not live there any more; first
// its shares of limits of the whole cluster, as shared says.
func LimitRows(ctx context.Context, db DB, shared []Limit) ([]LimitRow, error) {
	rows, err := sharedRows(ctx, db, shared)
	if err != nil {
		return nil, err
	}
	own, err := list(ctx, db, "list limits", func(row pgx.CollectableRow) (LimitRow, error) {
		var quota int
		l, err := scanLimitRow(row, &quota)
		l.Quota = quota
		return l, err
	}, sqlLimitShow)
	return append(rows, own...), err
}

// LimitsOf lists the limits that apply to a waiting job: of each scope and sort the tenant's own, or
// else that of each tenant; and then those of shared, the pool's shares of limits of the whole cluster.
func LimitsOf(ctx context.Context, db DB, j Status, shared []Limit) ([]LimitRow, error) {
	rows, err := list(ctx, db, fmt.Sprintf("list the limits of job %d", j.ID), func(row pgx.CollectableRow) (LimitRow, error) { return scanLimitRow(row) }, sqlLimitWhy, int64(j.ID))
	if err != nil {
		return nil, err
	}
	theirs, err := sharedRows(ctx, db, slices.DeleteFunc(slices.Clone(shared), func(l Limit) bool {
		return l.LimitKey != LimitKey{Scope: ScopeClusterKind, Name: j.Kind} && l.LimitKey != LimitKey{Scope: ScopeClusterQueue, Name: j.Queue}
	}))
	return append(rows, theirs...), err
}

// sharedRows are the pool's shares of limits of the whole cluster, with what there is of them.
func sharedRows(ctx context.Context, db DB, shared []Limit) ([]LimitRow, error) {
	if len(shared) == 0 {
		return nil, nil
	}
	var scopes, names []string
	for _, l := range shared {
		scopes, names = append(scopes, string(l.Scope)), append(names, l.Name)
	}
	rows := make([]LimitRow, 0, len(shared))
	return list(ctx, db, "list what is in flight under limits of the cluster", func(row pgx.CollectableRow) (LimitRow, error) {
		var us int64
		l := LimitRow{Limit: shared[len(rows)]} // in this order
		err := row.Scan(&l.Flying, &us)
		l.FullIn = time.Duration(us) * time.Microsecond
		rows = append(rows, l)
		return l, err
	}, sqlLimitShared, scopes, names)
}

func scanLimitRow(row pgx.CollectableRow, more ...any) (l LimitRow, err error) {
	var ms, us int64
	err = row.Scan(append([]any{&l.Tenant, &l.Scope, &l.Name, &l.Most, &l.Rate, &ms, &l.Burst, &l.Flying, &us}, more...)...)
	l.Per, l.FullIn = time.Duration(ms)*time.Millisecond, time.Duration(us)*time.Microsecond
	return l, err
}
