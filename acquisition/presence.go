package acquisition

import (
	"context"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
)

// A node ends its session in a pool that has nothing for it, and may have none left while
// it lives. So that the ledgers tell it from one that has stopped, it says so in one of
// them now and then, on a connection that is closed again.
const (
	presenceEvery  = 30 * time.Second
	presenceWithin = 2 * time.Second // of a stop
)

// Start has this process say that it lives while it has no session. It is not needed for
// anything else. Stop ends it.
func (s *Sessions) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.absent = cancel
	s.group.Go(func() { s.attend(ctx) })
	return nil
}

func (s *Sessions) attend(ctx context.Context) {
	every := time.NewTicker(presenceEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			s.present(ctx, true)
		}
	}
}

// present says that this process lives without a session, or that it ends.
func (s *Sessions) present(ctx context.Context, lives bool) {
	k, id := s.idlest()
	if k == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := k.pool.ConnectLock(ctx) // not by call: this pool is none of this node's concern now
	if err == nil {
		err = store.IdleSession(ctx, conn, id, lives)
		closing, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		_ = conn.Close(closing)
	}
	if err != nil {
		k.log.Debug("could not say that this node lives; tenure nodes may show it as left", zap.Error(err))
	}
}

// idlest is the keeper whose session was ended last, if this process has none.
func (s *Sessions) idlest() (last *keeper, id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var at time.Time
	for k := range s.keepers {
		k.mu.Lock()
		open, ended := k.current != nil, k.idled
		k.mu.Unlock()
		if open {
			return nil, uuid.Nil
		}
		if ended.at.After(at) {
			last, id, at = k, ended.session, ended.at
		}
	}
	return last, id
}

// idled is a session that was ended because nobody needed it.
type idled struct {
	session uuid.UUID
	at      time.Time
}
