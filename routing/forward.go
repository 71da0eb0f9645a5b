package routing

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// forwards are what a pool's ledger says about tenants that are being moved: few, so
// that all are read at once and finding a tenant costs no query of its own.
type forwards struct {
	pool *Pool

	mu    sync.Mutex
	known map[tenancy.ID]store.TenantRow // guarded by mu; replaced, never changed
	until time.Time                      // guarded by mu; until when that is believed
}

// heldCache is how long it is believed that a tenant is held: somebody waits for its end.
const heldCache = lookUpTimeout / 10

// read is what the pool's ledger says about tenants, believed for a while. While the database
// cannot be asked, what was known last holds: acting on it is refused there.
func (f *forwards) read(ctx context.Context, believe time.Duration) map[tenancy.ID]store.TenantRow {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.pool.Outage() == nil && !now.Before(f.until) {
		queryCtx, cancel := context.WithTimeout(ctx, lookUpTimeout)
		rows, err := store.TenantsOnTheirWay(queryCtx, f.pool.Jobs())
		cancel()
		switch {
		case err == nil:
			f.known = make(map[tenancy.ID]store.TenantRow, len(rows))
			for _, r := range rows {
				f.known[tenancy.ID(r.Tenant)] = r
				if r.Held {
					believe = min(believe, heldCache)
				}
			}
			f.until = now.Add(believe)
		case ctx.Err() == nil: // it is not the caller who gave up
			f.pool.log.Debug("moved tenants could not be read", zap.Error(err))
			f.until = now.Add(lookUpRest)
		}
	}
	return f.known
}

// expire makes the next read ask the database, and says what is known of one tenant.
func (f *forwards) expire(id tenancy.ID) store.TenantRow {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = time.Time{}
	return f.known[id]
}

// inherit takes over what the pool knew of tenants under its former settings, for when it cannot be asked.
func (f *forwards) inherit(before *forwards) {
	before.mu.Lock()
	defer before.mu.Unlock()
	f.known = before.known
}
