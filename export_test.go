package tenure

import (
	"context"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/acquisition"
)

// WithElector puts something around what a node's acquirers see of the cluster.
func WithElector(around func(acquisition.Elector) acquisition.Elector) NodeOption {
	return func(s *nodeSettings) { s.elector = around }
}

// WaitAsRun waits as Run does between the node's start and stop.
func (n *Node) WaitAsRun(ctx context.Context, failed <-chan error) error {
	return (&configFile{path: n.cfg.File, node: n, log: zap.NewNop(), known: n.cfg}).watch(ctx, failed)
}
