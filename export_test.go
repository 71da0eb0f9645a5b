package tenure

import "github.com/tenurehq/tenure/acquisition"

// WithElector puts something around what a node's acquirers see of the cluster.
func WithElector(around func(acquisition.Elector) acquisition.Elector) NodeOption {
	return func(s *nodeSettings) { s.elector = around }
}
