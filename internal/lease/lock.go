package lease

import (
	"context"
	"errors"

	"github.com/tenurehq/tenure/internal/store"
)

// Lock is a lock as the keeper renews it.
type Lock struct {
	fence store.Fence
	trust trust
	lost  context.CancelCauseFunc // ends the term
}

// Fence is what statements under the lock are fenced with.
func (l *Lock) Fence() store.Fence { return l.fence }

// Trusted tells whether the lock may be believed to be this node's.
func (l *Lock) Trusted() bool { return l.trust.holds() }

// Causes that end a term.
var (
	ErrLockLost  = errors.New("the acquire lock was lost")
	ErrTrustOver = errors.New("the acquire lock could not be renewed in time")
)
