package routing

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/timeline"
)

// ErrPoolDown is returned while a pool's database does not answer, or has not been reached yet; the error
// around it says why. While somebody has to mend something, the error has a *store.PoolError instead.
var ErrPoolDown = errors.New("pool is down")

// errUnfit is ErrPoolDown where trying again is of no use.
var errUnfit = errors.New("pool is down")

// OutOfService tells whether err says that a pool's database cannot be used, be it that it is down or that
// somebody has to mend something.
func OutOfService(err error) bool { return errors.Is(err, ErrPoolDown) || errors.Is(err, errUnfit) }

// outage is why a pool is out of service.
func outage(why error) error {
	if isPermanent(why) {
		return fmt.Errorf("%w: %w", errUnfit, why)
	}
	return fmt.Errorf("%w: %w", ErrPoolDown, why)
}

// service is a pool's way into service and out of it, and what its database says of itself.
// Safe for concurrent use.
type service struct {
	Breaker                  // open until the pool is in service
	ready      chan struct{} // closed once the pool is in service
	tried      chan struct{} // closed when its database has been tried for the first time
	firstTried sync.Once     // for tried
	gone       chan struct{} // closed by retire: the pool was taken out of the configuration
	leave      sync.Once     // for gone

	mu       sync.Mutex
	found    found          // guarded by mu; what the database said when it was verified; zero until then
	verified timeline.Stamp // guarded by mu; where the pool led then
	applied  bool           // guarded by mu; see Pool.enterTimelines
}

// found is what a pool's database says of itself.
type found struct {
	number    int
	systemID  string // of the server that it is on
	maxConns  int    // of that server
	installed int64  // when its ledger was made, in µs
}

// firstTryLimit bounds the wait for a pool's first connection on behalf of a caller whose
// context has no end: a node that takes longer to start has failed.
const firstTryLimit = 6 * connectTimeout

// Available waits until the pool's database has been tried once, so that a caller who
// enqueues while its process starts need not know when that is done, and returns [Pool.Outage].
// It waits for 30 s at most, within ctx, and not at all later on.
func (s *service) Available(ctx context.Context) error {
	select {
	case <-s.tried:
		return s.Outage()
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, firstTryLimit)
	defer cancel()
	select {
	case <-s.tried:
	case <-s.gone:
	case <-ctx.Done():
	}
	return s.Outage()
}

// Number is the pool's number in its ledger, or an error of which OutOfService is true while
// the database has never been reached or cannot be used. See also [Pool.Outage].
func (s *service) Number() (int, error) {
	if err := s.refusal(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found.number, nil
}

// Ready is closed once the pool has been verified for the first time.
func (s *service) Ready() <-chan struct{} { return s.ready }

func (s *service) isGone() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

func (s *service) retire() { s.leave.Do(func() { close(s.gone) }) }

// enter puts the pool into service, or keeps it out for the reason err.
func (s *service) enter(f found, err error) {
	defer s.firstTried.Do(func() { close(s.tried) })
	if err == nil {
		s.mu.Lock()
		s.found = f
		s.mu.Unlock()
		defer close(s.ready) // nobody looks at a pool again that is in service
	}
	s.noteVerified(err)
}

// isPermanent tells whether waiting cannot mend err: somebody has to do something.
func isPermanent(err error) bool {
	var pe *store.PoolError
	return errors.As(err, &pe)
}

// serverInUse is the server that the pool is in service on, by its system identifier, and
// how many connections that allows; "": the pool is not in service.
func (s *service) serverInUse() (systemID string, maxConns int) {
	if s.refusal() != nil {
		return "", 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found.systemID, s.found.maxConns
}

// knownLedger is the system identifier of the server that the pool's DSN must lead to, and when
// the ledger there was made; "" and 0: they are not known yet.
func (s *service) knownLedger() (server string, installed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found.systemID, s.found.installed
}

// inheritLedger makes a pool that replaces the one of its name refuse other servers and ledgers,
// as if its DSN had led there all along.
func (s *service) inheritLedger(before *service) {
	server, installed := before.knownLedger()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found.systemID, s.found.installed = server, installed
}
