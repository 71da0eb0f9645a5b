package routing

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
)

// roles are why roles cannot be tenants' in a pool, asked when each is used first: nobody shall be
// advised to let nodes take a superuser's role. Safe for concurrent use.
type roles struct {
	mu      sync.Mutex
	known   map[string]verdict // guarded by mu
	retryAt time.Time          // guarded by mu; after the database could not be asked
}

type verdict struct {
	why   string    // "": the role may be a tenant's, or nodes can take it already
	until time.Time // until when that is believed, if there is a why
}

// refusal is why a role cannot be a tenant's; "": it can, or the database cannot be asked, where acting on it fails. users are
// those whom the pool's connections are made as, the last one for tenants' transactions.
func (r *roles) refusal(ctx context.Context, p *Pool, users []string, role string) string {
	now := time.Now()
	r.mu.Lock()
	v, known := r.known[role]
	rests := now.Before(r.retryAt)
	r.mu.Unlock()
	if known && (v.why == "" || now.Before(v.until)) || rests || len(users) == 0 || p.Outage() != nil {
		return v.why
	}
	query, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	why, err := store.RefusedRoles(query, p.Jobs(), users[len(users)-1], []string{role})
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil { // it is not the caller who gave up
			p.log.Debug("a tenant's role could not be looked at", zap.String("role", role), zap.Error(err))
			r.retryAt = now.Add(lookUpTimeout + lookUpRest)
		}
		return v.why
	}
	if r.known == nil || len(r.known) >= maxCached {
		r.known = map[string]verdict{}
	}
	r.known[role] = verdict{why[role], now.Add(refusedFor)}
	return why[role]
}
