package acquisition

import (
	"context"
	"sync"
)

// gate knows whether claims are being made: committed, perhaps, but not known here yet.
// The zero value is ready. Safe for concurrent use.
type gate struct {
	mu     sync.Mutex
	inside int           // guarded by mu
	clear  chan struct{} // guarded by mu; closed once nobody is inside; nil: nobody is
}

// enter is called before a claim is made, and what it returns when the claim is known.
func (g *gate) enter() (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside++; g.inside == 1 {
		g.clear = make(chan struct{})
	}
	return g.leave
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 {
		close(g.clear)
		g.clear = nil
	}
}

// whenClear calls look while nobody is inside; nobody gets in before it returns. The
// error is the cause of ctx.
func (g *gate) whenClear(ctx context.Context, look func()) error {
	for {
		clear := g.ifClear(look)
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

// ifClear calls look if nobody is inside; else it returns what is closed when all have left.
func (g *gate) ifClear(look func()) (clear <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside == 0 {
		look()
	}
	return g.clear
}
