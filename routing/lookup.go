package routing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/tenancy"
)

// answer is what the lookup table said, and until when that is believed.
type answer struct {
	tenant tenancy.Tenant
	err    error // tenancy.ErrUnknownTenant, or a row that cannot be used
	until  time.Time
}

// A look at the table is bounded, as everybody's pools hang on it. After one that got no
// answer the next is made for nobody in particular, so that nobody waits for it.
const (
	lookUpTimeout = 2 * time.Second
	lookUpRest    = time.Second
	lookUpSlow    = 250 * time.Millisecond // whoever gives up after that has shown as much
)

// lookUp asks the table, unless a fresh answer is at hand. While it cannot be asked, a tenant
// lives where it lived last: its jobs and its pool are none the worse for it.
func (r *routes) lookUp(ctx context.Context, id tenancy.ID) (t tenancy.Tenant, err error) {
	r.mu.Lock()
	a, known := r.cache[id]
	r.mu.Unlock()
	if known && time.Now().Before(a.until) {
		return a.tenant, a.err
	}
	if lost, due := r.lostTable(); lost == nil {
		t, err = r.look(ctx, id)
	} else {
		err = lost
		if due {
			go r.look(context.WithoutCancel(ctx), id) // its pool cannot be closed before it has ended
		}
	}
	switch {
	case answered(err):
		return t, err
	case known && a.err == nil && ctx.Err() == nil:
		return a.tenant, nil
	}
	return t, fmt.Errorf("look tenant %q up in pool %s: %w", id, r.cfg.Tenants.Table.Pool, err)
}

// answered tells whether the table has said something, be it of no use.
func answered(err error) bool {
	var unusable *RowError
	return err == nil || errors.Is(err, tenancy.ErrUnknownTenant) || errors.As(err, &unusable)
}

// lostTable is why the table could not be asked at the last try, nil: it could; due: it is
// up to the caller to have it tried again.
func (r *routes) lostTable() (why error, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.lost == nil || now.Before(r.again) {
		return r.lost, false
	}
	r.again = now.Add(lookUpTimeout + lookUpRest)
	return r.lost, true
}

// look asks the table, remembers what it says, and whether it says anything.
func (r *routes) look(ctx context.Context, id tenancy.ID) (tenancy.Tenant, error) {
	_ = r.pools[r.cfg.Tenants.Table.Pool].Available(ctx) // ask says what is wrong with it
	bounded, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	began := time.Now()
	t, err := r.ask(bounded, id)
	if err == nil {
		err = r.checkAlone(id, t)
	}
	if answered(err) {
		r.remember(id, answer{tenant: t, err: err, until: time.Now().Add(r.cfg.Tenants.Table.Cache)})
	}
	var pg *pgconn.PgError
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ctx.Err() != nil && time.Since(began) < lookUpSlow: // the caller's doing
	case answered(err), errors.As(err, &pg), errors.Is(err, ErrPoolDown): // nobody had to wait for it
		r.lost = nil
	default:
		r.lost, r.again = err, time.Now().Add(lookUpRest)
	}
	return t, err
}

// checkAlone refuses a tenant whose schema another one has, as far as answers are still
// remembered.
func (r *routes) checkAlone(id tenancy.ID, t tenancy.Tenant) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := [2]string{t.Pool, t.Schema}
	other, known := r.lent[key]
	a := r.cache[other]
	if known && other != id && a.err == nil && time.Now().Before(a.until) && a.tenant.Pool == t.Pool && a.tenant.Schema == t.Schema {
		return &RowError{fmt.Errorf("tenants %q and %q share schema %q in pool %q: give each its own schema", other, id, t.Schema, t.Pool)}
	}
	r.lent[key] = id
	return nil
}

// maxCached bounds the cache: somebody may ask for ever new ids.
const maxCached = 100_000

func (r *routes) remember(id tenancy.ID, a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.cache) >= maxCached {
		clear(r.cache)
		clear(r.lent)
	}
	r.cache[id] = a
}

// RowError says that the lookup table's row for a tenant cannot be used.
type RowError struct{ err error }

// Error names the table.
func (e *RowError) Error() string { return "tenants.table: " + e.err.Error() }

// Unwrap returns what is wrong with the row.
func (e *RowError) Unwrap() error { return e.err }

// ask is one query.
func (r *routes) ask(ctx context.Context, id tenancy.ID) (tenancy.Tenant, error) {
	table := r.cfg.Tenants.Table
	if err := r.pools[table.Pool].Outage(); err != nil {
		return tenancy.Tenant{}, err
	}
	rows, err := r.pools[table.Pool].Tenants().Query(ctx, table.Query, string(id))
	if err != nil {
		return tenancy.Tenant{}, err
	}
	values, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) ([3]string, error) {
		var v [3]*string
		n := min(len(row.FieldDescriptions()), 3)
		dest := []any{&v[0], &v[1], &v[2]}[:n]
		if err := row.Scan(dest...); err != nil {
			return [3]string{}, &RowError{fmt.Errorf("its columns must be text: pool, schema, role: %w", err)}
		}
		var out [3]string
		for i, s := range v {
			if s != nil {
				out[i] = strings.TrimSpace(*s)
			}
		}
		return out, nil
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return tenancy.Tenant{}, fmt.Errorf("%w %q: neither tenants.static nor tenants.table knows it", tenancy.ErrUnknownTenant, id)
	case errors.Is(err, pgx.ErrTooManyRows):
		return tenancy.Tenant{}, &RowError{fmt.Errorf("more than one row for tenant %q: make its id unique there, or let the query choose one", id)}
	case err != nil:
		return tenancy.Tenant{}, err
	}
	t, err := r.cfg.Tenants.place(id, values[0], values[1], values[2])
	if err != nil {
		return tenancy.Tenant{}, &RowError{err}
	}
	if owner, ok := r.taken[[2]string{t.Pool, t.Schema}]; ok {
		return tenancy.Tenant{}, &RowError{fmt.Errorf("tenants %q and %q share schema %q in pool %q: give each its own schema", owner, id, t.Schema, t.Pool)}
	}
	return t, nil
}
