package lease

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/tenurehq/tenure/internal/store"
)

// Lock is a lock as the keeper renews it.
type Lock struct {
	fence store.Fence
	trust trust
	lost  context.CancelCauseFunc // ends the term
	looks atomic.Int32            // the next renewal since its term dozes, from 1; 0: it does not doze
}

// Fence is what statements under the lock are fenced with.
func (l *Lock) Fence() store.Fence { return l.fence }

// Trusted tells whether the lock may be believed to be this node's.
func (l *Lock) Trusted() bool { return l.trust.holds() }

// doze says whether the term dozes from now on.
func (l *Lock) doze(on bool) {
	first := int32(0)
	if on {
		first = 1
	}
	l.looks.Store(first)
}

// countLook is which renewal this is since the term dozes; 0: it does not.
func (l *Lock) countLook() int {
	n := l.looks.Load()
	if n > 0 {
		l.looks.CompareAndSwap(n, n+1) // unless the term has woken, or begun to doze anew
	}
	return int(n)
}

// Causes that end a term.
var (
	ErrLockLost  = errors.New("the acquire lock was lost")
	ErrTrustOver = errors.New("the acquire lock could not be renewed in time")
)
