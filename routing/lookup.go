package routing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/tenancy"
)

// lookupTable is tenants.table, and what it has said. Safe for concurrent use.
type lookupTable struct {
	cfg     TableConfig
	tenants TenantsConfig
	pool    *Pool                   // whose database holds it
	owners  map[schemaIn]tenancy.ID // whose a schema is, as tenants.static says
	spawn   func(func())

	mu      sync.Mutex
	cache   map[tenancy.ID]answer   // guarded by mu
	users   map[schemaIn]tenancy.ID // guarded by mu; whose a schema is, as the table said last
	failure error                   // guarded by mu; why it could not be asked at the last try; nil: it could
	retryAt time.Time               // guarded by mu; when it is tried once more
}

func newLookupTable(cfg TenantsConfig, p *Pool, owners map[schemaIn]tenancy.ID, spawn func(func())) *lookupTable {
	return &lookupTable{cfg: *cfg.Table, tenants: cfg, pool: p, owners: owners, spawn: spawn, cache: map[tenancy.ID]answer{}, users: map[schemaIn]tenancy.ID{}}
}

// answer is what the lookup table said, and until when that is believed.
type answer struct {
	tenant tenancy.Tenant
	err    error // tenancy.ErrUnknownTenant, or a row that cannot be used
	until  time.Time
}

// A query about where tenants live is bounded, as everybody's pools hang on it. After one
// that got no answer the next is made for nobody in particular, so that nobody waits for it.
const (
	lookUpTimeout = 2 * time.Second
	lookUpRest    = lookUpTimeout / 2
	lookUpSlow    = lookUpTimeout / 8 // a caller who gives up after that has shown as much
)

// lookUp asks the table, unless a fresh answer is at hand. While it cannot be asked, a tenant
// lives where it lived last: its jobs and its pool are none the worse for it.
func (l *lookupTable) lookUp(ctx context.Context, id tenancy.ID) (t tenancy.Tenant, err error) {
	l.mu.Lock()
	a, known := l.cache[id]
	l.mu.Unlock()
	if known && time.Now().Before(a.until) {
		return a.tenant, a.err
	}
	if failure, due := l.checkFailure(); failure == nil {
		t, err = l.askAndRemember(ctx, id)
	} else {
		err = failure
		if due {
			l.spawn(func() { _, _ = l.askAndRemember(context.WithoutCancel(ctx), id) })
		}
	}
	switch {
	case isAnswer(err):
		return t, err
	case known && a.err == nil && ctx.Err() == nil:
		return a.tenant, nil
	}
	return t, fmt.Errorf("look tenant %q up in pool %s: %w", id, l.cfg.Pool, err)
}

// isAnswer tells whether the table has said something, be it of no use.
func isAnswer(err error) bool {
	var unusable *RouteError
	return err == nil || errors.Is(err, tenancy.ErrUnknownTenant) || errors.As(err, &unusable)
}

// checkFailure is why the table could not be asked at the last try, nil: it could; due: it is
// up to the caller to have it tried again.
func (l *lookupTable) checkFailure() (why error, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.failure == nil || now.Before(l.retryAt) {
		return l.failure, false
	}
	l.retryAt = now.Add(lookUpTimeout + lookUpRest)
	return l.failure, true
}

// askAndRemember asks the table, remembers what it says, and whether it says anything.
func (l *lookupTable) askAndRemember(ctx context.Context, id tenancy.ID) (tenancy.Tenant, error) {
	_ = l.pool.Available(ctx) // ask says what is wrong with it
	bounded, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	began := time.Now()
	t, err := l.ask(bounded, id)
	if err == nil {
		err = l.checkAlone(bounded, id, t)
	}
	if isAnswer(err) {
		l.remember(id, t, err)
	}
	var pg *pgconn.PgError
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ctx.Err() != nil && time.Since(began) < lookUpSlow: // the caller's doing
	case isAnswer(err), errors.As(err, &pg), OutOfService(err): // nobody had to wait for it
		l.failure = nil
	default:
		l.failure, l.retryAt = err, time.Now().Add(lookUpRest)
	}
	return t, err
}

// checkAlone refuses a tenant whose schema another one has that was looked up here. Whether that one still has it the
// table says, whatever is remembered: who may have it is as old as the process.
func (l *lookupTable) checkAlone(ctx context.Context, id tenancy.ID, t tenancy.Tenant) error {
	key := schemaIn{t.Pool, t.Schema}
	for {
		l.mu.Lock()
		other, known := l.users[key]
		if !known || other == id {
			l.users[key] = id
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
		now, err := l.ask(ctx, other)
		switch {
		case !isAnswer(err):
			return err
		case err == nil && schemaIn{now.Pool, now.Schema} == key:
			return sharedSchema(other, t)
		}
		l.mu.Lock()
		if l.users[key] == other {
			delete(l.users, key)
		}
		if a, known := l.cache[other]; known { // which has another place by now, or none
			a.until = time.Time{}
			l.cache[other] = a
		}
		l.mu.Unlock()
	}
}

const (
	maxCached  = 100_000     // bounds the cache: somebody may ask for ever new ids
	refusedFor = time.Second // is how long it is believed, at most, that a tenant is unknown, or its row of no use: somebody may be about to mend that
)

func (l *lookupTable) remember(id tenancy.ID, t tenancy.Tenant, err error) {
	a := answer{tenant: t, err: err, until: time.Now().Add(l.cfg.Cache)}
	if err != nil {
		a.until = time.Now().Add(min(l.cfg.Cache, refusedFor))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.cache) >= maxCached || len(l.users) >= maxCached {
		clear(l.cache)
		clear(l.users)
		if err == nil {
			l.users[schemaIn{t.Pool, t.Schema}] = id
		}
	}
	l.cache[id] = a
}

// expire has a tenant looked up again, and says in which pool the table placed it; "": that is
// not known. The answer is kept for when the table cannot be asked.
func (l *lookupTable) expire(id tenancy.ID) (pool string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, known := l.cache[id]
	if known {
		a.until = time.Time{}
		l.cache[id] = a
	}
	return a.tenant.Pool
}

// placedIn lists tenants that the table placed in a pool, at most so many.
func (l *lookupTable) placedIn(pool string, most int) (there []tenancy.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, a := range l.cache {
		if a.err == nil && a.tenant.Pool == pool && len(there) < most {
			there = append(there, id)
		}
	}
	return there
}

// inherit takes over where tenants lived by a table that was asked and placed them alike, for when this one cannot be
// asked; else each is looked up anew.
func (l *lookupTable) inherit(before *lookupTable) {
	if l == nil || before == nil || l.cfg.Pool != before.cfg.Pool || l.cfg.Query != before.cfg.Query ||
		l.tenants.Schema != before.tenants.Schema || l.tenants.Role != before.tenants.Role {
		return
	}
	before.mu.Lock()
	defer before.mu.Unlock()
	for id, a := range before.cache {
		if _, taken := l.owners[schemaIn{a.tenant.Pool, a.tenant.Schema}]; a.err == nil && !taken {
			l.cache[id] = answer{tenant: a.tenant}
		}
	}
}

// RouteError says that where the lookup table, or the configuration, places a tenant cannot be used.
type RouteError struct{ err error }

// Error says what is wrong with the place.
func (e *RouteError) Error() string { return e.err.Error() }

// Unwrap returns it.
func (e *RouteError) Unwrap() error { return e.err }

// rowError names the table.
func rowError(format string, args ...any) *RouteError {
	return &RouteError{fmt.Errorf("tenants.table: "+format, args...)}
}

// ask is one query.
func (l *lookupTable) ask(ctx context.Context, id tenancy.ID) (tenancy.Tenant, error) {
	if err := l.pool.Outage(); err != nil {
		return tenancy.Tenant{}, err
	}
	var t tenancy.Tenant
	err := l.pool.Tenants().do(ctx, func(c *pgx.Conn) (err error) {
		rows, _ := c.Query(ctx, l.cfg.Query, string(id)) // its error is the rows', too
		t, err = l.tenants.readPlace(id, rows, l.owners)
		return l.cfg.explain(err, c)
	})
	return t, err
}

// readPlace reads what the table's query has returned for a tenant.
func (t TenantsConfig) readPlace(id tenancy.ID, rows pgx.Rows, owners map[schemaIn]tenancy.ID) (tenancy.Tenant, error) {
	values, err := pgx.CollectExactlyOneRow(rows, scanPlace)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return tenancy.Tenant{}, fmt.Errorf("%w %q: neither tenants.static nor tenants.table knows it", tenancy.ErrUnknownTenant, id)
	case errors.Is(err, pgx.ErrTooManyRows):
		return tenancy.Tenant{}, rowError("more than one row for tenant %q: make its id unique there, or let the query choose one", id)
	case err != nil:
		return tenancy.Tenant{}, err
	}
	placed, err := t.place(id, values[0], values[1], values[2])
	if err != nil {
		return tenancy.Tenant{}, rowError("%w", err)
	}
	if owner, ok := owners[schemaIn{placed.Pool, placed.Schema}]; ok {
		return tenancy.Tenant{}, sharedSchema(owner, placed)
	}
	return placed, nil
}

func sharedSchema(owner tenancy.ID, t tenancy.Tenant) *RouteError {
	return rowError("tenants %q and %q share schema %q in pool %q: give each its own schema", owner, t.ID, t.Schema, t.Pool)
}

// scanPlace reads a row of the lookup table: pool, schema, role, as far as there are such columns.
func scanPlace(row pgx.CollectableRow) (place [3]string, err error) {
	var v [3]*string
	n := min(len(row.FieldDescriptions()), 3)
	dest := []any{&v[0], &v[1], &v[2]}[:n]
	if err := row.Scan(dest...); err != nil {
		return place, rowError("its columns must be text: pool, schema, role: %w", err)
	}
	for i, s := range v {
		if s != nil {
			place[i] = strings.TrimSpace(*s)
		}
	}
	return place, nil
}
