package routing

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenurehq/tenure/tenancy"
)

// shares says which tenants may have a connection of a pool for one transaction more. A tenant that has
// its share waits, and others find connections meanwhile, also when none of its own comes free: a handler
// that begins a second transaction, with a context that does not tell of its first, waits for one while it
// keeps the other. Those who wait take turns by tenant.
type shares struct {
	pool     string
	share    tenancy.Share
	patience time.Duration // with a tenant that has connections and gives none back
	waits    waits

	mu      sync.Mutex
	used    int                       // guarded by mu
	tenants map[tenancy.ID]*connShare // guarded by mu; those that have a connection, or wait
	line    []*connShare              // guarded by mu; those that wait; the next to be served first
}

// connShare is what one tenant has of a pool's connections. It is guarded by the shares' mu.
type connShare struct {
	used    int
	waiting []chan struct{} // in order; each is closed when it is its turn
	freed   time.Time       // when one was last given back
}

// sharePatience is how long a tenant's connections may all stay in use before one who waits for another
// is told so.
const sharePatience = connectTimeout

func newShares(pool string, s tenancy.Share) *shares {
	return &shares{pool: pool, share: s, patience: sharePatience, tenants: map[tenancy.ID]*connShare{}}
}

// enter waits until the tenant may have one more connection, which leave gives back. Errors:
// ctx's cause, and one that wraps tenancy.ErrShareInUse.
func (s *shares) enter(ctx context.Context, tenant tenancy.ID) (leave func(), err error) {
	t, turn := s.ask(tenant)
	leave = sync.OnceFunc(func() { s.giveBack(tenant, t) })
	if turn == nil {
		return leave, nil
	}
	since := time.Now()
	defer s.waits.note(since)
	stalled := time.NewTimer(s.patience)
	defer stalled.Stop()
	for {
		select {
		case <-turn:
			return leave, nil
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-stalled.C:
			var left time.Duration
			if left, err = s.judge(tenant, t, since); err == nil {
				stalled.Reset(left)
				continue
			}
		}
		if s.withdraw(tenant, t, turn) {
			return nil, err
		}
		return leave, nil // it was its turn just then
	}
}

// ask takes a connection for a tenant, or has it wait for its turn.
func (s *shares) ask(tenant tenancy.ID) (t *connShare, turn chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t = s.tenants[tenant]
	if t == nil {
		t = &connShare{}
		s.tenants[tenant] = t
	}
	if len(t.waiting) == 0 && s.admits(t) {
		s.take(t)
		return t, nil
	}
	turn = make(chan struct{})
	if t.waiting = append(t.waiting, turn); len(t.waiting) == 1 {
		s.line = append(s.line, t)
	}
	return t, turn
}

// admits tells whether a tenant may have one more now; mu is held.
func (s *shares) admits(t *connShare) bool {
	return s.used < s.share.Of && s.share.AdmitsOneMore(t.used, 1, s.share.Of-s.used)
}

func (s *shares) take(t *connShare) {
	t.used++
	s.used++
}

// giveBack gives back what a tenant had, and serves those who may have it.
func (s *shares) giveBack(tenant tenancy.ID, t *connShare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.used--
	s.used--
	t.freed = time.Now()
	for s.serveNext() {
	}
	s.tidy(tenant, t)
}

// serveNext serves the first in line that may have one more; mu is held.
func (s *shares) serveNext() bool {
	at := slices.IndexFunc(s.line, s.admits)
	if at < 0 {
		return false
	}
	t := s.line[at]
	s.line = slices.Delete(s.line, at, at+1)
	close(t.waiting[0])
	s.take(t)
	if t.waiting = t.waiting[1:]; len(t.waiting) > 0 {
		s.line = append(s.line, t) // behind the others
	}
	return true
}

// judge is the error for one who has waited since then, if its tenant has given nothing back for as
// long as may be; else how much longer that may take.
func (s *shares) judge(tenant tenancy.ID, t *connShare, since time.Time) (left time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.freed.After(since) {
		since = t.freed
	}
	if left = s.patience - time.Since(since); left > 0 {
		return left, nil
	}
	if t.used == 0 { // others have all of them, and have to end
		return s.patience, nil
	}
	return 0, fmt.Errorf("%w: %d of %d of pool %s, for %v, in transactions of tenant %q that go on. "+
		"In a handler of HandleTx, or in InTx, use the transaction that is there: it is not found by another context. Else make transactions shorter, or raise max_conns",
		tenancy.ErrShareInUse, t.used, s.share.Of, s.pool, s.patience, tenant)
}

// withdraw has one wait no longer; false: its turn has come.
func (s *shares) withdraw(tenant tenancy.ID, t *connShare, turn chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(t.waiting, turn)
	if at < 0 {
		return false
	}
	if t.waiting = slices.Delete(t.waiting, at, at+1); len(t.waiting) == 0 {
		s.line = slices.DeleteFunc(s.line, func(o *connShare) bool { return o == t })
	}
	s.tidy(tenant, t)
	return true
}

// tidy forgets a tenant that has nothing; mu is held.
func (s *shares) tidy(tenant tenancy.ID, t *connShare) {
	if t.used == 0 && len(t.waiting) == 0 {
		delete(s.tenants, tenant)
	}
}
