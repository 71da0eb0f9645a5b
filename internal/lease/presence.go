package lease

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
)

// A node ends its session in a pool that has nothing for it, and may have none left while
// it lives. So that the ledgers tell it from one that has stopped, it says so in one of
// them now and then, on a connection that is closed again.
const presenceEvery = 30 * time.Second

// Start has this process say that it lives while it has no session. It is not needed for
// anything else. Stop ends it.
func (s *Keepers) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopPresence = cancel
	s.group.Go(func() { s.sayPresent(ctx) })
	return nil
}

func (s *Keepers) sayPresent(ctx context.Context) {
	every := time.NewTicker(presenceEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			s.tellPresence(ctx, true)
		}
	}
}

// tellPresence says that this process lives without a session, or that it ends.
func (s *Keepers) tellPresence(ctx context.Context, lives bool) {
	k, id := s.findIdlest()
	if k == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	// Not by Call: this pool is none of this node's concern now.
	err := k.pool.LookIn(ctx, func(conn *pgx.Conn) error { return store.IdleSession(ctx, conn, id, lives) })
	if err != nil {
		k.log.Debug("could not say that this node lives; tenure nodes may show it as left", zap.Error(err))
	}
}

// idleEnd is a session that was ended because nobody needed it.
type idleEnd struct {
	session uuid.UUID
	at      time.Time
}

// findIdlest is the keeper whose session was ended last, if this process has none.
func (s *Keepers) findIdlest() (last *Keeper, id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var at time.Time
	for k := range s.keepers {
		if k.Current() != nil {
			return nil, uuid.Nil
		}
		if ended := k.idled.Load(); ended != nil && ended.at.After(at) {
			last, id, at = k, ended.session, ended.at
		}
	}
	return last, id
}
