package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// supervisor starts every node again that ends.
type supervisor struct {
	ctx    context.Context
	cancel context.CancelFunc
	group  sync.WaitGroup
	Deaths atomic.Int64
	errs   []error // by node: why it could not be started again
}

func (f *Fleet) Supervise(ctx context.Context) *supervisor {
	s := &supervisor{errs: make([]error, len(f.Nodes))}
	s.ctx, s.cancel = context.WithCancel(ctx)
	for i, n := range f.Nodes {
		s.group.Go(func() { s.errs[i] = s.run(n) })
	}
	return s
}

func (s *supervisor) run(n *Node) error {
	for {
		p := n.Running()
		select {
		case <-s.ctx.Done():
			return nil
		case <-p.exited:
		}
		s.Deaths.Add(1)
		fmt.Fprintf(os.Stderr, "%s has ended: %v\n", p.Member, p.err)
		if err := n.Start(s.ctx); err != nil && s.ctx.Err() == nil && n.Running() == p { // else it has died on the way
			return err
		}
	}
}

// Stop leaves the nodes as they are. An error says why some were not started again.
func (s *supervisor) Stop() error {
	s.cancel()
	s.group.Wait()
	return errors.Join(s.errs...)
}
