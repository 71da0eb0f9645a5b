package lease

import (
	"context"
	"sync"
)

// pendingClaims knows whether claims are being made: committed, perhaps, but not known here yet.
// The zero value is ready. Safe for concurrent use.
type pendingClaims struct {
	mu    sync.Mutex
	count int           // guarded by mu
	none  chan struct{} // guarded by mu; closed once none is pending; nil: none is
}

// beginClaim is called before a claim is made, and what it returns when the claim is known.
func (p *pendingClaims) beginClaim() (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count++; p.count == 1 {
		p.none = make(chan struct{})
	}
	return p.endClaim
}

func (p *pendingClaims) endClaim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count--; p.count == 0 {
		close(p.none)
		p.none = nil
	}
}

// whenNone calls read while no claim is pending; none begins before it returns. The
// error is the cause of ctx.
func (p *pendingClaims) whenNone(ctx context.Context, read func()) error {
	for {
		clear := p.ifNone(read)
		if clear == nil {
			return nil
		}
		select {
		case <-clear:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ifNone calls read if no claim is pending; else it returns what is closed when none is.
func (p *pendingClaims) ifNone(read func()) (clear <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == 0 {
		read()
	}
	return p.none
}
